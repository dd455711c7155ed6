"""The case that a seed stands for, and its simulation."""

from __future__ import annotations

from pathlib import Path
from random import Random

from muster.plan.model import RunPlan
from muster.store.sqlite.store import SqliteStore
from simulation.harness.fake_ledger import FakeLedger, MemoryLedger, RecordedLedger
from simulation.harness.faults import FaultPlan
from simulation.harness.random_faults import (
    SPAN,
    draw_contacts,
    draw_incident,
    draw_native_restarts,
    draw_plan,
    draw_saving,
    draw_scaling,
)
from simulation.harness.random_policies import (
    draw_policy,
    with_arrays,
    with_extra_replicas,
    with_rules,
    with_service,
)
from simulation.harness.random_programs import Programs
from simulation.harness.simulator import Case, Simulation
from simulation.harness.trace import Trace

#: Programs behave well from then on: all faults are over, delays included.
_SETTLED = 4 * SPAN
#: The share of runs that are scaled.
_ELASTIC = 0.3
#: The share of runs with arrays, of those that are not scaled.
_ARRAYS = 0.4
#: The share of runs whose nodes outlive their controller.
_DETACHED = 0.4
#: The share of runs that their engine may restart by itself, of those without arrays whose nodes
#: outlive their controller; and the decision windows of agents, in seconds.
_NATIVE = 0.5
_WINDOWS = (0.5, 4.0, 20.0)
#: The share of runs in which several nodes fail at one moment; and, of runs with a checkpoint, the
#: share of those whose controller dies while they are being suspended.
_AT_ONCE = 0.2
_SAVING = 0.4
#: Every Nth run reads back each recorded step; every Nth run uses a real store.
_THOROUGH = 4
_STORED = 50


def case_of(seed: int, plan: FaultPlan | None = None) -> Case:
    """The case of a seed. plan: faults to use instead of its own."""
    rng = Random(seed)
    policy = draw_policy(rng)
    # a separate generator, so that cases without scaling stay the same
    others = Random(f"scaling {seed}")
    elastic = others.random() < _ELASTIC
    if elastic:
        policy = with_extra_replicas(others, policy)
    more = Random(f"more {seed}")
    policy = with_service(more, policy)
    at_once = more.random() < _AT_ONCE
    if at_once:
        policy = with_rules(more, policy)
    arrays = Random(f"arrays {seed}")
    if not elastic and arrays.random() < _ARRAYS:
        policy = with_arrays(arrays, policy)
    programs = Programs(seed, policy, rng, _SETTLED)
    suspended, resumed = rng.random() < 0.05, rng.random() < 0.8
    own = draw_plan(rng, policy.size, suspended=suspended)
    if elastic:
        own += draw_scaling(others, policy)
    if at_once:
        own += draw_incident(more)
    if policy.checkpoint is not None and more.random() < _SAVING:
        own += draw_saving(more)
    outliving = Random(f"detached {seed}")
    detached = outliving.random() < _DETACHED
    if detached:
        own += draw_contacts(outliving, policy.size)
    native = Random(f"native {seed}")
    window: float | None = None
    arrays_run = any(group.is_array for group in policy.groups)
    if detached and not arrays_run and native.random() < _NATIVE:
        window = native.choice(_WINDOWS)
        own += draw_native_restarts(native)
    return Case(
        seed=seed,
        policy=policy,
        script=programs,
        plan=own if plan is None else plan,
        settled=_SETTLED,
        resumed=resumed,
        suspended=suspended,
        thorough=seed % _THOROUGH == 0,
        detached=detached,
        decision_window=window,
    )


def play(case: Case, stores: Path | None = None) -> Trace:
    """Simulate a case. stores: a folder for stores; without it, all runs are in memory."""
    if stores is None or case.seed % _STORED:
        return Simulation(case, _in_memory).play()
    store = SqliteStore.open(stores / "simulation.db")
    try:

        def open_ledger(plan: RunPlan, accepted: float, suspended: bool) -> FakeLedger:
            return RecordedLedger(store, plan, accepted, suspended=suspended)

        return Simulation(case, open_ledger).play()
    finally:
        store.close()


def _in_memory(plan: RunPlan, accepted: float, suspended: bool) -> FakeLedger:
    return MemoryLedger(plan, accepted, suspended=suspended)
