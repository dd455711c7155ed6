"""Delete a run that has ended: its record, its event log and its folder."""

from __future__ import annotations

from muster.control import run_lock
from muster.control.expire import delete_run
from muster.errors import InvalidInput, Problem
from muster.lifecycle.states import RunState
from muster.service.context import Context
from muster.store.records import CorruptRecord


def delete(context: Context, run_id: str) -> None:
    """Delete a run that has ended, or whose record is corrupt and that has no supervisor.

    Raises InvalidInput if the run has not ended, and NotDeleted if files cannot be removed.
    """
    try:
        run = context.store.runs.get(run_id)
    except CorruptRecord:
        if run_lock.is_held(context.home.run_dir(run_id).lock):
            name = context.store.runs.summary(run_id).name
            raise _not_ended_error(f"{name} is still running", run_id) from None
    else:
        if not RunState(run.state).terminal:
            raise _not_ended_error(f"{run.name} is {run.state}", run.name)
    delete_run(context.store, context.home, run_id)


def _not_ended_error(text: str, run: str) -> InvalidInput:
    return InvalidInput(Problem("", text, f"`muster cancel {run}` ends it"))
