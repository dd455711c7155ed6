"""The row of a run in the tables of commands and notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.describe.failure import cause_first
from muster.describe.times import minute, moment, span

if TYPE_CHECKING:
    from muster.store.records import RunRecord, RunSummary


def run_cells(
    run: RunRecord | RunSummary, *, seconds: float | None, details: str
) -> dict[str, str]:
    """Header -> text. seconds: how long it has run. details: why it is in its state."""
    return {
        "RUN": run.name,
        "ID": run.id,
        "STATE": str(run.state),
        "NODES": str(run.node_count),
        "CREATED": minute(moment(run.created_at)),
        "TIME": "-" if seconds is None else span(seconds),
        "DETAILS": cause_first(details),
    }
