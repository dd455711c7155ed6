"""Sends what has changed in folders of the node over streams, such as its output directories.

What a stream is about:

    kind "tree"
    path    the folder
    own     the name of the folder in it that the node has made itself; "" if there is none

The other end gets a tar stream (`node.transfer`) of the folder as ".", without files that it has
had before: it says its result once it has kept what it got. This end's result has `left_out`,
sentences about what could not be read. A folder that does not exist, or has nothing but an empty
`own`, is sent as no bytes.

A child process reads the folder, as a disk may be slow.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import stat
import sys
from functools import partial
from typing import IO, Any, Callable, Dict, Iterator, List, Mapping, Tuple

from muster.node.files import read_regular, replace_file
from muster.node.folder_access import Listing, walk
from muster.node.processes import close_others, exit_of
from muster.node.streams import Stream

#: The part of a server's folder with notes about what was sent.
SENT = "sent"
_CHUNK = 1 << 18
#: The most sentences of a result.
_MOST_LEFT_OUT = 100
#: What tells whether a file has changed: inode, size, times of change of content and of the rest.
Version = List[int]


class TreeStreams:
    """The folders that are being sent. place: a folder, which is created, with notes about what was
    sent."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._trees: Dict[Stream, _Tree] = {}

    def add(self, stream: Stream) -> None:
        """Begin to send a folder."""
        path = stream.about.get("path")
        if not isinstance(path, str):
            stream.cancel("a folder is sent from a path")
            return
        if _is_empty(path, stream.about.get("own")):  # most nodes leave nothing
            stream.finish({"left_out": [], "error": ""})
            return
        try:
            with contextlib.suppress(OSError):  # a full disk: nothing is noted then
                os.makedirs(self._place, 0o700, exist_ok=True)
            self._trees[stream] = _Tree(stream, path, _notes_of(self._place, path))
        except (OSError, ValueError) as error:
            stream.cancel("cannot send a folder: %s" % (getattr(error, "strerror", "") or error))

    def interest(self) -> Dict[int, int]:
        """What to wait for: descriptor -> events of `select.poll`."""
        found: Dict[int, int] = {}
        for tree in self._trees.values():
            found.update(tree.interest())
        return found

    def step(self) -> None:
        """Send what there is room for."""
        for stream, tree in list(self._trees.items()):
            if tree.step():
                tree.close()
                del self._trees[stream]

    def reaped(self, pid: int, status: int) -> bool:
        """Handle the end of a child process. Returns whether it was one of these."""
        for tree in self._trees.values():
            if tree.pid == pid:
                tree.reaped(status)
                return True
        return False

    def close(self) -> None:
        """The connection is lost."""
        for tree in self._trees.values():
            tree.close()
        self._trees.clear()


def _is_empty(path: str, own: object) -> bool:
    """Whether there is nothing to send of a folder. own: see above."""
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):  # the child says why
        return False
    if names != [own]:
        return not names
    inner = os.path.join(path, names[0])
    try:
        return stat.S_ISDIR(os.lstat(inner).st_mode) and not os.listdir(inner)
    except OSError:
        return False


def read_notes(place: str, path: str) -> Dict[str, Version]:
    """The versions of the files of a folder that were sent. place: see `TreeStreams`."""
    return _known(_notes_of(place, path))


def add_notes(place: str, path: str, versions: Mapping[str, Version]) -> None:
    """Note more files of a folder, as if they had been sent. place: see `TreeStreams`. Raises
    OSError."""
    known = {**read_notes(place, path), **versions}
    os.makedirs(place, 0o700, exist_ok=True)
    replace_file(_notes_of(place, path), json.dumps(known).encode(), 0o600)


def remember(place: str, path: str, at: str) -> None:
    """Note what is in a folder, as if it had been sent. place: see `TreeStreams`. path: that of the
    folder when it is to be sent; at: where it is now. Raises OSError."""
    from muster.node.transfer import open_source

    def fail(error: OSError) -> None:
        raise error

    sent: Dict[str, Version] = {}
    descriptor = open_source(at)
    try:
        for _ in _changed({}, sent, descriptor, fail):
            pass
    finally:
        os.close(descriptor)
    os.makedirs(place, 0o700, exist_ok=True)
    replace_file(_notes_of(place, path), json.dumps(sent).encode(), 0o600)


def _notes_of(place: str, path: str) -> str:
    import hashlib  # few nodes have trees to send

    return os.path.join(place, hashlib.sha256(os.fsencode(path)).hexdigest())


class _Tree:
    """A folder on its way. notes: the path of the file with the versions that were sent."""

    def __init__(self, stream: Stream, path: str, notes: str) -> None:
        self._stream = stream
        self._notes = notes
        self._data, writing = os.pipe()
        self._report, reporting = os.pipe()
        self._text = b""
        self._status: int | None = None
        self._closed = False
        self._new = ""  # the path of the child's notes
        try:
            self.pid: int | None = os.fork()
        except OSError:
            self.pid = None
            for descriptor in (writing, reporting):
                os.close(descriptor)
            self.close()
            raise
        if self.pid == 0:
            _run_child(path, notes, writing, reporting)
        self._new = "%s.%d" % (notes, self.pid)
        for descriptor in (writing, reporting):
            os.close(descriptor)
        for descriptor in (self._data, self._report):
            os.set_blocking(descriptor, False)

    def interest(self) -> Dict[int, int]:
        found = {}
        if self._data >= 0 and self._stream.room:
            found[self._data] = select.POLLIN
        if self._report >= 0:
            found[self._report] = select.POLLIN
        return found

    def step(self) -> bool:
        """Send what there is room for. Returns whether it is done."""
        stream = self._stream
        stream.take()  # nothing; notices that the other end is done
        if stream.canceled:
            return True
        while self._data >= 0 and stream.room:
            data = _read(self._data, min(_CHUNK, stream.room))
            if data is None:
                break
            stream.send(data)
            self._data = self._data if data else _closed(self._data)
        while self._report >= 0 and (data := _read(self._report, _CHUNK)) is not None:
            self._text += data
            self._report = self._report if data else _closed(self._report)
        if self._data >= 0 or self._report >= 0 or self._status is None:
            return False
        self._finish(self._status)
        if stream.result is not None:
            with contextlib.suppress(OSError):  # it is sent again then
                os.replace(self._new, self._notes)
        return bool(stream.canceled) or stream.result is not None

    def _finish(self, status: int) -> None:
        code, _ = exit_of(status)
        report: Dict[str, Any] = json.loads(self._text) if self._text and not code else {}
        if code or report.get("error"):
            why = report.get("error") or "it ended with exit code %d; see server.log" % code
            self._stream.cancel("cannot send a folder: %s" % why)
        else:
            self._stream.finish(report)

    def reaped(self, status: int) -> None:
        self.pid, self._status = None, status
        if self._closed:
            self._remove_new()

    def close(self) -> None:
        for descriptor in (self._data, self._report):
            if descriptor >= 0:
                os.close(descriptor)
        self._data = self._report = -1
        self._closed = True
        if self.pid is not None:  # not reaped yet: the pid is its own
            os.kill(self.pid, signal.SIGKILL)
        self._remove_new()

    def _remove_new(self) -> None:
        """The child may have written it just before it was killed."""
        if self._new:
            with contextlib.suppress(OSError):
                os.unlink(self._new)


def _read(descriptor: int, size: int) -> bytes | None:
    """None if there is nothing to read for now."""
    try:
        return os.read(descriptor, size)
    except BlockingIOError:
        return None


def _closed(descriptor: int) -> int:
    os.close(descriptor)
    return -1


# --- the child process


def _run_child(path: str, notes: str, writing: int, reporting: int) -> None:
    """Send the folder in the forked child, and exit."""
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        close_others((writing, reporting))
        with os.fdopen(writing, "wb", _CHUNK) as data:
            report = _send(path, notes, data)
        os.write(reporting, json.dumps(report).encode())
        code = 0
    except BrokenPipeError:
        pass
    except BaseException:  # noqa: BLE001
        import traceback  # few fail

        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def _send(path: str, notes: str, data: IO[bytes]) -> Dict[str, Any]:
    """Returns the result. Raises BrokenPipeError."""
    from muster.node.transfer import open_source, send  # few servers have sent anything yet

    left_out: List[str] = []
    sent: Dict[str, Version] = {}
    try:
        descriptor = open_source(path)
        send(descriptor, ".", data, left_out.append, partial(_changed, _known(notes), sent))
        os.close(descriptor)
        with contextlib.suppress(OSError):  # a full disk: all of it is sent again, the next time
            replace_file("%s.%d" % (notes, os.getpid()), json.dumps(sent).encode(), 0o600)
    except FileNotFoundError:
        return {"left_out": [], "error": ""}
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        return {"left_out": [], "error": getattr(error, "strerror", None) or str(error)}
    more = len(left_out) - _MOST_LEFT_OUT
    shown = left_out[:_MOST_LEFT_OUT] + (["%d more" % more] if more > 0 else [])
    return {"left_out": shown, "error": ""}


def _known(notes: str) -> Dict[str, Version]:
    try:
        known = json.loads(read_regular(notes))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _changed(
    known: Dict[str, Version],
    sent: Dict[str, Version],
    descriptor: int,
    on_error: Callable[[OSError], None],
) -> Iterator[Listing]:
    """As `walk`, without files that have not changed. sent: gets the versions of all files."""
    for here, names, opened in walk(descriptor, on_error):
        found: List[Tuple[str, Version | None]] = [(name, version(name, opened)) for name in names]
        kept = []
        for name, now in found:
            place = os.path.normpath(os.path.join(here, name))
            if now is not None:
                sent[place] = now
            if now is None or known.get(place) != now:
                kept.append(name)
        yield here, kept, opened


def version_at(folder: str, place: str) -> Version | None:
    """As `version`, of a file in a folder or below."""
    return version(os.path.join(folder, place), None)


def version(name: str, folder: int | None) -> Version | None:
    """What tells whether a file in an open folder has changed. None for what is always sent:
    folders, and what cannot be read."""
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return None if stat.S_ISDIR(info.st_mode) else version_of(info)


def version_of(info: os.stat_result) -> Version:
    """The version of a file with this status."""
    return [info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]
