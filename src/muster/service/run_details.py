"""Read what is stored of a run besides its record: its status and its files."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.errors import InvalidInput
from muster.lifecycle.states import ALIVE, AT_REST, NodeState, RunState
from muster.store.records import NodeFilter
from muster.store.run_columns import StoredPlan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from muster.api.answers import ClusterAccess
    from muster.describe.array_state import ArrayNow
    from muster.service.context import Context
    from muster.storage.home import Home
    from muster.store.base import Store
    from muster.store.records import NodeRecord, RunRecord, RunSummary

#: Replicas of an array that are named because they failed, and because they run.
_FAILED, _ALIVE = 10, 100


def why(context: Context, run: RunRecord) -> list[str]:
    """Why the run is in its state; the most important sentence first. Raises CorruptRecord."""
    from muster.control.persist import plan_of, status_of, status_without_nodes

    plan = plan_of(run)
    is_array = len(plan.groups) == 1 and plan.has_arrays
    if is_array:  # it may have many nodes
        status = status_without_nodes(run)
    else:
        status = status_of(run, context.store.runs.nodes(run.id), plan.policy)
    if status.state is RunState.QUEUED:
        status = replace(status, details=waiting_for(context.home, run)[0])
    restarts, now = context.store.events.count(run.id, "restart"), time.time()
    if is_array:
        from muster.describe import array_state

        sentences = array_state.why(plan, status, _array(context.store, run), restarts, now)
    else:
        from muster.describe.state import why

        sentences = why(plan, status, restarts, now)
    if status.state.terminal:
        return sentences
    return [*sentences, *_engine_problems(context.home, run), *_where(context, run)]


def _array(store: Store, run: RunRecord) -> ArrayNow:
    """The replicas of a run whose only group is an array."""
    from muster.describe.array_state import ArrayNow
    from muster.describe.replicas import states_of_replicas

    (group,) = StoredPlan(run).arrays()
    counted = store.runs.replica_states(run.id, group.name, group.nodes)
    failed = NodeFilter(states=[NodeState.FAILED], limit=_FAILED * group.nodes)
    numbers = dict.fromkeys(node.replica for node in store.runs.nodes(run.id, failed))
    return ArrayNow(states_of_replicas(counted), group.initial, list(numbers)[:_FAILED])


def shown_nodes(store: Store, run: RunRecord) -> list[NodeRecord]:
    """The nodes that a list shows: all, but of arrays those that are alive, and the first that
    failed."""
    groups = StoredPlan(run).policies()
    if not any(group.is_array for group in groups):
        return store.runs.nodes(run.id)
    others = [group.name for group in groups if not group.is_array]
    chosen = [NodeFilter(states=[NodeState.FAILED], limit=_FAILED)]
    if run.state not in AT_REST:
        chosen.append(NodeFilter(states=[*ALIVE], limit=_ALIVE))
    if others:
        chosen.append(NodeFilter(groups=others))
    found = {node.rank: node for each in chosen for node in store.runs.nodes(run.id, each)}
    return [node for _, node in sorted(found.items())]


def _where(context: Context, run: RunRecord) -> Iterator[str]:
    """The host of a run, if it is another one."""
    from muster.control import lease, run_lock

    if (own := lease.of_other_host(context.store, run.id)) is not None:
        held = run_lock.is_held(context.home.run_dir(run.id).lock)
        yield f"it runs on the host {own.host}" if held else lease.abandoned(run.name, own)


def _engine_problems(home: Home, run: RunRecord) -> Iterator[str]:
    """Why the run's engine cannot be used here."""
    from muster.engines.registry import engine_named

    try:
        engine_named(run.engine, home)
    except InvalidInput as error:
        yield from (problem.message for problem in error.problems)


def waiting_for(home: Home, *queued: RunRecord | RunSummary) -> list[str]:
    """What each of these QUEUED runs waits for by now, in numbers; as recorded if it has just been
    admitted."""
    from muster.engines.registry import find_engine  # few runs wait

    waiting: dict[str, str] = {}
    for name in {run.engine for run in queued}:
        if (engine := find_engine(name, home)) is not None:
            waiting |= engine.waiting(home)
    return [waiting.get(run.id) or run.details for run in queued]


def with_waiting(home: Home, found: list[RunSummary]) -> list[RunSummary]:
    """The runs, with what they wait for by now as details of those that are QUEUED."""
    queued = [run for run in found if run.state == RunState.QUEUED]
    if not queued:
        return found
    texts = waiting_for(home, *queued)
    details = {run.id: text for run, text in zip(queued, texts, strict=True)}
    return [replace(run, details=details.get(run.id, run.details)) for run in found]


def replicas(run: RunRecord) -> dict[str, int]:
    """Group -> its desired number of replicas. Raises CorruptRecord."""
    from muster.control.persist import plan_of
    from muster.control.replicas import desired_replicas

    return desired_replicas(run, plan_of(run))


def limits(home: Home, run: RunRecord) -> dict[str, str]:
    """Group -> what the engine gives its nodes, for groups with resources or a shape; empty if the
    engine is not installed here."""
    resources = StoredPlan(run).resources()
    if not resources:
        return {}
    from muster.engines.registry import find_engine

    engine = find_engine(run.engine, home)
    return {} if engine is None else engine.limits(resources)


def cluster_access(context: Context, run: RunRecord) -> ClusterAccess:
    """See `MusterAPI.cluster_access`."""
    from muster.api.answers import ClusterAccess
    from muster.storage.run_files import tls_files

    folder = context.home.run_dir(run.id)
    access = ClusterAccess(token=_text(folder.token))
    if not run.plan.get("tls"):
        return access
    files = tls_files(folder.tls)
    ca, certificate, key = map(_text, files)
    return replace(access, folder=str(folder.tls), ca=ca, certificate=certificate, key=key)


def _text(path: Path) -> str:
    """What is in a file; "" if there is none."""
    from muster.node.files import read_regular

    try:
        return read_regular(path).decode()
    except FileNotFoundError:
        return ""
