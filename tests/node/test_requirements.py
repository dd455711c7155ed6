"""Packages that frameworks need on nodes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from muster.node import requirements
from muster.node.requirements import REQUIREMENTS, find_missing

WORDS = [sys.executable, "-m", "muster.node.requirements"]


@pytest.mark.parametrize("framework", sorted(REQUIREMENTS))
def test_one_message_for_all_missing_packages(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda _: None)
    monkeypatch.setattr("muster.node.spark.find_spec", lambda _: None)
    monkeypatch.setattr("muster.node.spark.java", lambda: "/bin/java")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    name = "MPICH or Open MPI" if framework == "mpi" else REQUIREMENTS[framework].name
    assert find_missing(framework).startswith(f"no {name} for {sys.executable}")
    assert find_missing(framework).endswith(f": {REQUIREMENTS[framework].install}")


def test_a_framework_without_requirements() -> None:
    assert find_missing("generic") == ""


def test_the_process_becomes_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("dask", "distributed"):
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").touch()
    (tmp_path / "dask" / "__main__.py").write_text("import sys; print(__name__, sys.argv[1:])")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = subprocess.run(
        [*WORDS, "dask", "dask", "scheduler", "--host", "x"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "__main__ ['scheduler', '--host', 'x']\n"
