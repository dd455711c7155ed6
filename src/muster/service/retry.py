"""Prepare a run of some replicas of an array that has ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.api.prepared import PreparedRun
from muster.api.retry import Retry
from muster.describe.replicas import replica_state
from muster.errors import InvalidInput, Problem
from muster.lifecycle.policy import GroupPolicy
from muster.lifecycle.ranks import format_ranks, shortened_ranks
from muster.lifecycle.states import AT_REST, RunState
from muster.service.context import Context
from muster.service.readable import readable_job
from muster.service.rerun import run_again
from muster.service.stored_spec import overrides_of
from muster.spec.override_models import GroupOverrides
from muster.spec.values import RETRY_TAG
from muster.store.records import NodeRecord, RunRecord
from muster.store.run_columns import StoredPlan

if TYPE_CHECKING:
    from muster.api.submissions import PresentCode
    from muster.store.base import Store


def prepare_retry(
    context: Context,
    run: RunRecord,
    chosen: Retry,
    *,
    present_code: PresentCode | None = None,
    notes: Sequence[str] = (),
) -> PreparedRun:
    """See `MusterAPI.prepare_retry`. present_code: see `run_again`. notes: more notes."""
    group = _array(run)
    numbers = _numbers(context.store, run, group, chosen)
    job = readable_job(context, run.job_id)
    job.check_active()
    overrides = overrides_of(context.home, run)
    only, name = format_ranks(numbers), group.name
    tags = {**overrides.tags, RETRY_TAG: run.name}
    overrides = replace(overrides, tags=tags, run_name=None, suspend=False, after=None)
    if len(StoredPlan(run).group_sizes()) == 1 and name not in overrides.node_groups:
        overrides = replace(overrides, only=only)
    else:
        of_group = replace(overrides.node_groups.get(name, GroupOverrides()), only=only)
        overrides = replace(overrides, node_groups={**overrides.node_groups, name: of_group})
    text = f"retries {len(numbers):,} of {group.replicas:,} replicas of {run.name}"
    notes = [f"{text}: {shortened_ranks(numbers)}", *notes]
    return run_again(
        *(context, job, run, overrides, notes),
        update_code=chosen.update_code,
        present_code=present_code,
    )


def _array(run: RunRecord) -> GroupPolicy:
    """The array whose replicas run again. Raises InvalidInput."""
    arrays = StoredPlan(run).arrays()
    if not arrays:
        hint = f"`muster run {run.job_name}` runs its job again"
        raise InvalidInput(Problem("", f"{run.name} has no array", hint))
    if len(arrays) > 1:
        text = f"{run.name} has {len(arrays)} arrays"
        hint = "start its job again, with --set node_groups[GROUP].only=N,N-N for each"
        raise InvalidInput(Problem("", text, hint))
    if run.state not in AT_REST:
        hint = f"`muster wait {run.name}` waits for its end, `muster cancel {run.name}` ends it"
        raise InvalidInput(Problem("", f"{run.name} is still {run.state}", hint))
    if run.state == RunState.SUSPENDED:
        hint = f"`muster runs resume {run.name}` continues it"
        raise InvalidInput(Problem("", f"{run.name} is SUSPENDED", hint))
    return arrays[0]


def _numbers(store: Store, run: RunRecord, group: GroupPolicy, chosen: Retry) -> list[int]:
    """The chosen replicas, in order. Raises InvalidInput if there is none."""
    if chosen.only is not None:
        return _named(run, group, chosen.only)
    states = _states(store.runs.nodes(run.id), group)
    desired = [number for part in group.numbers for number in part]
    if chosen.which == "unfinished":
        found = [number for number in desired if states.get(number) != "SUCCEEDED"]
        if not found:
            raise InvalidInput(Problem("", f"all replicas of {run.name} have succeeded"))
        return found
    found = [number for number in desired if states.get(number) == "FAILED"]
    if not found:
        unfinished = sum(states.get(number) != "SUCCEEDED" for number in desired)
        hint = f"--unfinished retries {unfinished:,} that have not succeeded" if unfinished else ""
        raise InvalidInput(Problem("", f"no replica of {run.name} has failed", hint))
    return found


def _named(run: RunRecord, group: GroupPolicy, text: str) -> list[int]:
    from muster.spec.replica_numbers import parse_numbers
    from muster.spec.wording import Refused

    try:
        parts = parse_numbers(text)
    except Refused as error:
        raise InvalidInput(Problem("only", error.message, error.hint)) from None
    if parts[-1].stop > group.replicas:  # before the numbers are counted up
        hint = f"its replicas are 0 to {group.replicas - 1}"
        raise InvalidInput(Problem("only", f"{run.name} has no replica {parts[-1].stop - 1}", hint))
    return [number for part in parts for number in part]


def _states(nodes: Collection[NodeRecord], group: GroupPolicy) -> Mapping[int, str]:
    """Replica -> its state, of those that have started."""
    states: dict[int, set[str]] = {}
    for node in nodes:
        if node.group == group.name:
            states.setdefault(node.replica, set()).add(node.state)
    return {number: replica_state(each) for number, each in states.items()}
