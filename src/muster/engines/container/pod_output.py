"""Copies what the other containers of a node write to the node's output, line by line."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from muster.engines.container.api import CannotReach, Daemon, Refused

#: Bytes of a line, at most; a longer one is cut into several.
_LONGEST = 1 << 16
_STDERR = 2


class Follower:
    """Follows the output of one container, in a thread. Each line goes to the file of its stream,
    after the name of the container. files: those for standard output and error. state: a file that
    remembers how many lines were copied, for the next follower."""

    def __init__(
        self, daemon: Daemon, made: str, name: str, files: tuple[str, str], state: Path
    ) -> None:
        self._daemon, self._made, self._name = daemon, made, name
        self._files, self._state = files, state
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for the end of the output of a container that has ended. timeout: seconds."""
        self._thread.join(timeout)

    def _follow(self) -> None:
        copied, seen = self._copied(), 0
        rest = {1: b"", _STDERR: b""}
        try:
            for stream, data in self._daemon.output(self._made):
                *lines, rest[stream] = (rest[stream] + data).split(b"\n")
                if len(rest[stream]) > _LONGEST:
                    lines.append(rest[stream])
                    rest[stream] = b""
                new = lines[max(0, copied - seen) :]
                seen += len(lines)
                if new:
                    self._write(stream, new)
                    self._state.write_text(f"{self._made} {seen}")
            for stream, line in rest.items():
                if line and seen >= copied:
                    self._write(stream, [line])
        except (CannotReach, Refused):
            pass  # who looks at the container follows it again
        except OSError as error:
            text = f"muster: output of container {self._name} is lost: {error}\n"
            sys.stderr.write(text)

    def _copied(self) -> int:
        """How many lines an earlier follower has copied."""
        try:
            made, _, count = self._state.read_text().partition(" ")
        except OSError:
            return 0
        return int(count) if made == self._made and count.isdigit() else 0

    def _write(self, stream: int, lines: Sequence[bytes]) -> None:
        """Raises OSError."""
        path = self._files[1 if stream == _STDERR else 0]
        start = b"[%s] " % self._name.encode()
        text = b"".join(start + line.rstrip(b"\r") + b"\n" for line in lines)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.write(descriptor, text)
        finally:
            os.close(descriptor)
