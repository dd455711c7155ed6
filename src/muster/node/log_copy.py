"""Writes what programs write to the standard output and error of the node server as well, which
some infrastructures keep as the log of a node: Kubernetes as that of a pod.

The files of the programs are the buffer: a file is read on only when the standard stream takes
more, so that a reader that is slow, or has stopped, costs neither time nor memory.

Lines stay whole: a write ends with a line, unless that is longer than a pipe takes at once. Several
processes of a node have their ranks in front of their lines. Nothing is written twice, also not by
a server that takes over from one that was killed: how far a file is copied is recorded before that
is written. At worst, 4 KiB are missing then.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import stat
import time
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

from muster.node.file_watch import Watcher
from muster.node.files import open_regular, read_regular, replace_file
from muster.node.launch_message import LaunchMessage, OutputFiles
from muster.node.processes import INHERITED

#: The bytes that are read of a file at once, and the longest line: longer ones are cut.
_BLOCK = 1 << 16
#: Writes to a standard stream in one step: the server does other things in between.
_MOST_WRITES = 64
#: Seconds between two looks at files that grow: a program may write a thousand lines meanwhile.
_LOOK_EVERY = 0.020
#: Said in place of output that is left out.
_LEFT_OUT = b"muster: more output of earlier attempts is not here, as it was not read in time\n"
#: How a line of the record begins: with an offset, which is overwritten in place.
_OFFSET = "%020d"


class LogCopy:
    """Copies output. record: the path of the file that says how far files are copied. stdout,
    stderr: the streams that they are copied to.

    Wait for `interest` or `timeout`, then call `step`.
    """

    def __init__(self, record: str, stdout: int = 1, stderr: int = 2) -> None:
        self._path = record
        self._record: int | None = None
        self._sinks = tuple(_Sink(one, self._set_offset) for one in (stdout, stderr))
        self._watcher = Watcher()
        self._look_at = 0.0  # files are not looked at before
        self._followed: LaunchMessage | None = None
        #: Of the newest incarnation, by path.
        self._files: Dict[str, _File] = {}
        self._continue()

    def _continue(self) -> None:
        """Copy the rest of what the programs of a server that was killed have written."""
        try:
            lines = read_regular(self._path).decode().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            offset, _, about = line.partition(" ")
            # not of a program that writes to the folder of its server
            with contextlib.suppress(ValueError, TypeError, IndexError):
                sink, prefix, path = json.loads(about)
                self._open(sink, prefix, path, int(offset))
        self.ended()
        self._write_record()

    def follow(self, launch: LaunchMessage, sizes: Mapping[str, int]) -> None:
        """Copy what the programs of an incarnation write; its files are there. Nothing if that is
        done already. sizes: file -> as much of it was written on another host, see
        `messages.Launch`."""
        if launch is self._followed:
            return
        self._followed = launch
        before, self._files = self._files, {}
        for sink in self._sinks:
            sink.keep_only(before.values())
        for path, number, prefix in _sources(launch):
            offset = sizes.get(path, 0)
            known = before.get(path)
            if known is not None:  # a node was restarted alone: it appends to its files
                offset = self._sinks[known.sink].release(known)
            # the files of an array were emptied for this incarnation
            self._open(number, prefix, path, 0 if launch.of_array else offset)
        self._write_record()

    def _open(self, sink: int, prefix: str, path: str, offset: int) -> None:
        if self._sinks[sink].closed:
            return
        try:
            descriptor = open_regular(path)
        except OSError:  # a program may remove its own output
            return
        file = _File(path, descriptor, sink, prefix, offset)
        self._files[path] = file
        self._sinks[sink].files.append(file)
        with contextlib.suppress(FileNotFoundError):  # it is removed just now
            self._watcher.add(Path(path))

    def ended(self) -> None:
        """The incarnation has ended: its programs write nothing more."""
        for file in self._files.values():
            if not file.ended:
                file.ended, file.at_end = True, False
                self._watcher.remove(Path(file.path))

    def interest(self) -> Dict[int, int]:
        """What to wait for: descriptor -> events of `select.poll`."""
        found = {sink.descriptor: select.POLLOUT for sink in self._sinks if sink.busy}
        looks = self._watcher.fileno()
        if looks is not None and self._looks and time.monotonic() >= self._look_at:
            found[looks] = select.POLLIN
        return found

    def timeout(self) -> float | None:
        """Seconds after which to call `step` though nothing is ready; None for never."""
        if not self._looks:
            return None
        left = self._look_at - time.monotonic()
        return left if left > 0 else self._watcher.timeout()

    @property
    def _looks(self) -> bool:
        """Whether to look at files: not while each stream has to take more first."""
        return any(sink.waits for sink in self._sinks)

    def step(self) -> None:
        """Copy what the streams take now."""
        now = time.monotonic()
        if self._looks and now >= self._look_at:
            for path in self._watcher.drain():
                self._look_at = now + _LOOK_EVERY
                if (file := self._files.get(str(path))) is not None:
                    file.at_end = False
        for sink in self._sinks:
            sink.step()

    def finish(self, limit: float) -> None:
        """Copy the rest, for at most this many seconds, and nothing more."""
        self.ended()
        deadline = time.monotonic() + limit
        self.step()
        while (busy := self.interest()) and (left := deadline - time.monotonic()) > 0:
            poll = select.poll()
            for descriptor, events in busy.items():
                poll.register(descriptor, events)
            poll.poll(left * 1000)
            self.step()
        for sink in self._sinks:
            sink.close()
        self._watcher.close()
        self._close_record()

    # --- the record: a line for each file that is open

    def _write_record(self) -> None:
        self._close_record()
        text = b""
        for file in (file for sink in self._sinks for file in sink.files):
            file.place = len(text)
            about = json.dumps([file.sink, file.prefix, file.path])
            text += ("%s %s\n" % (_OFFSET % file.offset, about)).encode()
        try:
            replace_file(self._path, text, 0o600)
            self._record = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            self._give_up_record()

    def _set_offset(self, file: _File, offset: int) -> None:
        """A file is copied up to here."""
        file.offset = offset
        if self._record is not None and file.place is not None:
            try:
                os.pwrite(self._record, (_OFFSET % offset).encode(), file.place)
            except OSError:
                self._give_up_record()

    def _give_up_record(self) -> None:
        """It cannot be written, as on a full disk. Without one, a server that takes over copies
        nothing of what was written before: that is better than to copy it twice."""
        self._close_record()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def _close_record(self) -> None:
        if self._record is not None:
            os.close(self._record)
            self._record = None


def _sources(launch: LaunchMessage) -> Iterator[Tuple[str, int, str]]:
    """The files of an incarnation: path, the number of the stream that it is copied to, and what
    is put in front of its lines."""
    rank = launch.environment_of(0).get("NODE_RANK", "")
    node = int(rank) if rank.isdigit() else launch.rank  # in a replica of an array, as RANK is
    yield from _labeled([OutputFiles(one.stdout, one.stderr) for one in launch.processes], node)
    yield from _labeled(launch.ranks, node)


def _labeled(outputs: Sequence[OutputFiles], node: int) -> Iterator[Tuple[str, int, str]]:
    for local_rank, files in enumerate(outputs):
        rank = node * len(outputs) + local_rank
        prefix = "[rank %d] " % rank if len(outputs) > 1 else ""
        for number, path in enumerate(files):
            if path not in (INHERITED, os.devnull):
                yield path, number, prefix


class _File:
    """A file that is copied. sink: the number of the stream. offset: up to where it is copied."""

    def __init__(self, path: str, descriptor: int, sink: int, prefix: str, offset: int) -> None:
        self.path, self._descriptor = path, descriptor
        self.sink, self.prefix = sink, prefix
        self.offset = offset
        #: Up to where it was read.
        self.read_to = offset
        #: Where its line in the record begins; None: it has none.
        self.place: int | None = None
        #: Whether everything was read, as far as is known.
        self.at_end = False
        #: Whether its programs have ended.
        self.ended = False

    @property
    def done(self) -> bool:
        """Whether all of it was read."""
        return self.ended and self.at_end

    def read(self) -> bytes:
        """The next lines that are complete; empty if there are none now. The last one gets its end
        here if its program has ended without one, or if it is too long."""
        data = os.pread(self._descriptor, _BLOCK, self.read_to)
        if not data and os.fstat(self._descriptor).st_size < self.read_to:
            self.read_to = 0  # its program has truncated it
            data = os.pread(self._descriptor, _BLOCK, 0)
        # of a file that has ended, what follows the last line is read next
        self.at_end = len(data) < _BLOCK and not (self.ended and data)
        end = data.rfind(b"\n") + 1
        if not end and (self.at_end or not data):
            return b""
        self.read_to += end or len(data)
        return data[:end] if end else data + b"\n"

    def labeled(self, text: bytes) -> bytes:
        """Whole lines, with what is put in front of each."""
        if not self.prefix:
            return text
        prefix = self.prefix.encode()
        return prefix + text[:-1].replace(b"\n", b"\n" + prefix) + b"\n"

    def close(self) -> None:
        os.close(self._descriptor)


class _Sink:
    """A standard stream, and the files that are copied to it. copied: called with a file and up to
    where it is copied, before that is written."""

    def __init__(self, number: int, copied: Callable[[_File, int], object]) -> None:
        self._copied = copied
        #: Those of programs that have ended come first.
        self.files: List[_File] = []
        self._text = b""  # is being written
        self._at = 0  # how much of it was
        self._file: _File | None = None  # that it is from
        self._offset = self._end = 0  # in that file: of what is written next, and behind the text
        self._in_line = False  # whether what was written last is a part of a line
        self._leaves_out = False  # whether that is to be said
        self._poll = select.poll()
        self.closed = False
        try:
            self.descriptor = _open_again(number)
            self._poll.register(self.descriptor, select.POLLOUT)
        except OSError:  # the server has no such stream
            self.descriptor, self.closed = -1, True

    @property
    def busy(self) -> bool:
        """Whether there is something to write, or to read."""
        return bool(self._text) or self._leaves_out or any(not f.at_end for f in self.files)

    @property
    def waits(self) -> bool:
        """Whether there is something to do only once a file has grown."""
        return bool(self.files) and not self.busy

    def keep_only(self, files: Iterable[_File]) -> None:
        """Leave out the rest of other files: those of many incarnations would be open while a
        reader has stopped."""
        kept = set(map(id, files))
        for file in [file for file in self.files if id(file) not in kept]:
            self._leaves_out = True
            self.release(file)

    def release(self, file: _File) -> int:
        """Read a file no more. Returns up to where it is copied, lines included that are being
        written."""
        offset = file.offset
        if self._file is file:
            offset, self._file = self._end, None
        if file in self.files:
            self.files.remove(file)
            file.close()
        return offset

    def step(self) -> None:
        """Write what the stream takes now."""
        for _ in range(_MOST_WRITES):
            if self.closed or not (self._text or self._load()) or not self._poll.poll(0):
                return
            size = self._next_size()
            before, after = self._offset, self._offset_after(size)
            self._note(after)
            try:
                written = os.write(self.descriptor, memoryview(self._text)[self._at :][:size])
            except BlockingIOError:  # somebody else has written to it meanwhile
                self._note(before)
                return
            except OSError:  # nobody reads it, or the disk that it is on is full
                self.close()
                return
            if written < size:  # it is no pipe
                self._note(self._offset_after(written))
            self._at += written
            self._in_line = self._text[self._at - 1 : self._at] != b"\n"
            if self._at == len(self._text):
                self._text, self._at, self._file = b"", 0, None

    def _load(self) -> bool:
        """Read what is written next. Returns whether there is something."""
        if self._leaves_out:
            self._leaves_out, self._text = False, _LEFT_OUT
            return True
        for file in [file for file in self.files if not file.at_end]:
            try:
                text = file.read()
            except OSError:  # of its disk
                self.release(file)
                continue
            if file.done:
                self.files.remove(file)
                file.close()
            elif text and not file.ended:  # the others are next
                self.files.remove(file)
                self.files.append(file)
            if text:
                self._text, self._file = file.labeled(text), file
                self._offset, self._end = file.offset, file.read_to
                return True
        return False

    def _next_size(self) -> int:
        """How much to write: as many whole lines as a pipe takes at once, or a part of one."""
        most = self._at + select.PIPE_BUF
        if len(self._text) <= most:
            return len(self._text) - self._at
        end = self._text.rfind(b"\n", self._at, most) + 1
        return (end or most) - self._at

    def _offset_after(self, size: int) -> int:
        """The offset in the file when this much more of the text is written."""
        end = self._at + size
        if end == len(self._text):
            return self._end
        begun = self._text.count(b"\n", self._at, end - 1) + (not self._in_line)
        prefix = 0 if self._file is None else len(self._file.prefix)
        return self._offset + max(0, size - begun * prefix)

    def _note(self, offset: int) -> None:
        self._offset = offset
        if self._file is not None:
            self._copied(self._file, offset)

    def close(self) -> None:
        """Write nothing more."""
        if not self.closed:
            self.closed, self._text, self._leaves_out = True, b"", False
            for file in self.files:
                file.close()
            self.files.clear()
            os.close(self.descriptor)


def _open_again(number: int) -> int:
    """A descriptor of a standard stream. That of a pipe or a terminal never blocks: others may
    write to it between a poll and a write here. If it may not be opened, as when it belongs to
    another user, writes are small enough for what a poll has found. Raises OSError."""
    mode = os.fstat(number).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            return os.open("/proc/self/fd/%d" % number, flags)
    return os.dup(number)
