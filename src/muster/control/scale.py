"""Another number of replicas for a group of a run: checked, then recorded as a wish."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from muster.control import bell
from muster.control.persist import plan_of
from muster.errors import InvalidInput, Problem
from muster.lifecycle.states import RunState
from muster.plan.model import RunPlan
from muster.spec.wording import suggestion
from muster.storage.home import Home
from muster.store import runs
from muster.store.database import Database
from muster.store.records import RunRecord


def replicas(run: RunRecord, plan: RunPlan) -> Mapping[str, int]:
    """How many replicas each group of a run is to have."""
    asked = run.scale_requested
    return {
        group.name: asked[group.name]["replicas"] if group.name in asked else group.initial
        for group in plan.policy.groups
    }


def scale(db: Database, home: Home, run: RunRecord, group: str, count: int, why: str) -> None:
    """Have a group of a run with so many replicas. Nothing if it has, or is to have. Raises
    InvalidInput if it cannot have so many, or the run is ending."""
    plan = plan_of(run)
    problem = next(_problems(run, plan, group, count), None)
    if problem is not None:
        raise InvalidInput(problem)
    before = replicas(run, plan)[group]
    if before == count:
        return
    if count > before:
        from muster.engines.local.disk import check_added

        if lacking := check_added(plan, home.root, group, count - before):
            raise InvalidInput(*lacking)
    folder = home.run_dir(run.id)
    if runs.request_scale(db, run.id, group, count, why):
        bell.ring(folder.bell)
    if run.state == RunState.SUSPENDED:  # nobody is there to hear
        from muster.control.request import ask_suspended
        from muster.lifecycle.events import ScaleRequested

        # whoever is about to resume or cancel it hears of what is recorded
        with contextlib.suppress(InvalidInput):
            ask_suspended(db, folder, run.id, run.name, [ScaleRequested(group, count, why)])


def _problems(run: RunRecord, plan: RunPlan, name: str, count: int) -> Iterator[Problem]:
    ending = (run.lifecycle or {}).get("stopping") or {}
    ends = ending.get("outcome", RunState.SUSPENDED) != RunState.SUSPENDED
    terminal = RunState(run.state).terminal
    if terminal or ends:
        yield Problem("", f"{run.name} is {run.state if terminal else 'ending'}")
        return
    names = [group.name for group in plan.policy.groups]
    if name not in names:
        yield Problem(name, f"{run.name} has no such group", suggestion(name, names))
        return
    index = names.index(name)
    most, nodes = plan.policy.groups[index].replicas, plan.policy.groups[index].nodes
    least = _least(run, name)
    if count > most:
        text = f"cannot have {count:,} replicas, it has room for {most:,}"
        hint = "the job says how many, with max_replicas"
        if most == 1 and nodes > 1:
            hint += f"; its {nodes} nodes are one replica"
        yield Problem(name, text, hint)
    elif count < 0:
        yield Problem(name, f"cannot have {count} replicas", "say how many there are to be")
    elif count < least:
        text = f"cannot have {count} replicas, of which {least} must succeed"
        yield Problem(name, text, f"at least {least} (min_success)")
    elif count < plan.policy.fewest(index):
        hint = f"`muster runs suspend {run.name}` takes all nodes away"
        yield Problem(name, "cannot be without replicas: the run is there for it to succeed", hint)


def _least(run: RunRecord, name: str) -> int:
    """What the owner said must succeed, and not what follows from nothing being said."""
    groups = run.spec.get("node_groups") or ()
    return next((int(g.get("min_success") or 0) for g in groups if g["name"] == name), 0)
