"""The folder that nodes share: the node program there, and files of runs."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from muster.engines.node_program import program_key
from muster.engines.slurm.client import CannotRun
from muster.engines.slurm.profile import SlurmProfile


def folder_of(profile: SlurmProfile, home: Path) -> Path:
    """The folder that nodes share: with the node program, and a folder for each run. home:
    MUSTER_HOME."""
    return home / "slurm" if profile.folder is None else Path(profile.folder)


def provide_program(folder: Path) -> Path:
    """The node program in a folder that nodes share: unpacked and compiled, as it starts sooner
    then. Takes a second the first time. Raises OSError, and CannotRun if others could change it."""
    path = folder / f"program-{program_key()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_own(
        folder, folder.stat(), "remove this permission (chmod go-w), or set `folder` in the profile"
    )
    if path.is_dir():
        _check_own(path, path.lstat(), "remove it")
        return path
    import compileall  # few runs are the first of their version
    import io
    import tempfile
    import zipfile

    from muster.engines.node_program import node_program

    unpacked = Path(tempfile.mkdtemp(prefix="part-", dir=folder))
    try:
        with zipfile.ZipFile(io.BytesIO(node_program())) as archive:
            archive.extractall(unpacked)
        compileall.compile_dir(unpacked, quiet=2)
        unpacked.rename(path)
    except OSError:
        shutil.rmtree(unpacked, ignore_errors=True)
        if not path.is_dir():  # by another process, meanwhile
            raise
        _check_own(path, path.lstat(), "remove it")
    return path


def _check_own(folder: Path, found: os.stat_result, advice: str) -> None:
    """Check that only this user can change what is in a folder: it runs on the nodes. Raises
    CannotRun."""
    if found.st_uid != os.geteuid():
        text = f"{folder} belongs to another user (uid {found.st_uid}), who could change what runs"
        raise CannotRun(f"{text}: set `folder` in the profile to one of yours", refused=True)
    if found.st_mode & 0o022:
        mode = stat.S_IMODE(found.st_mode)
        text = f"{folder} can be written by others (mode {mode:04o}), who could change what runs"
        raise CannotRun(f"{text}: {advice}", refused=True)


def remove_files(folder: Path) -> None:
    """Remove the folder of a run that nodes share, which has variables of its submitter, and what
    servers have left beside it that were killed."""
    for path in (folder, *folder.parent.glob(f"{folder.name}-*")):
        shutil.rmtree(path, ignore_errors=True)
