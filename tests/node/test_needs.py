"""What a framework's nodes need installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from muster.node import needs
from muster.node.needs import NEEDS, missing

WORDS = [sys.executable, "-m", "muster.node.needs"]


@pytest.mark.parametrize("framework", sorted(NEEDS))
def test_one_sentence_for_all(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "find_spec", lambda _: None)
    monkeypatch.setattr("muster.node.spark.find_spec", lambda _: None)
    monkeypatch.setattr("muster.node.spark.java", lambda: "/bin/java")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    name = "MPICH or Open MPI" if framework == "mpi" else NEEDS[framework].name
    assert missing(framework).startswith(f"no {name} for {sys.executable}")
    assert missing(framework).endswith(f": {NEEDS[framework].install}")


def test_a_framework_that_needs_nothing_of_ours() -> None:
    assert missing("generic") == ""


def test_it_becomes_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
