"""Files in folders that programs write to: what was a file may by now be a pipe that nobody reads,
a device without an end, or a folder. Nothing here ever waits for one."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Callable


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """A descriptor of a regular file, or of one that a link leads to. Raises OSError, also if
    something else is there."""
    with contextlib.suppress(FileNotFoundError):
        _insist(os.stat(path), path)  # before it is opened: that alone can do things to a device
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    try:
        _insist(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_own(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """The same for a file that is ours to make: what has taken its place is removed. Raises
    OSError if it cannot be, as with a folder. /dev/null is nobody's, and stays."""
    if os.fspath(path) == os.devnull:
        return os.open(path, flags | os.O_CLOEXEC)
    make_way(path)
    return open_regular(path, flags | os.O_CREAT, mode)


def make_way(path: str | os.PathLike[str]) -> None:
    """Remove what is there if it is no regular file: also a link, as what is written through one
    would change a file that is none of ours. Raises OSError if it cannot be removed."""
    if os.fspath(path) != os.devnull:
        _remove_unless(stat.S_ISREG, path)


def own_pipe(path: str | os.PathLike[str]) -> None:
    """Have a FIFO there: what has taken its place is removed. Raises OSError if it cannot be."""
    _remove_unless(stat.S_ISFIFO, path)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)


def _remove_unless(kind: Callable[[int], bool], path: str | os.PathLike[str]) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not kind(found.st_mode):
        os.unlink(path)


def read_regular(path: str | os.PathLike[str], most: int = -1) -> bytes:
    """What is in a regular file, up to so many bytes. Raises OSError, also if something else is
    there."""
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read(most)


def replace_file(path: str | os.PathLike[str], data: bytes, mode: int = 0o666) -> None:
    """Have this in the file, in one step: a reader never sees half of it. Raises OSError."""
    part = os.fspath(path) + ".part"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part)  # whatever it is, it is not written to
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    os.replace(part, path)


def _insist(found: os.stat_result, path: str | os.PathLike[str]) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
