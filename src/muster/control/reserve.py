"""Reserve what a run needs of this machine, before its supervisor starts.

The process that submits, resumes or recovers a run reserves for it, so that runs wait in the order
of their submission. The reservation lasts while the run's liveness pipe is open, which that process
passes to the supervisor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from muster.control.persist import plan_of
from muster.control.scale import replicas
from muster.engines.local import admission
from muster.engines.local.admission import Amounts, Capacity, Reservation, Shortage
from muster.engines.local.reservations import Reservations, capacity_of, needs_of
from muster.engines.local.resources import (
    GpuPool,
    count_cpus,
    count_memory,
    gpu_numbers,
    may_reserve,
)
from muster.errors import InvalidInput, Problem
from muster.lifecycle.states import RunState
from muster.plan.model import RunPlan
from muster.storage.home import Home
from muster.storage.liveness import has_supervisor
from muster.store import events, runs
from muster.store.database import Database
from muster.store.records import CorruptRecord, RunRecord

#: The least difference between the times of two reservations: runs submitted one after the other
#: are never reordered, not even when the clock is set back.
_STEP = 1e-6

#: Records a run. Gets what the run lacks, empty if it may start, and returns the run's name.
Record = Callable[[Sequence[Shortage]], str]


def reserve(
    db: Database, home: Home, plan: RunPlan, sizes: Mapping[str, int], record: Record
) -> None:
    """Reserve for a run that is submitted or resumed, behind all others, and record it before any
    other run is considered. sizes: how many replicas of each group. Nothing is reserved if `record`
    raises."""
    machine = capacity_of(plan)
    needs = needs_of(plan, sizes, len(machine.gpus))
    if needs == Amounts():
        record(())
        return
    with Reservations(home).change(partial(_of_runs_in_progress, db, home)) as table:
        others = [one for one in table.values() if one.run_id != plan.run_id]
        last = max((one.since for one in others), default=0.0)
        run = Reservation(
            plan.run_id,
            plan.run_name,
            max(time.time(), last + _STEP),
            needs,
            visible=machine.gpus,
        )
        lacking = admission.shortages(run, others, machine)
        run = replace(run, run=record(lacking))
        table[run.run_id] = run if lacking else admission.grant(run, others, machine)


def reserve_again(db: Database, home: Home, run: RunRecord, plan: RunPlan) -> Sequence[Shortage]:
    """Reserve for a run whose supervisor was killed, in its former place. Returns what it lacks."""
    if not may_reserve(plan):
        return ()
    machine = capacity_of(plan)
    needs = needs_of(plan, replicas(run, plan), len(machine.gpus))
    if needs == Amounts():
        return ()
    with Reservations(home).change(partial(_of_runs_in_progress, db, home)) as table:
        known = table.get(run.id)
        if known is not None and known.granted:
            return ()  # no other run has been given what it had
        own = known or Reservation(run.id, run.name, _since(db, run), needs, visible=machine.gpus)
        others = list(table.values())
        lacking = admission.shortages(own, others, machine)
        table[run.id] = own if lacking else admission.grant(own, others, machine)
    return lacking


def reserve_more(
    db: Database, home: Home, run: RunRecord, plan: RunPlan, group: str, count: int
) -> None:
    """Reserve for a run that is scaled up. A run that waits then waits for more; one that has
    started has to be given more at once. Raises InvalidInput if that is not free."""
    if not may_reserve(plan) or run.state == RunState.SUSPENDED:
        return
    machine = capacity_of(plan)
    needs = needs_of(plan, {**replicas(run, plan), group: count}, len(machine.gpus))
    with Reservations(home).change(partial(_of_runs_in_progress, db, home)) as table:
        known = table.get(run.id)
        if known is None:
            return
        most = admission.larger(known.needs, needs)
        grown, others = replace(known, needs=most), list(table.values())
        if known.granted and most != known.needs:
            if lacking := admission.shortages(grown, others, machine):
                raise InvalidInput(*refusals(lacking, "scale it when they have ended"))
            grown = admission.grant(grown, others, machine)
        table[run.id] = grown


def refusals(lacking: Sequence[Shortage], hint: str) -> list[Problem]:
    """The problems of a run that does not wait for what it lacks."""
    return [
        Problem(f"resources.{one.kind}", admission.describe_refusal(one), hint) for one in lacking
    ]


def waiting_runs(home: Home) -> dict[str, str]:
    """The id of each run that waits -> what it waits for by now, in numbers."""
    table = Reservations(home).read()
    machine = Capacity(count_cpus(), count_memory(), tuple(gpu_numbers()))
    return {
        one.run_id: admission.describe(admission.shortages(one, table, machine))
        for one in table
        if not one.granted
    }


def _since(db: Database, run: RunRecord) -> float:
    return events.last_time_of(db, run.id, "resumed") or run.created_at


def _of_runs_in_progress(db: Database, home: Home) -> Iterator[Reservation]:
    """Reservations of the runs that were started by a version of Muster without them."""
    for run_id in runs.needing_supervisor(db):
        if not has_supervisor(home, run_id):
            continue
        try:
            run = runs.get(db, run_id)
            found = _of_run(db, home, run, plan_of(run))
        except CorruptRecord:
            continue  # its nodes cannot be counted
        if found.needs != Amounts():
            yield found


def _of_run(db: Database, home: Home, run: RunRecord, plan: RunPlan) -> Reservation:
    devices = tuple(gpu_numbers())
    needs, since = needs_of(plan, replicas(run, plan), len(devices)), _since(db, run)
    if run.state == RunState.QUEUED:
        return Reservation(run.id, run.name, since, needs, visible=devices)
    # it is not known which of the locked GPUs are this run's: none is given away until it has ended
    locked = GpuPool(home.root / "gpus", tuple).locked(devices) if needs.gpus else ()
    needs = replace(needs, gpus=max(needs.gpus, len(locked)))
    return Reservation(run.id, run.name, since, needs, True, devices, locked)
