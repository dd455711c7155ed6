"""Reserve what a run needs, before its supervisor starts.

The process that submits, resumes or recovers a run has the engine reserve for it, so that runs wait
in the order of their submission. The reservation lasts while the run's liveness pipe is open, which
that process passes to the supervisor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from muster.control.persist import plan_of
from muster.control.replicas import desired_replicas
from muster.engines.base import Claim, RecordRun
from muster.engines.registry import engine_named
from muster.errors import InvalidInput, Problem
from muster.lifecycle.states import RunState
from muster.plan.model import RunPlan
from muster.storage import wakeup
from muster.storage.home import Home
from muster.storage.liveness import has_supervisor
from muster.store.records import CorruptRecord, RunRecord

if TYPE_CHECKING:
    from muster.engines.admission import Shortage
    from muster.store.base import Store


def reserve(
    store: Store, home: Home, plan: RunPlan, sizes: Mapping[str, int], record: RecordRun
) -> None:
    """Reserve for a run that is submitted or resumed, behind all others, and record it before any
    other run is considered. sizes: how many replicas of each group. Nothing is reserved if `record`
    raises. A run that can never wait is only recorded, and so is one that waits for another run: it
    reserves when that has succeeded."""
    engine = engine_named(plan.engine, home)
    if engine.may_queue(plan) and not _waits(store, plan):
        engine.reserve(home, Claim(plan, sizes), partial(_in_progress, store, home), record)
    else:
        record(())


def reserve_again(store: Store, home: Home, run: RunRecord, plan: RunPlan) -> Sequence[Shortage]:
    """Reserve for a run whose supervisor was killed, in its former place, unless it waits for
    another run. Returns what it lacks."""
    if _waits(store, plan):
        return ()
    claim, in_progress = _claim(store, run, plan), partial(_in_progress, store, home)
    return engine_named(run.engine, home).reserve_again(home, claim, in_progress)


def _waits(store: Store, plan: RunPlan) -> bool:
    if not plan.after:
        return False
    from muster.control.runs_before import waits_for

    return bool(waits_for(store, plan))


def reserve_scaled(
    store: Store, home: Home, run: RunRecord, plan: RunPlan, group: str, count: int
) -> None:
    """Reserve for a run that is scaled. A run that waits then waits for its new size; one that has
    started has to be given more at once. Raises InvalidInput if that is not free."""
    engine = engine_named(run.engine, home)
    if not engine.may_queue(plan) or run.state == RunState.SUSPENDED or _waits(store, plan):
        return
    claim = Claim(plan, {**desired_replicas(run, plan), group: count})
    if lacking := engine.reserve_scaled(home, claim, partial(_in_progress, store, home)):
        raise InvalidInput(*refusals(lacking, "scale it when they have ended"))
    if run.state == RunState.QUEUED:
        for waiting in engine.waiting(home):  # if it needs less now, one of them may start
            wakeup.notify(home.run_dir(waiting).wakeup)


def refusals(lacking: Sequence[Shortage], hint: str) -> list[Problem]:
    """The problems of a run that does not wait for what it lacks."""
    from muster.engines.admission import describe_refusal  # few runs are refused

    return [Problem(f"resources.{one.kind}", describe_refusal(one), hint) for one in lacking]


def _claim(store: Store, run: RunRecord, plan: RunPlan) -> Claim:
    since = store.events.last_time(run.id, "resumed") or run.created_at
    return Claim(plan, desired_replicas(run, plan), run.name, since, run.state == RunState.QUEUED)


def _in_progress(store: Store, home: Home) -> Iterator[Claim]:
    """The runs in progress, for an engine that has no table of their reservations."""
    for run_id in store.runs.needing_supervisor():
        if not has_supervisor(home, run_id):
            continue
        try:
            run = store.runs.get(run_id)
            yield _claim(store, run, plan_of(run))
        except CorruptRecord:
            continue  # its nodes cannot be counted
