"""Open, replace and remove files in folders that programs can write to.

A program may replace a file by a FIFO without a reader, an endless device, a link or a folder. No
function here blocks on such a file or follows a link that a program put in the place of a file that
Muster owns.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Any, Callable, Container, List

#: Errors of removing a mount point, or a folder that contains one.
_MOUNT_POINT_ERRORS = (errno.EBUSY, errno.ENOTEMPTY)


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a regular file, or the regular file that a link points to; returns the descriptor.

    Raises OSError, also if the path is not a regular file.
    """
    with contextlib.suppress(FileNotFoundError):
        _check_regular(os.stat(path), path)  # first, as opening a device can have side effects
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    try:
        _check_regular(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_or_replace(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Open a regular file that Muster owns, creating it if needed; returns the descriptor.

    Anything else at the path is removed first; /dev/null is opened as it is. Raises OSError, also
    if the path is a folder.
    """
    if os.fspath(path) == os.devnull:
        return os.open(path, flags | os.O_CLOEXEC)
    remove_unless_regular(path)
    return open_regular(path, flags | os.O_CREAT, mode)


def direct_output(path: str | os.PathLike[str]) -> None:
    """Append what this process writes to its standard streams to a file. Raises OSError."""
    descriptor = open_or_replace(path, os.O_WRONLY | os.O_APPEND, 0o600)
    for target in (1, 2):
        os.dup2(descriptor, target)
    os.close(descriptor)


def remove_unless_regular(path: str | os.PathLike[str]) -> None:
    """Remove the path if it is not a regular file; /dev/null stays.

    Links are removed too: writing through one would change a file that Muster does not own. Raises
    OSError if the path cannot be removed.
    """
    if os.fspath(path) != os.devnull:
        _remove_unless(stat.S_ISREG, path)


def ensure_fifo(path: str | os.PathLike[str]) -> None:
    """Create a FIFO if there is none, replacing any other file. Raises OSError, also if the path
    is a folder."""
    _remove_unless(stat.S_ISFIFO, path)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)


def _remove_unless(is_kind: Callable[[int], bool], path: str | os.PathLike[str]) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not is_kind(found.st_mode):
        os.unlink(path)


def read_regular(path: str | os.PathLike[str], size: int = -1) -> bytes:
    """Read a regular file, up to `size` bytes (-1: all). Raises OSError, also if the path is not a
    regular file."""
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read(size)


def is_within(path: str, folder: str) -> bool:
    """Whether a path is below a folder, links followed."""
    return os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep)


def file_size(path: str) -> int:
    """The size in bytes; 0 if the file is missing."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def replace_file(path: str | os.PathLike[str], data: bytes, mode: int = 0o666) -> None:
    """Write the file atomically: readers see the old or the new content. Raises OSError."""
    part = os.fspath(path) + ".part"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part)  # it may be a link or a FIFO by now
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    os.replace(part, path)


def overwrite_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write the file in place, while nobody reads it: file systems write a file that replaces
    another one to the disk at once, which takes longer than starting a node. Raises OSError."""
    with os.fdopen(open_or_replace(path, os.O_WRONLY), "wb", buffering=0) as file:
        write_all(file.fileno(), data)
        file.truncate()


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it: a pipe may take a part at once, and so may a disk. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _check_regular(found: os.stat_result, path: str | os.PathLike[str]) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))


def remove_tree(path: str) -> None:
    """Remove a folder with its content, read-only folders included. Mount points stay."""
    with contextlib.suppress(OSError):
        os.rmdir(path)  # an empty folder, as most are: a tenth of the time
        return
    from shutil import rmtree  # most processes that import this module remove nothing

    rmtree(path, onerror=_retry_or_ignore)


def try_remove_tree(path: str) -> OSError | None:
    """Remove what can be removed of a folder, read-only folders included. Returns why the rest
    stays; None if nothing does."""
    from shutil import rmtree

    failures: List[OSError] = []

    def handle(call: Any, path: str, exc_info: Any) -> None:
        try:
            _retry_or_ignore(call, path, exc_info)
        except OSError as error:
            failures.append(error)

    rmtree(path, onerror=handle)
    if failures or not os.path.lexists(path):
        return failures[0] if failures else None
    return OSError(errno.EBUSY, "contains a mount point, or changes meanwhile", path)


def remove_entry(path: str) -> None:
    """Remove a file, a link, or a folder with its content. Does nothing if there is none."""
    if os.path.isdir(path) and not os.path.islink(path):
        remove_tree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def empty_folder(folder: str, keep: Container[str] = ()) -> None:
    """Remove the content of a folder, read-only folders included. Mount points stay, as do folders
    of other users without files, which may be mount points elsewhere. keep: names that stay."""
    with os.scandir(folder) as found:
        entries = [entry for entry in found if entry.name not in keep]
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.path)
            continue
        try:
            remove_tree(entry.path)
        except PermissionError:
            if any(files for _, _, files in os.walk(entry.path)):
                raise


def _retry_or_ignore(_call: Any, path: str, exc_info: Any) -> None:
    """Make the parent folder writable and remove the path (some caches are made read-only)."""
    error = exc_info[1]
    if isinstance(error, FileNotFoundError):
        return  # removed by a nested call
    if isinstance(error, OSError) and error.errno in _MOUNT_POINT_ERRORS:
        return
    if not isinstance(error, PermissionError):
        raise error
    os.chmod(os.path.dirname(path), 0o700)
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, 0o700)
        remove_tree(path)
    else:
        os.unlink(path)
