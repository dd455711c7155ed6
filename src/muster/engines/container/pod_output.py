"""Copies what the other containers of a node write to the node's output, line by line."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from muster.engines.container import containers
from muster.engines.container.api import CannotReach, Daemon, Refused

#: Bytes of a line, at most; a longer one is cut into several.
_LONGEST = 1 << 16
_STDERR = 2
#: Seconds between two tries to reach the engine.
_PAUSE = 0.5
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OutputFiles(NamedTuple):
    """Where output goes: paths in a folder in which the containers of a node may write, too.
    Absolute paths, such as /dev/null: nowhere."""

    folder: str
    out: str
    err: str

    def open(self, stream: int) -> int | None:
        """The descriptor of the file of a stream, to append to; None: there is none. No link is
        followed. Raises OSError."""
        path = self.err if stream == _STDERR else self.out
        if path.startswith("/"):
            return None
        *folders, name = path.split("/")
        inside = os.open(self.folder, _FOLDER)
        try:
            for one in folders:
                inside, outside = os.open(one, _FOLDER, dir_fd=inside), inside
                os.close(outside)
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            found = os.open(name, flags, dir_fd=inside)
        finally:
            os.close(inside)
        if stat.S_ISREG(os.fstat(found).st_mode):
            return found
        os.close(found)
        raise OSError(errno.EINVAL, "it is no regular file", path)


class Follower:
    """Follows the output of one container, in a thread. Each line goes to the file of its stream,
    after the name of the container, until that has ended, however often the engine is restarted
    meanwhile. state: a file that remembers how many lines were copied, for
    the next follower."""

    def __init__(
        self, daemon: Daemon, made: str, name: str, files: OutputFiles, state: Path
    ) -> None:
        self._daemon, self._made, self._name = daemon, made, name
        #: Where lines go from now on.
        self.files = files
        self._state = state
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for the end of the output of a container that has ended. timeout: seconds."""
        self._thread.join(timeout)

    def close(self) -> None:
        """Follow no more. Returns at once."""
        self._closed.set()

    def _follow(self) -> None:
        try:
            while not self._closed.is_set():
                with contextlib.suppress(CannotReach):
                    rest = self._read()
                    if not self._runs():
                        self._write_rest(rest)
                        return
                self._closed.wait(_PAUSE)  # the engine is being restarted
        except Refused:
            return  # it was removed
        except OSError as error:
            self._is_lost(error)

    def _runs(self) -> bool:
        """Whether there is more to follow. Raises CannotReach."""
        try:
            state = containers.state_of(self._daemon, self._made)
        except Refused:  # it is half gone
            return False
        return state is not None and containers.is_alive(state)

    def _read(self) -> Mapping[int, bytes]:
        """Copy what was not copied. Returns the line of each stream that has no end. Raises
        CannotReach, Refused, OSError."""
        copied, seen = self._copied(), 0
        rest = {1: b"", _STDERR: b""}
        for stream, data in self._daemon.output(self._made):
            if self._closed.is_set():
                break
            *lines, rest[stream] = (rest[stream] + data).split(b"\n")
            if len(rest[stream]) > _LONGEST:
                lines.append(rest[stream])
                rest[stream] = b""
            new = lines[max(0, copied - seen) :]
            seen += len(lines)
            if new:
                self._write(stream, new)
                self._state.write_text(f"{self._made} {seen}")
        return rest if seen >= copied else {}

    def _write_rest(self, rest: Mapping[int, bytes]) -> None:
        """Raises OSError."""
        for stream, line in rest.items():
            if line:
                self._write(stream, [line])

    def say(self, text: str) -> None:
        """Write a line about the container to the standard error of the node."""
        try:
            self._write(_STDERR, [f"muster: {text}".encode()])
        except OSError as error:
            self._is_lost(error)

    def _is_lost(self, error: OSError) -> None:
        sys.stderr.write(f"muster: output of container {self._name} is lost: {error}\n")

    def _copied(self) -> int:
        """How many lines an earlier follower has copied."""
        try:
            made, _, count = self._state.read_text().partition(" ")
        except OSError:
            return 0
        return int(count) if made == self._made and count.isdigit() else 0

    def _write(self, stream: int, lines: Sequence[bytes]) -> None:
        """Raises OSError."""
        start = b"[%s] " % self._name.encode()
        text = b"".join(start + line.rstrip(b"\r") + b"\n" for line in lines)
        descriptor = self.files.open(stream)
        if descriptor is None:
            return
        try:
            os.write(descriptor, text)
        finally:
            os.close(descriptor)
