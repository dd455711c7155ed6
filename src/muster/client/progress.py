"""A run's progress in a notebook, while a cell waits for the run.

With ipywidgets a bar and the latest lines, else the same as HTML. At the end, the widget gives way
to HTML, which is saved with the notebook.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import copy
from typing import TYPE_CHECKING, Any

from muster.client.html import card, lines
from muster.describe.failure import one_line
from muster.describe.replicas import ENDED, progress
from muster.describe.times import span
from muster.errors import MusterError
from muster.lifecycle.states import NodeState
from muster.program_text import final_text, without_controls

if TYPE_CHECKING:
    from muster.client.run import JobRun

_INTERVAL = 1.0  # seconds between updates: the time that has passed is shown
_LINES = 5
_WIDTH = 160
_READ_NODES = 16  # reading the ends of many files every second would take a part of a processor
_PROGRAM = ("stdout", "stderr")
_REACHED = (NodeState.READY, NodeState.SUCCEEDED)


@contextmanager
def shown(run: JobRun) -> Iterator[dict[str, Any]]:
    """Show the run's progress. Yields the options of `following.wait` that keep it up to date."""
    progress = _Progress(copy(run))
    try:
        yield {"every": _INTERVAL, "show": progress.update}
    finally:
        progress.finish()


class _Progress:
    def __init__(self, run: JobRun) -> None:
        from IPython.display import display

        self._run = run.refresh()
        self._widget = _Widget(run) if _has_widgets() else None
        shown = self._widget.box if self._widget else Shown(run)
        self._display = display(shown, display_id=True)  # type: ignore[no-untyped-call]

    def update(self) -> None:
        with suppress(MusterError):  # a damaged log, or a deleted run, which ends the wait
            self._run.refresh()
            if self._widget:
                self._widget.update()
            else:
                self._display.update(Shown(self._run))

    def finish(self) -> None:
        with suppress(MusterError):
            self._display.update(Shown(self._run.refresh()))
        if self._widget:
            self._widget.close()


class Shown:
    """A run's progress at one moment, as text and as HTML."""

    def __init__(self, run: JobRun) -> None:
        restarts = run.restarts
        self._name, self._state = run.name, run.state
        self._facts = {
            **(self._of_array(run) if run.has_array else self._of_nodes(run)),
            "time": "" if run.seconds is None else span(run.seconds),
            "restarts": str(restarts) if restarts else "",
            "details": one_line(run.details),
        }
        self.output = "\n".join(latest_lines(run))

    def _of_array(self, run: JobRun) -> dict[str, str]:
        states = run.replica_states
        self.total = sum(states.values())
        self.reached = sum(states.get(state, 0) for state in ENDED)
        return {"replicas": progress(states, self.total)}

    def _of_nodes(self, run: JobRun) -> dict[str, str]:
        nodes = run.nodes
        states = Counter(node._cells()["STATE"] for node in nodes)
        self.total = len(nodes)
        self.reached = sum(node.state in _REACHED for node in nodes)
        ready = sum(node.state == NodeState.READY for node in nodes)
        return {
            "nodes": ", ".join(f"{count} {state}" for state, count in states.items()),
            "ready": f"{ready} of {states['RUNNING']}" if states["RUNNING"] else "",
        }

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts.items() if value)
        return f"{self._name} {self._state}: {facts}"

    def _repr_html_(self) -> str:
        output = [lines(self.output)] if self.output else []
        return card(self._name, self._state, self._facts, *output)


class _Widget:
    """The same with a bar: how many nodes are ready or have succeeded, or how many replicas of an
    array have ended."""

    def __init__(self, run: JobRun) -> None:
        import ipywidgets

        self._run = run
        self._bar = ipywidgets.IntProgress()
        self._text = ipywidgets.HTML()
        self.box = ipywidgets.VBox([self._bar, self._text])
        self.update()

    def update(self) -> None:
        shown = Shown(self._run)
        self._bar.max, self._bar.value = shown.total, shown.reached
        self._text.value = shown._repr_html_()

    def close(self) -> None:
        for widget in (self.box, self._bar, self._text):
            widget.close()


def _has_widgets() -> bool:
    from importlib.util import find_spec

    return find_spec("ipywidgets") is not None


def latest_lines(run: JobRun) -> list[str]:
    """The last lines that its first nodes have written, without colors. Of a line that a program
    rewrites, such as a progress bar, what it shows now."""
    found = []
    nodes = sum(run.group_sizes().values())
    ranks = range(min(nodes, _READ_NODES))
    for record in run.logs(streams=_PROGRAM, ranks=ranks, tail=_LINES):
        last = final_text(record.message.encode(errors="surrogateescape"))
        text = without_controls(last).decode(errors="surrogateescape").rstrip()
        shown = text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
        found.append(f"[{record.rank}] {shown}" if nodes > 1 else shown)
    return found
