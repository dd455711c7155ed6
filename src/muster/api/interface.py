"""The contract between Muster and its users: everything that `muster` and the Python API do.

A `MusterAPI` works for one caller. Jobs and runs of other projects do not exist for it: they are
not found by name, id or prefix, and `last` is the newest run of the caller's project. Arguments and
answers are plain data or frozen Structs, streams are iterators of those, so that each method can be
called over a network; `node_access` is the exception. Times are epoch seconds in UTC, durations
are seconds, sizes are bytes.

Besides the errors that a method names, each method raises Forbidden if the caller lacks the
permission that it needs (`muster.permissions`), and StoreError if the records cannot be read or
written. A method with `run_id` or `job_id` raises NotFound if the caller's project does not have
it. A method that returns an iterator checks this before it returns; its iterator is to be closed if
it is not read to its end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Generator, Mapping, Sequence
from typing import Protocol

from muster.api.answers import (
    CallerInfo,
    ClusterAccess,
    DiskItem,
    EngineInfo,
    PlanLimits,
    Pruned,
    Stacks,
)
from muster.api.node_access import NodeAccess
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
from muster.store.schedule_records import FiringRecord, ScheduleRecord


class MusterAPI(Protocol):
    """See the module."""

    @property
    def node_access(self) -> NodeAccess:
        """The nodes themselves: commands, ports and files in them."""
        ...

    def caller(self) -> CallerInfo:
        """Who calls, in which project, with which rights."""
        ...

    def location(self) -> str:
        """Where Muster keeps its records, for people: a folder or an address."""
        ...

    def space_warning(self) -> str | None:
        """A warning if the disk with the records is full or nearly full, given once; else None."""
        ...

    def shapes(self) -> list[Shape]:
        """All shapes: the built-in ones and those of MUSTER_HOME, which take precedence. Raises
        InvalidInput if the file of the latter is wrong."""
        ...

    def shape(self, name: str) -> Shape:
        """The shape with this name, which may include a size. Raises InvalidInput."""
        ...

    def engines(self) -> list[EngineInfo]:
        """The engines that runs can name, built-in ones first."""
        ...

    def check_engine(self, name: str) -> list[Finding]:
        """Check what an engine needs, such as that its machines can be reached, which may take a
        minute. Raises InvalidInput if there is none with this name."""
        ...

    def read_workload(self, engine: str, reference: str, namespace: str | None = None) -> JobSpec:
        """The job of a workload that an engine runs already, such as `jobset/train`: a run of it
        adopts that. namespace: where it is; None: where the engine's runs are.

        Raises InvalidInput if there is none, the engine has none, or a run in progress has adopted
        it; or on a server, which adopts nothing. EngineError if it cannot be read.
        """
        ...

    def close(self) -> None:
        """Close connections and end helper processes. Runs continue; the next call opens what it
        needs again."""
        ...

    # Jobs

    def job(self, text: str) -> JobRecord:
        """The Job with this name, name@version, display name, id or id prefix. Raises NotFound, or
        InvalidInput if several match."""
        ...

    def jobs(
        self,
        *,
        deleted: bool = False,
        tags: Mapping[str, str | None] | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[JobRecord]:
        """Jobs, newest first. deleted: include deleted ones. tags: required tags; None matches any
        value. A corrupt record gives a placeholder. For pages: `limit`, and `before` with the id of
        the last Job of the page before."""
        ...

    def job_events(self, job_id: str, after: int = 0) -> list[JobEventRecord]:
        """The Job's event log after entry number `after`."""
        ...

    def job_spec(self, job_id: str) -> JobSpec:
        """The Job's spec, decoded, with its secrets, to prepare a run of it. Raises InvalidInput if
        it has secrets and the key for them is missing."""
        ...

    def code_size(self, job_id: str) -> int | None:
        """Bytes of the Job's stored code; None if it has none."""
        ...

    def prepare_job(self, spec: JobSpec, *, always_new: bool = False) -> PreparedJob:
        """Store the code of a Job, and find the Job of the project with this content.

        The same content is the same Job; other content under a known name is a new version. A Job
        that is new is to be recorded or discarded. always_new: a new Job even if one has the same
        content. Raises InvalidInput if the code cannot be stored.
        """
        ...

    def copy_job(self, job_id: str) -> JobRecord:
        """A new Job with the content of another, to be recorded or discarded. Raises InvalidInput
        if the other is deleted."""
        ...

    def create_job(self, job: JobRecord) -> JobRecord:
        """Record a prepared Job. Returns the stored one: another process may have recorded the
        same content before. Raises InvalidInput if it was deleted meanwhile."""
        ...

    def discard(self, job: JobRecord) -> None:
        """Delete the code of a Job that was prepared and is not recorded, unless others have the
        same code."""
        ...

    def delete_unused_job(self, job_id: str) -> None:
        """Delete a Job and its event log unless it has runs or schedules."""
        ...

    def edit_job(self, job_id: str, changes: Sequence[str]) -> JobRecord:
        """Change resources, mounts, display name, description or tags of a Job. changes:
        `PATH=VALUE`. Runs keep the settings that they started with. Raises InvalidInput."""
        ...

    def check_deletable(self, job_ids: Sequence[str]) -> None:
        """Raises InvalidInput with every run of these Jobs that has not ended, and every schedule
        of them."""
        ...

    def delete_job(self, job_id: str) -> JobRecord:
        """Mark a Job deleted, so that it starts no more runs, and delete its code. No effect on a
        deleted Job. Raises InvalidInput if it has runs that have not ended, or schedules."""
        ...

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
        """Resolve, check and plan a run; nothing is recorded.

        spec: the Job's, if it is decoded already. new_job: the Job is not recorded yet; its code is
        deleted if the run is refused. notes: more notes, before those found here. Raises
        InvalidInput with every problem.
        """
        ...

    def review(
        self, written: ParsedSpec, changes: Changes, found: Sequence[Problem] = ()
    ) -> list[Problem]:
        """All problems of a run that cannot start: those of flags first, then the others in the
        order of the spec's lines. found: problems that are known already."""
        ...

    def check_framework(
        self, plan: RunPlan, environ: Mapping[str, str] | None = None
    ) -> FrameworkCheck:
        """Look for the packages that the framework of a planned run needs, if its nodes have those
        of this machine. environ: as for `start`."""
        ...

    def plan_limits(self, plan: RunPlan) -> PlanLimits:
        """What the nodes of a planned run would get of the machine."""
        ...

    def dry_run(self, plan: RunPlan) -> list[Finding]:
        """What the engine's infrastructure says of a planned run, without creating anything; empty
        if it cannot say."""
        ...

    def packed_files(self, prepared: PreparedRun) -> list[str]:
        """The files packed with a script because the script imports them; empty for other code."""
        ...

    def start(
        self,
        prepared: PreparedRun,
        environ: Mapping[str, str] | None = None,
        *,
        queue: bool = True,
    ) -> RunRecord:
        """Start a prepared run; a run with `suspend` is only recorded.

        environ: the variables that the nodes' environment starts from (default: those that
        the request comes from). queue: wait in state QUEUED if other runs have what it needs; else
        it is refused.
        Raises InvalidInput if it is refused or the Job was deleted meanwhile, EngineError.
        """
        ...

    def start_function(self, prepared: PreparedRun, arguments: bytes) -> RunRecord:
        """Start a prepared run of a function. arguments: pickled. Raises as `start` does."""
        ...

    # Schedules

    def create_schedule(
        self, name: str, timing: Timing, prepared: PreparedRun, trigger: Trigger | None = None
    ) -> ScheduleRecord:
        """Record a schedule that starts runs as the prepared one, which is not started, and its Job
        if that is new. Servers start them, in the name of the caller. trigger: the events that
        start runs, between the start and the end of `timing`; None: its times do. Raises
        InvalidInput with every problem."""
        ...

    def schedules(
        self, *, limit: int | None = None, after: str | None = None
    ) -> list[ScheduleRecord]:
        """The project's schedules, by name. For pages: `limit`, and `after` with the name of the
        last schedule of the page before."""
        ...

    def schedule(self, text: str) -> ScheduleRecord:
        """The schedule with this name or id. Raises NotFound."""
        ...

    def firings(
        self, schedule_id: str, *, limit: int | None = None, before: float | None = None
    ) -> list[FiringRecord]:
        """What was done at the last times of a schedule, newest first; for pages: `limit`, and
        `before` with the last `time` of the page before. schedule_id, here and below: also a name.
        Raises NotFound."""
        ...

    def webhook(self, schedule_id: str) -> WebhookAddress:
        """The address of a schedule's webhook. Raises InvalidInput if it has none, NotFound."""
        ...

    def rotate_webhook(self, schedule_id: str) -> WebhookAddress:
        """Give a schedule's webhook a new secret, which is returned this once; the one before is
        not accepted any more. Raises InvalidInput if it has no webhook, NotFound."""
        ...

    def edit_schedule(self, schedule_id: str, change: ScheduleChange) -> ScheduleRecord:
        """Change when a schedule starts runs, or of which Job. Raises InvalidInput with every
        problem, Conflict if it was changed meanwhile, NotFound."""
        ...

    def pause_schedule(self, schedule_id: str) -> ScheduleRecord:
        """Have a schedule start no more runs until it is resumed. No effect on a paused one. Raises
        Conflict, NotFound."""
        ...

    def resume_schedule(self, schedule_id: str) -> ScheduleRecord:
        """Have a paused schedule start runs again; the times in between do not count. No effect on
        one that is not paused. Raises Conflict, NotFound."""
        ...

    def delete_schedule(self, schedule_id: str) -> None:
        """Delete a schedule. Its Job and its runs stay. Raises NotFound."""
        ...

    def trigger_schedule(self, schedule_id: str) -> RunRecord:
        """Start a run as the schedule does, now, in the name of the caller. Raises InvalidInput,
        EngineError, NotFound."""
        ...

    # Notifications

    def create_notification(self, request: NotificationRequest) -> ChangedNotification:
        """Have events sent somewhere from now on, by servers. Raises InvalidInput with every
        problem, Forbidden for what is on the server's machine."""
        ...

    def notifications(
        self, *, limit: int | None = None, after: str | None = None
    ) -> list[NotificationRecord]:
        """The project's notifications, by name. For pages: `limit`, and `after` with the name of
        the last notification of the page before."""
        ...

    def notification(self, text: str) -> NotificationRecord:
        """The notification with this name or id. Raises NotFound."""
        ...

    def edit_notification(
        self, notification_id: str, change: NotificationChange
    ) -> ChangedNotification:
        """Change a notification. notification_id, here and below: also a name. Raises InvalidInput
        with every problem, Conflict if it was changed meanwhile, NotFound."""
        ...

    def pause_notification(self, notification_id: str) -> NotificationRecord:
        """Send nothing more until it is resumed; events of the time in between are not sent. No
        effect on a paused one. Raises Conflict, NotFound."""
        ...

    def resume_notification(self, notification_id: str) -> NotificationRecord:
        """Send events again, from now on. No effect on one that is not paused. Raises Conflict,
        NotFound."""
        ...

    def delete_notification(self, notification_id: str) -> None:
        """Delete a notification, with what it has not sent. Raises NotFound."""
        ...

    def test_notification(self, notification_id: str) -> TestAnswer:
        """Send a sample event now, and wait for the answer. Raises NotFound."""
        ...

    def deliveries(
        self, notification_id: str, *, limit: int | None = None, before: int | None = None
    ) -> list[DeliveryRecord]:
        """What was sent last, newest first; for pages: `limit`, and `before` with the last `seq` of
        the page before. Raises NotFound."""
        ...

    def failed_deliveries(self, *, limit: int | None = None) -> list[DeliveryRecord]:
        """What could not be sent, of all of the project's notifications, newest first."""
        ...

    def retry_deliveries(self, notification: str | None = None) -> int:
        """Try again to send what could not be sent. notification: only what this one, by name or
        id, could not. Returns the number of events. Raises NotFound."""
        ...

    # Find runs

    def run(self, text: str) -> RunRecord:
        """The run with this name, id, display name or id prefix, or `last`. Raises NotFound,
        InvalidInput if several match, CorruptRecord."""
        ...

    def find_run(self, text: str) -> RunSummary:
        """As `run`, for a run whose record may be corrupt."""
        ...

    def runs(self, chosen: RunFilter) -> list[RunSummary]:
        """Runs, newest first; of QUEUED ones with what they wait for by now as `details`. For
        pages: `limit`, and `before` with the `position` of the last run of the page before."""
        ...

    def run_records(self, chosen: RunFilter) -> list[RunRecord]:
        """As `runs`, with all that is stored of each run. Raises CorruptRecord."""
        ...

    def nodes(self, run_id: str, chosen: NodeFilter | None = None) -> list[NodeRecord]:
        """The run's nodes, in rank order, with those of replicas that are scaled down. Those of an
        array are not among them before they start. chosen: None for all."""
        ...

    def shown_nodes(self, run_id: str) -> list[NodeRecord]:
        """The nodes that lists show, in rank order: all, but of arrays those that are alive, and
        the first that failed. Raises CorruptRecord."""
        ...

    def replica_table(self, run_ids: Sequence[str], query: TableQuery) -> ReplicaTable:
        """The replicas of runs: those of their arrays, or of all groups if they have none. A
        replica that another of the runs has retried since is left out. Raises InvalidInput for a
        column or a state that there is not."""
        ...

    def restarts(self, run_id: str) -> int:
        """The number of restarts after failures, of nodes, replicas and the whole run."""
        ...

    def why(self, run_id: str) -> list[str]:
        """Why the run is in its state; the most important sentence first. Raises CorruptRecord."""
        ...

    def waiting_for(self, run_id: str) -> str:
        """What a QUEUED run waits for by now; as recorded if it has just been admitted."""
        ...

    def replicas(self, run_id: str) -> dict[str, int]:
        """Group -> its desired number of replicas. Raises CorruptRecord."""
        ...

    def limits(self, run_id: str) -> dict[str, str]:
        """Group -> what the machine gives its nodes, for groups with resources or a shape."""
        ...

    def endpoints(self, run_id: str) -> dict[str, str]:
        """The addresses of the run's cluster by name (`address`, `dashboard`); empty if it has
        none, or has not started."""
        ...

    def cluster_access(self, run_id: str) -> ClusterAccess:
        """What a client of the run's cluster needs besides the addresses."""
        ...

    def usage(self, run_id: str) -> dict[int, NodeUsage]:
        """What the run's nodes have used, by rank; empty for a run of a version that recorded
        none."""
        ...

    def counters(self, run_id: str) -> dict[int, Counters]:
        """What the nodes of a run in progress use now, by rank. Raises InvalidInput if it is not in
        progress, EngineError."""
        ...

    def stacks(self, run_id: str, ranks: Collection[int]) -> Stacks:
        """The stacks of the Python threads of a run in progress. ranks: of these nodes; empty: of
        all. Raises InvalidInput, EngineError."""
        ...

    # Change runs

    def cancel(
        self,
        run_id: str,
        why: str = "canceled by user",
        *,
        force: bool = False,
        keep: bool = False,
    ) -> None:
        """Request the run's end; it is CANCELED when none of its processes is left. No effect on a
        run that has ended; the record may be corrupt. force: kill its processes at once; raises
        EngineError if that fails. keep: leave the workload that it has adopted as it is; raises
        InvalidInput if there is none."""
        ...

    def adopt(self, run_id: str) -> RunRecord:
        """Continue a run here, by its policy, whose host is gone for good. Raises InvalidInput if
        no process of another host drives it, or one still holds its lock."""
        ...

    def suspend(self, run_id: str, why: str = "suspended by user") -> RunRecord:
        """Request the run's suspension; it is SUSPENDED when none of its processes is left. No
        effect on a suspended run. Raises InvalidInput if it has ended or is being canceled."""
        ...

    def prepare_resume(self, run_id: str, changes: Changes) -> RunOverrides:
        """The overrides for `resume`, from changes to parts of the run's settings. Raises
        InvalidInput with every problem, and if the run cannot be resumed with them."""
        ...

    def resume(
        self,
        run_id: str,
        overrides: RunOverrides | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> RunRecord:
        """Resume a suspended run, changed by the overrides. environ: as for `start`. Raises
        InvalidInput if it is not suspended, or cannot be resumed with these overrides."""
        ...

    def prepare_retry(self, run_id: str, retry: Retry) -> PreparedRun:
        """Prepare a new run of the same Job, with the same overrides, of replicas of an array: they
        keep their numbers and parameters. With `update_code`, the Job may be a new version, to be
        recorded or discarded. Raises InvalidInput if the run has no array or is in progress, none
        of its replicas is chosen, its Job is deleted, or its code cannot be read."""
        ...

    def prepare_rerun(
        self, run_id: str, changes: Changes, *, update_code: bool = False
    ) -> PreparedRun:
        """Prepare another run of a run's Job with the same overrides, changed by these, such as on
        another engine. update_code: of the Job's code as it is now; then the Job may be a new
        version, to be recorded or discarded. Raises InvalidInput with every problem, and if the run
        is in progress, or its Job is deleted."""
        ...

    def scale(self, run_id: str, group: str, replicas: int, why: str = "by user") -> RunRecord:
        """Request another number of replicas of a group; a suspended run applies it when it is
        resumed. Raises InvalidInput if the group cannot have it, or the run is ending."""
        ...

    def delete(self, run_id: str) -> None:
        """Delete a run that has ended, with its output. Raises InvalidInput if it has not,
        NotDeleted if files cannot be removed."""
        ...

    # Follow runs

    def events(self, run_id: str, after: int = 0, limit: int | None = None) -> list[EventRecord]:
        """The run's event log after entry number `after`. limit: only the first ones. Raises
        CorruptRecord."""
        ...

    def last_event(self, run_id: str) -> int:
        """The number of the newest entry of the run's event log; 0 if there is none."""
        ...

    def follow_events(self, run_id: str, after: int = 0) -> Generator[EventItem | Notice]:
        """As `events`, and those to come until the run has ended or is suspended."""
        ...

    def follow_events_async(
        self, run_id: str, after: int = 0
    ) -> AsyncGenerator[EventItem | Notice]:
        """As `follow_events`, in an event loop of asyncio."""
        ...

    def watch(
        self, run_id: str, timeout: float | None = None, every: float | None = None
    ) -> Generator[RunItem | Notice]:
        """Wait until the run has ended or is suspended; its summary then is the last item.

        every: also give its summary at intervals of this many seconds. Raises TimeoutError after
        `timeout` seconds, HomeGone.
        """
        ...

    def watch_async(
        self, run_id: str, timeout: float | None = None, every: float | None = None
    ) -> AsyncGenerator[RunItem | Notice]:
        """As `watch`, in an event loop of asyncio."""
        ...

    def log(
        self,
        run_id: str,
        selection: Selection,
        *,
        follow: bool = False,
        live: Live | None = None,
    ) -> Generator[LogChunk | Pause | Notice]:
        """The output of the run's nodes and Muster's messages: whole lines in the order they were
        written, attempt by attempt.

        follow: until the run has ended or is suspended. live: also say when all is read, with the
        lines that programs have not finished. Raises InvalidInput for parts that the run does not
        have, CorruptRecord.
        """
        ...

    def log_async(
        self,
        run_id: str,
        selection: Selection,
        *,
        follow: bool = False,
        live: Live | None = None,
    ) -> AsyncGenerator[LogChunk | Pause | Notice]:
        """As `log`, in an event loop of asyncio."""
        ...

    # Files of runs

    def log_folder(self, run_id: str) -> str:
        """The folder with the plain log files of the run's current attempt on Muster's machine, for
        people who use that machine."""
        ...

    def outputs(
        self,
        run_id: str,
        ranks: Collection[int] | None = None,
        groups: Collection[str] | None = None,
    ) -> OutputList:
        """The files that the run's programs have written to their output directories so far: of all
        nodes with those that nodes share, or of the nodes with these ranks and groups only. Raises
        InvalidInput for parts that the run does not have."""
        ...

    def output(self, run_id: str, rank: int | None, path: str) -> OutputFile:
        """Look at an output that can be read. rank, path: as in `OutputFile`. Raises Unreadable."""
        ...

    def read_output(
        self, run_id: str, rank: int | None, path: str, offset: int = 0
    ) -> Generator[bytes]:
        """The content of an output from an offset, in blocks; it ends where the file ended when it
        was opened. Raises Unreadable, also while it is read."""
        ...

    def ranks_with_result(self, run_id: str) -> list[int]:
        """The ranks that left the result of a function, the oldest result first."""
        ...

    def result(self, run_id: str, rank: int) -> bytes | None:
        """The pickled result of a function on one rank; None if it left none."""
        ...

    # Disk

    def disk(self) -> tuple[DiskItem, ...]:
        """What Muster keeps on disk for the caller's project, and what projects share."""
        ...

    def prune(self, keep: int | None, older_than: float | None, *, dry_run: bool = False) -> Pruned:
        """Delete old runs of the caller's project, and what no project uses.

        A run stays if it is among the newest `keep` ended runs, or if it ended within `older_than`
        seconds. If neither is given: the retention of the configuration, else 7 days. dry_run:
        delete nothing. Raises InvalidInput if the configuration is wrong.
        """
        ...
