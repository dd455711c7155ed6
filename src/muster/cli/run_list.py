"""The table and the JSON of `muster ps`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.cli.formats import output_format
from muster.cli.output import ago, print_cells, state
from muster.client.run_cells import run_cells
from muster.lifecycle.states import NodeState, RunState
from muster.store.records import NodeFilter

if TYPE_CHECKING:
    from muster.api.interface import MusterAPI
    from muster.store.records import RunSummary


#: Fields that are not of interest, or that `seconds` is made of.
_NOT_LISTED = ("ran_before", "running_since", "attempt")


def print_runs(runs: Sequence[RunSummary], api: MusterAPI) -> None:
    """Print a table. The NAME and BY columns are left out where they would say nothing, unless
    the format is `wide`."""
    wide = output_format() == "wide"
    named = wide or any(run.display_name for run in runs)
    several_users = wide or len({run.created_by for run in runs}) > 1
    print_cells(
        [
            "RUN",
            "ID",
            *(["NAME"] if named else []),
            "STATE",
            "NODES",
            "STARTED",
            *(["BY"] if several_users else []),
            "TIME",
            "DETAILS",
        ],
        [_cells(run, run.details or _waits_for(run, api)) for run in runs],
        drop=("BY", "ID", "NAME", "STARTED", "NODES"),
        shorten={"DETAILS": 40, "RUN": 16},
    )


def _waits_for(run: RunSummary, api: MusterAPI) -> str:
    """What the first node waits for that is in a queue; "" if none is."""
    if run.state not in (RunState.ACCEPTED, RunState.IN_PROGRESS):
        return ""
    queued = api.nodes(run.id, NodeFilter(states=(NodeState.QUEUED,), limit=1))
    return "".join(node.waits_for for node in queued)


def _cells(run: RunSummary, details: str) -> dict[str, str]:
    return {
        **run_cells(run, seconds=run.seconds(time.time()), details=details),
        "NAME": run.display_name or "-",
        "STATE": state(str(run.state)),
        "STARTED": "-" if run.started_at is None else ago(run.started_at),
        "BY": run.created_by or "-",
    }


def summary_dict(run: RunSummary) -> dict[str, object]:
    """A run as an entry of a JSON list."""
    from muster.describe.times import time_text

    names = [name for name in run.__struct_fields__ if name not in _NOT_LISTED]
    data: dict[str, object] = {name: getattr(run, name) for name in names}
    data["seconds"] = run.seconds(time.time())
    for name in ("created_at", "started_at", "finished_at"):
        data[name] = time_text(getattr(run, name))
    return data
