"""The table and the JSON of `muster runs list`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from muster.cli.formats import output_format
from muster.cli.output import ago, elapsed, print_table, state

if TYPE_CHECKING:
    from muster.store.records import RunSummary


def print_runs(runs: Sequence[RunSummary]) -> None:
    """Print a table. The NAME and BY columns are left out where they would say nothing, unless
    the format is `wide`."""
    columns = dict(_COLUMNS)
    wide = output_format() == "wide"
    if not wide and not any(run.display_name for run in runs):
        del columns["NAME"]
    if not wide and len({run.created_by for run in runs}) == 1:
        del columns["BY"]
    print_table(
        [*columns],
        [[cell(run) for cell in columns.values()] for run in runs],
        drop=("BY", "ID", "NAME", "STARTED", "NODES"),
        shorten={"DETAILS": 40, "RUN": 16},
    )


def _details(run: RunSummary) -> str:
    from muster.describe.failure import cause_first

    return cause_first(run.details)


#: Header -> the cell of a run.
_COLUMNS: dict[str, Callable[[RunSummary], str]] = {
    "RUN": lambda run: run.name,
    "ID": lambda run: run.id,
    "NAME": lambda run: run.display_name or "-",
    "STATE": lambda run: state(str(run.state)),
    "NODES": lambda run: str(run.node_count),
    "STARTED": lambda run: ago(run.created_at),
    "BY": lambda run: run.created_by or "-",
    "TIME": lambda run: "-" if run.started_at is None else elapsed(run.started_at, run.finished_at),
    "DETAILS": _details,
}


def summary_dict(run: RunSummary) -> dict[str, object]:
    """A run as an entry of a JSON list."""
    from muster.describe.times import time_text

    data: dict[str, object] = {name: getattr(run, name) for name in run.__struct_fields__}
    for name in ("created_at", "started_at", "finished_at"):
        data[name] = time_text(getattr(run, name))
    return data
