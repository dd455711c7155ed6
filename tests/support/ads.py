"""ADS YAML for tests, read as Muster reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.client.client import Client
from muster.errors import InvalidInput, Problem
from muster.spec.formats.manifests import read_manifest
from muster.spec.models import JobSpec
from muster.spec.override_flags import changes_from_flags


def read(folder: Path, data: dict[str, Any]) -> tuple[JobSpec, tuple[str, ...]]:
    path = folder / "ads.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    manifest = read_manifest(path)
    return manifest.spec, manifest.notes


#: The port of the scheduler, as an option of Dask.
START_9999 = {"startOptions": ["--port 9999"]}


def distributed(kind: str = "dask", **changes: Any) -> dict[str, Any]:
    cluster = {"worker": {"replicas": 2}, **changes.pop("cluster", {})}
    runtime = {"entryPoint": "train.py", **changes.pop("runtime_spec", {})}
    return {
        "kind": "distributed",
        "apiVersion": "v1.0",
        "spec": {
            "infrastructure": {"kind": "infrastructure", "type": "dataScienceJob", "spec": {}},
            "cluster": {"kind": kind, "spec": cluster},
            "runtime": {"kind": "python", "spec": runtime, **changes.pop("runtime", {})},
        },
    }


def job(type_: str, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "job",
        "spec": {
            "name": "my job",
            "infrastructure": {
                "kind": "infrastructure",
                "type": "dataScienceJob",
                "spec": {"shapeName": "VM.Standard2.1", "compartmentId": "ocid1"},
            },
            "runtime": {"kind": "runtime", "type": type_, "spec": spec},
        },
    }


def refusals(folder: Path, data: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        read(folder, data)
    assert all(problem.source for problem in caught.value.problems), caught.value
    return {problem.path: problem.message for problem in caught.value.problems}


def problems_of(folder: Path, data: dict[str, Any]) -> list[Problem]:
    with pytest.raises(InvalidInput) as caught:
        read(folder, data)
    return list(caught.value.problems)


def prepare_problems(folder: Path, data: dict[str, Any]) -> list[Problem]:
    """Prepare a run of the data and return the problems."""
    path = folder / "ads.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    client = Client(folder / "home")
    with pytest.raises(InvalidInput) as caught:
        client.prepare(path, changes_from_flags())
    return list(caught.value.problems)


def line_of(folder: Path, text: str) -> str:
    lines = (folder / "ads.yaml").read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if text in line]
    return f"ads.yaml:{number}"


def with_storage(data: dict[str, Any], *mounts: tuple[str, str]) -> dict[str, Any]:
    listed = [{"src": source, "dest": place} for source, place in mounts]
    data["spec"]["infrastructure"]["spec"]["storageMount"] = listed
    return data


SYNCED = {"SYNC_ARTIFACTS": 1, "WORKSPACE": "s3://bucket"}
