"""Mounts of ADS YAML: storage, inputs and outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.ads import (
    distributed,
    job,
    read,
    refusals,
    with_storage,
)


@pytest.mark.shows("jobs/access-object-storage")
@pytest.mark.parametrize("data", [job("script", scriptPathURI="run.sh"), distributed()])
def test_storage_mounts(folder: Path, data: dict[str, Any]) -> None:
    listed = [("10.0.0.1@/export", "/data/a"), ("10.0.0.1:export", "b"), ("oci://b@n/p", "c")]
    spec, _ = read(folder, with_storage(data, *listed))
    assert [(m.source, m.destination) for m in spec.mounts if "scratch" not in m.source] == [
        ("nfs://10.0.0.1/export", "/data/a"),
        ("nfs://10.0.0.1/export", "/mnt/b"),
        ("oci://b@n/p", "/mnt/c"),
    ]
    found = refusals(folder, with_storage(data, ("ocid1.mounttarget.x:ocid1.export.y", "a")))
    assert "Oracle's cloud only" in found["spec.infrastructure.spec.storageMount[0].src"]
    found = refusals(folder, with_storage(data, ("oci://<bucket>@<ns>", "a")))
    assert "not filled in" in found["spec.infrastructure.spec.storageMount[0]"]


def test_inputs_and_outputs_are_relative_to_the_working_directory(folder: Path) -> None:
    data = job(
        "pyTorchDistributed",
        source=".",
        command="torchrun a.py",
        inputs={"https://h/input.txt": "data/input.txt", "oci://b@n/p": "/data"},
        outputDir="data",
        outputUri="oci://b@n/out",
    )
    spec, _ = read(folder, data)
    assert [(m.source, m.destination, m.link, m.read_only) for m in spec.mounts] == [
        ("https://h/input.txt", "/mnt/inputs", "data/input.txt", True),
        ("oci://b@n/p", "/data", None, True),
        ("oci://b@n/out", "/mnt/outputs", "data", False),
    ]
    data["spec"]["runtime"]["spec"]["outputDir"] = "."
    assert "also holds the code" in refusals(folder, data)["spec.runtime.spec.outputDir"]
