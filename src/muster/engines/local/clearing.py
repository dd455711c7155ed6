"""A node that is made, not kept, has nothing of one that was before it, and its place alone."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from muster.node.emptying import remove
from muster.node.files import open_own

#: Whose a scratch folder is -> where it is in the node's own, and its mode: what is emptied for
#: each life is used as /tmp is, by whoever a program becomes.
SCRATCH = {"node": ("scratch", 0o700), "life": ("life", 0o1777)}


def take_place(folder: Path) -> None:
    """Wait until no other agent has the node's folder; it is ours for as long as we live.

    Without namespaces, whoever takes a run over may be faster than the agents of the supervisor
    that was killed, who are still ending their programs.
    """
    fcntl.flock(open_own(folder / "place", os.O_RDWR, 0o600), fcntl.LOCK_EX)


def clear(folder: Path, work: Path) -> None:
    """Remove what programs have left in the working directory, TMPDIR and the node's own scratch
    folders (which stay, empty). folder: the node's own."""
    for old in (work, folder / "tmp"):
        if old.exists():
            remove(str(old))
    for name, mode in SCRATCH.values():
        kept = list((folder / name).iterdir()) if (folder / name).is_dir() else []
        for old in kept:
            remove(str(old))
            make_scratch(old, mode)


def have_empty(folder: Path) -> None:
    """Have a folder that is ours alone, with nothing of a node that was here before us."""
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    if folder.parent.lstat().st_uid not in (0, os.geteuid()):
        # where everybody may write, somebody may have been here first, and would own what we do
        raise PermissionError(errno.EPERM, "it belongs to somebody else", str(folder.parent))
    if folder.exists():
        remove(str(folder))
    folder.mkdir(mode=0o700)


def make_scratch(folder: Path, mode: int) -> None:
    """Have the folder of a mount, in one that is its owner's alone."""
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):  # from before, or by another node just now
        folder.mkdir(mode=0o700)
        folder.chmod(mode)
