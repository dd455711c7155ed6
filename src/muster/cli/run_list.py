"""The table and the JSON of `muster runs list`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from muster.cli.formats import output_format
from muster.cli.output import ago, print_table, state
from muster.describe.times import span

if TYPE_CHECKING:
    from muster.store.records import RunSummary


#: Fields that `seconds` is made of.
_PARTS_OF_SECONDS = ("ran_before", "running_since")


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


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else span(seconds)


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
    "TIME": lambda run: _time(run.seconds(time.time())),
    "DETAILS": _details,
}


def summary_dict(run: RunSummary) -> dict[str, object]:
    """A run as an entry of a JSON list."""
    from muster.describe.times import time_text

    names = [name for name in run.__struct_fields__ if name not in _PARTS_OF_SECONDS]
    data: dict[str, object] = {name: getattr(run, name) for name in names}
    data["seconds"] = run.seconds(time.time())
    for name in ("created_at", "started_at", "finished_at"):
        data[name] = time_text(getattr(run, name))
    return data
