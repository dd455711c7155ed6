"""Start a prepared run: create its folder, record it, start its supervisor."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins
from msgspec.structs import replace

from muster.api.prepared import PreparedRun
from muster.control import reserve, run_lock, stored_submission
from muster.control.expire import remove_folder
from muster.control.launcher import check_open_files
from muster.control.lease import expiry
from muster.control.persist import node_record, sealed_plan
from muster.engines.registry import engine_named
from muster.errors import InvalidInput, MusterError, NotFound, Problem
from muster.identity import Owner, new_owner
from muster.lifecycle.states import RunState
from muster.plan.environment import submitted
from muster.plan.model import RunPlan
from muster.plan.names import with_names
from muster.service.context import Context
from muster.service.jobs import discard
from muster.spec.secret_names import stored_secrets
from muster.storage import wakeup
from muster.storage.liveness import open_liveness_pipe
from muster.storage.owners import account_of_run, prepare_run_folder
from muster.storage.run_files import create_with_arguments, remove
from muster.storage.sealing import seal
from muster.store.records import JobRecord, Lease, NodeRecord, RunRecord
from muster.submission import Submission
from muster.unix_account import acting_as

if TYPE_CHECKING:
    from muster.engines.admission import Shortage
    from muster.unix_account import UnixAccount


def start(
    context: Context,
    prepared: PreparedRun,
    environ: Mapping[str, str] | None = None,
    *,
    queue: bool = True,
) -> RunRecord:
    """Record a run and start its supervisor; a run with `suspend` is only recorded.

    environ: the variables that the nodes' environment starts from (default: the submission's).
    queue: whether the run is QUEUED if other runs have the resources that it asks for; else it is
    refused. Raises InvalidInput if it is refused, the nodes lack something, or the Job was deleted
    meanwhile, EngineError if no supervisor starts.
    """
    if prepared.missing:
        if prepared.new_job:
            discard(context, prepared.job)
        raise InvalidInput(*prepared.missing)
    if prepared.plan.principal is not None or context.submission.principal is not None:
        from muster.service.run_access import check_access

        sent = context.submission.environ if environ is None else environ
        check_access(context, prepared.spec, prepared.plan, sent)
    if stored_secrets(prepared.spec):
        from muster.service.stored_secrets import with_secrets

        prepared = replace(prepared, plan=with_secrets(context, prepared.spec, prepared.plan))
    submission = submission_of(context, prepared.plan, environ)
    if prepared.spec.suspend:
        return _record_suspended(context, prepared, submission.account)
    # the run is locked before it is in the store, and the lock passed on to the supervisor: another
    # process that looks for runs without a supervisor never finds this one
    with run_folder(context, prepared.plan, submission) as held:
        try:
            accepted, lease = _reserve_and_record(context, prepared, queue=queue)
        except MusterError:
            remove_folder(context.home, prepared.plan.run_id)
            raise
        shared = not prepared.plan.after and engine_named(accepted.engine, context.home).may_share(
            prepared.plan
        )
        context.backend.start_supervisor(lease, accepted.engine, held, submission, shared=shared)
    return accepted


def _record_suspended(
    context: Context, prepared: PreparedRun, account: UnixAccount | None
) -> RunRecord:
    if account is None:
        return record(context, prepared)
    run_id = prepared.plan.run_id
    # first: the folder says whose the run is, whoever resumes it
    prepare_run_folder(context.home.run_dir(run_id), account)
    try:
        return record(context, prepared)
    except MusterError:
        remove_folder(context.home, run_id)
        raise


def submission_of(context: Context, plan: RunPlan, environ: Mapping[str, str] | None) -> Submission:
    """What the nodes of a run start from. environ: as for `start`.

    A run that has started before keeps its account, whoever starts it again. Raises InvalidInput if
    it has none, and belongs to the server's own user therefore.
    """
    submission = context.submission
    if environ is not None:
        submission = replace(submission, environ=environ)
    if not engine_named(plan.engine, context.home).capabilities.separates_owners:
        return replace(submission, account=None)
    account, folder = submission.account, context.home.run_dir(plan.run_id)
    if os.path.isdir(folder.path):
        owner = account_of_run(folder)
        # without a record, a server that was killed has only begun to make the folder
        if owner is None and account is not None and _is_recorded(context, plan.run_id):
            text = f"{plan.run_name} runs as the server's own user, and only that user may start it"
            raise InvalidInput(Problem("", text, "start its job again, as a run of your own"))
        account = owner or account
    if account is None:
        return submission
    environ = {**submission.environ, **account.variables}
    return replace(submission, environ=environ, account=account)


def _is_recorded(context: Context, run_id: str) -> bool:
    try:
        context.store.runs.get(run_id)
    except NotFound:
        return False
    return True


def _reserve_and_record(
    context: Context, prepared: PreparedRun, *, queue: bool
) -> tuple[RunRecord, Lease]:
    plan = prepared.plan
    made: list[tuple[RunRecord, Lease]] = []

    def store(lacking: Sequence[Shortage]) -> str:
        if lacking and not queue:
            hint = "without --no-wait, the run waits for it"
            raise InvalidInput(*reserve.refusals(lacking, hint))
        owner, expires_at = new_owner(), expiry(context.store)
        run = record(context, prepared, lacking, owner, expires_at)
        made.append((run, Lease.first(run.id, owner, expires_at)))
        return run.name

    reserve.reserve(context.store, context.home, plan, plan.policy.replicas_at_once, store)
    return made[0]


def start_function(context: Context, prepared: PreparedRun, arguments: bytes) -> RunRecord:
    """As `start`, for a run of a function. arguments: pickled; deleted again if the run is
    refused."""
    folder = context.home.run_dir(prepared.plan.run_id)
    submission = submission_of(context, prepared.plan, None)
    create_with_arguments(folder, arguments, submission.account)
    prepare_run_folder(folder, submission.account)
    try:
        return start(context, prepared)
    except InvalidInput:
        remove(folder)
        raise


@contextmanager
def run_folder(
    context: Context, plan: RunPlan, submission: Submission
) -> Iterator[tuple[int, int]]:
    """Create what a supervisor needs in the run's folder. Yields the descriptors of the run's lock
    and of its liveness pipe, and closes them at the end. Raises InvalidInput, ResourceShortage."""
    check_open_files()
    context.home.prepare()
    folder = context.home.run_dir(plan.run_id)
    prepare_run_folder(folder, submission.account)
    _place_logs(folder.path, plan)
    held = [run_lock.acquire_or_refuse(folder, plan.run_name)]
    try:
        if not folder.wakeup.exists():
            wakeup.create(folder.wakeup)
        environ = submitted(plan, submission.environ)
        stored_submission.store(context.home, plan.run_id, environ, submission.python)
        _make_credentials(context, plan, submission)
        held.append(open_liveness_pipe(folder.liveness_pipe))
        yield held[0], held[1]
    finally:
        for descriptor in held:
            os.close(descriptor)


def _make_credentials(context: Context, plan: RunPlan, submission: Submission) -> None:
    """Make keys for the run's nodes: a supervisor would have to import the library."""
    if plan.principal is None:
        return
    from muster.engines.credentials import slots_with_keys
    from muster.storage.key_pool import take_new
    from muster.storage.run_credentials import RunCredentials

    keys = context.backend.keys
    take = take_new if keys is None else keys.take
    with acting_as(submission.account):
        made = RunCredentials(context.home, plan, plan.principal)
        made.prepare(slots_with_keys(plan), take)


def record(
    context: Context,
    prepared: PreparedRun,
    lacking: Sequence[Shortage] = (),
    owner: Owner | None = None,
    expires_at: float | None = None,
) -> RunRecord:
    """Store a run, and its Job if that is new, in one transaction. lacking: what a run that is
    QUEUED waits for. owner, expires_at: of the run's lease. Raises InvalidInput."""
    now = round(time.time(), 6)  # to the microsecond, as it is stored

    def build(job: JobRecord, number: int, name: str) -> tuple[RunRecord, list[NodeRecord]]:
        plan = replace(with_names(prepared.plan, name), job_id=job.id)
        nodes = first_records(plan)
        return _run_record(context, prepared, job, plan, (number, now), lacking), nodes

    recorded = context.store.runs.insert(prepared.job, build, owner, expires_at)
    context.artifact_lock.release(prepared.job.id)
    return recorded


def first_records(plan: RunPlan) -> list[NodeRecord]:
    """The records of the nodes of a run that was just accepted. A node of an array gets its record
    when it starts."""
    statuses = plan.policy.first_nodes()
    groups = [group for group in plan.policy.groups if not group.is_array]
    return [
        node_record(plan.node(rank), statuses[rank]) for group in groups for rank in group.ranks
    ]


def _run_record(
    context: Context,
    prepared: PreparedRun,
    job: JobRecord,
    plan: RunPlan,
    numbered: tuple[int, float],
    lacking: Sequence[Shortage],
) -> RunRecord:
    """numbered: the run's number, and when it was created."""
    home, (number, now) = context.home, numbered
    state, details = RunState.ACCEPTED, ""
    if prepared.spec.suspend:
        state, details = RunState.SUSPENDED, "submitted suspended"
    elif lacking:
        from muster.engines import admission  # few runs wait

        state, details = RunState.QUEUED, admission.describe(lacking)
    elif plan.after and (waits := waits_for(context, plan)):
        state, details = RunState.QUEUED, waits
    return RunRecord(
        id=plan.run_id,
        name=plan.run_name,
        number=number,
        job_id=job.id,
        job_name=job.name,
        state=state,
        details=details,
        engine=plan.engine,
        attempt=0,
        created_at=now,
        started_at=None,
        finished_at=None,
        exit_code=None,
        node_count=plan.policy.initial_size,
        spec=seal(home, to_builtins(prepared.spec)),
        origins=dict(prepared.origins),
        overrides=seal(home, to_builtins(prepared.overrides)),
        plan=sealed_plan(home, plan),
        lifecycle={},
        notes=seal(home, list(prepared.notes)),
        cancel_requested_at=None,
        cancel_reason=None,
        display_name=prepared.overrides.run_name,
        created_by=context.caller.user,
        tags=seal(home, dict(prepared.spec.tags)),
        project=job.project,
    )


def waits_for(context: Context, plan: RunPlan) -> str:
    """See `control.runs_before.waits_for`."""
    from muster.control import runs_before  # few runs wait for others

    return runs_before.waits_for(context.store, plan)


def _place_logs(folder: Path, plan: RunPlan) -> None:
    """Link the run's `logs` to its folder below `logging.directory`. Raises InvalidInput."""
    if plan.log_directory is None or (folder / "logs").is_symlink():
        return
    target = Path(plan.log_directory) / plan.run_id
    try:
        target.mkdir(parents=True)
    except OSError as error:
        raise InvalidInput(
            Problem("logging.directory", f"cannot write to {plan.log_directory}: {error.strerror}")
        ) from None
    (folder / "logs").symlink_to(target)
