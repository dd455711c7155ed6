"""What runs report and write: events, state, output, files and results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.permissions import Permission
from muster.service.caller_checks import CallerChecks
from muster.service.required_permissions import of_run

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Generator

    from muster.api.outputs import OutputFile, OutputList
    from muster.api.streams import EventItem, Live, LogChunk, Notice, Pause, RunItem, Selection
    from muster.store.records import EventRecord, RunSummary


class OutputMethods(CallerChecks):
    """See `MusterAPI`."""

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def events(self, run_id: str, after: int = 0, limit: int | None = None) -> list[EventRecord]:
        return self.store.events.since(run_id, after, limit)

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def last_event(self, run_id: str) -> int:
        return self.store.events.last(run_id)

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def follow_events(self, run_id: str, after: int = 0) -> Generator[EventItem | Notice]:
        from muster.service.run_events import follow_events

        return follow_events(self.context, run_id, after)

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def follow_events_async(
        self, run_id: str, after: int = 0
    ) -> AsyncGenerator[EventItem | Notice]:
        from muster.service.run_events import follow_events_async

        return follow_events_async(self.context, run_id, after)

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def watch(
        self, run_id: str, timeout: float | None = None, every: float | None = None
    ) -> Generator[RunItem | Notice]:
        from muster.service.wait import watch

        return watch(self.context, run_id, timeout, every)

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def watch_async(
        self, run_id: str, timeout: float | None = None, every: float | None = None
    ) -> AsyncGenerator[RunItem | Notice]:
        from muster.service.event_loop import watch

        return watch(self.context, run_id, timeout, every)

    @of_run(Permission.LOG_CONTENT_READ, "see output")
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

    @of_run(Permission.LOG_CONTENT_READ, "see output")
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

    @of_run(Permission.LOG_CONTENT_READ, "see output")
    def log_folder(self, run_id: str) -> str:
        attempt = self.store.runs.summary(run_id).attempt
        return str(self.home.run_dir(run_id).logs(attempt).resolve())

    @of_run(Permission.LOG_CONTENT_READ, "see output")
    def outputs(
        self,
        run_id: str,
        ranks: Collection[int] | None = None,
        groups: Collection[str] | None = None,
    ) -> OutputList:
        from muster.service.output_files import outputs

        return outputs(self.context, self.store.runs.summary(run_id), ranks, groups)

    @of_run(Permission.LOG_CONTENT_READ, "see output")
    def output(self, run_id: str, rank: int | None, path: str) -> OutputFile:
        from muster.service.output_files import output

        return output(self.context, run_id, rank, path)

    @of_run(Permission.LOG_CONTENT_READ, "see output")
    def read_output(
        self, run_id: str, rank: int | None, path: str, offset: int = 0
    ) -> Generator[bytes]:
        from muster.service.output_files import read

        return read(self.context, run_id, rank, path, offset)

    @of_run(Permission.LOG_CONTENT_READ, "see output")
    def ranks_with_result(self, run_id: str) -> list[int]:
        from muster.storage.run_files import ranks_with_result

        return list(ranks_with_result(self.home.run_dir(run_id)))

    @of_run(Permission.LOG_CONTENT_READ, "see output")
    def result(self, run_id: str, rank: int) -> bytes | None:
        from muster.storage.run_files import read_result

        return read_result(self.home.run_dir(run_id), rank)
