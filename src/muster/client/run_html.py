"""A run in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.client.html import card, details, lines
from muster.describe.times import minute, span
from muster.describe.words import plural

if TYPE_CHECKING:
    from muster.client.run_facts import RunFacts

#: A longer table of nodes is closed at first.
_OPEN_NODES = 8


def run_card(run: RunFacts) -> str:
    """A run, why it is in its state, and its nodes."""
    nodes = run.shown_nodes
    facts = {
        "name": run.display_name or "",
        "id": run.id,
        "started": "" if run.started_at is None else minute(run.started_at),
        "replicas": run.progress() if run.has_array else "",
        "time": "" if run.seconds is None else span(run.seconds),
        "exit code": "" if run.exit_code is None else str(run.exit_code),
        "tags": ", ".join(f"{name}={value}" for name, value in run.tags.items()),
        "hint": run.hint,
    }
    parts = [lines(run.details)] if run.details else []
    table = nodes._repr_html_()
    count = plural(len(nodes), "node") + (" that run or failed" if run.has_array else "")
    parts.append(table if len(nodes) <= _OPEN_NODES else details(count, table))
    return card(run.name, run.state, facts, *parts)
