"""Output files of slots, in which nodes of an array run one after another.

The node that runs now writes to a file of its own, so that it may truncate it (`echo x >
/dev/stderr` does) without harm to what others have written. When it has ended, what it wrote is
collected: moved to the end of the output of the slot. Both together are one file: an offset counts
from the start of the output of the slot, and the present file starts at its end.

    logs/0/workers-slot-3.out       stdout of the nodes that ran in slot 3
    logs/0/workers-slot-3.out.now   stdout of the one that runs there
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from muster.node.files import open_or_replace

_BLOCK = 1 << 20


def present_file(path: Path) -> Path:
    """The file of the node that runs now. path: the output of the slot."""
    return path.with_name(f"{path.name}.now")


def present_size(path: Path) -> int:
    """The size of the present file; 0 if it is missing, or a program has replaced it by something
    else."""
    try:
        found = os.lstat(present_file(path))
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def collect(path: Path, start: int, end: int) -> int:
    """Move what the node that has ended wrote to the output of its slot. Returns the offset at
    which that ends now. Raises OSError.

    start: the offset at which the present file starts. end: the output ends there at least; zeros,
    which take no space, stand for what the program has truncated.

    May be repeated with the same `start`, by another process too if this one is killed: each byte
    is written to the same offset again, and the present file is emptied last.
    """
    size = present_size(path)
    if not size and end <= start:
        return start  # most programs of a large array print nothing: no file is opened
    target = open_or_replace(path, os.O_WRONLY, 0o644)
    try:
        if size:
            end = max(end, start + _move(present_file(path), target, start))
        if os.fstat(target).st_size != end:
            os.ftruncate(target, end)
    finally:
        os.close(target)
    return end


def _move(present: Path, target: int, start: int) -> int:
    """Move the content of the present file to an offset of the target. Returns its size."""
    source = os.open(present, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        offset = 0
        while block := os.pread(source, _BLOCK, offset):
            offset += os.pwrite(target, block, start + offset)
        os.ftruncate(source, 0)
    finally:
        os.close(source)
    return offset


def is_continued(path: Path, start: int) -> bool:
    """Whether the present file starts at offset `start` of the output of the slot: what that has
    beyond is the beginning of the present file, of which a process was killed while moving it."""
    try:
        with path.open("rb") as kept, present_file(path).open("rb") as present:
            kept.seek(start)
            while block := kept.read(_BLOCK):
                if present.read(len(block)) != block:
                    return False
    except OSError:
        return True  # nothing was collected yet, or nothing can be compared
    return True
