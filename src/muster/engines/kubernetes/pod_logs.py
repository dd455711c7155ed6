"""What containers have written, as their machines keep it (Kubernetes: the subresource `log` of
pods), for pods that no node program answers in.

A log is there while its pod is, and of a long one only the end: machines rotate it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from muster.engines.kubernetes.cluster import ByteStream, Cluster

#: Lines that are read for the end of a container, and seconds for which that is tried again.
_TAIL, _RETRY_FOR = 40, 2.0
_SECOND = 1_000_000_000


class LogLine(NamedTuple):
    """A line of a container."""

    #: Nanoseconds since the epoch.
    time: int
    #: Without its end.
    content: bytes


class Position(NamedTuple):
    """How far a log was read: the time of the last line, and how many lines have that time."""

    time: int = 0
    lines: int = 0

    @property
    def since(self) -> str | None:
        """From where on to read: a time as the API has it, which knows whole seconds only."""
        if not self.time:
            return None
        return f"{datetime.fromtimestamp(self.time // _SECOND, UTC):%Y-%m-%dT%H:%M:%SZ}"

    def after(self, line: LogLine) -> Position:
        """The position behind a line that follows."""
        return Position(line.time, self.lines + 1 if line.time == self.time else 1)


def tail(cluster: Cluster, pod: str, container: str) -> str:
    """The last lines of a container, without the spaces around them. Raises CannotCall."""
    content = cluster.log(pod, container, lines=_TAIL, retry_for=_RETRY_FOR)
    return content.decode(errors="replace").strip()


class LogReader:
    """Reads the log of a container, from a position on. One thread at a time may read."""

    def __init__(
        self, cluster: Cluster, pod: str, container: str, position: Position | None = None
    ) -> None:
        self._cluster, self._names = cluster, (pod, container)
        #: Behind the line that was read last.
        self.position = position or Position()
        self._lock = threading.Lock()
        self._stream: ByteStream | None = None
        self._interrupted = False

    def rest(self) -> Iterator[LogLine]:
        """All that is new, of a container that has ended. Raises CannotCall."""
        content = self._cluster.log(*self._names, self.position.since, timestamps=True)
        # progress bars have a carriage return within a line
        return self._new(content.split(b"\n"))

    def new(self, *, follow: bool) -> Iterator[LogLine]:
        """What is new, without a line that has no end yet. follow: also what is written until the
        container ends, the connection is lost, or this is interrupted. Raises CannotCall."""
        stream = self._cluster.stream_log(*self._names, self.position.since, follow=follow)
        with self._lock:
            self._stream = stream
            if self._interrupted:
                stream.close()
        try:
            yield from self._new(stream)
        finally:
            with self._lock:
                self._stream = None

    def allow(self) -> None:
        """It may be read again, after an interrupt."""
        with self._lock:
            self._interrupted = False

    def interrupt(self) -> None:
        """End what reads the log, or is about to, in whatever thread."""
        with self._lock:
            self._interrupted = True
            if self._stream is not None:
                self._stream.close()

    def _new(self, lines: Iterable[bytes]) -> Iterator[LogLine]:
        """Those behind the position, which moves on."""
        start, same = self.position, 0
        for text in lines:
            line = parse(text)
            if line is None or line.time < start.time:
                continue
            if line.time == start.time:
                same += 1
                if same <= start.lines:
                    continue
            self.position = self.position.after(line)
            yield line


def parse(text: bytes) -> LogLine | None:
    """A line that begins with its time, as in `2026-03-01T12:00:00.123456789Z epoch 1`; None if
    it does not."""
    stamp, _, content = text.partition(b" ")
    time = _nanoseconds(stamp.decode(errors="replace"))
    return None if time is None else LogLine(time, content)


def _nanoseconds(stamp: str) -> int | None:
    """`datetime` knows microseconds only."""
    whole, dot, rest = stamp.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    try:
        seconds = datetime.fromisoformat(whole + rest[len(digits) :] if dot else stamp)
    except ValueError:
        return None
    if seconds.tzinfo is None:
        return None
    return int(seconds.timestamp()) * _SECOND + int(digits[:9].ljust(9, "0"))
