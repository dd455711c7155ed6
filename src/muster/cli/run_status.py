"""The live status of a run: how far it is, and the unfinished lines of its programs."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from muster.api.streams import Live
from muster.cli.live_area import LiveArea, Piece
from muster.cli.log_printer import writer_name
from muster.cli.terminal import symbol
from muster.describe.colors import STATE_COLORS
from muster.describe.replicas import ENDED, progress
from muster.describe.words import plural
from muster.escapes import visible_line
from muster.program_text import final_text, without_controls

if TYPE_CHECKING:
    from muster.api.streams import LogChunk, Pause, StreamInfo, Unfinished
    from muster.client.run import JobRun

#: Seconds between two drawings while output arrives, and while nothing happens.
_BUSY, _QUIET = 0.1, 1.0
#: Unfinished lines that are shown, one per node.
_MAX_LINES = 4
#: Seconds over which the rate of an array is measured.
_RATE_OVER = 30.0
_TAIL = 400  # bytes at the end of some output that may say how far the program is
_STEP = re.compile(
    rb"(?i)\b(epoch|step|iter|iteration|batch|round)s?\b[ :=#\[(]{0,3}(\d+) ?(?:/|of) ?(\d+)"
)


class RunStatus:
    """Draws the live area of a run that is followed."""

    #: When the log is to pause.
    live = Live(_BUSY, _QUIET)

    def __init__(self, run: JobRun, area: LiveArea, *, max_restarts: int) -> None:
        self._run = run
        self._area = area
        self._max_restarts = max_restarts
        self._arrays = run.arrays()
        #: When how many replicas of an array had ended.
        self._ended: deque[tuple[float, int]] = deque()
        self._separator = symbol(" · ", " - ", err=True)
        self._drawn_at = self._read_at = 0.0
        self._stale = True  # something happened to the run since its state was read
        self._status: list[Piece] = []
        self._step = ""
        self._lines: list[tuple[StreamInfo, str]] = []

    def note(self, chunk: LogChunk) -> None:
        """Call this after the output was printed."""
        self._stale = self._stale or bool(chunk.kind)
        if not chunk.kind:
            self._step = step(chunk.data) or self._step
        if time.monotonic() - self._drawn_at >= _BUSY:
            self._draw()

    def pause(self, pause: Pause) -> None:
        """Call this when all output is printed."""
        self._lines = list(_texts(pause.unfinished))
        self._draw()

    def _draw(self) -> None:
        now = time.monotonic()
        # each replica of an array that starts or ends has messages
        stale = self._stale and not self._arrays
        if stale or now - self._read_at >= _QUIET:
            self._status, self._stale, self._read_at = self._read(), False, now
        shown = self._lines[: min(_MAX_LINES, self._area.room - 1)]
        lines = [
            [(f"{writer_name(stream, self._arrays)} | ", "dim"), (text, "")]
            for stream, text in shown
        ]
        step = [(self._separator + self._step, "")] if self._step else []
        self._area.draw([*lines, [*self._status, *step]])
        self._drawn_at = time.monotonic()

    def _read(self) -> list[Piece]:
        run = self._run.refresh()
        state = "RUNNING" if run.state == "IN_PROGRESS" else run.state
        rate = ""
        if self._arrays:
            # the rate is last: a narrow terminal may cut it
            known, _, rate = self._progress().partition(" left, ")
            parts = [f"{known} left" if rate else known]
        else:
            parts = [nodes_text([node.state for node in run.nodes])]
        if run.seconds is not None:
            parts.append(clock(run.seconds))
        if number := run.restarts:
            limit = f" of {self._max_restarts}" if number <= self._max_restarts < 1000 else ""
            parts.append(f"restart {number}{limit}")
        parts += [rate] if rate else []
        pieces = [(run.name, "bold"), (f" {state} ", STATE_COLORS.get(state) or "")]
        return [*pieces, (self._separator.join(parts), "")]

    def _progress(self) -> str:
        """How far the array is, with the rate of the last half minute."""
        states, now = self._run.replica_states, time.monotonic()
        self._ended.append((now, sum(states.get(state, 0) for state in ENDED)))
        while self._ended[0][0] < now - _RATE_OVER:
            self._ended.popleft()
        (before, first), (_, last) = self._ended[0], self._ended[-1]
        per_second = (last - first) / (now - before) if now - before >= 1 else None
        return progress(states, sum(states.values()), per_second)


def nodes_text(states: list[str]) -> str:
    """How many of the nodes are ready, and how many have ended."""
    count = len(states)
    ready = sum(state == "READY" for state in states)
    text = f"{ready}/{plural(count, 'node')} ready"
    ended = [(name, sum(s == name.upper() for s in states)) for name in ("succeeded", "failed")]
    return ", ".join([text, *(f"{number} {name}" for name, number in ended if number)])


def clock(seconds: float) -> str:
    """A running time: 0:07, 1:24, 2:03:04."""
    minutes, second = divmod(int(max(seconds, 0)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def step(output: bytes) -> str:
    """How far the program is by the end of its output, such as `epoch 3/10 30%`; "" if it does not
    say."""
    found = list(_STEP.finditer(output[-_TAIL:]))
    if not found:
        return ""
    what, number, total = (group.decode() for group in found[-1].groups())
    share = f" {int(number) * 100 // int(total)}%" if int(total) >= int(number) > 0 else ""
    return f"{what.lower()} {number}/{total}{share}"


def _texts(unfinished: Iterable[Unfinished]) -> Iterable[tuple[StreamInfo, str]]:
    """The text that each node's unfinished line shows; of several streams, that of the first."""
    seen: set[int | None] = set()
    for stream, line in unfinished:
        text = without_controls(final_text(line)).decode(errors="replace").strip()
        if text and stream.rank not in seen:
            seen.add(stream.rank)
            yield stream, visible_line(text.replace("\t", " "))
