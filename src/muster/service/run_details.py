"""Read what is stored of a run besides its record: its status and its files."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.errors import InvalidInput
from muster.lifecycle.states import RunState
from muster.store.run_columns import StoredPlan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from muster.api.answers import ClusterAccess
    from muster.service.context import Context
    from muster.storage.home import Home
    from muster.store.records import RunRecord, RunSummary


def why(context: Context, run: RunRecord) -> list[str]:
    """Why the run is in its state; the most important sentence first. Raises CorruptRecord."""
    from muster.control.persist import plan_of, status_of
    from muster.describe.state import why

    plan = plan_of(run)
    status = status_of(run, list(context.store.runs.nodes(run.id)), plan.policy)
    if status.state is RunState.QUEUED:
        status = replace(status, details=waiting_for(context.home, run)[0])
    restarts = context.store.events.count(run.id, "restart")
    sentences = list(why(plan, status, restarts, time.time()))
    if status.state.terminal:
        return sentences
    return [*sentences, *_engine_problems(run), *_where(context, run)]


def _where(context: Context, run: RunRecord) -> Iterator[str]:
    """The host of a run, if it is another one."""
    from muster.control import lease, run_lock
    from muster.control.supervisor_check import abandoned

    if host := lease.other_host(context.store, run.id):
        held = run_lock.is_held(context.home.run_dir(run.id).lock)
        yield f"it runs on the host {host}" if held else abandoned(run.name, host)


def _engine_problems(run: RunRecord) -> Iterator[str]:
    """Why the run's engine cannot be used here."""
    from muster.engines.registry import engine_named

    try:
        engine_named(run.engine)
    except InvalidInput as error:
        yield from (problem.message for problem in error.problems)


def waiting_for(home: Home, *queued: RunRecord | RunSummary) -> list[str]:
    """What each of these QUEUED runs waits for by now, in numbers; as recorded if it has just been
    admitted."""
    from muster.engines.registry import find_engine  # few runs wait

    waiting: dict[str, str] = {}
    for name in {run.engine for run in queued}:
        if (engine := find_engine(name)) is not None:
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


def limits(run: RunRecord) -> dict[str, str]:
    """Group -> what the engine gives its nodes, for groups with resources or a shape; empty if the
    engine is not installed here."""
    resources = StoredPlan(run).resources()
    if not resources:
        return {}
    from muster.engines.registry import find_engine

    engine = find_engine(run.engine)
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
