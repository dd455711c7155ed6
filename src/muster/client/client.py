"""The entry point of the Python API: jobs and runs of one MUSTER_HOME."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from msgspec.structs import replace

from muster.client.connect import connect
from muster.errors import InvalidInput, Problem
from muster.store.names import NoSuchVersion, SameName
from muster.store.records import JobRecord, RunFilter, RunRecord, RunSummary

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from muster.api.answers import DiskItem, Pruned
    from muster.api.interface import MusterAPI
    from muster.api.node_access import NodeAccess
    from muster.api.prepared import PreparedRun
    from muster.client.notification import Delivery, Notification
    from muster.client.run import JobRun
    from muster.client.schedule import Schedule
    from muster.client.table import Table
    from muster.control.launcher import Launcher
    from muster.spec.models import JobSpec
    from muster.spec.override_models import RunOverrides
    from muster.spec.overrides import Changes
    from muster.spec.reader import ParsedSpec
    from muster.submission import Submission

Method = TypeVar("Method", bound=Callable[..., Any])


def _accepts_draft(method: Method) -> Method:
    """Accept `draft`, the deprecated name of a method's parameter `prepared`."""

    @wraps(method)
    def accepting(*args: Any, **named: Any) -> Any:
        if "draft" in named and "prepared" not in named:
            _warn_renamed(f"draft of Client.{method.__name__}", "prepared")
            named["prepared"] = named.pop("draft")
        return method(*args, **named)

    return cast("Method", accepting)


class Client:
    """Muster on this machine. home: MUSTER_HOME (default: the environment's). submission: the
    environment and the Python that runs start from (default: this process's, at each start).

    A client may be used in a `with` block, which closes it at the end.
    """

    def __init__(
        self,
        home: str | Path | None = None,
        *,
        launcher: Launcher | None = None,
        submission: Submission | None = None,
    ) -> None:
        self.api: MusterAPI = connect(home, launcher, submission)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database, and end the process that starts supervisors. Runs continue.

        A program need not call it. A closed client opens what it needs again.
        """
        self.api.close()

    @property
    def node_access(self) -> NodeAccess:
        """The nodes themselves: commands, ports and files in them."""
        return self.api.node_access

    def job(
        self,
        target: str | Path | None = None,
        *,
        command: str | Sequence[str] | None = None,
        **fields: Any,
    ) -> tuple[JobRecord, bool]:
        """The Job for a spec file, code, a git repository or a command, and whether it is new.

        target may also name a Job; a file of that name takes precedence. A new Job is not recorded
        yet.
        """
        from muster.client.target import spec_for

        known = self._job_named(target)
        if known is not None:
            return known, False
        prepared = self.api.prepare_job(spec_for(target, command, fields))
        return prepared.record, prepared.new

    def prepare(
        self,
        target: str | Path | None,
        changes: Changes,
        *,
        command: str | Sequence[str] | None = None,
        new: bool = False,
        large_array: bool = False,
        **fields: Any,
    ) -> PreparedRun:
        """Find or create the Job of a target, and prepare a run of it. Nothing is recorded.

        new: create a new Job even if one has the same content. large_array: allow an array of more
        than 100,000 sets, which raises LargeArray otherwise. fields: settings of the Job.
        Raises InvalidInput with the problems of every stage.
        """
        from muster.client.target import notes_for, problems_of_job_fields
        from muster.spec.partial_overrides import with_items

        known = self._job_named(target)
        if known is not None and (refused := problems_of_job_fields(known.name, fields)):
            raise InvalidInput(*refused, *changes.problems)
        written, unknown_shape = self._parse_or_load(known, target, command, fields, changes)
        changes = with_items(changes, written.spec)
        changes, chosen = _with_project(changes, written.spec)
        if known is None:
            written = _with_entrypoint(written, changes.overrides)
        if written.problems or changes.problems:
            raise InvalidInput(*self.api.review(written, changes))
        if not large_array:
            check_array_size(None if known is not None else written.spec, changes.overrides)
        if written.spec.workload is None or known is not None:
            unknown_shape = (*notes_for(target, fields.get("entrypoint")), *unknown_shape)
        notes = (*unknown_shape, *chosen)
        try:
            job, spec, is_new = self._find_or_prepare(known, written.spec, new=new)
            return self.api.prepare_run(
                job, changes.overrides, spec=spec, new_job=is_new, notes=notes
            )
        except InvalidInput as error:
            problems = self.api.review(written, changes, error.problems)
            raise type(error)(*problems) from None

    def _parse_or_load(
        self,
        known: JobRecord | None,
        target: str | Path | None,
        command: str | Sequence[str] | None,
        fields: Mapping[str, Any],
        changes: Changes,
    ) -> tuple[ParsedSpec, tuple[str, ...]]:
        """The spec of a known Job or of a target, and notes on a shape that is in no catalogue."""
        from muster.client.target import parse_target
        from muster.spec.reader import ParsedSpec

        if known is not None:
            return ParsedSpec(self.api.job_spec(known.id)), ()
        try:
            if (found := self._as_is(target, fields, changes)) is not None:
                return found
            written = parse_target(target, command, fields)
        except InvalidInput as error:
            problems = [self._with_close_job(problem) for problem in error.problems]
            raise type(error)(*changes.problems, *problems) from None
        is_manifest = bool(written.origins)
        if not is_manifest or written.spec.shape is None:
            return written, ()
        from muster.spec.shapes import without_unknown

        shapes = {shape.name for shape in self.api.shapes()}
        spec, notes = without_unknown(written.spec, shapes)
        return replace(written, spec=spec), notes

    def _as_is(
        self, target: str | Path | None, fields: Mapping[str, Any], changes: Changes
    ) -> tuple[ParsedSpec, tuple[str, ...]] | None:
        """The spec of a JobSet that its engine runs as it is, and notes; None if the target is
        something else, or the engine reads it as a job. Raises InvalidInput."""
        from muster.client.target import is_spec_target, parse_as_is
        from muster.spec.models import DEFAULT_ENGINE, JobSpec

        if not is_spec_target(target):
            return None
        changed, _ = _with_project(changes, JobSpec(engine=fields.get("engine")))
        name = changed.overrides.engine or fields.get("engine")
        if name is None or name == DEFAULT_ENGINE:
            return None
        found = parse_as_is(target, fields)
        if found is None or not self._runs_as_is(name):
            return None
        written, notes = found
        return replace(written, spec=replace(written.spec, engine=name)), notes

    def _runs_as_is(self, engine: str) -> bool:
        """Whether an engine runs JobSets as they are."""
        every = {one.name: one.capabilities or {} for one in self.api.engines()}
        return every.get(engine, {}).get("workloads", False)

    def adopt(
        self,
        workload: str,
        *,
        engine: str = "kubernetes",
        namespace: str | None = None,
        name: str | None = None,
    ) -> JobRun:
        """Make a run of what an engine runs already, such as the JobSet `jobset/train`, and watch
        it. It is not changed, unless the run is canceled: that deletes it.

        namespace: where it is; default: where the engine's runs are. name: of the job; default: its
        own. Raises InvalidInput if there is none, EngineError if it cannot be read.
        """
        from muster.spec.override_models import RunOverrides

        spec = self.api.read_workload(engine, workload, namespace)
        if name is not None:
            spec = replace(spec, name=name)
        prepared = self.api.prepare_job(spec)
        record, spec = prepared.record, prepared.spec
        run = self.api.prepare_run(record, RunOverrides(), spec=spec, new_job=prepared.new)
        return self.start(run)

    def _with_close_job(self, problem: Problem) -> Problem:
        """A missing target's problem, with the name of a similar Job unless its hint is better."""
        if problem.path != "TARGET" or not problem.hint.startswith("check the path"):
            return problem
        from muster.spec.wording import close_to

        name = os.path.basename(problem.message.removesuffix(" not found"))
        close = close_to(name, {job.name for job in self.api.jobs()}, cutoff=0.7)
        return problem._replace(hint=f"did you mean the job {close[0]}?") if close else problem

    def _find_or_prepare(
        self, known: JobRecord | None, spec: JobSpec, *, new: bool
    ) -> tuple[JobRecord, JobSpec, bool]:
        """The Job, its spec, and whether it is not recorded yet."""
        if known is None:
            prepared = self.api.prepare_job(spec, always_new=new)
            return prepared.record, prepared.spec, prepared.new
        return (self.api.copy_job(known.id), spec, True) if new else (known, spec, False)

    def prepare_job(
        self,
        target: str | Path | None,
        *,
        command: str | Sequence[str] | None = None,
        new: bool = False,
        changes: Changes | None = None,
        large_array: bool = False,
        **fields: Any,
    ) -> PreparedRun:
        """Check a new Job of a spec file, code, a git repository or a command by preparing a run.

        Pass the result to `create`. fields: settings of the Job. changes: more settings, given as
        the flags of a run. Raises InvalidInput with every problem that a run of
        the Job would have.
        """
        from muster.client.target import already_described, is_spec_target
        from muster.spec.overrides import Changes, job_fields

        changes = changes or Changes()
        given, problems = job_fields(changes)
        known = self._job_named(target)
        if known is not None or is_spec_target(target):
            what = str(target) if known is None else f"job {known.handle}"
            if described := already_described(what, {**given, **fields}):
                raise InvalidInput(*changes.problems, *problems, *described)
        wrong = Changes(
            problems=(*changes.problems, *problems), broken=changes.broken, flags=changes.flags
        )
        fields = {name: value for name, value in fields.items() if value is not None}
        fields |= given
        return self.prepare(
            target, wrong, command=command, new=new, large_array=large_array, **fields
        )

    @_accepts_draft
    def create(self, prepared: PreparedRun) -> JobRecord:
        """Record the Job of a prepared run without starting the run."""
        return self.api.create_job(prepared.job)

    def _job_named(self, target: str | Path | None) -> JobRecord | None:
        """The Job with this name, unless a file has the name."""
        from muster.client.target import is_address

        if isinstance(target, str) and not is_address(target) and not os.path.exists(target):
            try:
                return self.api.job(target)
            except (NoSuchVersion, SameName):
                raise
            except InvalidInput:
                return None  # the caller looks the target up as a file, and reports it as missing
        return None

    def prepare_run(
        self,
        job: JobRecord,
        overrides: RunOverrides | None = None,
        *,
        new_job: bool = False,
        notes: Sequence[str] = (),
    ) -> PreparedRun:
        """Check and plan a run of a Job, for `start`.

        new_job: the Job is not recorded yet. notes: notes on the target (`target.notes_for`).
        Raises InvalidInput with every problem.
        """
        overrides = overrides or overrides_from({})
        return self.api.prepare_run(job, overrides, new_job=new_job, notes=notes)

    @_accepts_draft
    def start(
        self,
        prepared: PreparedRun,
        environ: Mapping[str, str] | None = None,
        *,
        queue: bool = True,
    ) -> JobRun:
        """Start a prepared run.

        environ: the variables that the nodes' environment starts from (default: this process's).
        queue: if other runs hold the GPUs, memory or CPUs that this run needs, wait for them in
        state QUEUED. With False, raise InvalidInput instead.
        """
        return self._run(self.api.start(prepared, environ, queue=queue))

    def draft_for(self, *args: Any, **options: Any) -> PreparedRun:
        """Deprecated name of `prepare`."""
        _warn_renamed("Client.draft_for", "Client.prepare")
        return self.prepare(*args, **options)

    def draft_job_for(self, *args: Any, **options: Any) -> PreparedRun:
        """Deprecated name of `prepare_job`."""
        _warn_renamed("Client.draft_job_for", "Client.prepare_job")
        return self.prepare_job(*args, **options)

    def draft(self, *args: Any, **options: Any) -> PreparedRun:
        """Deprecated name of `prepare_run`."""
        _warn_renamed("Client.draft", "Client.prepare_run")
        return self.prepare_run(*args, **options)

    def run(self, text: str) -> JobRun:
        """The run with this name, id or id prefix, or `last`."""
        return self._run(self.api.run(text))

    def _run(self, record: RunRecord) -> JobRun:
        from muster.client.run import JobRun  # while the supervisor of a run starts

        return JobRun(self.api, record)

    def runs(
        self,
        *,
        states: Collection[str] | None = None,
        job: str | None = None,
        since: float | datetime | timedelta | None = None,
        tags: Mapping[str, str | None] | None = None,
        limit: int | None = None,
        before: int | str | JobRun | RunSummary | None = None,
    ) -> Table[JobRun]:
        """Runs, newest first.

        states: any of these. job: a name (all versions) or an id. since: epoch seconds, an aware
        time, or how long ago. tags: tags of the run, with None for any value. limit: 0 and None
        mean all. before: see `summaries`. Raises InvalidInput.
        """
        from muster.client.table import Table

        chosen = self._run_filter(states, job, since, tags, limit, before)
        return Table(self._run(each) for each in self.api.run_records(chosen))

    def summaries(
        self,
        *,
        states: Collection[str] | None = None,
        job: str | None = None,
        since: float | datetime | timedelta | None = None,
        tags: Mapping[str, str | None] | None = None,
        limit: int | None = None,
        before: int | str | JobRun | RunSummary | None = None,
    ) -> list[RunSummary]:
        """As `runs`, with only what a list shows: fast for thousands of runs.

        before: only runs older than this one: a run or summary, a name, id or id prefix, or the
        `position` of a summary. With `limit`, that is the next page:
        `summaries(limit=50, before=page[-1])`.
        """
        return self.api.runs(self._run_filter(states, job, since, tags, limit, before))

    def _run_filter(
        self,
        states: Collection[str] | None,
        job: str | None,
        since: float | datetime | timedelta | None,
        tags: Mapping[str, str | None] | None,
        limit: int | None,
        before: int | str | JobRun | RunSummary | None,
    ) -> RunFilter:
        from muster.client.filters import limit_of, since_of, states_named

        chosen = None
        if states is not None:
            names = [states] if isinstance(states, str) else states
            chosen = tuple(states_named("states", [*names]) or ())
        older_than = None if before is None else self._position(before)
        return RunFilter(chosen, job, since_of(since), tags or {}, limit_of(limit), older_than)

    def _position(self, run: object) -> int:
        """The place of a run in lists. Raises InvalidInput."""
        if isinstance(run, RunSummary):
            return run.position
        from muster.client.run import JobRun

        if isinstance(run, JobRun):
            run = run.id
        if isinstance(run, str):
            return self.api.find_run(run).position
        if isinstance(run, int) and not isinstance(run, bool):
            return run
        text = f"must be a run, a summary or the name of a run, not {run!r}"
        raise InvalidInput(Problem("before", text))

    def create_schedule(
        self,
        name: str,
        prepared: PreparedRun,
        *,
        cron: str | None = None,
        every: float | str | None = None,
        ical: str | None = None,
        after: str | None = None,
        on: str | None = None,
        webhook: bool = False,
        on_object: str | None = None,
        time_zone: str | None = None,
        start: datetime | str | None = None,
        end: datetime | str | None = None,
        jitter: float | str | None = None,
        overlap: str | None = None,
        missed: str | None = None,
        start_within: float | str | None = None,
    ) -> Schedule:
        """Create a schedule that starts runs as the prepared one, which is not started. A server
        starts them.

        When, one of these: cron, such as `0 3 * * *`, on the clock of `time_zone` (default: UTC);
        every, an interval such as `6h`, or in seconds; ical, a recurrence of RFC 5545 such as
        `FREQ=WEEKLY;BYDAY=MO`. Or an event: after, a run of the job with this name has ended, as
        `on` says: `succeeded` (default), `failed` or `ended`; webhook, a signed request
        (`Schedule.rotate_webhook` makes its secret); on_object, an object `BUCKET/PREFIX...` was
        created in the server's object storage.

        start, end: no runs before and after, a time as text on that clock, or a `datetime`. jitter:
        each time is later by a duration up to this one, drawn now. overlap: if the run before has
        not ended, `allow` another one (default of events), `skip` (default of times) or `replace`
        it. missed: after times when no server ran, start no run (`skip`, default) or one
        (`run_once`; default of events). start_within: how late a run may start before its time is
        missed (default: `10m`). Raises InvalidInput with every problem.
        """
        from muster.client.schedule import Schedule, timing_fields, trigger_of
        from muster.lifecycle.schedule import Timing

        trigger = trigger_of(after=after, on=on, webhook=webhook, on_object=on_object)
        if trigger is not None:  # each event is another one
            overlap, missed = overlap or "allow", missed or "run_once"
        given = {
            "cron": cron,
            "every": every,
            "ical": ical,
            "time_zone": time_zone,
            "start": start,
            "end": end,
            "jitter": jitter,
            "overlap": overlap,
            "missed": missed,
            "start_within": start_within,
        }
        timing = Timing(**timing_fields(given))
        return Schedule(self, self.api.create_schedule(name, timing, prepared, trigger))

    def schedules(self, *, limit: int | None = None, after: str | None = None) -> Table[Schedule]:
        """Schedules, by name. limit: None for all. after: only those after this name; with `limit`,
        that is the next page."""
        from muster.client.schedule import Schedule
        from muster.client.table import Table

        found = self.api.schedules(limit=limit, after=after)
        return Table(Schedule(self, record) for record in found)

    def schedule(self, name: str) -> Schedule:
        """The schedule with this name or id. Raises NotFound."""
        from muster.client.schedule import Schedule

        return Schedule(self, self.api.schedule(name))

    def create_notification(
        self,
        name: str,
        target: str,
        *,
        on: str | Sequence[str] | None = None,
        job: str = "",
        tags: Mapping[str, str | None] | None = None,
        format: str | None = None,
    ) -> Notification:
        """Have events sent to a target while a server runs.

        target: `https://...`, `mailto:...`, `file:/...`, `command:NAME`, `nats://...` or
        `kafka://...`. on: types of events, or patterns such as `run.*` (default: runs that succeed,
        fail or need attention). job: only about runs of the Job with this name. tags: only about
        what has these; None for any value. format: `cloudevents`, `cloudevents-binary`, `slack`,
        `oci` or `text` (default: what fits the target). Raises InvalidInput with every problem.
        """
        from muster.api.notifications import DEFAULT_EVENTS, NotificationRequest
        from muster.client.notification import Notification, patterns

        events = DEFAULT_EVENTS if on is None else patterns(on)
        request = NotificationRequest(name, target, events, job, tags or {}, format)
        made = self.api.create_notification(request)
        return Notification(self, made.notification, made.key)

    def notifications(
        self, *, limit: int | None = None, after: str | None = None
    ) -> Table[Notification]:
        """Notifications, by name. limit: None for all. after: only those after this name; with
        `limit`, that is the next page."""
        from muster.client.notification import Notification
        from muster.client.table import Table

        found = self.api.notifications(limit=limit, after=after)
        return Table(Notification(self, record) for record in found)

    def notification(self, name: str) -> Notification:
        """The notification with this name or id. Raises NotFound."""
        from muster.client.notification import Notification

        return Notification(self, self.api.notification(name))

    def failed_deliveries(self, *, limit: int | None = None) -> Table[Delivery]:
        """What could not be sent, newest first. limit: None for all."""
        from muster.client.notification import delivery_of
        from muster.client.table import Table

        return Table(map(delivery_of, self.api.failed_deliveries(limit=limit)))

    def disk(self) -> tuple[DiskItem, ...]:
        """What Muster keeps on disk, its size, and what `prune` would free."""
        return self.api.disk()

    def prune(
        self,
        *,
        keep: int | None = None,
        older_than: float | str | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        """Delete old runs and unused files. See `muster.prune`."""
        from muster.client.filters import age_of, duration_of
        from muster.errors import Problem

        if keep is not None and keep < 0:
            raise InvalidInput(Problem("keep", f"must be 0 or more, not {keep}"))
        if isinstance(older_than, str):
            older_than = age_of("older_than", older_than)
        age = None if older_than is None else duration_of("older_than", older_than)
        return self.api.prune(keep, age, dry_run=dry_run)


def _with_project(changes: Changes, job: JobSpec) -> tuple[Changes, list[str]]:
    """The changes with what the project's file says and neither the job nor the changes do, and a
    note on that. Raises InvalidInput."""
    from muster.client.project_file import find_project

    if job.engine is not None or changes.overrides.engine is not None:
        return changes, []
    project = find_project(Path.cwd())
    if project is None or project.engine is None:
        return changes, []
    overrides = replace(changes.overrides, engine=project.engine)
    flags = {**changes.flags, "engine": f"{project.file}: engine"}
    note = f"on engine {project.engine}, as {project.file} says"
    return replace(changes, overrides=overrides, flags=flags), [note]


def _with_entrypoint(written: ParsedSpec, overrides: RunOverrides) -> ParsedSpec:
    """If a new Job has no entry point, use JOB_RUN_ENTRYPOINT of its first run."""
    from muster.spec.oci_variables import with_run_entrypoint

    spec = with_run_entrypoint(written.spec, overrides.env)
    if spec is written.spec:
        return written
    from muster.spec.kinds import holds_files

    return replace(written, spec=spec) if holds_files(spec) else written


def check_array_size(spec: JobSpec | None, overrides: RunOverrides) -> None:
    """Raises LargeArray for more parameter sets than one starts on purpose.

    spec: that of a new Job; None: an array of the Job itself was allowed before.
    """
    arrays = [overrides.array, *(group.array for group in overrides.node_groups.values())]
    if spec is not None:
        arrays += [spec.array, *(group.array for group in spec.node_groups)]
    sizes = [array.size for array in arrays if array is not None]
    if not sizes:
        return
    from muster.errors import LargeArray
    from muster.spec.arrays import MANY_SETS, MAX_SETS

    if MANY_SETS < max(sizes) <= MAX_SETS:  # more are refused in any case
        text = f"{max(sizes):,} parameter sets, one replica for each"
        hint = "pass large_array=True to start them all, or a sample"
        raise LargeArray(Problem("array", text, hint), sets=max(sizes))


def _warn_renamed(old: str, new: str) -> None:
    warnings.warn(f"{old} is now called {new}", DeprecationWarning, stacklevel=3)


def overrides_from(fields: Mapping[str, Any]) -> RunOverrides:
    """Overrides from keyword arguments; None means not given. Raises InvalidInput."""
    from muster.spec.overrides import overrides_from_mapping

    return overrides_from_mapping({k: v for k, v in fields.items() if v is not None})
