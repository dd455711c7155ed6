"""The runs that another one waits for (`RunOverrides.after`): which they are, and what of them it
finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.errors import InvalidInput, NotFound, Problem
from muster.lifecycle.states import RunState
from muster.plan.model import RunBefore
from muster.service.context import Context
from muster.service.readable import readable_run, why_no_output

if TYPE_CHECKING:
    from muster.service.event_inputs import Inputs

#: The most runs that one waits for: it watches each of them.
_MOST = 100


def find_runs(context: Context, names: Sequence[str]) -> tuple[RunBefore, ...]:
    """The runs of the project with these names or ids. Raises InvalidInput with each that does not
    exist, or cannot succeed any more."""
    problems: list[Problem] = []
    found: dict[str, RunBefore] = {}
    if len(names) > _MOST:
        text = f"has {len(names)} runs; the most are {_MOST}"
        raise InvalidInput(Problem("after", text, "wait for an array instead"))
    for name in names:
        try:
            run = readable_run(context, name)
        except NotFound as error:
            problems.append(Problem("after", str(error)))
            continue
        state = RunState(run.state)
        if state.terminal and state is not RunState.SUCCEEDED:
            text = f"{run.name} is {state}, so the run would never start"
            problems.append(Problem("after", text, f"`muster rerun {run.name}` runs it again"))
        found[run.id] = RunBefore(run.id, run.name)
    if problems:
        raise InvalidInput(*problems)
    return tuple(found.values())


def variables(runs: Sequence[RunBefore]) -> dict[str, str]:
    """Variables that name a single run before this one, as after an event."""
    if len(runs) != 1:
        return {}
    (run,) = runs
    succeeded = str(RunState.SUCCEEDED)
    return {
        "MUSTER_AFTER_RUN": run.name,
        "MUSTER_AFTER_RUN_ID": run.id,
        "MUSTER_AFTER_STATE": succeeded,
    }


def inputs_of_runs(context: Context, runs: Sequence[RunBefore]) -> Inputs:
    """The outputs of a single run before this one, as after an event."""
    from muster.service.event_inputs import Inputs, inputs_of_run, no_outputs

    if len(runs) != 1:
        return Inputs()
    (run,) = runs
    if why := why_no_output(context.caller, context.store, context.store.runs.summary(run.id)):
        return no_outputs(why)
    return inputs_of_run(context.home, run.id, run.name, context.submission.account)
