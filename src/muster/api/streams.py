"""The items of the streams that follow a run: its log, its events, its state."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from msgspec import Struct

from muster.storage.log_index import MESSAGES, StreamInfo
from muster.storage.log_reader import Unfinished
from muster.store.records import EventRecord, RunSummary

__all__ = [
    "EventItem",
    "Live",
    "LogChunk",
    "Notice",
    "Pause",
    "RunItem",
    "Selection",
    "StreamInfo",
    "Unfinished",
]


class Selection(Struct, frozen=True):
    """Which output to read; None = all. Muster's messages have no rank and no group."""

    ranks: Collection[int] | None = None
    groups: Collection[str] | None = None
    streams: Collection[str] | None = None
    #: Only this many of the lines that are present at the start.
    tail: int | None = None
    #: None = the newest attempt (of an array, all) and, when following, those after it.
    attempt: int | Literal["all"] | None = None
    #: Only lines recorded at this moment (epoch seconds) or later.
    since: float | None = None
    #: Only lines in which this regular expression (RE2) is found.
    grep: str | None = None
    #: The output of these services of the framework ("all": of each), not that of the program.
    services: Collection[str] | None = None

    @property
    def restricts(self) -> bool:
        """Whether it may name something that a run does not have."""
        return self not in (Selection(), Selection(attempt="all"))

    @property
    def with_messages(self) -> bool:
        """Whether Muster's messages are selected."""
        return self.selects(MESSAGES)

    def selects(self, stream: StreamInfo) -> bool:
        """Whether the output of a stream is selected."""
        return (
            (self.ranks is None or stream.rank in self.ranks)
            and (self.groups is None or stream.group in self.groups)
            and (self.streams is None or stream.stream in self.streams)
            and self._selects_service(stream.service)
        )

    def _selects_service(self, service: str) -> bool:
        if not self.services:
            return not service
        return bool(service) and (service in self.services or "all" in self.services)


class LogChunk(Struct, frozen=True, tag=True):
    """Some whole lines of one stream of a run."""

    #: When the lines were recorded, in nanoseconds since the epoch.
    time_ns: int
    stream: StreamInfo
    #: Ends with a newline.
    data: bytes
    #: The attempt that wrote them.
    attempt: int
    #: Of a message of Muster: the kind of its event, or `queued` if nodes wait; else "".
    kind: str = ""


class Pause(Struct, frozen=True, tag=True):
    """All lines that are finished by now have been sent."""

    unfinished: tuple[Unfinished, ...]


class Notice(Struct, frozen=True, tag=True):
    """A warning of something that may keep a run from continuing."""

    #: `not_answering`: its supervisor is stopped or hangs. `low_space`: the disk is full.
    kind: Literal["not_answering", "low_space"]
    text: str


class EventItem(Struct, frozen=True, tag=True):
    """An entry of a run's event log."""

    entry: EventRecord


class RunItem(Struct, frozen=True, tag=True):
    """A run as it is now."""

    run: RunSummary


class Live(Struct, frozen=True):
    """When a followed log contains a `Pause`, for a reader that shows lines while they grow."""

    #: Seconds between two of them while lines arrive, at least.
    busy: float
    #: Seconds between two of them while nothing arrives, at most.
    quiet: float
