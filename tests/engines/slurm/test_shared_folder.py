"""The node program in the folder that nodes share: nobody else may be able to change it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from muster.engines.node_program import program_key
from muster.engines.slurm.client import CannotRun
from muster.engines.slurm.shared_folder import provide_program

#: A user who is not this one.
OTHER = 12345


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A shared folder whose node program is there already."""
    (tmp_path / f"program-{program_key()}").mkdir(mode=0o700)
    return tmp_path


def test_it_is_unpacked_for_this_user_alone(tmp_path: Path) -> None:
    program = provide_program(tmp_path / "shared")
    assert (program / "__main__.py").exists()
    assert stat.S_IMODE(program.stat().st_mode) == stat.S_IMODE(program.parent.stat().st_mode)
    assert stat.S_IMODE(program.stat().st_mode) == 0o700
    assert provide_program(tmp_path / "shared") == program


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
@pytest.mark.parametrize("part", ["", f"program-{program_key()}"])
def test_a_folder_that_others_can_write_is_refused(folder: Path, part: str, mode: int) -> None:
    assert provide_program(folder)
    (folder / part).chmod(mode)
    with pytest.raises(CannotRun, match=f"can be written by others .mode {mode:04o}.*: .*remove"):
        provide_program(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
@pytest.mark.parametrize("part", ["", f"program-{program_key()}"])
def test_a_folder_of_others_is_refused(folder: Path, part: str) -> None:
    os.chown(folder / part, OTHER, -1)
    with pytest.raises(CannotRun, match=r"belongs to another user .uid 12345.*set `folder`"):
        provide_program(folder)


def test_a_link_to_a_program_is_refused(folder: Path, tmp_path: Path) -> None:
    program = folder / f"program-{program_key()}"
    program.rename(folder / "elsewhere")
    program.symlink_to(folder / "elsewhere")
    with pytest.raises(CannotRun, match="can be written by others"):
        provide_program(folder)
