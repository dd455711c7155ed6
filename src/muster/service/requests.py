"""What users request of a run: cancel, suspend, resume, scale.

A request is recorded in the database, and the supervisor is woken to act on it; on another host, it
looks for requests every second. A suspended run has no supervisor: there the request is applied at
once.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import replace

from muster.control import lease
from muster.errors import EngineError, InvalidInput, Problem, StoreBusy
from muster.lifecycle.states import JobState, RunState
from muster.service.context import Context
from muster.storage import wakeup
from muster.store.records import Lease, RunRecord, RunStep, suspend_problem

if TYPE_CHECKING:
    from muster.engines.admission import Shortage
    from muster.service.prepare import PreparedResume
    from muster.spec.models import JobSpec
    from muster.spec.override_models import RunOverrides
    from muster.spec.overrides import Changes


def cancel(
    context: Context, run_id: str, why: str, *, force: bool = False, keep: bool = False
) -> None:
    """Request the run's end. The run is CANCELED when none of its processes is left.

    Final; no effect on a run that has ended. The run's record may be corrupt.
    force: kill the supervisor and every process of the run; `wait` then records the end. keep:
    leave the workload that it has adopted as it is. Raises EngineError if that fails, InvalidInput
    if they are on another host, or it has adopted nothing.
    """
    store, folder = context.store, context.home.run_dir(run_id)
    why = why or "canceled by user"  # the store keeps a request as its reason
    if keep:
        _check_adopted(context, run_id)
    if force or keep:
        _prepare(context, run_id, force=force, keep=keep)
    if force:
        _end_by_force(context, run_id, why)
    if store.runs.request(run_id, "cancel", why, time.time()) or keep:
        wakeup.notify(folder.wakeup)
    run = store.runs.summary(run_id)
    if run.state == RunState.SUSPENDED:
        from muster.control.unsupervised_steps import apply_to_suspended
        from muster.lifecycle.events import CancelRequested

        apply_to_suspended(store, folder, run_id, run.name, [CancelRequested(why)])


def _check_adopted(context: Context, run_id: str) -> None:
    """Raises InvalidInput if a run has not adopted its workload."""
    run = context.store.runs.get(run_id)
    if (run.spec.get("workload") or {}).get("uid") is None:
        text = f"{run.name} has adopted nothing that could be kept"
        raise InvalidInput(Problem("--keep", text, "leave it out"))


def _prepare(context: Context, run_id: str, *, force: bool, keep: bool) -> None:
    """Say to the engine how a run ends. Raises EngineError."""
    from muster.engines.registry import find_engine

    run = context.store.runs.summary(run_id)
    engine = find_engine(run.engine, context.home)
    if engine is None or RunState(run.state).at_rest:
        return
    try:
        engine.prepare_cancel(run_id, force=force, keep=keep)
    except OSError as error:
        raise EngineError(f"how {run.name} is to end cannot be recorded: {error}") from None


def _end_by_force(context: Context, run_id: str, why: str) -> None:
    from muster.control.force import end_supervisor

    run = context.store.runs.summary(run_id)
    lease.check_host(context.store, run_id, run.name)
    # recorded before the supervisor ends, so that the process that recovers the run finds it; a
    # supervisor that was stopped in the middle of a write keeps the database busy
    with suppress(StoreBusy):
        context.store.runs.request(run_id, "cancel", why, time.time())
    end_supervisor(context.home.run_dir(run_id), run.name)


def suspend(context: Context, run_id: str, why: str) -> RunRecord:
    """Request the run's suspension. The run is SUSPENDED when none of its processes is left.

    No effect on a suspended run. Raises InvalidInput if the run has ended or is being canceled.
    """
    run = context.store.runs.get(run_id)
    why = why or "suspended by user"
    if (problem := suspend_problem(run)) is not None:
        raise InvalidInput(problem)
    if run.state != RunState.SUSPENDED:
        from muster.control.persist import plan_to_run
        from muster.engines.capabilities import require
        from muster.engines.registry import engine_named

        if (workload := plan_to_run(context.home, run).workload) is not None:
            raise InvalidInput(_suspended_by_kubectl(run.name, workload.manifest["metadata"]))
        require(engine_named(run.engine, context.home), "suspend")
        if context.store.runs.request(run_id, "suspend", why, time.time()):
            wakeup.notify(context.home.run_dir(run_id).wakeup)
    return context.store.runs.get(run_id)


def _suspended_by_kubectl(run: str, metadata: Mapping[str, Any]) -> Problem:
    """Why a JobSet that a cluster runs as it is is not suspended here. metadata: the JobSet's."""
    name, namespace = metadata.get("name", "NAME"), metadata.get("namespace")
    where = ["-n", str(namespace)] if namespace else []
    patch = ["--type", "merge", "-p", '{"spec": {"suspend": true}}']
    command = shlex.join(["kubectl", "patch", "jobset", str(name), *where, *patch])
    text = f"{run} is a JobSet that the cluster runs as it is, which Muster does not suspend"
    return Problem("", text, f"`{command}` does")


def resume(
    context: Context,
    run_id: str,
    overrides: RunOverrides | None,
    environ: Mapping[str, str] | None,
) -> RunRecord:
    """Resume a suspended run, changed by the overrides: start a supervisor.

    environ: as for `start`. Raises InvalidInput if the run is not suspended, or cannot be resumed
    with these overrides.
    """
    from muster.control.persist import plan_to_run
    from muster.control.replicas import desired_replicas
    from muster.control.reserve import reserve
    from muster.engines.registry import engine_named
    from muster.service.start import run_folder, submission_of

    store = context.store
    run = store.runs.get(run_id)
    prepared = prepare_resume(context, run, overrides)
    if prepared is not None:
        from muster.service.run_access import check_access
        from muster.service.stored_secrets import with_secrets

        sent = context.submission.environ if environ is None else environ
        check_access(context, prepared.spec, prepared.plan, sent)
        prepared = replace(prepared, plan=with_secrets(context, prepared.spec, prepared.plan))
    before = plan_to_run(context.home, run)
    plan = before if prepared is None else prepared.plan
    submission = submission_of(context, plan, environ)
    engine = engine_named(run.engine, context.home)
    if engine.may_queue(before):
        engine.drop_lapsed_reservations(context.home)
    with run_folder(context, plan, submission) as held:
        if store.runs.get(run_id).state != RunState.SUSPENDED:
            raise InvalidInput(Problem("", f"{run.name} has been resumed or canceled"))
        own = lease.take_or_refuse(store, run_id, run.name)
        try:
            why = "resumed by user"
            if prepared is not None:
                _store_changes(context, own, prepared)
                why += f", with {', '.join(prepared.changed)} changed"
            record = partial(_record_resume, context, own, why)
            reserve(store, context.home, plan, desired_replicas(run, plan), record)
            context.backend.start_supervisor(own, run.engine, held, submission)
        except Exception:
            store.leases.release(own)
            raise
    return store.runs.get(run_id)


def _record_resume(context: Context, own: Lease, why: str, lacking: Sequence[Shortage]) -> str:
    from muster.control.unsupervised_steps import apply_requests
    from muster.lifecycle.events import Event, ResumeRequested, RunQueued

    resumed: list[Event] = [ResumeRequested(why)]
    if lacking:
        from muster.engines import admission

        resumed.append(RunQueued(admission.describe(lacking)))
    apply_requests(context.store, context.home.run_dir(own.run_id), own, resumed)
    return context.store.runs.summary(own.run_id).name


def prepare_resume(
    context: Context,
    run: RunRecord,
    overrides: RunOverrides | None,
    spec: JobSpec | None = None,
) -> PreparedResume | None:
    """Check that a run can be resumed, and plan it again if there are overrides.

    spec: the run's, if it is decoded already.
    Raises InvalidInput if the run is not suspended, or cannot be resumed with these overrides.
    """
    if run.state != RunState.SUSPENDED:
        text = f"{run.name} is {run.state}, not SUSPENDED"
        raise InvalidInput(Problem("", text, _instead_of_resuming(context, run)))
    from muster.control.persist import plan_to_run
    from muster.control.replicas import desired_replicas
    from muster.engines.registry import check, engine_named

    prepared = None
    if overrides is not None:
        from muster.service import prepare

        prepared = prepare.prepare_resume(context, run, overrides, spec)
    # the machine or the number of replicas may have changed since: a run that cannot start would
    # fail for good
    plan = plan_to_run(context.home, run) if prepared is None else prepared.plan
    replicas = desired_replicas(run, plan)
    if problems := check(engine_named(run.engine, context.home), plan, context.home.root, replicas):
        raise InvalidInput(*problems)
    return prepared


def reviewed_overrides(context: Context, run: RunRecord, changes: Changes) -> RunOverrides:
    """See `MusterAPI.prepare_resume`."""
    from muster.service.review import review_resume
    from muster.service.stored_spec import spec_of
    from muster.spec.partial_overrides import with_items

    spec = spec_of(context.home, run)
    changes = with_items(changes, spec)
    overrides = changes.require_valid()
    try:
        prepare_resume(context, run, overrides, spec)
    except InvalidInput as error:
        raise InvalidInput(*review_resume(spec, changes, error.problems)) from None
    return overrides


def _instead_of_resuming(context: Context, run: RunRecord) -> str:
    if not RunState(run.state).terminal:
        return "wait until it is SUSPENDED" if run.suspend_requested_at else ""
    job = context.store.jobs.find(context.project, run.job_id)
    return f"`muster rerun {run.name}` runs it again" if job.state == JobState.ACTIVE else ""


def _store_changes(context: Context, own: Lease, prepared: PreparedResume) -> None:
    from muster.control.persist import sealed_plan
    from muster.storage.sealing import seal

    home = context.home
    changes = {
        "spec": seal(home, to_builtins(prepared.spec)),
        "origins": dict(prepared.origins),
        "plan": sealed_plan(home, prepared.plan),
        "notes": seal(home, list(prepared.plan.notes)),
        "tags": seal(home, dict(prepared.spec.tags)),
    }
    if prepared.display_name is not None:
        changes["display_name"] = prepared.display_name
    rows = context.store.runs.nodes(own.run_id)
    planned = (prepared.plan.node(row.rank) for row in rows)
    nodes = [
        replace(row, fqdn=node.fqdn, address=node.address)
        for row, node in zip(rows, planned, strict=True)
    ]
    context.store.runs.save(RunStep(own, changes, nodes, (), time.time()))


def scale(context: Context, run_id: str, group: str, replicas: int, why: str) -> RunRecord:
    """Request another number of replicas of a group; a suspended run applies it when resumed.

    Raises InvalidInput if the group cannot have this number, or the run is ending.
    """
    from muster.control.scale import scale

    scale(context.store, context.home, context.store.runs.get(run_id), group, replicas, why)
    return context.store.runs.get(run_id)
