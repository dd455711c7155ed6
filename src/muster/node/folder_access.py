"""Open, list, write and replace what is in folders that other programs can write to.

No link that is in a folder is followed, whatever programs put there meanwhile: every step starts at
the descriptor of an opened folder. `transfer` takes this module with it into nodes, as text.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
from typing import IO, Callable, Iterator, List, Protocol, Tuple

#: How much is read and written at once.
BLOCK = 1 << 20
_ZEROS = bytes(BLOCK)
#: How the names of files begin and end that are being written.
_PART = (".muster-", ".part")
#: A FIFO must not block the reader until a writer opens it.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


class Readable(Protocol):
    """What can be read in blocks."""

    def read(self, size: int, /) -> bytes:
        """Read up to `size` bytes; none at the end."""


#: A folder below the one that is listed ("." for itself), names in it, and its descriptor.
Listing = Tuple[str, List[str], int]
#: Lists an open folder and those below it; errors go to the function.
Walk = Callable[[int, Callable[[OSError], None]], Iterator[Listing]]


# --- opening and listing


@contextlib.contextmanager
def in_folder(folder: str) -> Iterator[int]:
    """A descriptor of a folder. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_below(root: str, place: str) -> int:
    """Open a file or folder in another one, without following links. Raises OSError."""
    return checked(descend(root, place), os.path.join(root, place))


def descend(root: str, place: str) -> int:
    """Open what is at a path in a folder, of any kind, without following links. Raises OSError."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    names = [name for name in place.split("/") if name not in ("", ".")]
    for number, name in enumerate(names, 1):
        try:
            flags = READ if number == len(names) else _FOLDER
            below = os.open(name, flags, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def open_regular_below(root: str, place: str) -> int:
    """Open a regular file in a folder, without following links. Raises OSError."""
    descriptor = descend(root, place)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", os.path.join(root, place))


def open_in(folder: int, name: str) -> int:
    """Open a file or folder in an opened folder, without following a link. Raises OSError."""
    return checked(os.open(name, READ, dir_fd=folder), name)


def open_folder(name: str, folder: int) -> int:
    """Open a folder in an opened folder. Raises OSError, which says so if it is a link."""
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, "The folder %s is a link there; remove it" % name) from None
        raise


def checked(descriptor: int, path: str) -> int:
    """The descriptor of a file or folder. Raises OSError, closing it, if it is of neither."""
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a file or a folder", path)
    return descriptor


def walk(descriptor: int, on_error: Callable[[OSError], None]) -> Iterator[Listing]:
    """List an open folder and those below it, but not those whose names the caller removes."""
    waiting: List[Tuple[str, ...]] = [()]
    while waiting:  # neither recursive nor with all parents open: programs may nest very deep
        parts = waiting.pop()
        here = "/".join((".", *parts))
        try:
            opened = os.open(".", _FOLDER, dir_fd=descriptor)
            try:
                for part in parts:
                    below = os.open(part, _FOLDER, dir_fd=opened)
                    os.dup2(below, opened, inheritable=False)
                    os.close(below)
                with os.scandir(opened) as found:
                    kinds = {each.name: each.is_dir(follow_symlinks=False) for each in found}
                names = list(kinds)
                yield here, names, opened
            finally:
                os.close(opened)
        except OSError as error:
            error.filename = here
            on_error(error)
            continue
        waiting += [(*parts, name) for name in sorted(names, reverse=True) if kinds[name]]


# --- writing


def write_file(folder: int, name: str, content: Readable, mode: int, modified: float | None) -> int:
    """Write a file in an opened folder, which replaces one that exists; into a device or FIFO,
    which it does not replace. Returns its size."""
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if not (stat.S_ISREG(found) or stat.S_ISLNK(found) or stat.S_ISDIR(found)):
            with os.fdopen(os.open(name, os.O_WRONLY | os.O_NOFOLLOW, dir_fd=folder), "wb") as file:
                return copy_blocks(content, file)
    descriptor = _open_unnamed(folder)
    if descriptor is None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with _replacing(folder, name) as part, _opened(part, flags, folder) as file:
            return _fill(file, content, mode, modified)
    with os.fdopen(descriptor, "wb") as file:
        size = _fill(file, content, mode, modified)
        with _signals_held(), _replacing(folder, name) as part:
            os.link("/proc/self/fd/%d" % file.fileno(), part, dst_dir_fd=folder)
    return size


def _opened(name: str, flags: int, folder: int) -> IO[bytes]:
    return os.fdopen(os.open(name, flags, 0o600, dir_fd=folder), "wb")


def _open_unnamed(folder: int) -> "int | None":
    """Create a file without a name, of which nothing is left if this process is killed; None if
    the file system cannot."""
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            return os.open(".", os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o600, dir_fd=folder)
    return None


def _fill(file: IO[bytes], content: Readable, mode: int, modified: float | None) -> int:
    size = _copy_sparse(content, file)
    file.flush()
    os.fchmod(file.fileno(), mode)
    if modified is not None:
        os.utime(file.fileno(), (modified, modified))
    return size


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Let no handler of a signal raise an exception meanwhile."""
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _copy_sparse(source: Readable, target: IO[bytes]) -> int:
    """As `copy_blocks` to a new file, in which blocks of zeros become holes."""
    size = 0
    while data := source.read(BLOCK):
        if data == _ZEROS[: len(data)]:
            target.seek(len(data), os.SEEK_CUR)
        else:
            target.write(data)
        size += len(data)
    target.truncate()
    return size


def write_link(folder: int, name: str, target: str) -> None:
    """Create a symbolic link in an opened folder, which replaces what exists."""
    with _replacing(folder, name) as part:
        os.symlink(target, part, dir_fd=folder)


def copy_blocks(source: Readable, target: IO[bytes]) -> int:
    """Copy one stream to another to its end. Returns the number of bytes."""
    size = 0
    while data := source.read(BLOCK):
        target.write(data)
        size += len(data)
    target.flush()
    return size


@contextlib.contextmanager
def _replacing(folder: int, name: str) -> Iterator[str]:
    """A name to create in an opened folder; what is created there then replaces `name`."""
    # not the pid: processes of several nodes, which have the same, may write to a shared folder
    part = os.urandom(8).hex().join(_PART)
    try:
        yield part
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        _remove(part, folder)
        raise


def is_part(name: str) -> bool:
    """Whether this is the name of a file that is being written, and is about to replace another."""
    return name.startswith(_PART[0]) and name.endswith(_PART[1])


def _remove(name: str, folder: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
