"""The lines of a run's log, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from muster.describe.times import moment, rfc3339

if TYPE_CHECKING:
    from muster.api.streams import LogChunk


class LogRecord(Struct, frozen=True):
    """One line of a run's output, or a message of Muster (stream `service`)."""

    #: In UTC.
    time: datetime
    #: The node's rank; None for a message of Muster.
    rank: int | None
    #: "" for a message of Muster, as is `node_id`.
    group: str
    node_id: str
    attempt: int
    #: stdout, stderr or service.
    stream: str
    #: Without the newline.
    message: str
    #: The rank of the process on its node; None for a launcher's own lines.
    local_rank: int | None
    #: The name of the framework's service that wrote the line.
    service: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON-ready data; the time as RFC 3339 text."""
        return {
            "time": rfc3339(self.time),
            "rank": self.rank,
            "group": self.group,
            "node_id": self.node_id,
            "attempt": self.attempt,
            "stream": self.stream,
            "message": self.message,
            "local_rank": self.local_rank,
            "service": self.service,
        }


def records(chunk: LogChunk) -> Iterator[LogRecord]:
    """The lines of a chunk. Bytes that are not UTF-8 are replaced.

    A carriage return does not end a line: all states of a progress bar are one line.
    """
    stream, time = chunk.stream, moment(chunk.time_ns / 1e9)
    for line in chunk.data[:-1].split(b"\n"):
        yield LogRecord(
            time=time,
            rank=stream.rank,
            group=stream.group,
            node_id=stream.node_id,
            attempt=chunk.attempt,
            stream=stream.stream,
            message=line.decode(errors="replace"),
            local_rank=stream.local_rank,
            service=stream.service,
        )
