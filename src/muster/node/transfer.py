"""Sends and receives a file or a folder as a tar stream: `python -c LOADER SIZE ACTION PATH`.

As a program (see `program`) it runs inside a node, next to the node's own programs: it can read and
write only what they can, whatever the links in their folders point to. ACTION is `send` or `read`
(one file, as it is) to standard output, `receive` or `write` from standard input, where the program
itself comes first: SIZE bytes. It exits with 0; with 3 if files were left out; with 2 if nothing
could be copied; with 4 for a bug. Messages are on standard error, one a line.

Nothing here follows a link that is in a folder. A link that is named itself is followed.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import stat
import struct
import sys
import tarfile
from typing import IO, Callable, Dict, Iterator, List, Tuple

from muster.node.folder_access import (
    BLOCK,
    Readable,
    Walk,
    checked,
    copy_blocks,
    in_folder,
    open_folder,
    open_in,
    walk,
    write_file,
    write_link,
)

#: Exit codes.
OK, FAILED, INCOMPLETE, CRASHED = 0, 2, 3, 4  # 1: Python itself has failed

#: Before each block of a raw stream: its size. 0: the end.
_SIZE = struct.Struct("!I")
#: Files of /proc and /sys have content, but no size.
_MAX_UNSIZED = 64 << 20

#: The type of a member that describes others -> the most bytes that it may have: of a path that has
#: more than 100, and of further fields of the next member. Those for all members would add up.
_MAX_DESCRIPTION = {
    tarfile.GNUTYPE_LONGNAME: 1 << 16,
    tarfile.GNUTYPE_LONGLINK: 1 << 16,
    tarfile.XHDTYPE: 1 << 16,
    tarfile.SOLARIS_XHDTYPE: 1 << 16,
    tarfile.XGLTYPE: 0,
}

#: Is called with what was left out, and why.
Report = Callable[[str], None]
#: Is called with each file and link that has arrived, before it is created: its name in the stream,
#: and when it was modified. Returns whether to create it.
Wanted = Callable[[str, float], bool]


# --- sending


def name_of(path: str) -> str:
    """The name that a copy of a path has: "." for `FOLDER/.`, which stands for its content."""
    if path.endswith("/.") or path == ".":
        return "."
    name = os.path.basename(os.path.normpath(path))
    return name if name not in ("", "..") else os.path.basename(os.path.realpath(path)) or "root"


def open_source(path: str) -> int:
    """Open a file or folder to send it. Raises OSError."""
    return checked(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), path)


def send(
    descriptor: int, name: str, stream: IO[bytes], report: Report, each_folder: Walk = walk
) -> None:
    """Write an open file or folder to a stream, as `name`. Raises OSError if the stream breaks."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT, bufsize=BLOCK) as tar:
        tar.copybufsize = BLOCK  # type: ignore[attr-defined]  # with 16 KiB, twice as slow
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            _add_file(tar, os.dup(descriptor), name, report)
            return
        tar.addfile(_header(os.fstat(descriptor), name))

        def cannot_list(error: OSError) -> None:
            report("%s: %s" % (os.path.join(name, os.fsdecode(error.filename)), error.strerror))

        for here, names, opened in each_folder(descriptor, cannot_list):
            for each in sorted(names):
                place = os.path.normpath(os.path.join(name, here, each))
                try:
                    _add(tar, opened, each, place, report)
                except BrokenPipeError:
                    raise
                except OSError as error:
                    report("%s: %s" % (place, error.strerror))


def send_content(descriptor: int, stream: IO[bytes]) -> None:
    """Write what is in an open file to a stream. Raises OSError."""
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise IsADirectoryError(errno.EISDIR, "Is a folder; name a file")
    with os.fdopen(descriptor, "rb") as file:
        copy_blocks(file, stream)


def send_blocks(source: Readable, stream: IO[bytes]) -> None:
    """Write a stream in the form that `write` reads, which ends with a mark: whoever receives a
    pipe cannot otherwise tell the end of the content from the death of the sender."""
    while data := source.read(BLOCK):
        stream.write(_SIZE.pack(len(data)))
        stream.write(data)
    stream.write(_SIZE.pack(0))
    stream.flush()


def _add(tar: tarfile.TarFile, folder: int, name: str, place: str, report: Report) -> None:
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISREG(info.st_mode):
        _add_file(tar, open_in(folder, name), place, report)
    elif stat.S_ISLNK(info.st_mode):
        header = _header(info, place)
        header.type, header.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=folder)
        tar.addfile(header)
    elif stat.S_ISDIR(info.st_mode):
        tar.addfile(_header(info, place))
    else:
        report("%s: neither a file, a folder nor a link" % place)


def _header(info: os.stat_result, place: str) -> tarfile.TarInfo:
    header = tarfile.TarInfo(place)
    header.mode = stat.S_IMODE(info.st_mode) & 0o777
    # what looks for the newest file may compare files that were written in the same second
    is_whole = not info.st_mtime_ns % 10**9  # then no extended header is needed
    header.mtime = int(info.st_mtime) if is_whole else info.st_mtime
    header.type = tarfile.DIRTYPE if stat.S_ISDIR(info.st_mode) else tarfile.REGTYPE
    return header


def _add_file(tar: tarfile.TarFile, descriptor: int, place: str, report: Report) -> None:
    """Add a file, with as many bytes as it has now: a program may append to it meanwhile."""
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        header = _header(info, place)
        header.size = info.st_size
        content: IO[bytes] = file
        if not info.st_size and (unsized := file.read(_MAX_UNSIZED)):
            content, header.size = io.BytesIO(unsized), len(unsized)
        exact = _Exact(content)
        tar.addfile(header, exact)  # type: ignore[arg-type]  # it needs no more than `read`
        if exact.failure:
            report("%s: %s; the end of the copy is zeros" % (place, exact.failure))


class _Exact:
    """A file that never ends: zeros follow its content, for the size that was announced."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        #: Why there were zeros.
        self.failure = ""

    def read(self, size: int) -> bytes:
        """As many bytes, whatever happens to the file."""
        data = b""
        try:
            data = self._file.read(size)
        except OSError as error:
            self.failure = error.strerror or str(error)
        if len(data) < size and not self.failure:
            self.failure = "the file became shorter"
        return data.ljust(size, b"\0")


# --- receiving


class TransferError(OSError):
    """A stream that does not contain what `send` writes."""


def receive(target: str, stream: IO[bytes], report: Report, wanted: Wanted | None = None) -> int:
    """Create what a stream contains at a path, or in the folder at this path, as `cp -r` does.
    Returns the bytes of all files. Raises OSError, and what `wanted` raises."""
    size = 0
    modes: List[Tuple[str, int]] = []
    with _tar(stream) as tar:
        tree = None
        for member in tar:
            if tree is None:
                tree = _Tree(target, member)
            if member.issparse():  # a short one could have terabytes of zeros
                raise TransferError(errno.EIO, "The sender has a sparse file", member.name)
            is_content = member.isreg() or member.issym()
            if is_content and wanted is not None and not wanted(member.name, member.mtime):
                continue
            if member.isreg():
                content = tar.extractfile(member)
                assert content is not None
                tree.add_file(member, content)
                size += member.size
            elif member.isdir():
                if tree.add_folder(member):
                    modes.append((member.name, member.mode))
            elif member.issym():
                tree.add_link(member)
            else:
                report("%s: neither a file, a folder nor a link" % member.name)
        if tree is None:
            raise TransferError(errno.EIO, "Nothing was received", target)
        for name, mode in reversed(modes):  # a folder may be read-only
            tree.set_mode(name, mode)
    return size


class _Member(tarfile.TarInfo):
    """A member of a stream that anybody may have written: what only describes others is held in
    memory, so it has to be short."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        member = super().frombuf(buf, encoding, errors)
        most = _MAX_DESCRIPTION.get(member.type)
        if most is not None and member.size > most:
            raise tarfile.ReadError("the description of a file has %d bytes" % member.size)
        return member


@contextlib.contextmanager
def _tar(stream: IO[bytes]) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=BLOCK, tarinfo=_Member) as tar:
            yield tar
    except tarfile.TarError as error:
        raise TransferError(errno.EIO, "The transfer was interrupted: %s" % error) from None
    except (ValueError, OverflowError) as error:  # a time or a name that no file can have
        raise TransferError(errno.EIO, "The transfer has an invalid member: %s" % error) from None
    except RecursionError:  # descriptions of descriptions
        raise TransferError(errno.EIO, "The transfer was interrupted: no file follows") from None


class _Blocks:
    """The content of a stream that `send_blocks` has written."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._left = 0
        self._ended = False

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes. Raises TransferError if the stream breaks off."""
        if not self._left and not self._ended:
            (self._left,) = _SIZE.unpack(self._exactly(_SIZE.size))
            self._ended = not self._left
        data = self._exactly(min(size, self._left))
        self._left -= len(data)
        return data

    def _exactly(self, size: int) -> bytes:
        data = self._stream.read(size) if size else b""
        if len(data) < size:
            raise TransferError(errno.EIO, "The transfer was interrupted")
        return data


def write(target: str, stream: IO[bytes]) -> int:
    """Create a file at a path with the content that `send_blocks` sends. Returns its size. Raises
    OSError."""
    path = _destination(target, "", False)
    folder, name = os.path.split(path)
    with _naming(None), in_folder(folder or ".") as descriptor:
        return write_file(descriptor, name, _Blocks(stream), 0o666 & ~_umask(), None)


class _Tree:
    """A file or folder that is received, by the names in the stream. first: its first member."""

    def __init__(self, target: str, first: tarfile.TarInfo) -> None:
        self._top = os.path.normpath(first.name)
        if "/" in self._top or self._top == "..":
            raise _outside(first.name)
        self._folder = _destination(target, first.name, first.isdir())
        if not first.isdir():
            self._folder, self._name = os.path.split(self._folder)
        else:
            self._name = ""

    def _parts(self, name: str) -> List[str]:
        """The path of a member below the folder."""
        path = os.path.normpath(name)
        if path == self._top:
            return [self._name] if self._name else []
        top = "" if self._top == "." else self._top + "/"
        if self._name or path.startswith(("/", "../")) or path == ".." or not path.startswith(top):
            raise _outside(name)
        return path[len(top) :].split("/")

    @contextlib.contextmanager
    def _parent(self, member_name: str) -> Iterator[Tuple[int, str]]:
        """The opened folder of a member, and its name there. No link is followed."""
        *parents, name = self._parts(member_name) or ["."]
        culprit = member_name if parents else None
        with _naming(culprit), in_folder(self._folder or ".") as descriptor:
            for parent in parents:
                below = open_folder(parent, descriptor)
                os.dup2(below, descriptor, inheritable=False)
                os.close(below)
            yield descriptor, name

    def add_folder(self, member: tarfile.TarInfo) -> bool:
        """Create a folder. Returns whether it is new."""
        if not self._parts(member.name):
            new = not os.path.isdir(self._folder)
            if new:
                os.mkdir(self._folder, 0o700)
            return new
        with self._parent(member.name) as (folder, name):
            try:
                os.mkdir(name, 0o700, dir_fd=folder)
            except FileExistsError:
                os.close(open_folder(name, folder))
                return False
        return True

    def set_mode(self, name: str, mode: int) -> None:
        """Set the mode of a folder that was created."""
        if not self._parts(name):
            os.chmod(self._folder, mode & 0o777)
            return
        with self._parent(name) as (folder, last):
            os.chmod(last, mode & 0o777, dir_fd=folder)

    def add_file(self, member: tarfile.TarInfo, content: IO[bytes]) -> None:
        """Create or replace a file."""
        with self._parent(member.name) as (folder, name):
            write_file(folder, name, content, member.mode & 0o777, member.mtime)

    def add_link(self, member: tarfile.TarInfo) -> None:
        """Create or replace a symbolic link."""
        with self._parent(member.name) as (folder, name):
            write_link(folder, name, member.linkname)


def _outside(name: str) -> TransferError:
    return TransferError(errno.EPERM, "The sender names a path outside the copy", name)


def _destination(target: str, name: str, is_folder: bool) -> str:
    """Where to create what has a name: in `target` if that is a folder, else at `target`."""
    if os.path.isdir(target):
        if not name:
            raise IsADirectoryError(errno.EISDIR, "Is a folder; name a file", target)
        path = target if os.path.normpath(name) == "." else os.path.join(target, name)
    elif target.endswith("/") and not is_folder:
        raise FileNotFoundError(errno.ENOENT, "No such folder", target)
    else:
        path = target.rstrip("/")
    path = os.path.realpath(path)
    if not os.path.isdir(os.path.dirname(path)):
        raise FileNotFoundError(errno.ENOENT, "No such folder", os.path.dirname(path))
    if is_folder and os.path.lexists(path) and not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, "Is a file; a folder cannot replace it", path)
    if not is_folder and os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "Is a folder; a file cannot replace it", path)
    return path


@contextlib.contextmanager
def _naming(name: str | None) -> Iterator[None]:
    """Have errors name a member, not the file that is about to replace it. None: the target."""
    try:
        yield
    except OSError as error:
        error.filename = name
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# --- the program


def main(action: str, path: str) -> int:
    """Carry out one action. Returns the exit code."""
    left_out: List[str] = []
    path = os.path.expandvars(path)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _end)
    try:
        _ACTIONS[action](path, left_out.append)
    except BrokenPipeError:  # the receiver has failed, and says why
        return FAILED
    except OSError as error:
        where = "" if error.filename in (None, path) else "%s: " % os.fsdecode(error.filename)
        sys.stderr.write("%s%s\n" % (where.replace("\n", "\\n"), error.strerror))
        return FAILED
    except Exception as bug:  # noqa: BLE001  shown by who started this program
        sys.stderr.write("%s: %s\n" % (type(bug).__name__, bug))
        return CRASHED
    sys.stderr.writelines("%s\n" % line.replace("\n", "\\n") for line in left_out)
    return INCOMPLETE if left_out else OK


def _end(number: int, _frame: object) -> None:
    """Exit as a signal would end the process, but remove an incomplete file first."""
    sys.exit(128 + number)


def _send(path: str, report: Report) -> None:
    descriptor = open_source(path)
    with os.fdopen(1, "wb", BLOCK) as stream:
        send(descriptor, name_of(path), stream, report)


def _read(path: str, _report: Report) -> None:
    descriptor = open_source(path)
    with os.fdopen(1, "wb", BLOCK) as stream:
        send_content(descriptor, stream)


def _receive(path: str, report: Report) -> None:
    with os.fdopen(0, "rb", BLOCK) as stream:
        receive(path, stream, report)


def _write(path: str, _report: Report) -> None:
    with os.fdopen(0, "rb", BLOCK) as stream:
        write(path, stream)


_ACTIONS: Dict[str, Callable[[str, Report], None]] = {
    "send": _send,
    "receive": _receive,
    "read": _read,
    "write": _write,
}

#: Reads the program from standard input, and runs it: as an argument it would be too long for
#: Kubernetes, which has arguments in a URL, whose length proxies limit, often to 8 KB.
LOADER = """\
import os, sys
size, text = int(sys.argv[1]), b""
while len(text) < size:
    data = os.read(0, size - len(text))
    if not data:
        sys.exit("the connection was lost before the copy began")
    text += data
exec(text)
"""
_START = """
import sys
for name, source in %r:
    sys.modules[name] = module = type(sys)(name)
    exec(compile(source, name, "exec"), vars(module))
sys.exit(module.main(*sys.argv[2:]))
"""


def program() -> bytes:
    """This program as text for LOADER: a node may not see the files of this package."""
    from muster.node import folder_access  # as text it has no package

    sources = []
    for module in (folder_access, sys.modules[__name__]):
        with open(str(module.__file__), encoding="utf-8") as file:
            sources.append((module.__name__, file.read()))
    return (_START % sources).encode()
