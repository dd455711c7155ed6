"""The Python API of a run."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

from muster.client.logs import Idle, chunks, chunks_async
from muster.client.messages import RunChunk
from muster.client.run_facts import RunFacts
from muster.client.selection import Selection, check_attempt, epoch_seconds, problems
from muster.errors import InvalidInput, Problem
from muster.storage.log_reader import LogRecord, records

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from muster.client.events import Event
    from muster.spec.override_models import RunOverrides
    from muster.spec.overrides import Changes


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
        self._record = self._service.run(self.id)
        return self

    def wait(self, timeout: float | None = None, *, progress: bool = True) -> JobRun:
        """Wait until the run has ended or is suspended. Returns itself.

        Raises TimeoutError after `timeout` seconds (default: never). Warns if the run's supervisor
        is stopped or hangs (`muster.errors.NotAnswering`), and if the disk is full (`LowSpace`).
        progress: in a notebook, show the run's progress meanwhile.
        """
        if not (progress and in_notebook()):
            self._record = self._service.wait(self.id, timeout)
            return self
        from muster.client.progress import shown

        with shown(self) as options:
            self._record = self._service.wait(self.id, timeout, **options)
        return self

    async def wait_async(self, timeout: float | None = None) -> JobRun:
        """As `wait`, in an event loop of asyncio; shows no progress.

        If the task is canceled, the run continues.
        """
        self._record = await self._service.wait_async(self.id, timeout)
        return self

    def cancel(self, why: str = "canceled by user", *, force: bool = False) -> JobRun:
        """Request that the run be canceled; `wait` returns when all its processes have ended.
        Returns itself.

        No effect on a run that has ended. force: kill all its processes at once, including a
        supervisor that no longer answers. Raises EngineError if that fails.
        """
        self._service.cancel(self.id, why, force=force)
        return self.refresh()

    def suspend(self, why: str = "suspended by user") -> JobRun:
        """Request that the run be suspended; `wait` returns when all its processes have ended.

        With `checkpoint`, nodes are signaled to save their state first. No effect on a suspended
        run. Returns itself. Raises InvalidInput if the run has ended or is being canceled.
        """
        self._record = self._service.suspend(self.id, why)
        return self

    def suspend_problem(self) -> Problem | None:
        """Why the run cannot be suspended; None if it can be, or is suspended already."""
        from muster.service.requests import suspend_problem

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
        self._record = self._service.resume(self.id, overrides)
        return self

    def overrides(self, changes: Changes) -> RunOverrides:
        """The overrides for `resume_with`, from changes to parts of the run's settings.

        Raises InvalidInput with every problem, and if the run cannot be resumed with them.
        """
        from muster.service.review import review_resume
        from muster.spec.partial_overrides import with_items

        spec = self._service.spec_of(self._record)
        changes = with_items(changes, spec)
        overrides = changes.require_valid()
        try:
            self._service.prepare_resume(self._record, overrides, spec=spec)
        except InvalidInput as error:
            raise InvalidInput(*review_resume(spec, changes, error.problems)) from None
        return overrides

    def scale(self, group: str, replicas: int, why: str = "by user") -> JobRun:
        """Request another number of replicas of a group. Returns itself.

        Raises InvalidInput if the group cannot have this number (`max_replicas`), or the run is
        ending.
        """
        self._record = self._service.scale(self.id, group, replicas, why)
        return self

    def delete(self) -> None:
        """Delete a run that has ended, with its output. Raises InvalidInput if it has not."""
        self._service.delete(self.id)

    # Events and logs

    def events(self, *, after: int = 0, follow: bool = False) -> Iterator[Event]:
        """The event log after entry number `after`. follow: until the run has ended or is
        suspended."""
        from muster.client.events import entries

        return entries(self._service, self.id, after=after, follow=follow)

    def events_async(self, *, after: int = 0, follow: bool = False) -> AsyncIterator[Event]:
        """As `events`, in an event loop of asyncio."""
        from muster.client.events import entries_async

        return entries_async(self._service, self.id, after=after, follow=follow)

    def logs(
        self,
        *,
        follow: bool = False,
        ranks: Collection[int] | None = None,
        groups: Collection[str] | None = None,
        streams: Collection[str] | None = None,
        tail: int | None = None,
        attempt: int | Literal["all"] | None = None,
        since: datetime | timedelta | None = None,
        grep: str | None = None,
    ) -> Iterator[LogRecord]:
        """Lines of output of all nodes, in order of time. follow: until the run has ended.

        streams: of `stdout`, `stderr` and `service`, Muster's own messages: their records have no
        rank, and are left out where ranks or groups are given. attempt: one attempt, or `all`;
        default: the newest and, with follow, those after it. since: only lines recorded at this
        aware time or later, or within this timedelta. grep: only lines in which this regular
        expression (RE2) is found; `tail` counts these lines. Raises InvalidInput for parts that the
        run does not have.
        """
        selection = self.selection(
            ranks=ranks,
            groups=groups,
            streams=streams,
            tail=tail,
            attempt=attempt,
            since=None if since is None else epoch_seconds(since),
            grep=grep,
        )
        return self._records(selection, follow=follow)

    def logs_async(
        self,
        *,
        follow: bool = False,
        ranks: Collection[int] | None = None,
        groups: Collection[str] | None = None,
        streams: Collection[str] | None = None,
        tail: int | None = None,
        attempt: int | Literal["all"] | None = None,
        since: datetime | timedelta | None = None,
        grep: str | None = None,
    ) -> AsyncIterator[LogRecord]:
        """As `logs`, in an event loop of asyncio, also when it does not follow."""
        selection = self.selection(
            ranks=ranks,
            groups=groups,
            streams=streams,
            tail=tail,
            attempt=attempt,
            since=None if since is None else epoch_seconds(since),
            grep=grep,
        )
        return self._records_async(selection, follow=follow)

    def _records(self, selection: Selection, *, follow: bool) -> Iterator[LogRecord]:
        for chunk in self.log_chunks(selection, follow=follow):
            yield from records(chunk, chunk.attempt)

    async def _records_async(
        self, selection: Selection, *, follow: bool
    ) -> AsyncIterator[LogRecord]:
        found = chunks_async(self._service, self._record, selection, follow=follow)
        async with aclosing(found):
            async for chunk in found:
                for record in records(chunk, chunk.attempt):
                    yield record

    def log_chunks(
        self, selection: Selection, *, follow: bool = False, idle: Idle | None = None
    ) -> Iterator[RunChunk]:
        """As `logs`, with many lines of one stream at a time, which is faster.

        idle: as for `client.logs.chunks`.
        """
        return chunks(self._service, self._record, selection, follow=follow, idle=idle)

    def selection(
        self,
        *,
        ranks: Collection[int] | None = None,
        groups: Collection[str] | None = None,
        streams: Collection[str] | None = None,
        tail: int | None = None,
        attempt: int | Literal["all"] | None = None,
        since: float | None = None,
        grep: str | None = None,
        services: Collection[str] | None = None,
    ) -> Selection:
        """A part of the output; `services`: of the framework's services. Raises InvalidInput for
        parts that the run does not have."""
        selected = Selection(
            ranks=ranks,
            groups=groups,
            streams=streams,
            tail=tail,
            attempt=attempt,
            since=since,
            grep=grep,
            services=services,
        )
        own = self._plan.services_with_output()
        if found := list(problems(selected, self.name, self.group_sizes(), own)):
            raise InvalidInput(*found)
        if isinstance(attempt, int):
            check_attempt(self._service.home, self._record, attempt)
        return selected
