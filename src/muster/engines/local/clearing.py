"""A node that is made, not kept, has nothing of one that was before it, and its place alone."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path


def take_place(folder: Path) -> None:
    """Wait until no other agent has the node's folder; it is ours for as long as we live.

    Without namespaces, whoever takes a run over may be faster than the agents of the supervisor
    that was killed, who are still ending their programs.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    fcntl.flock(os.open(folder / "place", flags, 0o600), fcntl.LOCK_EX)


def clear(folder: Path, work: Path) -> None:
    """Remove what programs have left in the working directory, TMPDIR and the node's own scratch
    folders (which stay, empty). folder: the node's own."""
    scratch = folder / "scratch"
    kept = list(scratch.iterdir()) if scratch.is_dir() else []
    for old in (work, folder / "tmp", *kept):
        if old.exists():
            shutil.rmtree(old, onerror=_open_up)
    for empty in kept:
        empty.mkdir(mode=0o700)


def _open_up(_call: object, path: str, error: tuple[object, BaseException, object]) -> None:
    """Remove what is in a folder that was made read-only, as some caches are."""
    if isinstance(error[1], FileNotFoundError):
        return  # removed by us, further down
    if not isinstance(error[1], PermissionError):
        raise error[1]
    os.chmod(os.path.dirname(path), 0o700)
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, 0o700)
        shutil.rmtree(path, onerror=_open_up)
    else:
        os.unlink(path)
