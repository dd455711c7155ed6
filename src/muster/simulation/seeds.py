"""From a seed to a simulated run, and to what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from random import Random

from muster.plan.model import RunPlan
from muster.simulation.book import Book, MemoryBook, StoreBook
from muster.simulation.faults import Plan
from muster.simulation.harness import Case, Simulation
from muster.simulation.mishaps import SPAN, draw_incident, draw_plan, draw_saving, draw_scaling
from muster.simulation.policies import draw_policy, serving, stretched, with_rules
from muster.simulation.programs import Programs
from muster.simulation.story import Story
from muster.store.database import Database

#: Programs mean well from then on: all times and steps of faults are over, delays included.
_SETTLED = 4 * SPAN
#: Runs of which somebody wants more replicas or fewer while they go.
_ELASTIC = 0.3
#: Runs of which several nodes fail in one moment; and, of those with a checkpoint, runs whose
#: controller dies when they are suspended.
_AT_ONCE = 0.2
_SAVING = 0.4
#: Every so many seeds, what is recorded is read back each time; and it is in a real database.
_THOROUGH = 4
_STORED = 50


def case_of(seed: int, plan: Plan | None = None) -> Case:
    """What a seed stands for. plan: these faults instead of its own."""
    dice = Random(seed)
    policy = draw_policy(dice)
    others = Random(
        f"scaling {seed}"
    )  # so that what follows is the same for those that nobody scales
    elastic = others.random() < _ELASTIC
    if elastic:
        policy = stretched(others, policy)
    more = Random(f"more {seed}")
    policy = serving(more, policy)
    at_once = more.random() < _AT_ONCE
    if at_once:
        policy = with_rules(more, policy)
    programs = Programs(seed, policy, dice, _SETTLED)
    suspended, resumed = dice.random() < 0.05, dice.random() < 0.8
    own = draw_plan(dice, policy.size, suspended=suspended)
    if elastic:
        own += draw_scaling(others, policy)
    if at_once:
        own += draw_incident(more)
    if policy.checkpoint is not None and more.random() < _SAVING:
        own += draw_saving(more)
    return Case(
        seed=seed,
        policy=policy,
        script=programs,
        plan=own if plan is None else plan,
        settled=_SETTLED,
        resumed=resumed,
        suspended=suspended,
        thorough=seed % _THOROUGH == 0,
    )


def play(case: Case, stores: Path | None = None) -> Story:
    """Simulate. stores: a folder for databases, which some seeds then use."""
    if stores is None or case.seed % _STORED:
        return Simulation(case, _in_memory).play()
    database = Database.open(stores / "simulation.db")
    try:

        def opening(plan: RunPlan, accepted: float, suspended: bool) -> Book:
            return StoreBook(database, plan, accepted, suspended=suspended)

        return Simulation(case, opening).play()
    finally:
        database.close()


def _in_memory(plan: RunPlan, accepted: float, suspended: bool) -> Book:
    return MemoryBook(plan, accepted, suspended=suspended)
