"""The Python API of a run."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from muster.client.run_facts import RunFacts
from muster.errors import InvalidInput, NotFound, Problem
from muster.store.records import suspend_problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from muster.api.streams import Live, LogChunk, Notice, Pause, Selection
    from muster.client.events import Event
    from muster.client.log_records import LogRecord
    from muster.client.replica_table import Replicas
    from muster.spec.override_models import RunOverrides
    from muster.spec.overrides import Changes
    from muster.store.records import RunSummary


def in_notebook() -> bool:
    """Whether this is the thread of a notebook's kernel that executes its cells."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    in_kernel = getattr(shell, "kernel", None) is not None
    return in_kernel and threading.current_thread() is threading.main_thread()


class JobRun(RunFacts):
    """One execution of a Job.

    Its properties are those of the last `refresh` or `wait`; `nodes`, and the entries of `notes` on
    disk use, are read from the store at each access.
    """

    def refresh(self) -> JobRun:
        """Read the run again. Returns itself."""
        self._record = self._api.run(self.id)
        return self

    def _refresh_ended(self, ended: RunSummary) -> JobRun:
        """Read the run again, which has ended; what is known of it if its time to live is over."""
        try:
            return self.refresh()
        except NotFound:
            names = set(ended.__struct_fields__) & set(self._record.__struct_fields__)
            known = {name: getattr(ended, name) for name in names}
            self._record = replace(self._record, **known)
            return self

    def wait(self, timeout: float | None = None, *, progress: bool = True) -> JobRun:
        """Wait until the run has ended or is suspended. Returns itself.

        Raises TimeoutError after `timeout` seconds (default: never). Warns if the run's supervisor
        is stopped or hangs (`muster.errors.NotAnswering`), and if the disk is full (`LowSpace`).
        progress: in a notebook, show the run's progress meanwhile.
        """
        from muster.client.following import wait

        if not (progress and in_notebook()):
            return self._refresh_ended(wait(self._api, self.id, timeout))
        from muster.client.progress import shown

        with shown(self) as options:
            ended = wait(self._api, self.id, timeout, **options)
        return self._refresh_ended(ended)

    async def wait_async(self, timeout: float | None = None) -> JobRun:
        """As `wait`, in an event loop of asyncio; shows no progress.

        If the task is canceled, the run continues.
        """
        from muster.client.following import wait_async

        return self._refresh_ended(await wait_async(self._api, self.id, timeout))

    def cancel(
        self, why: str = "canceled by user", *, force: bool = False, keep: bool = False
    ) -> JobRun:
        """Request that the run be canceled; `wait` returns when all its processes have ended.
        Returns itself.

        No effect on a run that has ended. force: kill all its processes at once, including a
        supervisor that no longer answers. keep: leave the JobSet that it has adopted as it is.
        Raises EngineError if that fails, InvalidInput if it has adopted none.
        """
        self._api.cancel(self.id, why, force=force, keep=keep)
        return self.refresh()

    @property
    def cancel_requested(self) -> bool:
        """Whether the run's end was requested; its state is CANCELING soon afterwards."""
        return self._record.cancel_requested_at is not None

    def adopt(self) -> JobRun:
        """Continue the run here, by its policy, if its host is gone for good. Returns itself.

        For a MUSTER_HOME that several hosts share, or a copy of one. If that host still runs, the
        run's programs may be running twice. Raises InvalidInput if no process of another host
        drives the run, or one still holds its lock.
        """
        self._record = self._api.adopt(self.id)
        return self

    def suspend(self, why: str = "suspended by user") -> JobRun:
        """Request that the run be suspended; `wait` returns when all its processes have ended.

        With `checkpoint`, nodes are signaled to save their state first. No effect on a suspended
        run. Returns itself. Raises InvalidInput if the run has ended or is being canceled.
        """
        self._record = self._api.suspend(self.id, why)
        return self

    def suspend_problem(self) -> Problem | None:
        """Why the run cannot be suspended; None if it can be, or is suspended already."""
        return suspend_problem(self._record)

    def not_to_suspend(self) -> Problem | None:
        """Deprecated name of `suspend_problem`."""
        text = "JobRun.not_to_suspend is now called JobRun.suspend_problem"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return self.suspend_problem()

    def resume(self, **overrides: Any) -> JobRun:
        """Resume a suspended run. Returns itself.

        overrides: as for `muster.run`, except those that change the number of nodes. Raises
        InvalidInput for others, and if the run is not suspended.
        """
        from muster.spec.overrides import overrides_from_mapping

        return self.resume_with(overrides_from_mapping(overrides) if overrides else None)

    def resume_with(self, overrides: RunOverrides | None) -> JobRun:
        """As `resume`, with decoded overrides."""
        self._record = self._api.resume(self.id, overrides)
        return self

    def overrides(self, changes: Changes) -> RunOverrides:
        """The overrides for `resume_with`, from changes to parts of the run's settings.

        Raises InvalidInput with every problem, and if the run cannot be resumed with them.
        """
        return self._api.prepare_resume(self.id, changes)

    def scale(self, group: str, replicas: int, why: str = "by user") -> JobRun:
        """Request another number of replicas of a group. Returns itself.

        Raises InvalidInput if the group cannot have this number (`max_replicas`), or the run is
        ending.
        """
        self._record = self._api.scale(self.id, group, replicas, why)
        return self

    def table(
        self,
        *,
        sort: str = "replica",
        descending: bool = False,
        states: Collection[str] | str | None = None,
        replicas: Collection[int] | int | str | None = None,
        limit: int | None = None,
        include_not_started: bool = False,
    ) -> Replicas:
        """Its replicas with their parameters and results: `pandas.DataFrame(run.table().rows)`.

        Of an array, else of all groups. sort: `replica`, `state`, `exit_code`, `time`, a parameter
        or a metric; `-COLUMN`: descending. Replicas without a value are last. states: of PENDING,
        QUEUED, STARTING, RUNNING, SUCCEEDED, FAILED and STOPPED. replicas: numbers, or
        `3,17,40-42`. limit: rows; None or 0 = all. include_not_started: also those that have not
        started. Raises InvalidInput.
        """
        from muster.api.replica_table import TableQuery
        from muster.client.filters import limit_of, numbers_in
        from muster.client.replica_table import Replicas

        if isinstance(states, str):
            states = [states]
        numbers = numbers_in("replicas", replicas)
        column = sort.removeprefix("-")
        descending = descending or column != sort
        names = None if states is None else [state.upper() for state in states]
        query = TableQuery(
            sort=column,
            descending=descending,
            states=names,
            replicas=numbers,
            limit=limit_of(limit),
            include_not_started=include_not_started,
        )
        return Replicas(self._api.replica_table([self.id], query))

    def retry(
        self,
        *,
        unfinished: bool = False,
        only: Collection[int] | int | str | None = None,
        update_code: bool = False,
    ) -> JobRun:
        """Retry the failed replicas of its array, in a new run of the same Job with the same
        settings. Returns the new run.

        unfinished: all that have not succeeded. only: these numbers instead, or `3,17,40-42`.
        Replicas keep their numbers and parameters. update_code: run the Job's file, folder or
        repository as it is now, not as it was. Raises InvalidInput if there are no replicas to
        retry, the run has no array, or it is in progress.
        """
        from muster.api.retry import Retry

        if unfinished and only is not None:
            raise InvalidInput(Problem("only", "conflicts with unfinished", "give one of the two"))
        numbers = [only] if isinstance(only, (str, int)) else only
        text = None if numbers is None else ",".join(map(str, numbers))
        chosen = Retry("unfinished" if unfinished else "failed", text, update_code)
        return JobRun(self._api, self._api.start(self._api.prepare_retry(self.id, chosen)))

    def rerun(self, *, update_code: bool = False, **overrides: Any) -> JobRun:
        """Start a new run of the same Job with the same settings, but for these overrides, as of
        `muster.run`: `run.rerun(engine="slurm", nodes=16)`. Returns the new run.

        update_code: run the Job's file, folder or repository as it is now, not as it was. Raises
        InvalidInput with every problem, and if it is in progress.
        """
        from muster.spec.overrides import changes_from_mapping

        changes = changes_from_mapping({k: v for k, v in overrides.items() if v is not None})
        prepared = self._api.prepare_rerun(self.id, changes, update_code=update_code)
        return JobRun(self._api, self._api.start(prepared))

    def delete(self) -> None:
        """Delete a run that has ended, with its output. Raises InvalidInput if it has not."""
        self._api.delete(self.id)

    # Events and logs

    def events(self, *, after: int = 0, follow: bool = False) -> Iterator[Event]:
        """The event log after entry number `after`. follow: until the run has ended or is
        suspended."""
        from muster.client.events import entries

        return entries(self._api, self.id, after=after, follow=follow)

    def events_async(self, *, after: int = 0, follow: bool = False) -> AsyncIterator[Event]:
        """As `events`, in an event loop of asyncio."""
        from muster.client.events import entries_async

        return entries_async(self._api, self.id, after=after, follow=follow)

    def logs(
        self,
        *,
        follow: bool = False,
        ranks: Collection[int] | None = None,
        replicas: Collection[int] | int | str | None = None,
        groups: Collection[str] | None = None,
        streams: Collection[str] | None = None,
        tail: int | None = None,
        attempt: int | Literal["all"] | None = None,
        since: datetime | timedelta | None = None,
        grep: str | None = None,
    ) -> Iterator[LogRecord]:
        """Lines of output of all nodes, in order of time. follow: until the run has ended.

        replicas: only nodes of these replicas of its array, in place of ranks. streams: of
        `stdout`, `stderr` and `service`, Muster's own messages: their records have no rank, and are
        left out where ranks or groups are given. attempt: one attempt, or `all`; default: the
        newest (of an array, all) and, with follow, those after it. since: only lines recorded at
        this aware time or later, or within this timedelta. grep: only lines in which this regular
        expression (RE2) is found; `tail` counts these lines. Raises InvalidInput for parts that the
        run does not have.
        """
        if replicas is not None:
            ranks = self.replica_ranks(replicas, groups)
        selection = _selection(ranks, groups, streams, tail, attempt, since, grep)
        return self._records(self.log_chunks(selection, follow=follow))

    def logs_async(
        self,
        *,
        follow: bool = False,
        ranks: Collection[int] | None = None,
        replicas: Collection[int] | int | str | None = None,
        groups: Collection[str] | None = None,
        streams: Collection[str] | None = None,
        tail: int | None = None,
        attempt: int | Literal["all"] | None = None,
        since: datetime | timedelta | None = None,
        grep: str | None = None,
    ) -> AsyncIterator[LogRecord]:
        """As `logs`, in an event loop of asyncio, also when it does not follow."""
        if replicas is not None:
            ranks = self.replica_ranks(replicas, groups)
        selection = _selection(ranks, groups, streams, tail, attempt, since, grep)
        return self._records_async(self._api.log_async(self.id, selection, follow=follow))

    def _records(self, found: Iterator[LogChunk]) -> Iterator[LogRecord]:
        from muster.client.log_records import records

        for chunk in found:
            yield from records(chunk)

    async def _records_async(
        self, items: AsyncGenerator[LogChunk | Pause | Notice]
    ) -> AsyncIterator[LogRecord]:
        from muster.api.streams import LogChunk, Notice
        from muster.client.following import give_warning
        from muster.client.log_records import records

        async with aclosing(items):
            async for item in items:
                if isinstance(item, LogChunk):
                    for record in records(item):
                        yield record
                elif isinstance(item, Notice):
                    give_warning(item)

    def log_chunks(
        self,
        selection: Selection,
        *,
        follow: bool = False,
        live: Live | None = None,
        pause: Callable[[Pause], object] | None = None,
    ) -> Iterator[LogChunk]:
        """As `logs`, with many lines of one stream at a time, which is faster.

        live, pause: `pause` is called with each `Pause` of the log, see `MusterAPI.log`. Raises
        InvalidInput for parts that the run does not have.
        """
        from muster.client.following import chunks

        return chunks(self._api.log(self.id, selection, follow=follow, live=live), pause)


def _selection(
    ranks: Collection[int] | None,
    groups: Collection[str] | None,
    streams: Collection[str] | None,
    tail: int | None,
    attempt: int | Literal["all"] | None,
    since: datetime | timedelta | None,
    grep: str | None,
) -> Selection:
    """Raises InvalidInput for a time without a zone."""
    from muster.api.streams import Selection

    moment = None
    if since is not None:
        from muster.client.filters import epoch_seconds

        moment = epoch_seconds(since)
    return Selection(ranks, groups, streams, tail, attempt, moment, grep)
