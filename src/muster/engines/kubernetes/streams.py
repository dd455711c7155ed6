"""Answers of an API server that last: changes of objects, and logs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from muster.engines.kubernetes.answers import LONGEST_OBJECT, decoded, excerpt
from muster.engines.kubernetes.excerpts import Line
from muster.engines.kubernetes.refusals import Operation, refusal

if TYPE_CHECKING:
    import urllib3

#: Bytes of a line that are read of a log.
_LONGEST_LINE = 1 << 20
#: Seconds after which the server ends a stream of changes, as is requested.
STREAM_SECONDS = 300


class VersionExpired(Exception):  # noqa: N818
    """The changes since a version are not known any more: list again."""


class Event(Struct, frozen=True):
    """A change of an object. type: ADDED, MODIFIED, DELETED, or BOOKMARK for none."""

    type: str
    item: dict[str, Any]

    @property
    def version(self) -> str:
        """Changes can be watched from here on."""
        about = self.item.get("metadata")
        return str(about.get("resourceVersion", "")) if isinstance(about, dict) else ""


class ByteStream:
    """The lines of an answer that lasts. It ends as the server, or something on the way, ends it;
    nothing is said of why. Iterated once.

    longest: bytes after which a line ends; the rest of it is left out.
    """

    def __init__(self, answer: urllib3.BaseHTTPResponse, longest: int = _LONGEST_LINE) -> None:
        self._answer, self._longest = answer, longest
        self._is_read = False

    def __iter__(self) -> Iterator[bytes]:
        """Lines without their ends. What is left of one that was cut off is not one."""
        line, is_whole = bytearray(), False
        for chunk in self._chunks():
            for number, part in enumerate(chunk.split(b"\n")):
                if number:  # the one before has ended
                    if not is_whole:
                        yield bytes(line)
                    line, is_whole = bytearray(), False
                if not is_whole:
                    line += part[: self._longest - len(line)]
                    if is_whole := len(line) == self._longest:
                        yield bytes(line)

    def _chunks(self) -> Iterator[bytes]:
        import urllib3

        self._is_read = True
        try:
            yield from self._answer.stream(1 << 16)
        # it was cut off, or was silent for too long; or it was closed by another thread
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError):
            return
        finally:
            self._answer.close()

    def close(self) -> None:
        """End it, in whatever thread it is read."""
        # without this, the other thread waits for the next bytes
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            self._answer.shutdown()
        if not self._is_read:  # else whoever reads it closes it
            self._answer.close()


class Watch:
    """A stream of changes (`ByteStream`). Raises VersionExpired, CannotCall."""

    def __init__(self, operation: Operation, answer: urllib3.BaseHTTPResponse) -> None:
        self._operation, self._stream = operation, ByteStream(answer, LONGEST_OBJECT)

    def __iter__(self) -> Iterator[Event]:
        for line in self._stream:
            if line:
                yield self._change(line)

    def _change(self, line: bytes) -> Event:
        event = decoded(line, Line)
        kind, raw = str(event.get("type", "")), event.get("object", msgspec.Raw(b"null"))
        if kind != "ERROR":
            return Event(kind, excerpt(raw))
        found = decoded(raw)
        code = found.get("code")
        status = code if isinstance(code, int) else 500
        if status == 410:
            raise VersionExpired
        raise refusal(self._operation, status, found)

    def close(self) -> None:
        """End it, in whatever thread it is read."""
        self._stream.close()
