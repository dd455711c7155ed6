"""Reserve what a run needs of this machine. See `engines.base.Engine`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from muster.engines import admission
from muster.engines.admission import Amounts, Reservation, Shortage
from muster.engines.base import Claim, InProgress, RecordRun
from muster.engines.reservations.demands import may_reserve
from muster.engines.reservations.gpus import GpuPool
from muster.engines.reservations.table import Reservations, machine_capacity, needs_of, visible_gpus
from muster.storage.home import Home

#: The least difference between the times of two reservations: runs submitted one after the other
#: are never reordered, not even when the clock is set back.
_STEP = 1e-6


def reserve(home: Home, claim: Claim, in_progress: InProgress, record: RecordRun) -> None:
    """See `Engine.reserve`."""
    plan, visible = claim.plan, visible_gpus(claim.plan)
    needs = needs_of(plan, claim.replicas, len(visible))
    if needs == Amounts():
        record(())
        return
    with Reservations(home).change(partial(_rebuild, home, in_progress)) as table:
        others = [one for one in table.values() if one.run_id != plan.run_id]
        last = max((one.since for one in others), default=0.0)
        since = max(time.time(), last + _STEP)
        run = Reservation(plan.run_id, plan.run_name, since, needs, visible=visible)
        lacking = admission.shortages(run, others, machine_capacity())
        run = replace(run, run=record(lacking))
        table[run.run_id] = run if lacking else admission.grant(run, others)


def reserve_again(home: Home, claim: Claim, in_progress: InProgress) -> Sequence[Shortage]:
    """See `Engine.reserve_again`."""
    plan = claim.plan
    if not may_reserve(plan):
        return ()
    reservations = Reservations(home)
    with reservations.change(partial(_rebuild, home, in_progress)) as table:
        known = table.get(plan.run_id)
        if known is not None and known.granted:
            return ()  # no other run has been given what it had
        own = known or _waiting(claim)
        if own.needs == Amounts():
            return ()
        others = list(table.values())
        lacking = admission.shortages(own, others, machine_capacity())
        table[own.run_id] = own if lacking else admission.grant(own, others)
        if lacking:
            return lacking
    reservations.wake(admission.affected_by_grant(own, others))
    return ()


def reserve_scaled(home: Home, claim: Claim, in_progress: InProgress) -> Sequence[Shortage]:
    """See `Engine.reserve_scaled`."""
    with Reservations(home).change(partial(_rebuild, home, in_progress)) as table:
        known = table.get(claim.plan.run_id)
        if known is None:
            return ()
        needs = needs_of(claim.plan, claim.replicas, len(known.visible))
        if known.granted:
            needs = admission.larger(known.needs, needs)
        grown, others = replace(known, needs=needs), list(table.values())
        if known.granted and needs != known.needs:
            if lacking := admission.shortages(grown, others, machine_capacity()):
                return lacking
            grown = admission.grant(grown, others)
        table[grown.run_id] = grown
    return ()


def waiting(home: Home) -> dict[str, str]:
    """See `Engine.waiting`."""
    table, machine = Reservations(home).read(), machine_capacity()
    return {
        one.run_id: admission.describe(admission.shortages(one, table, machine))
        for one in table
        if not one.granted
    }


def _rebuild(home: Home, in_progress: InProgress) -> Iterator[Reservation]:
    """Reservations of the runs that were started by a version of Muster without them."""
    found = (_reservation(home, claim) for claim in in_progress())
    return (one for one in found if one.needs != Amounts())


def _reservation(home: Home, claim: Claim) -> Reservation:
    run = _waiting(claim)
    if claim.queued:
        return run
    # it is not known which of the locked GPUs are this run's: none is given away until it has ended
    locked = GpuPool(home.of_host("gpus"), tuple).locked(run.visible) if run.needs.gpus else ()
    needs = replace(run.needs, gpus=max(run.needs.gpus, len(locked)))
    return replace(run, needs=needs, granted=True, gpus=locked)


def _waiting(claim: Claim) -> Reservation:
    """The reservation of a run that is recorded and has none."""
    visible = visible_gpus(claim.plan)
    needs = needs_of(claim.plan, claim.replicas, len(visible))
    return Reservation(claim.plan.run_id, claim.name, claim.since, needs, visible=visible)
