"""Frameworks and programs that `muster doctor` lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.frameworks.packages import PACKAGES, Packages
from muster.service import software
from muster.service.software import Software, framework_packages, programs


def test_programs_are_listed_with_their_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "podman": "echo podman version 4.9.3",
        "srun": "echo slurm 23.11.4 >&2",
        "git": "exit 3",
    }
    for name, script in texts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(software.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {one.name: one for one in programs()}
    assert found["podman"] == Software("podman", "containers", "4.9.3", f"{tmp_path}/podman")
    assert found["srun"].version == "23.11.4"
    assert (found["git"].version, found["git"].shown_version) == ("", "unknown")
    assert found["git"].finding().works
    missing = found["sbatch"].finding()
    assert (missing.works, missing.says, missing.advice) == (
        *(False, "is not installed", "apt-get install slurm-client"),
    )


def test_packages_are_listed_with_their_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {"msgspec": ("msgspec",), "no-such": ("no_such",)}
    monkeypatch.setitem(PACKAGES, "jax", Packages(modules, "jax"))  # type: ignore[arg-type]
    here, missing = (one for one in framework_packages() if one.used_for == "jax")
    assert here.version
    assert here.where == ""
    assert (missing.version, missing.where) == (None, "pip install 'muster-jobs[jax]'")


def test_packages_of_oci_are_listed_with_the_way_to_install_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(software, "_package_version", lambda _name, _modules: None)
    found = {one.used_for: one for one in framework_packages()}
    assert found["OCI"].where == "pip install 'muster-jobs[oci]'"
    assert found["oci://"].where == "pip install ocifs"
