"""`MusterAPI` in this process: checks who calls, then carries out a use case."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from muster.caller import Caller, Right
from muster.service.caller_checks import (
    CallerChecks,
    job_of,
    notification_of,
    of_creator,
    of_run,
    requires,
    schedule_of,
)
from muster.store.records import (
    EventRecord,
    JobEventRecord,
    JobRecord,
    NodeFilter,
    NodeRecord,
    RunFilter,
    RunRecord,
    RunSummary,
)
from muster.submission import sent_variables

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from muster.api.answers import (
        ClusterAccess,
        DiskItem,
        EngineInfo,
        PlanLimits,
        Pruned,
        Stacks,
    )
    from muster.api.notifications import (
        ChangedNotification,
        NotificationChange,
        NotificationRequest,
        TestAnswer,
    )
    from muster.api.outputs import OutputFile, OutputList
    from muster.api.prepared import FrameworkCheck, PreparedJob, PreparedRun
    from muster.api.replica_table import ReplicaTable, TableQuery
    from muster.api.retry import Retry
    from muster.api.schedules import ScheduleChange, ScheduleRequest, WebhookAddress
    from muster.api.streams import EventItem, Live, LogChunk, Notice, Pause, RunItem, Selection
    from muster.api.submissions import JobRequest, Preview, PreviewRequest, StartRequest
    from muster.engines.base import RunningNode
    from muster.engines.findings import Finding
    from muster.errors import Problem
    from muster.lifecycle.schedule import Timing
    from muster.lifecycle.trigger import Trigger
    from muster.node.counters import Counters
    from muster.plan.model import RunPlan
    from muster.service.local_nodes import LocalNodes
    from muster.spec.models import JobSpec
    from muster.spec.override_models import RunOverrides
    from muster.spec.overrides import Changes
    from muster.spec.reader import ParsedSpec
    from muster.spec.shapes import Shape
    from muster.storage.artifacts import ArtifactRef
    from muster.storage.usage import NodeUsage
    from muster.store.notification_records import DeliveryRecord, NotificationRecord
    from muster.store.schedule_records import FiringRecord, ScheduleRecord


class EmbeddedAPI(CallerChecks):
    """See `MusterAPI`, which documents the methods. Each is short: it calls the use case in a
    module of this package, which is imported then. Threads may share an object.

    The first method that finds or changes runs recovers those whose supervisor was killed.
    """

    @property
    def node_access(self) -> LocalNodes:
        from muster.service.local_nodes import LocalNodes

        return LocalNodes(self)

    def close(self) -> None:
        self._backend.close()

    # About

    def caller(self) -> Caller:
        return self._caller

    def location(self) -> str:
        return str(self.home.root)

    @requires(Right.READ, "see how much space is left")
    def space_warning(self) -> str | None:
        return self._backend.space_warning() or None

    @requires(Right.READ, "see shapes")
    def shapes(self) -> list[Shape]:
        from muster.spec.shapes import catalogue

        return list(catalogue(self.home.shapes).values())

    @requires(Right.READ, "see engines")
    def engines(self) -> list[EngineInfo]:
        from muster.service.engines import engines

        return engines(self.home)

    @requires(Right.SUBMIT, "check engines")
    def check_engine(self, name: str) -> list[Finding]:
        from muster.service.engines import check

        return check(name, self.home)

    @requires(Right.READ, "see shapes")
    def shape(self, name: str) -> Shape:
        from muster.spec.shapes import find_shape

        return find_shape(name, self.home.shapes)

    # Jobs

    @requires(Right.READ, "see jobs")
    def job(self, text: str) -> JobRecord:
        self.recover()
        return self.store.jobs.find(self._caller.project, text)

    @requires(Right.READ, "see jobs")
    def jobs(
        self,
        *,
        deleted: bool = False,
        tags: Mapping[str, str | None] | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[JobRecord]:
        self.recover()
        return self.store.jobs.listing(
            self._caller.project, deleted=deleted, tags=tags, limit=limit, before=before
        )

    @requires(Right.READ, "see jobs")
    def job_events(self, job_id: str, after: int = 0) -> list[JobEventRecord]:
        return self.store.jobs.events(self._own_job(job_id).id, after)

    @requires(Right.SUBMIT, "start runs")
    def job_spec(self, job_id: str) -> JobSpec:
        from muster.service.stored_spec import spec_of

        return spec_of(self.home, self._own_job(job_id))

    @requires(Right.READ, "see jobs")
    def code_size(self, job_id: str) -> int | None:
        from muster.storage.artifacts import stored_size

        digest = self._own_job(job_id).artifact_sha256
        return None if digest is None else stored_size(self.home, digest)

    @requires(Right.SUBMIT, "create jobs")
    def prepare_job(self, spec: JobSpec, *, always_new: bool = False) -> PreparedJob:
        from muster.service.jobs import prepare

        self.recover()
        return prepare(self.context, spec, always_new=always_new)

    @requires(Right.SUBMIT, "create jobs")
    def copy_job(self, job_id: str) -> JobRecord:
        from muster.service.jobs import copy

        job = self._own_job(job_id)
        job.check_active()
        return copy(self.context, job)

    @requires(Right.SUBMIT, "create jobs", action="jobs.create")
    def create_job(self, job: JobRecord) -> JobRecord:
        from muster.service.jobs import create

        self._check_project(job)
        return create(self.context, replace(job, created_by=self._caller.user))

    @requires(Right.SUBMIT, "create jobs")
    def discard(self, job: JobRecord) -> None:
        from muster.service.jobs import discard

        self._check_project(job)
        discard(self.context, job)

    @requires(Right.DELETE, "delete jobs", action="jobs.delete")
    def delete_unused_job(self, job_id: str) -> None:
        self.store.jobs.delete_unused(self._own_job(job_id).id)

    @of_creator(job_of, Right.SUBMIT, "edit jobs", action="jobs.edit")
    def edit_job(self, job_id: str, changes: Sequence[str]) -> JobRecord:
        from muster.service.jobs import edit

        job = self._own_job(job_id)
        edit(self.context, job, changes)
        return self._own_job(job.id)

    @requires(Right.READ, "see jobs")
    def check_deletable(self, job_ids: Sequence[str]) -> None:
        self.recover()
        self.store.jobs.check_ended([self._own_job(job_id).id for job_id in job_ids])

    @requires(Right.DELETE, "delete jobs", action="jobs.delete")
    def delete_job(self, job_id: str) -> JobRecord:
        from muster.service.jobs import delete

        self.recover()
        job = self._own_job(job_id)
        delete(self.context, job)
        return self._own_job(job.id)

    # Start runs

    @requires(Right.SUBMIT, "start runs")
    def prepare_run(
        self,
        job: JobRecord,
        overrides: RunOverrides,
        *,
        spec: JobSpec | None = None,
        new_job: bool = False,
        notes: Sequence[str] = (),
    ) -> PreparedRun:
        from muster.errors import MusterError
        from muster.service.prepare import prepare_run

        self._check_project(job)
        job.check_active()
        try:
            return prepare_run(
                self.context, job, overrides, spec=spec, new_job=new_job, notes=notes
            )
        except MusterError:
            if new_job:
                self.discard(job)
            raise

    @requires(Right.SUBMIT, "start runs")
    def review(
        self, written: ParsedSpec, changes: Changes, found: Sequence[Problem] = ()
    ) -> list[Problem]:
        from muster.service.review import review

        return review(self.context, written, changes, found)

    @requires(Right.SUBMIT, "start runs")
    def check_framework(
        self, plan: RunPlan, environ: Mapping[str, str] | None = None
    ) -> FrameworkCheck:
        from muster.api.prepared import FrameworkCheck
        from muster.service.framework_check import check_framework
        from muster.service.planning import has_our_files

        if not has_our_files(self.context.home, plan):
            return FrameworkCheck()
        submission = self.context.submission
        if environ is not None:
            submission = replace(submission, environ=environ)
        return check_framework(plan, submission)

    @requires(Right.SUBMIT, "start runs")
    def plan_limits(self, plan: RunPlan) -> PlanLimits:
        from muster.service.planning import limits_of

        return limits_of(self.home, plan)

    @requires(Right.SUBMIT, "start runs")
    def dry_run(self, plan: RunPlan) -> list[Finding]:
        from muster.service.planning import dry_run

        return dry_run(self.home, plan)

    @requires(Right.SUBMIT, "start runs")
    def packed_files(self, prepared: PreparedRun) -> list[str]:
        from muster.service.prepare import packed_files

        return packed_files(self.home, prepared)

    @requires(Right.SUBMIT, "start runs", action="runs.start")
    def start(
        self,
        prepared: PreparedRun,
        environ: Mapping[str, str] | None = None,
        *,
        queue: bool = True,
    ) -> RunRecord:
        from muster.service.start import start

        self.recover()
        self._check_new_run(prepared)
        return start(self.context, prepared, environ, queue=queue)

    @requires(Right.SUBMIT, "start runs", action="runs.start")
    def start_function(self, prepared: PreparedRun, arguments: bytes) -> RunRecord:
        from muster.service.start import start_function

        self.recover()
        self._check_new_run(prepared)
        return start_function(self.context, prepared, arguments)

    @requires(Right.SUBMIT, "start runs")
    def preview(self, request: PreviewRequest) -> Preview:
        """A run as it would start now, for a client on another machine. Raises InvalidInput."""
        from muster.service.submissions import preview

        return preview(self.context, request)

    @requires(Right.SUBMIT, "start runs", action="runs.start")
    def submit(self, request: StartRequest) -> RunRecord:
        """Start a run, for a client on another machine. Raises InvalidInput, EngineError."""
        from muster.service.submissions import start

        self.recover()
        return start(self.context, request)

    @requires(Right.SUBMIT, "create jobs", action="jobs.create")
    def submit_job(self, source: JobRequest) -> JobRecord:
        """Create a Job, for a client on another machine. Raises InvalidInput."""
        from muster.service.submissions import create_job

        return create_job(self.context, source)

    @requires(Right.SUBMIT, "create jobs")
    def check_may_upload(self) -> None:
        """Raises Forbidden if the caller may not upload code."""

    @requires(Right.SUBMIT, "create jobs", action="code.upload")
    def store_code(
        self, digest: str, file_name: str, kind: Literal["file", "folder"]
    ) -> ArtifactRef:
        """Store what was uploaded as code. See `storage.uploads.finish`. Raises InvalidInput."""
        from muster.storage.uploads import finish

        project, lock = self._caller.project, self._backend.artifact_lock
        return finish(self.home, project, digest, file_name, kind, lock)

    @requires(Right.SUBMIT, "create jobs")
    def preview_job(self, source: JobRequest) -> PreparedJob:
        """The Job that `submit_job` would create or find. Raises InvalidInput."""
        from muster.service.submissions import prepare_job

        prepared = prepare_job(self.context, source)
        self.context.artifact_lock.release(prepared.record.id)
        return prepared

    # Schedules

    @requires(Right.SUBMIT, "create schedules", action="schedules.create")
    def create_schedule(
        self, name: str, timing: Timing, prepared: PreparedRun, trigger: Trigger | None = None
    ) -> ScheduleRecord:
        from muster.service.schedules import create

        self._check_project(prepared.job)
        environ = sent_variables(self.context.submission.environ)
        return create(self.context, name, timing, prepared, environ, trigger)

    @requires(Right.SUBMIT, "create schedules", action="schedules.create")
    def submit_schedule(self, request: ScheduleRequest) -> ScheduleRecord:
        """Create a schedule, for a client on another machine. Raises InvalidInput."""
        from muster.service.submissions import create_schedule

        return create_schedule(self.context, request)

    @requires(Right.READ, "see schedules")
    def schedules(
        self, *, limit: int | None = None, after: str | None = None
    ) -> list[ScheduleRecord]:
        return self.store.schedules.listing(self._caller.project, limit=limit, after=after)

    @requires(Right.READ, "see schedules")
    def schedule(self, text: str) -> ScheduleRecord:
        return self._own_schedule(text)

    @requires(Right.READ, "see schedules")
    def firings(
        self, schedule_id: str, *, limit: int | None = None, before: float | None = None
    ) -> list[FiringRecord]:
        found = self._own_schedule(schedule_id)
        return self.store.schedules.firings(found.id, limit=limit, before=before)

    @requires(Right.READ, "see schedules")
    def webhook(self, schedule_id: str) -> WebhookAddress:
        from muster.service.webhooks import address_of

        return address_of(self.context, self._own_schedule(schedule_id))

    @of_creator(schedule_of, Right.SUBMIT, "change webhooks", action="schedules.rotate_webhook")
    def rotate_webhook(self, schedule_id: str) -> WebhookAddress:
        from muster.service.webhooks import rotate

        return rotate(self.context, self._own_schedule(schedule_id))

    @of_creator(schedule_of, Right.SUBMIT, "edit schedules", action="schedules.edit")
    def edit_schedule(self, schedule_id: str, change: ScheduleChange) -> ScheduleRecord:
        from muster.service.schedules import edit

        return edit(self.context, self._own_schedule(schedule_id), change)

    @of_creator(schedule_of, Right.SUBMIT, "pause schedules", action="schedules.pause")
    def pause_schedule(self, schedule_id: str) -> ScheduleRecord:
        from muster.service.schedules import pause

        return pause(self.context, self._own_schedule(schedule_id))

    @of_creator(schedule_of, Right.SUBMIT, "resume schedules", action="schedules.resume")
    def resume_schedule(self, schedule_id: str) -> ScheduleRecord:
        from muster.service.schedules import resume

        return resume(self.context, self._own_schedule(schedule_id))

    @of_creator(schedule_of, Right.SUBMIT, "delete schedules", action="schedules.delete")
    def delete_schedule(self, schedule_id: str) -> None:
        self.store.schedules.delete(self._own_schedule(schedule_id).id)

    @requires(Right.SUBMIT, "start runs", action="schedules.trigger")
    def trigger_schedule(self, schedule_id: str) -> RunRecord:
        from muster.service.schedules import trigger

        self.recover()
        return trigger(self.context, self._own_schedule(schedule_id))

    # Notifications

    @requires(Right.SUBMIT, "add notifications", action="notifications.create")
    def create_notification(self, request: NotificationRequest) -> ChangedNotification:
        from muster.service.notifications import create

        return create(self.context, request)

    @requires(Right.READ, "see notifications")
    def notifications(
        self, *, limit: int | None = None, after: str | None = None
    ) -> list[NotificationRecord]:
        from muster.service.notifications import shown

        found = self.store.notifications.listing(self._caller.project, limit=limit, after=after)
        return [shown(one) for one in found]

    @requires(Right.READ, "see notifications")
    def notification(self, text: str) -> NotificationRecord:
        from muster.service.notifications import shown

        return shown(self._own_notification(text))

    @of_creator(notification_of, Right.SUBMIT, "edit notifications", action="notifications.edit")
    def edit_notification(
        self, notification_id: str, change: NotificationChange
    ) -> ChangedNotification:
        from muster.service.notifications import edit

        return edit(self.context, self._own_notification(notification_id), change)

    @of_creator(notification_of, Right.SUBMIT, "pause notifications", action="notifications.pause")
    def pause_notification(self, notification_id: str) -> NotificationRecord:
        from muster.service.notifications import set_paused

        return set_paused(self.context, self._own_notification(notification_id), True)

    @of_creator(
        notification_of, Right.SUBMIT, "resume notifications", action="notifications.resume"
    )
    def resume_notification(self, notification_id: str) -> NotificationRecord:
        from muster.service.notifications import set_paused

        return set_paused(self.context, self._own_notification(notification_id), False)

    @of_creator(
        notification_of, Right.SUBMIT, "delete notifications", action="notifications.delete"
    )
    def delete_notification(self, notification_id: str) -> None:
        self.store.notifications.delete(self._own_notification(notification_id).id)

    @of_creator(notification_of, Right.SUBMIT, "test notifications", action="notifications.test")
    def test_notification(self, notification_id: str) -> TestAnswer:
        from muster.service.notifications import test

        return test(self.context, self._own_notification(notification_id))

    @requires(Right.READ, "see notifications")
    def deliveries(
        self, notification_id: str, *, limit: int | None = None, before: int | None = None
    ) -> list[DeliveryRecord]:
        found = self._own_notification(notification_id)
        return self.store.notifications.deliveries(
            found.project, notification_id=found.id, limit=limit, before=before
        )

    @requires(Right.READ, "see notifications")
    def failed_deliveries(self, *, limit: int | None = None) -> list[DeliveryRecord]:
        from muster.store.notification_records import DeliveryState

        return self.store.notifications.deliveries(
            self._caller.project, state=DeliveryState.FAILED, limit=limit
        )

    @requires(Right.SUBMIT, "send events again", action="notifications.retry")
    def retry_deliveries(self, notification: str | None = None) -> int:
        of = None if notification is None else self._own_notification(notification).id
        store = self.store
        return store.notifications.retry(
            self._caller.project, store.leases.now(), notification_id=of
        )

    # Find runs

    @requires(Right.READ, "see runs")
    def run(self, text: str) -> RunRecord:
        self.recover()
        return self.store.runs.find(self._caller.project, text)

    @requires(Right.READ, "see runs")
    def find_run(self, text: str) -> RunSummary:
        self.recover()
        run_id = self.store.runs.find_id(self._caller.project, text)
        return self.store.runs.summary(run_id)

    @requires(Right.READ, "see runs")
    def runs(self, chosen: RunFilter) -> list[RunSummary]:
        from muster.service.run_details import with_waiting

        self.recover()
        return with_waiting(self.home, self.store.runs.listing(self._caller.project, chosen))

    @requires(Right.READ, "see runs")
    def run_records(self, chosen: RunFilter) -> list[RunRecord]:
        self.recover()
        return self.store.runs.records(self._caller.project, chosen)

    @of_run(Right.READ, "see runs")
    def nodes(self, run_id: str, chosen: NodeFilter | None = None) -> list[NodeRecord]:
        return list(self.store.runs.nodes(run_id, chosen))

    @of_run(Right.READ, "see runs")
    def shown_nodes(self, run_id: str) -> list[NodeRecord]:
        from muster.service.run_details import shown_nodes

        return shown_nodes(self.store, self.store.runs.get(run_id))

    @requires(Right.READ, "see runs")
    def replica_table(self, run_ids: Sequence[str], query: TableQuery) -> ReplicaTable:
        from muster.service.replica_table import replica_table

        self.recover()
        for run_id in run_ids:
            self._check_run(run_id)
        return replica_table(self.context, [self.store.runs.get(each) for each in run_ids], query)

    @of_run(Right.READ, "see runs")
    def restarts(self, run_id: str) -> int:
        return self.store.events.count(run_id, "restart")

    @of_run(Right.READ, "see runs")
    def why(self, run_id: str) -> list[str]:
        from muster.service.run_details import why

        return why(self.context, self.store.runs.get(run_id))

    @of_run(Right.READ, "see runs")
    def waiting_for(self, run_id: str) -> str:
        from muster.service.run_details import waiting_for

        return waiting_for(self.home, self.store.runs.summary(run_id))[0]

    @of_run(Right.READ, "see runs")
    def replicas(self, run_id: str) -> dict[str, int]:
        from muster.service.run_details import replicas

        return replicas(self.store.runs.get(run_id))

    @of_run(Right.READ, "see runs")
    def limits(self, run_id: str) -> dict[str, str]:
        from muster.service.run_details import limits

        return limits(self.home, self.store.runs.get(run_id))

    @of_run(Right.READ, "see runs")
    def endpoints(self, run_id: str) -> dict[str, str]:
        from muster.storage.run_files import read_endpoints

        return read_endpoints(self.home.run_dir(run_id))

    @of_run(Right.ENTER, "connect to nodes", action="runs.connect")
    def cluster_access(self, run_id: str) -> ClusterAccess:
        from muster.service.run_details import cluster_access

        return cluster_access(self.context, self.store.runs.get(run_id))

    @of_run(Right.READ, "see runs")
    def usage(self, run_id: str) -> dict[int, NodeUsage]:
        from muster.storage.usage import read_usage

        return read_usage(self.home.run_dir(run_id))

    @of_run(Right.READ, "see runs")
    def counters(self, run_id: str) -> dict[int, Counters]:
        from muster.service.inside import counters

        return counters(self.context, self.store.runs.summary(run_id))

    @of_run(Right.READ, "see runs")
    def stacks(self, run_id: str, ranks: Collection[int]) -> Stacks:
        from muster.service.inside import stacks

        return stacks(self.context, self.store.runs.summary(run_id), ranks)

    # For `LocalNodes`

    @of_run(Right.ENTER, "enter nodes")
    def supervisor_of(self, run_id: str) -> int:
        """The pid of the process that drives a run in progress. See `service.inside`."""
        from muster.service.inside import supervisor_of

        return supervisor_of(self.context, self.store.runs.summary(run_id))

    @of_run(Right.ENTER, "enter nodes")
    def running_node(self, run_id: str, rank: int | None) -> RunningNode:
        """A node of a run in progress; its only one if rank is None. See `service.inside`."""
        return self._running_node(run_id, rank)

    @of_run(Right.ENTER, "enter nodes", action="runs.exec", in_node=True)
    def node_to_execute(self, run_id: str, rank: int, program: str, /) -> RunningNode:
        """As `running_node`. program: its name, without arguments, which may be secret."""
        return self._running_node(run_id, rank)

    @of_run(Right.ENTER, "enter nodes", action="runs.forward", in_node=True)
    def node_to_forward(self, run_id: str, rank: int, port: str, /) -> RunningNode:
        """As `running_node`. port: `port 80`."""
        return self._running_node(run_id, rank)

    @of_run(Right.ENTER, "enter nodes", action="runs.copy", in_node=True)
    def node_to_copy(self, run_id: str, rank: int, path: str, /) -> RunningNode:
        """As `running_node`. path: `from PATH` or `to PATH`."""
        return self._running_node(run_id, rank)

    @of_run(Right.READ, "see runs", action="runs.copy", in_node=True)
    def record_copy(self, run_id: str, rank: int, path: str, /) -> None:
        """Record that files of a node that has ended are copied. path: as for `node_to_copy`."""

    def _running_node(self, run_id: str, rank: int | None) -> RunningNode:
        from muster.service.inside import running_node

        return running_node(self.context, self.store.runs.summary(run_id), rank)

    # Change runs

    @of_run(Right.SUBMIT, "cancel runs", action="runs.cancel")
    def cancel(self, run_id: str, why: str = "canceled by user", *, force: bool = False) -> None:
        from muster.service.requests import cancel

        cancel(self.context, run_id, why, force=force)

    @of_run(Right.SUBMIT, "adopt runs", action="runs.adopt")
    def adopt(self, run_id: str) -> RunRecord:
        from muster.service.recovery import adopt

        adopt(self._backend, run_id)
        return self.store.runs.get(run_id)

    @of_run(Right.SUBMIT, "suspend runs", action="runs.suspend")
    def suspend(self, run_id: str, why: str = "suspended by user") -> RunRecord:
        from muster.service.requests import suspend

        return suspend(self.context, run_id, why)

    @of_run(Right.SUBMIT, "resume runs")
    def prepare_resume(self, run_id: str, changes: Changes) -> RunOverrides:
        from muster.service.requests import reviewed_overrides

        return reviewed_overrides(self.context, self.store.runs.get(run_id), changes)

    @of_run(Right.SUBMIT, "resume runs", action="runs.resume")
    def resume(
        self,
        run_id: str,
        overrides: RunOverrides | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> RunRecord:
        from muster.service.requests import resume

        return resume(self.context, run_id, overrides, environ)

    @of_run(Right.SUBMIT, "retry replicas", anyones=True)
    def prepare_retry(self, run_id: str, retry: Retry) -> PreparedRun:
        from muster.service.retry import prepare_retry

        return prepare_retry(self.context, self.store.runs.get(run_id), retry)

    @of_run(Right.SUBMIT, "run jobs again", anyones=True)
    def prepare_rerun(
        self, run_id: str, changes: Changes, *, update_code: bool = False
    ) -> PreparedRun:
        from muster.service.rerun import prepare_rerun

        run = self.store.runs.get(run_id)
        return prepare_rerun(self.context, run, changes, update_code=update_code)

    @of_run(Right.SUBMIT, "scale runs", action="runs.scale")
    def scale(self, run_id: str, group: str, replicas: int, why: str = "by user") -> RunRecord:
        from muster.service.requests import scale

        return scale(self.context, run_id, group, replicas, why)

    @of_run(Right.DELETE, "delete runs", action="runs.delete")
    def delete(self, run_id: str) -> None:
        from muster.service.delete import delete

        delete(self.context, run_id)

    # Follow runs

    @of_run(Right.READ, "see runs")
    def events(self, run_id: str, after: int = 0, limit: int | None = None) -> list[EventRecord]:
        return self.store.events.since(run_id, after, limit)

    @of_run(Right.READ, "see runs")
    def last_event(self, run_id: str) -> int:
        return self.store.events.last(run_id)

    @of_run(Right.READ, "see runs")
    def follow_events(self, run_id: str, after: int = 0) -> Generator[EventItem | Notice]:
        from muster.service.run_events import follow_events

        return follow_events(self.context, run_id, after)

    @of_run(Right.READ, "see runs")
    def follow_events_async(
        self, run_id: str, after: int = 0
    ) -> AsyncGenerator[EventItem | Notice]:
        from muster.service.run_events import follow_events_async

        return follow_events_async(self.context, run_id, after)

    @of_run(Right.READ, "see runs")
    def watch(
        self, run_id: str, timeout: float | None = None, every: float | None = None
    ) -> Generator[RunItem | Notice]:
        from muster.service.wait import watch

        return watch(self.context, run_id, timeout, every)

    @of_run(Right.READ, "see runs")
    def watch_async(
        self, run_id: str, timeout: float | None = None, every: float | None = None
    ) -> AsyncGenerator[RunItem | Notice]:
        from muster.service.event_loop import watch

        return watch(self.context, run_id, timeout, every)

    @of_run(Right.READ, "see output")
    def log(
        self,
        run_id: str,
        selection: Selection,
        *,
        follow: bool = False,
        live: Live | None = None,
    ) -> Generator[LogChunk | Pause | Notice]:
        from muster.service.run_log import items

        run = self._run_with_output(run_id, selection)
        return items(self.context, run, selection, follow=follow, live=live)

    @of_run(Right.READ, "see output")
    def log_async(
        self,
        run_id: str,
        selection: Selection,
        *,
        follow: bool = False,
        live: Live | None = None,
    ) -> AsyncGenerator[LogChunk | Pause | Notice]:
        from muster.service.run_log import items_async

        run = self._run_with_output(run_id, selection)
        return items_async(self.context, run, selection, follow=follow, live=live)

    def _run_with_output(self, run_id: str, selection: Selection) -> RunSummary:
        """Raises InvalidInput if the run does not have what is selected."""
        run = self.store.runs.summary(run_id)
        if selection.restricts:
            from muster.service.selection import check_selection

            check_selection(self.context, run, selection)
        return run

    # Files of runs

    @of_run(Right.READ, "see output")
    def log_folder(self, run_id: str) -> str:
        attempt = self.store.runs.summary(run_id).attempt
        return str(self.home.run_dir(run_id).logs(attempt).resolve())

    @of_run(Right.READ, "see output")
    def outputs(
        self,
        run_id: str,
        ranks: Collection[int] | None = None,
        groups: Collection[str] | None = None,
    ) -> OutputList:
        from muster.service.output_files import outputs

        return outputs(self.context, self.store.runs.summary(run_id), ranks, groups)

    @of_run(Right.READ, "see output")
    def output(self, run_id: str, rank: int | None, path: str) -> OutputFile:
        from muster.service.output_files import output

        return output(self.context, run_id, rank, path)

    @of_run(Right.READ, "see output")
    def read_output(
        self, run_id: str, rank: int | None, path: str, offset: int = 0
    ) -> Generator[bytes]:
        from muster.service.output_files import read

        return read(self.context, run_id, rank, path, offset)

    @of_run(Right.READ, "see output")
    def ranks_with_result(self, run_id: str) -> list[int]:
        from muster.storage.run_files import ranks_with_result

        return list(ranks_with_result(self.home.run_dir(run_id)))

    @of_run(Right.READ, "see output")
    def result(self, run_id: str, rank: int) -> bytes | None:
        from muster.storage.run_files import read_result

        return read_result(self.home.run_dir(run_id), rank)

    # Disk

    @requires(Right.READ, "see what is on disk")
    def disk(self) -> tuple[DiskItem, ...]:
        from muster.service.disk import measure

        self.recover()
        return measure(self.context)

    @requires(Right.DELETE, "delete runs and files", action="runs.prune")
    def prune(self, keep: int | None, older_than: float | None, *, dry_run: bool = False) -> Pruned:
        self._caller.require(Right.OPERATE, "delete runs of others")
        from muster.service.prune import prune, retention_of

        self.recover()
        retention = retention_of(self.home, keep, older_than)
        return prune(self.context, retention, dry_run=dry_run)
