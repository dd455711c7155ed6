"""Reserve what a run needs of this machine. See `engines.base.Engine`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from muster.engines import admission
from muster.engines.admission import Amounts, Capacity, Reservation, Shortage
from muster.engines.base import Claim, InProgress, Record
from muster.engines.local.reservations import Reservations, capacity_of, needs_of
from muster.engines.local.resources import GpuPool, count_cpus, count_memory, gpu_numbers
from muster.storage.home import Home

#: The least difference between the times of two reservations: runs submitted one after the other
#: are never reordered, not even when the clock is set back.
_STEP = 1e-6


def reserve(home: Home, claim: Claim, in_progress: InProgress, record: Record) -> None:
    """See `Engine.reserve`."""
    plan = claim.plan
    machine = capacity_of(plan)
    needs = needs_of(plan, claim.replicas, len(machine.gpus))
    if needs == Amounts():
        record(())
        return
    with Reservations(home).change(partial(_rebuild, home, in_progress)) as table:
        others = [one for one in table.values() if one.run_id != plan.run_id]
        last = max((one.since for one in others), default=0.0)
        since = max(time.time(), last + _STEP)
        run = Reservation(plan.run_id, plan.run_name, since, needs, visible=machine.gpus)
        lacking = admission.shortages(run, others, machine)
        run = replace(run, run=record(lacking))
        table[run.run_id] = run if lacking else admission.grant(run, others, machine)


def reserve_again(home: Home, claim: Claim, in_progress: InProgress) -> Sequence[Shortage]:
    """See `Engine.reserve_again`."""
    plan = claim.plan
    machine = capacity_of(plan)
    needs = needs_of(plan, claim.replicas, len(machine.gpus))
    if needs == Amounts():
        return ()
    with Reservations(home).change(partial(_rebuild, home, in_progress)) as table:
        known = table.get(plan.run_id)
        if known is not None and known.granted:
            return ()  # no other run has been given what it had
        own = known or Reservation(
            plan.run_id, claim.name, claim.since, needs, visible=machine.gpus
        )
        others = list(table.values())
        lacking = admission.shortages(own, others, machine)
        table[own.run_id] = own if lacking else admission.grant(own, others, machine)
    return lacking


def reserve_scaled(home: Home, claim: Claim, in_progress: InProgress) -> Sequence[Shortage]:
    """See `Engine.reserve_scaled`."""
    machine = capacity_of(claim.plan)
    needs = needs_of(claim.plan, claim.replicas, len(machine.gpus))
    with Reservations(home).change(partial(_rebuild, home, in_progress)) as table:
        known = table.get(claim.plan.run_id)
        if known is None:
            return ()
        if known.granted:
            needs = admission.larger(known.needs, needs)
        grown, others = replace(known, needs=needs), list(table.values())
        if known.granted and needs != known.needs:
            if lacking := admission.shortages(grown, others, machine):
                return lacking
            grown = admission.grant(grown, others, machine)
        table[grown.run_id] = grown
    return ()


def waiting(home: Home) -> dict[str, str]:
    """See `Engine.waiting`."""
    table = Reservations(home).read()
    machine = Capacity(count_cpus(), count_memory(), tuple(gpu_numbers()))
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
    run_id, devices = claim.plan.run_id, tuple(gpu_numbers())
    needs = needs_of(claim.plan, claim.replicas, len(devices))
    if claim.queued:
        return Reservation(run_id, claim.name, claim.since, needs, visible=devices)
    # it is not known which of the locked GPUs are this run's: none is given away until it has ended
    locked = GpuPool(home.root / "gpus", tuple).locked(devices) if needs.gpus else ()
    needs = replace(needs, gpus=max(needs.gpus, len(locked)))
    return Reservation(run_id, claim.name, claim.since, needs, True, devices, locked)
