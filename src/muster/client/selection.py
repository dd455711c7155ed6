"""Which output of a run to read."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.service.nodes import unknown_ranks
from muster.service.run_details import attempts_with_output
from muster.spec.wording import alternatives
from muster.storage.home import Home
from muster.storage.log_index import MESSAGES, StreamInfo
from muster.store.records import RunRecord

_STREAMS = ("stdout", "stderr", "service")


class Selection(Struct, frozen=True):
    """Which output to read; None = all. Muster's messages have no rank and no group."""

    ranks: Collection[int] | None = None
    groups: Collection[str] | None = None
    streams: Collection[str] | None = None
    #: Only this many of the lines that are present at the start.
    tail: int | None = None
    #: None = the newest attempt and, when following, those after it.
    attempt: int | Literal["all"] | None = None
    #: Only lines recorded at this moment (epoch seconds) or later.
    since: float | None = None
    #: Only lines in which this regular expression (RE2) is found.
    grep: str | None = None
    #: The output of these services of the framework ("all": of each), not that of the program.
    services: Collection[str] | None = None

    def __call__(self, stream: StreamInfo) -> bool:
        return (
            (self.ranks is None or stream.rank in self.ranks)
            and (self.groups is None or stream.group in self.groups)
            and (self.streams is None or stream.stream in self.streams)
            and self._selects_service(stream.service)
        )

    @property
    def messages(self) -> bool:
        """Whether Muster's messages are selected."""
        return self(MESSAGES)

    def _selects_service(self, service: str) -> bool:
        if not self.services:
            return not service
        return bool(service) and (service in self.services or "all" in self.services)


def problems(
    selection: Selection, run: str, sizes: Mapping[str, int], services: Collection[str]
) -> Iterator[Problem]:
    """Problems with a selection: parts that the run does not have.

    run: its name. sizes: group -> number of nodes. services: those with their own output.
    """
    last = sum(sizes.values()) - 1
    no_services = "no service of the run has its own output: leave --service out"
    if absent := [rank for rank in selection.ranks or () if rank not in range(last + 1)]:
        yield unknown_ranks(run, absent, f"ranks are 0 to {last}")
    chosen: list[tuple[str, Collection[str] | None, Collection[str], str]] = [
        ("group", selection.groups, sizes, f"use {alternatives(sizes)}"),
        ("stream", selection.streams, _STREAMS, f"use {alternatives(_STREAMS)}"),
        (
            "service",
            selection.services,
            services,
            f"use {alternatives(services)}" if services else no_services,
        ),
    ]
    for noun, values, known, hint in chosen:
        unknown = [value for value in values or () if value not in known]
        if unknown:
            yield Problem(noun, f"{run} has no {noun} {', '.join(unknown)}", hint)
    streams = selection.streams
    of_nodes = selection.ranks or selection.groups or selection.services
    if streams and {*streams} == {"service"} and of_nodes:
        text = "Muster's own messages belong to no node"
        yield Problem("stream", text, "select them without ranks, groups or services")
    if selection.grep is not None and (problem := _pattern_problem(selection.grep)):
        yield problem
    if selection.tail is not None and selection.tail < 0:
        yield Problem("tail", f"must be at least 0, not {selection.tail}")


def _pattern_problem(pattern: str) -> Problem | None:
    from muster.spec.patterns import check_pattern
    from muster.spec.wording import Refused

    try:
        check_pattern(pattern)
    except Refused as error:
        return Problem("grep", error.message, error.hint)
    return None


def check_attempt(home: Home, run: RunRecord, attempt: int) -> None:
    """Raises InvalidInput if the attempt has no output and will have none."""
    known = sorted({*attempts_with_output(home, run.id), run.attempt})
    if attempt not in known:
        text = f"attempt {attempt} of {run.name} has no output"
        hint = f"attempts with output: {', '.join(map(str, known))}"
        raise InvalidInput(Problem("attempt", text, hint))


def epoch_seconds(since: datetime | timedelta) -> float:
    """Epoch seconds of an aware time, or of the moment this long ago. Raises InvalidInput."""
    if isinstance(since, timedelta):
        return time.time() - since.total_seconds()
    if isinstance(since, datetime) and since.tzinfo is not None:
        return since.timestamp() - 1e-6  # stored times are finer than those of `created_at`
    text = f"must be an aware datetime or a timedelta, not {since!r}"
    raise InvalidInput(Problem("since", text, "such as timedelta(hours=1), or datetime.now(UTC)"))
