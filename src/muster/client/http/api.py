"""`MusterAPI` of a server, over HTTP.

Most methods are one request (`api.operations`). What needs more than that is in the other modules
of this package: code is uploaded (`code`), runs are prepared by the server (`submissions`), streams
are continued when a connection is lost (`streams`), nodes are reached (`nodes`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from muster.api.operations import OPERATIONS
from muster.client.contexts import Address
from muster.client.http.connection import Connection
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

if TYPE_CHECKING:
    from muster.api.answers import (
        CallerInfo,
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
    from muster.api.schedules import ScheduleChange, WebhookAddress
    from muster.api.streams import EventItem, Live, LogChunk, Notice, Pause, RunItem, Selection
    from muster.api.usage import Counters, NodeUsage
    from muster.client.http.nodes import ServerNodes
    from muster.client.http.submissions import Submissions
    from muster.engines.findings import Finding
    from muster.errors import Problem
    from muster.lifecycle.schedule import Timing
    from muster.lifecycle.trigger import Trigger
    from muster.plan.model import RunPlan
    from muster.spec.models import JobSpec
    from muster.spec.override_models import RunOverrides
    from muster.spec.overrides import Changes
    from muster.spec.reader import ParsedSpec
    from muster.spec.shapes import Shape
    from muster.store.notification_records import DeliveryRecord, NotificationRecord
    from muster.store.schedule_records import FiringRecord, ScheduleRecord


class HttpAPI:
    """See `MusterAPI`, which documents the methods. Threads may share an object."""

    def __init__(self, address: Address) -> None:
        self.connection = Connection(address)
        self._submissions: Submissions | None = None

    def _call(self, name: str, answer: Any, /, **given: Any) -> Any:
        """Request an operation. answer: the type of what it answers. given: all parameters of the
        method."""
        return self.connection.call(OPERATIONS[name], given, answer)

    @property
    def submissions(self) -> Submissions:
        """What this process has prepared, and may start."""
        if self._submissions is None:
            from muster.client.http.submissions import Submissions

            self._submissions = Submissions(self.connection)
        return self._submissions

    @property
    def node_access(self) -> ServerNodes:
        from muster.client.http.nodes import ServerNodes

        return ServerNodes(self)

    # About

    def location(self) -> str:
        return self.connection.address.url

    def close(self) -> None:
        self.connection.close()

    def caller(self) -> CallerInfo:
        from muster.api.answers import CallerInfo

        return self._call("caller", CallerInfo)

    def space_warning(self) -> str | None:
        return self._call("space_warning", str | None)

    def shapes(self) -> list[Shape]:
        from muster.spec.shapes import Shape

        return self._call("shapes", list[Shape])

    def shape(self, name: str) -> Shape:
        from muster.spec.shapes import Shape

        return self._call("shape", Shape, name=name)

    def engines(self) -> list[EngineInfo]:
        from muster.api.answers import EngineInfo

        return self._call("engines", list[EngineInfo])

    def check_engine(self, name: str) -> list[Finding]:
        from muster.engines.findings import Finding

        return self._call("check_engine", list[Finding], name=name)

    def read_workload(self, engine: str, reference: str, namespace: str | None = None) -> JobSpec:
        from muster.errors import InvalidInput, Problem

        text = "adopting is not possible on a server: its engines run JobSets of all users"
        hint = "`muster context use local`, on a machine with credentials of the cluster"
        raise InvalidInput(Problem("", text, hint))

    # Jobs

    def job(self, text: str) -> JobRecord:
        return self._call("job", JobRecord, text=text)

    def jobs(
        self,
        *,
        deleted: bool = False,
        tags: Mapping[str, str | None] | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[JobRecord]:
        given = {"deleted": deleted, "tags": tags, "limit": limit, "before": before}
        return self._call("jobs", list[JobRecord], **given)

    def job_events(self, job_id: str, after: int = 0) -> list[JobEventRecord]:
        return self._call("job_events", list[JobEventRecord], job_id=job_id, after=after)

    def job_spec(self, job_id: str) -> JobSpec:
        from muster.spec.models import JobSpec

        return self._call("job_spec", JobSpec, job_id=job_id)

    def code_size(self, job_id: str) -> int | None:
        return self._call("code_size", int | None, job_id=job_id)

    def edit_job(self, job_id: str, changes: Sequence[str]) -> JobRecord:
        return self._call("edit_job", JobRecord, job_id=job_id, changes=changes)

    def check_deletable(self, job_ids: Sequence[str]) -> None:
        self._call("check_deletable", None, job_ids=job_ids)

    def delete_job(self, job_id: str) -> JobRecord:
        return self._call("delete_job", JobRecord, job_id=job_id)

    def delete_unused_job(self, job_id: str) -> None:
        self._call("delete_unused_job", None, job_id=job_id)

    def prepare_job(self, spec: JobSpec, *, always_new: bool = False) -> PreparedJob:
        return self.submissions.prepare_job(spec, always_new=always_new)

    def copy_job(self, job_id: str) -> JobRecord:
        return self.submissions.copy_job(self.job(job_id))

    def create_job(self, job: JobRecord) -> JobRecord:
        return self.submissions.create_job(job)

    def discard(self, job: JobRecord) -> None:
        self.submissions.discard(job)

    # Start runs

    def prepare_run(
        self,
        job: JobRecord,
        overrides: RunOverrides,
        *,
        spec: JobSpec | None = None,
        new_job: bool = False,
        notes: Sequence[str] = (),
    ) -> PreparedRun:
        return self.submissions.prepare_run(job, overrides, notes)

    def review(
        self, written: ParsedSpec, changes: Changes, found: Sequence[Problem] = ()
    ) -> list[Problem]:
        return self.submissions.review(written, changes, found)

    def check_framework(
        self, plan: RunPlan, environ: Mapping[str, str] | None = None
    ) -> FrameworkCheck:
        return self.submissions.check_framework(plan)

    def plan_limits(self, plan: RunPlan) -> PlanLimits:
        return self.submissions.plan_limits(plan)

    def dry_run(self, plan: RunPlan) -> list[Finding]:
        return self.submissions.dry_run(plan)

    def packed_files(self, prepared: PreparedRun) -> list[str]:
        return self.submissions.packed_files(prepared)

    def start(
        self,
        prepared: PreparedRun,
        environ: Mapping[str, str] | None = None,
        *,
        queue: bool = True,
    ) -> RunRecord:
        return self.submissions.start(prepared, environ, queue=queue)

    def start_function(self, prepared: PreparedRun, arguments: bytes) -> RunRecord:
        return self.submissions.start(prepared, None, arguments=arguments)

    def prepare_retry(self, run_id: str, retry: Retry) -> PreparedRun:
        return self.submissions.prepare_retry(run_id, retry)

    def prepare_rerun(
        self, run_id: str, changes: Changes, *, update_code: bool = False
    ) -> PreparedRun:
        return self.submissions.prepare_rerun(run_id, changes, update_code=update_code)

    # Schedules

    def create_schedule(
        self, name: str, timing: Timing, prepared: PreparedRun, trigger: Trigger | None = None
    ) -> ScheduleRecord:
        return self.submissions.create_schedule(name, timing, prepared, trigger)

    def webhook(self, schedule_id: str) -> WebhookAddress:
        from muster.api.schedules import WebhookAddress

        return self._call("webhook", WebhookAddress, schedule_id=schedule_id)

    def rotate_webhook(self, schedule_id: str) -> WebhookAddress:
        from muster.api.schedules import WebhookAddress

        return self._call("rotate_webhook", WebhookAddress, schedule_id=schedule_id)

    def schedules(
        self, *, limit: int | None = None, after: str | None = None
    ) -> list[ScheduleRecord]:
        from muster.store.schedule_records import ScheduleRecord

        return self._call("schedules", list[ScheduleRecord], limit=limit, after=after)

    def schedule(self, text: str) -> ScheduleRecord:
        from muster.store.schedule_records import ScheduleRecord

        return self._call("schedule", ScheduleRecord, text=text)

    def firings(
        self, schedule_id: str, *, limit: int | None = None, before: float | None = None
    ) -> list[FiringRecord]:
        from muster.store.schedule_records import FiringRecord

        given = {"schedule_id": schedule_id, "limit": limit, "before": before}
        return self._call("firings", list[FiringRecord], **given)

    def edit_schedule(self, schedule_id: str, change: ScheduleChange) -> ScheduleRecord:
        from muster.store.schedule_records import ScheduleRecord

        given = {"schedule_id": schedule_id, "change": change}
        return self._call("edit_schedule", ScheduleRecord, **given)

    def pause_schedule(self, schedule_id: str) -> ScheduleRecord:
        from muster.store.schedule_records import ScheduleRecord

        return self._call("pause_schedule", ScheduleRecord, schedule_id=schedule_id)

    def resume_schedule(self, schedule_id: str) -> ScheduleRecord:
        from muster.store.schedule_records import ScheduleRecord

        return self._call("resume_schedule", ScheduleRecord, schedule_id=schedule_id)

    def delete_schedule(self, schedule_id: str) -> None:
        self._call("delete_schedule", None, schedule_id=schedule_id)

    def trigger_schedule(self, schedule_id: str) -> RunRecord:
        return self.submissions.trigger_schedule(schedule_id)

    # Notifications

    def create_notification(self, request: NotificationRequest) -> ChangedNotification:
        from muster.api.notifications import ChangedNotification

        return self._call("create_notification", ChangedNotification, request=request)

    def notifications(
        self, *, limit: int | None = None, after: str | None = None
    ) -> list[NotificationRecord]:
        from muster.store.notification_records import NotificationRecord

        return self._call("notifications", list[NotificationRecord], limit=limit, after=after)

    def notification(self, text: str) -> NotificationRecord:
        from muster.store.notification_records import NotificationRecord

        return self._call("notification", NotificationRecord, text=text)

    def edit_notification(
        self, notification_id: str, change: NotificationChange
    ) -> ChangedNotification:
        from muster.api.notifications import ChangedNotification

        given = {"notification_id": notification_id, "change": change}
        return self._call("edit_notification", ChangedNotification, **given)

    def pause_notification(self, notification_id: str) -> NotificationRecord:
        from muster.store.notification_records import NotificationRecord

        given = {"notification_id": notification_id}
        return self._call("pause_notification", NotificationRecord, **given)

    def resume_notification(self, notification_id: str) -> NotificationRecord:
        from muster.store.notification_records import NotificationRecord

        given = {"notification_id": notification_id}
        return self._call("resume_notification", NotificationRecord, **given)

    def delete_notification(self, notification_id: str) -> None:
        self._call("delete_notification", None, notification_id=notification_id)

    def test_notification(self, notification_id: str) -> TestAnswer:
        from muster.api.notifications import TestAnswer

        return self._call("test_notification", TestAnswer, notification_id=notification_id)

    def deliveries(
        self, notification_id: str, *, limit: int | None = None, before: int | None = None
    ) -> list[DeliveryRecord]:
        from muster.store.notification_records import DeliveryRecord

        given = {"notification_id": notification_id, "limit": limit, "before": before}
        return self._call("deliveries", list[DeliveryRecord], **given)

    def failed_deliveries(self, *, limit: int | None = None) -> list[DeliveryRecord]:
        from muster.store.notification_records import DeliveryRecord

        return self._call("failed_deliveries", list[DeliveryRecord], limit=limit)

    def retry_deliveries(self, notification: str | None = None) -> int:
        return self._call("retry_deliveries", int, notification=notification)

    # Find runs

    def run(self, text: str) -> RunRecord:
        return self._call("run", RunRecord, text=text)

    def find_run(self, text: str) -> RunSummary:
        return self._call("find_run", RunSummary, text=text)

    def runs(self, chosen: RunFilter) -> list[RunSummary]:
        return self._call("runs", list[RunSummary], chosen=chosen)

    def run_records(self, chosen: RunFilter) -> list[RunRecord]:
        return self._call("run_records", list[RunRecord], chosen=chosen)

    def nodes(self, run_id: str, chosen: NodeFilter | None = None) -> list[NodeRecord]:
        return self._call("nodes", list[NodeRecord], run_id=run_id, chosen=chosen)

    def shown_nodes(self, run_id: str) -> list[NodeRecord]:
        return self._call("shown_nodes", list[NodeRecord], run_id=run_id)

    def replica_table(self, run_ids: Sequence[str], query: TableQuery) -> ReplicaTable:
        from muster.api.replica_table import ReplicaTable

        return self._call("replica_table", ReplicaTable, run_ids=run_ids, query=query)

    def restarts(self, run_id: str) -> int:
        return self._call("restarts", int, run_id=run_id)

    def why(self, run_id: str) -> list[str]:
        return self._call("why", list[str], run_id=run_id)

    def waiting_for(self, run_id: str) -> str:
        return self._call("waiting_for", str, run_id=run_id)

    def replicas(self, run_id: str) -> dict[str, int]:
        return self._call("replicas", dict[str, int], run_id=run_id)

    def limits(self, run_id: str) -> dict[str, str]:
        return self._call("limits", dict[str, str], run_id=run_id)

    def endpoints(self, run_id: str) -> dict[str, str]:
        return self._call("endpoints", dict[str, str], run_id=run_id)

    def cluster_access(self, run_id: str) -> ClusterAccess:
        from muster.api.answers import ClusterAccess

        return self._call("cluster_access", ClusterAccess, run_id=run_id)

    def usage(self, run_id: str) -> dict[int, NodeUsage]:
        from muster.api.usage import NodeUsage

        return self._call("usage", dict[int, NodeUsage], run_id=run_id)

    def counters(self, run_id: str) -> dict[int, Counters]:
        from muster.api.usage import Counters

        return self._call("counters", dict[int, Counters], run_id=run_id)

    def stacks(self, run_id: str, ranks: Collection[int]) -> Stacks:
        from muster.api.answers import Stacks

        return self._call("stacks", Stacks, run_id=run_id, ranks=ranks)

    # Change runs

    def cancel(
        self,
        run_id: str,
        why: str = "canceled by user",
        *,
        force: bool = False,
        keep: bool = False,
    ) -> None:
        self._call("cancel", None, run_id=run_id, why=why, force=force, keep=keep)

    def adopt(self, run_id: str) -> RunRecord:
        return self._call("adopt", RunRecord, run_id=run_id)

    def suspend(self, run_id: str, why: str = "suspended by user") -> RunRecord:
        return self._call("suspend", RunRecord, run_id=run_id, why=why)

    def prepare_resume(self, run_id: str, changes: Changes) -> RunOverrides:
        from muster.spec.override_models import RunOverrides

        return self._call("prepare_resume", RunOverrides, run_id=run_id, changes=changes)

    def resume(
        self,
        run_id: str,
        overrides: RunOverrides | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> RunRecord:
        return self._call("resume", RunRecord, run_id=run_id, overrides=overrides, environ=environ)

    def scale(self, run_id: str, group: str, replicas: int, why: str = "by user") -> RunRecord:
        return self._call(
            "scale", RunRecord, run_id=run_id, group=group, replicas=replicas, why=why
        )

    def delete(self, run_id: str) -> None:
        self._call("delete", None, run_id=run_id)

    # Follow runs

    def events(self, run_id: str, after: int = 0, limit: int | None = None) -> list[EventRecord]:
        given = {"run_id": run_id, "after": after, "limit": limit}
        return self._call("events", list[EventRecord], **given)

    def last_event(self, run_id: str) -> int:
        return self._call("last_event", int, run_id=run_id)

    def follow_events(self, run_id: str, after: int = 0) -> Generator[EventItem | Notice]:
        from muster.client.http.streams import follow_events

        return follow_events(self.connection, run_id, after)

    def follow_events_async(
        self, run_id: str, after: int = 0
    ) -> AsyncGenerator[EventItem | Notice]:
        from muster.client.http.event_loop import in_event_loop
        from muster.client.http.streams import follow_events

        return in_event_loop(partial(follow_events, self.connection, run_id, after))

    def watch(
        self, run_id: str, timeout: float | None = None, every: float | None = None
    ) -> Generator[RunItem | Notice]:
        from muster.client.http.streams import watch

        return watch(self.connection, run_id, timeout, every)

    def watch_async(
        self, run_id: str, timeout: float | None = None, every: float | None = None
    ) -> AsyncGenerator[RunItem | Notice]:
        from muster.client.http.event_loop import in_event_loop
        from muster.client.http.streams import watch

        return in_event_loop(partial(watch, self.connection, run_id, timeout, every))

    def log(
        self,
        run_id: str,
        selection: Selection,
        *,
        follow: bool = False,
        live: Live | None = None,
    ) -> Generator[LogChunk | Pause | Notice]:
        from muster.client.http.streams import read_log

        return read_log(self.connection, run_id, selection, follow=follow, live=live)

    def log_async(
        self,
        run_id: str,
        selection: Selection,
        *,
        follow: bool = False,
        live: Live | None = None,
    ) -> AsyncGenerator[LogChunk | Pause | Notice]:
        from muster.client.http.event_loop import in_event_loop
        from muster.client.http.streams import read_log

        log = partial(read_log, self.connection, run_id, selection, follow=follow, live=live)
        return in_event_loop(lambda interrupt: log(interrupt=interrupt))

    # Files of runs

    def log_folder(self, run_id: str) -> str:
        return self._call("log_folder", str, run_id=run_id)

    def outputs(
        self,
        run_id: str,
        ranks: Collection[int] | None = None,
        groups: Collection[str] | None = None,
    ) -> OutputList:
        from muster.api.outputs import OutputList

        return self._call("outputs", OutputList, run_id=run_id, ranks=ranks, groups=groups)

    def output(self, run_id: str, rank: int | None, path: str) -> OutputFile:
        from muster.api.outputs import OutputFile

        return self._call("output", OutputFile, run_id=run_id, rank=rank, path=path)

    def ranks_with_result(self, run_id: str) -> list[int]:
        return self._call("ranks_with_result", list[int], run_id=run_id)

    def read_output(
        self, run_id: str, rank: int | None, path: str, offset: int = 0
    ) -> Generator[bytes]:
        from muster.client.http.streams import read_output

        return read_output(self.connection, run_id, rank, path, offset)

    def result(self, run_id: str, rank: int) -> bytes | None:
        from muster.errors import NotFound

        try:
            path = OPERATIONS["result"].url({"run_id": run_id, "rank": rank})
            return self.connection.request("GET", path)
        except NotFound:
            if rank in self.ranks_with_result(run_id):
                raise
            return None

    # Disk

    def disk(self) -> tuple[DiskItem, ...]:
        from muster.api.answers import DiskItem

        return self._call("disk", tuple[DiskItem, ...])

    def prune(self, keep: int | None, older_than: float | None, *, dry_run: bool = False) -> Pruned:
        from muster.api.answers import Pruned

        return self._call("prune", Pruned, keep=keep, older_than=older_than, dry_run=dry_run)
