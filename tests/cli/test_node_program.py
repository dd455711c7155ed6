"""`muster node-program`."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from muster.engines.node_program import node_program
from support.command import MUSTER, muster
from support.terminals import Terminal


def test_it_prints_the_program() -> None:
    done = subprocess.run([*MUSTER, "node-program"], check=True, capture_output=True)
    assert (done.stdout, done.stderr) == (node_program(), b"")


@pytest.mark.parametrize("before", [False, True])
def test_it_writes_an_executable_file(tmp_path: Path, before: bool) -> None:
    path = tmp_path / "muster-node.pyz"
    if before:
        path.write_text("old")
        path.chmod(0o600)
    done = muster("node-program", "-o", str(path), code=0, umask=0o022)
    assert done.stdout == ""
    assert path.read_bytes() == node_program()
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert os.listdir(tmp_path) == [path.name]


def test_a_running_program_keeps_its_file(tmp_path: Path) -> None:
    """Python reads modules from it when they are imported."""
    path, link = tmp_path / "program", tmp_path / "link"
    path.write_text("old")
    link.symlink_to(path)
    with path.open() as running:
        muster("node-program", "-o", str(link), code=0)
        assert running.read() == "old"
    assert link.is_symlink()
    assert path.read_bytes() == node_program()


def test_a_fifo_stays_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    argv = [*MUSTER, "node-program", "-o", str(path)]
    with subprocess.Popen(argv) as writer, path.open("rb") as reader:
        assert reader.read() == node_program()
    assert writer.returncode == 0
    assert path.is_fifo()


@pytest.mark.parametrize(
    ("name", "why"),
    [("", "Is a directory"), ("missing/file", "No such file or directory")],
)
def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path, name: str, why: str) -> None:
    path = tmp_path / name
    done = muster("node-program", "-o", str(path), code=2)
    assert done.stderr == f"error: --output: {path}: {why}\n"


def test_it_is_not_written_to_a_terminal() -> None:
    with Terminal([*MUSTER, "node-program"], columns=200) as terminal:
        terminal.wait_for("is a terminal (muster node-program -o muster-node.pyz)")
        assert terminal.process.wait() == 2
        assert b"PK" not in terminal.raw
