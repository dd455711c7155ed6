"""Scale a group of a run: check the number of replicas, then record the request."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from muster.control import lease
from muster.control.persist import plan_of
from muster.control.replicas import desired_replicas
from muster.control.reserve import reserve_scaled
from muster.engines.capabilities import require
from muster.engines.registry import engine_named
from muster.errors import InvalidInput, Problem
from muster.lifecycle.states import RunState
from muster.plan.model import RunPlan
from muster.spec.wording import suggestion
from muster.storage import wakeup
from muster.storage.home import Home
from muster.store.records import RunRecord

if TYPE_CHECKING:
    from muster.store.base import Store


def scale(store: Store, home: Home, run: RunRecord, group: str, count: int, why: str) -> None:
    """Scale a group to `count` replicas. Nothing if that is the desired number already. Raises
    InvalidInput if the group cannot have that number, or the run is ending."""
    plan = plan_of(run)
    problem = next(_problems(run, plan, group, count), None)
    if problem is not None:
        raise InvalidInput(problem)
    replicas = desired_replicas(run, plan)
    before = replicas[group]
    if before == count:
        return
    engine = engine_named(run.engine, home)
    require(engine, "resize")
    if engine.may_queue(plan):  # what is reserved, and what is free, is known on its host only
        lease.check_host(store, run.id, run.name)
    if count > before:
        after = {**replicas, group: count}
        lacking = engine.check_added(plan, home.root, after, group, count - before)
        if lacking:
            raise InvalidInput(*lacking)
        reserve_scaled(store, home, run, plan, group, count)
    folder = home.run_dir(run.id)
    requested = store.runs.request_scale(run.id, group, count, why, time.time())
    if count < before:  # once the request is recorded: the run may start at once, in its new size
        reserve_scaled(store, home, run, plan, group, count)
    if requested:
        wakeup.notify(folder.wakeup)
    if run.state == RunState.SUSPENDED:  # it has no supervisor to apply the request
        from muster.control.unsupervised_steps import apply_to_suspended
        from muster.lifecycle.events import ScaleRequested

        # a process that is resuming or canceling it reads the recorded request
        with contextlib.suppress(InvalidInput):
            apply_to_suspended(store, folder, run.id, run.name, [ScaleRequested(group, count, why)])


def _problems(run: RunRecord, plan: RunPlan, name: str, count: int) -> Iterator[Problem]:
    ending = (run.lifecycle or {}).get("stopping") or {}
    ends = ending.get("outcome", RunState.SUSPENDED) != RunState.SUSPENDED
    terminal = RunState(run.state).terminal
    if terminal or ends:
        why = f"has ended: it is {run.state}" if terminal else "is ending"
        yield Problem("", f"{run.name} {why}, and cannot be scaled")
        return
    if plan.workload is not None:
        text = f"{run.name} is a JobSet that the cluster runs as it is, and cannot be scaled"
        yield Problem("", text, "change its manifest, and run that")
        return
    names = [group.name for group in plan.policy.groups]
    if name not in names:
        yield Problem(name, f"{run.name} has no such group", suggestion(name, names))
        return
    index = names.index(name)
    if plan.policy.groups[index].is_array:
        text = "is an array, which cannot be scaled: its replicas are its parameter sets"
        hint = f"`muster run {run.job_name} --parallelism N` starts a run with other ones at once"
        yield Problem(name, text, hint)
        return
    most, nodes = plan.policy.groups[index].replicas, plan.policy.groups[index].nodes
    least = _min_success(run, name)
    if count > most:
        text = f"cannot have {count:,} replicas, the maximum is {most:,}"
        hint = "the job sets the maximum: max_replicas"
        if most == 1 and nodes > 1:
            hint += f"; its {nodes} nodes are one replica"
        yield Problem(name, text, hint)
    elif count < 0:
        yield Problem(name, f"cannot have {count} replicas", "give 0 or more")
    elif count < least:
        text = f"cannot have {count} replicas: {least} must succeed"
        yield Problem(name, text, f"at least {least} (min_success)")
    elif count < plan.policy.min_replicas(index):
        hint = f"`muster runs suspend {run.name}` stops all nodes"
        yield Problem(name, "cannot have 0 replicas: the run's success depends on the group", hint)


def _min_success(run: RunRecord, name: str) -> int:
    """The `min_success` that the spec gives explicitly; 0 if it gives none."""
    groups = run.spec.get("node_groups") or ()
    return next((int(g.get("min_success") or 0) for g in groups if g["name"] == name), 0)
