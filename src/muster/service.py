"""The use cases: one place that checks, plans, records and starts."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import replace

from muster.control import bell, lease
from muster.control.expire import expire, forget, remove_folder
from muster.control.launcher import Launcher, check_open_files
from muster.control.persist import node_record, plan_of
from muster.control.recover import keep_environ, record_broken, recover
from muster.control.watch import begin_life, wait_for_end, wait_for_process
from muster.errors import (
    EngineError,
    HomeGone,
    InvalidInput,
    LowSpace,
    MusterError,
    NotAnswering,
    Problem,
    StoreBusy,
    StoreError,
)
from muster.identity import user_name
from muster.job_cases import JobCases
from muster.lifecycle.states import AT_REST, JobState, RunState
from muster.plan.environment import submitted
from muster.plan.model import RunPlan
from muster.plan.names import named
from muster.storage.claims import Claims
from muster.storage.home import Home, default_home
from muster.store import events, jobs, runs
from muster.store.database import Database
from muster.store.records import (
    CorruptRecord,
    EventRecord,
    JobRecord,
    NodeRecord,
    RunRecord,
    RunSummary,
)

if TYPE_CHECKING:
    from muster.control.answering import Answering
    from muster.drafting import Draft, Redraft
    from muster.engines.local.doctor import Finding
    from muster.spec.override_models import RunOverrides
    from muster.spec.overrides import Changes
    from muster.spec.reader import Written


class Service(JobCases):
    """Muster on this machine, for one MUSTER_HOME."""

    def __init__(self, home: Home | None = None, launcher: Launcher | None = None) -> None:
        self.home = home or default_home()
        self._launcher = launcher
        self._once = RLock()  # several threads may share a service
        self._database: Database | None = None
        self._warned_of_space = False
        self._claims = Claims(self.home)

    @property
    def db(self) -> Database:
        """The store, opened when first needed; runs that lost their supervisor are settled, unless
        it can only be read."""
        with self._once:
            if self._database is None:
                if self.home.read_only():
                    self._database = Database.open(self.home.database, create=False)
                    return self._database
                self.home.prepare()
                self._database = Database.open(self.home.database)
                self._database.reserve.restore()
                with contextlib.suppress(StoreBusy):  # the next command that can write does it
                    recover(self._database, self.home, self._hand_over)
                    expire(self._database, self.home)
            return self._database

    @property
    def space_mark(self) -> Path:
        """A file that changes when space gets short."""
        return self.db.reserve.mark

    def warn_of_space(self) -> None:
        """Warn (LowSpace), once, if the disk is full."""
        if self._warned_of_space or not self.db.reserve.lacks_space or self.home.read_only():
            return
        self._warned_of_space = True
        text = (
            f"the disk of {self.home.root} is full, or nearly: what runs do is recorded in little "
            "space that was kept for it, or not at all; free some (`muster runs delete`, "
            "`muster env prune`)"
        )
        warnings.warn(text, LowSpace, stacklevel=4)

    def draft_run(
        self,
        job: JobRecord,
        overrides: RunOverrides,
        *,
        new_job: bool = False,
        notes: Sequence[str] = (),
    ) -> Draft:
        """Resolve, check and plan a run. notes: what whoever reads of it should know besides.
        Raises InvalidInput with every problem found."""
        from muster.drafting import draft_run

        jobs.check_active(job)
        try:
            return draft_run(self.home, job, overrides, new_job=new_job, notes=notes)
        except MusterError:
            if new_job:
                self.discard(job)
            raise

    def review(
        self, written: Written, changes: Changes, found: Sequence[Problem] = ()
    ) -> list[Problem]:
        """See `review.review`."""
        from muster.review import review

        return review(self.home, written, changes, found)

    def start(self, draft: Draft, environ: Mapping[str, str] | None = None) -> RunRecord:
        """Accept the run and have a supervisor take it up, unless it is to begin suspended.

        From the moment it is in the store the run is in somebody's hands: its lease is taken
        before, and passed on. environ: what its nodes' environment starts from (default: ours).
        """
        if draft.spec.suspend:
            return self._accept(draft)
        environ = os.environ if environ is None else environ
        held = self._prepare(draft.plan, environ)
        try:
            record = self._accept_or_clear(draft)
            self._hand_over(record.id, held, environ)
        finally:
            for descriptor in held:
                os.close(descriptor)
        return record

    def _prepare(self, plan: RunPlan, environ: Mapping[str, str]) -> tuple[int, int]:
        """The folder of a run that is to begin; its lease, held, and its life."""
        check_open_files()
        self.home.prepare()
        folder = self.home.run_dir(plan.run_id)
        folder.path.mkdir(parents=True, mode=0o700, exist_ok=True)
        _place_logs(folder.path, plan)
        held = lease.take(folder, plan.run_name)
        try:
            if not folder.bell.exists():
                bell.install(folder.bell)
            if plan.policy.restarts:
                keep_environ(folder.environ, submitted(plan, environ))
            return held, begin_life(folder.life)
        except BaseException:
            os.close(held)
            raise

    def _hand_over(self, run_id: str, held: tuple[int, int], environ: Mapping[str, str]) -> None:
        try:
            self._launch().start(self.home.root, run_id, held, environ)
        except BaseException as error:
            # whatever state the launcher is in, the next run gets a new one
            with self._once:
                launcher, self._launcher = self._launcher, None
            if launcher is not None:
                launcher.close()
            if isinstance(error, EngineError):
                record_broken(self.db, self.home.run_dir(run_id), run_id, str(error))
            raise

    def _launch(self) -> Launcher:
        with self._once:
            if self._launcher is None:
                self._launcher = Launcher.spawn()
            return self._launcher

    def _accept_or_clear(self, draft: Draft) -> RunRecord:
        """As `_accept`. Of a run that is refused no folder stays."""
        try:
            return self._accept(draft)
        except MusterError:
            remove_folder(self.home, draft.plan.run_id)
            raise

    def _accept(self, draft: Draft) -> RunRecord:
        from muster.engines.local.engine import LocalEngine

        now = time.time()

        def build(job: JobRecord, number: int, name: str) -> tuple[RunRecord, list[NodeRecord]]:
            plan = replace(named(draft.plan, name), job_id=job.id)
            record = RunRecord(
                id=plan.run_id,
                name=name,
                number=number,
                job_id=job.id,
                job_name=job.name,
                state=RunState.SUSPENDED if draft.spec.suspend else RunState.ACCEPTED,
                details="to begin suspended" if draft.spec.suspend else "",
                engine=LocalEngine.name,
                attempt=0,
                created_at=now,
                started_at=None,
                finished_at=None,
                exit_code=None,
                node_count=plan.policy.initial_size,
                spec=to_builtins(draft.spec),
                origins=dict(draft.origins),
                overrides=to_builtins(draft.overrides),
                plan=plan.to_json(),
                lifecycle={},
                notes=list(draft.notes),
                cancel_requested_at=None,
                cancel_reason=None,
                display_name=draft.overrides.run_name,
                created_by=user_name(),
                tags=dict(draft.spec.tags),
            )
            first = zip(plan.nodes, plan.policy.first_nodes(), strict=True)
            return record, [node_record(node, status) for node, status in first]

        accepted = runs.insert(self.db, draft.job, build)
        self._claims.drop(draft.job.id)
        return accepted

    def run(self, text: str) -> RunRecord:
        """The run called `text` (name, id or id prefix, `last`). Raises NotFound."""
        return runs.find(self.db, text)

    def runs(self, **filters: Any) -> list[RunSummary]:
        """Runs, newest first; see `store.runs.listing`."""
        return runs.listing(self.db, **filters)

    def nodes(self, run_id: str) -> list[NodeRecord]:
        return list(runs.nodes(self.db, run_id))

    def restarts(self, run_id: str) -> int:
        """How often anything of the run was started again after a failure."""
        return events.total(self.db, run_id, "restart")

    def events(self, run_id: str, after: int = 0) -> list[EventRecord]:
        """The run's event log after entry number `after`."""
        return events.since(self.db, run_id, after)

    def cancel(
        self, run_id: str, why: str = "canceled by its owner", *, force: bool = False
    ) -> None:
        """Ask for the run's end; it is CANCELED when no process of it is left. Final, and
        without effect on a run that has ended. Its record need not be readable.

        force: end its supervisor, too, with every process of the run, at once; `wait` then records
        the end. Raises EngineError if that cannot be done.
        """
        if force:
            self._end_by_force(run_id, why)
        if runs.request(self.db, run_id, "cancel", why):
            bell.ring(self.home.run_dir(run_id).bell)
        run = runs.summary(self.db, run_id)
        if run.state == RunState.SUSPENDED:  # nobody is there to hear
            from muster.control.request import ask_suspended
            from muster.lifecycle.events import CancelRequested

            folder = self.home.run_dir(run_id)
            try:
                ask_suspended(self.db, folder, run_id, run.name, [CancelRequested(why)])
            except CorruptRecord as error:
                runs.end_corrupt(self.db, run_id, str(error))

    def _end_by_force(self, run_id: str, why: str) -> None:
        from muster.control.force import end_supervisor

        run = runs.summary(self.db, run_id)
        # before the supervisor ends, so that whoever takes the run up next hears of it
        with contextlib.suppress(StoreBusy):  # by a supervisor that was stopped while it wrote
            runs.request(self.db, run_id, "cancel", why)
        end_supervisor(self.home.run_dir(run_id), run.name)

    def suspend(self, run_id: str, why: str = "suspended by its owner") -> RunRecord:
        """Ask for the run's pause; it is SUSPENDED when no process of it is left. Without effect
        on a run that is. Raises InvalidInput if it has ended, or is about to."""
        record = runs.get(self.db, run_id)
        if (problem := not_to_suspend(record)) is not None:
            raise InvalidInput(problem)
        if record.state != RunState.SUSPENDED and runs.request(self.db, run_id, "suspend", why):
            bell.ring(self.home.run_dir(run_id).bell)
        return runs.get(self.db, run_id)

    def resume(
        self,
        run_id: str,
        overrides: RunOverrides | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> RunRecord:
        """Have a suspended run go on, changed as `overrides` say.

        Raises InvalidInput if it is not suspended, or if the overrides are no good.
        """
        from muster.control.request import tell
        from muster.lifecycle.events import ResumeRequested

        record = runs.get(self.db, run_id)
        draft = self.redraft(record, overrides)
        plan = plan_of(record) if draft is None else draft.plan
        environ = os.environ if environ is None else environ
        held = self._prepare(plan, environ)
        try:
            if runs.get(self.db, run_id).state != RunState.SUSPENDED:
                raise InvalidInput(Problem("", f"{record.name} has been resumed or canceled"))
            why = "resumed by its owner"
            if draft is not None:
                self._change(record, draft)
                why += f", with {', '.join(draft.changed)} changed"
            tell(self.db, self.home.run_dir(run_id), run_id, [ResumeRequested(why)])
            self._hand_over(run_id, held, environ)
        finally:
            for descriptor in held:
                os.close(descriptor)
        return runs.get(self.db, run_id)

    def redraft(self, record: RunRecord, overrides: RunOverrides | None) -> Redraft | None:
        """The run as it would go on, None if that is as it is. Raises InvalidInput if it is not
        suspended, or cannot go on so."""
        from muster.drafting import redraft_run
        from muster.engines.local.engine import LocalEngine

        if record.state != RunState.SUSPENDED:
            hint = "wait until it is SUSPENDED" if record.suspend_requested_at else ""
            if RunState(record.state).terminal:
                job = self.job(record.job_id)
                if job.state == JobState.ACTIVE:
                    hint = f"`muster run {job.handle}` starts it again"
            raise InvalidInput(Problem("", f"{record.name} is {record.state}, not SUSPENDED", hint))
        if overrides is not None:
            return redraft_run(self.home, record, overrides)
        # the machine may have changed since; a run that cannot start would have failed for good
        if problems := LocalEngine().check(plan_of(record), self.home.root):
            raise InvalidInput(*problems)
        return None

    def scale(self, run_id: str, group: str, replicas: int, why: str = "by its owner") -> RunRecord:
        """Ask for another number of replicas of a group; they start, or end, soon after, those of
        a suspended run when it is resumed. Raises InvalidInput if there cannot be so many."""
        from muster.control.scale import scale

        scale(self.db, self.home, runs.get(self.db, run_id), group, replicas, why)
        return runs.get(self.db, run_id)

    def delete(self, run_id: str) -> None:
        """Forget a run that has ended, or whose record cannot be read and that nobody drives.
        Raises InvalidInput if it has not ended."""
        try:
            record = runs.get(self.db, run_id)
        except CorruptRecord:
            found = runs.summary(self.db, run_id)
            if lease.held(self.home.run_dir(run_id).lease):
                hint = f"`muster runs cancel {run_id}` ends it"
                raise InvalidInput(Problem("", f"{found.name} is still running", hint)) from None
        else:
            if not RunState(record.state).terminal:
                hint = f"`muster runs cancel {record.name}` ends it"
                raise InvalidInput(Problem("", f"{record.name} is {record.state}", hint))
        forget(self.db, self.home, run_id)

    def find_run(self, text: str) -> RunSummary:
        """What can be read of the run called `text`, even if its record is corrupt. Raises
        NotFound."""
        return runs.summary(self.db, runs.find_id(self.db, text))

    def _change(self, run: RunRecord, draft: Redraft) -> None:
        changes = {
            "spec": to_builtins(draft.spec),
            "origins": dict(draft.origins),
            "plan": draft.plan.to_json(),
            "notes": list(draft.plan.notes),
            "tags": dict(draft.spec.tags),
        }
        if draft.run_name is not None:
            changes["display_name"] = draft.run_name
        kept = zip(self.nodes(run.id), draft.plan.nodes, strict=True)
        nodes = [replace(row, fqdn=node.fqdn, address=node.address) for row, node in kept]
        runs.save(self.db, run.id, changes, nodes, (), time.time())

    def wait(self, run_id: str, timeout: float | None = None) -> RunRecord:
        """The run, once it has ended or is suspended; see `rest`."""
        self.rest(run_id, timeout)
        return runs.get(self.db, run_id)

    def rest(self, run_id: str, timeout: float | None = None) -> RunSummary:
        """What can be read of the run, once it has ended or is suspended. Raises TimeoutError after
        `timeout` seconds. Warns as `warn` does."""
        deadline = None if timeout is None else time.monotonic() + timeout
        answering = self.answering(run_id)
        while True:
            left = inf if deadline is None else max(deadline - time.monotonic(), 0)
            try:
                wait_for_end(self.home, run_id, min(left, answering.patience()))
            except TimeoutError:
                if deadline is None or time.monotonic() < deadline:
                    self.warn(answering)
                    continue
                name = runs.summary(self.db, run_id).name
                raise TimeoutError(f"run {name} has not ended within {timeout:g} s") from None
            run = runs.summary(self.db, run_id)
            if run.state in AT_REST:
                return run
            if self.db.gone:
                raise HomeGone(
                    f"{self.home.root} was deleted or moved away while {run.name} was running: "
                    "its processes are ended, and nothing more of it is recorded"
                )
            if self.home.read_only():
                raise StoreError(
                    f"{run.name} is {run.state}, but its supervisor is gone, and {self.home.root} "
                    "is read-only: copy it to where it can be written to, and set MUSTER_HOME to "
                    "the copy, to have the run's end recorded"
                )
            pid = lease.holder(self.home.run_dir(run_id).lease)
            if not recover(self.db, self.home, self._hand_over) and pid is not None:
                # it lets go of its life a moment before its lease; or somebody else settles the
                # run, for whom we wait next
                wait_for_process(pid, 1.0)

    def answering(self, run_id: str) -> Answering:
        """For those who wait for a run in ways of their own."""
        from muster.control.answering import Answering

        return Answering(self.home.run_dir(run_id), runs.summary(self.db, run_id).name)

    def warn(self, answering: Answering) -> None:
        """Warn whoever waits for a run if its supervisor does not answer (NotAnswering), or if the
        disk is full (LowSpace)."""
        if text := answering.look():
            warnings.warn(text, NotAnswering, stacklevel=4)
        self.warn_of_space()

    def close(self) -> None:
        """Let go of the store and the launcher; runs go on."""
        if self._launcher is not None:
            self._launcher.close()
        if self._database is not None:
            self._database.close()


def not_to_suspend(run: RunRecord) -> Problem | None:
    """Why a run cannot be suspended any more; None if it can, or is."""
    if RunState(run.state).terminal:
        return Problem("", f"{run.name} has ended: it is {run.state}, and cannot be suspended")
    if run.cancel_requested_at is not None:
        return Problem("", f"{run.name} is being canceled, and cannot be suspended")
    return None


def examine_machine() -> list[Finding]:
    """What the local engine can do here."""
    from muster.engines.local.doctor import examine

    return examine()


def _place_logs(folder: Path, plan: RunPlan) -> None:
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
