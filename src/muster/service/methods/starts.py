"""Starts of runs: what a run would be, what is wrong with it, and its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.caller import EVERYTHING
from muster.permissions import Permission
from muster.service.caller_checks import CallerChecks
from muster.service.readable import readable_job
from muster.service.required_permissions import of_run, requires

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muster.api.answers import PlanLimits
    from muster.api.prepared import FrameworkCheck, PreparedRun
    from muster.api.retry import Retry
    from muster.api.submissions import Preview, PreviewRequest, StartRequest
    from muster.engines.findings import Finding
    from muster.errors import Problem
    from muster.plan.model import RunPlan
    from muster.spec.models import JobSpec
    from muster.spec.override_models import RunOverrides
    from muster.spec.overrides import Changes
    from muster.spec.reader import ParsedSpec
    from muster.store.records import JobRecord, RunRecord


class StartMethods(CallerChecks):
    """See `MusterAPI`."""

    @requires(Permission.JOB_RUN_CREATE, "start runs")
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
        from muster.service.jobs import discard
        from muster.service.prepare import prepare_run

        self._check_project(job)
        if not new_job and self._caller.authority is not EVERYTHING:
            readable_job(self.context, job.id)
        job.check_active()
        try:
            return prepare_run(
                self.context, job, overrides, spec=spec, new_job=new_job, notes=notes
            )
        except MusterError:
            if new_job:
                discard(self.context, job)
            raise

    @of_run(
        Permission.JOB_RUN_READ, "see runs", creates=(Permission.JOB_RUN_CREATE, "retry replicas")
    )
    def prepare_retry(self, run_id: str, retry: Retry) -> PreparedRun:
        from muster.service.retry import prepare_retry

        return prepare_retry(self.context, self.store.runs.get(run_id), retry)

    @of_run(
        Permission.JOB_RUN_READ, "see runs", creates=(Permission.JOB_RUN_CREATE, "run jobs again")
    )
    def prepare_rerun(
        self, run_id: str, changes: Changes, *, update_code: bool = False
    ) -> PreparedRun:
        from muster.service.rerun import prepare_rerun

        run = self.store.runs.get(run_id)
        return prepare_rerun(self.context, run, changes, update_code=update_code)

    @requires(Permission.JOB_RUN_CREATE, "start runs")
    def review(
        self, written: ParsedSpec, changes: Changes, found: Sequence[Problem] = ()
    ) -> list[Problem]:
        from muster.service.review import review

        return review(self.context, written, changes, found)

    @requires(Permission.JOB_RUN_CREATE, "start runs")
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

    @requires(Permission.JOB_RUN_CREATE, "start runs")
    def plan_limits(self, plan: RunPlan) -> PlanLimits:
        from muster.service.planning import limits_of

        return limits_of(self.home, plan)

    @requires(Permission.JOB_RUN_CREATE, "start runs")
    def dry_run(self, plan: RunPlan) -> list[Finding]:
        from muster.service.planning import dry_run

        return dry_run(self.home, plan)

    @requires(Permission.JOB_RUN_CREATE, "start runs")
    def packed_files(self, prepared: PreparedRun) -> list[str]:
        from muster.service.prepare import packed_files

        return packed_files(self.home, prepared)

    @requires(Permission.JOB_RUN_CREATE, "start runs", action="runs.start")
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

    @requires(Permission.JOB_RUN_CREATE, "start runs", action="runs.start")
    def start_function(self, prepared: PreparedRun, arguments: bytes) -> RunRecord:
        from muster.service.start import start_function

        self.recover()
        self._check_new_run(prepared)
        return start_function(self.context, prepared, arguments)

    @requires(Permission.JOB_RUN_CREATE, "start runs")
    def preview(self, request: PreviewRequest) -> Preview:
        """A run as it would start now, for a client on another machine. Raises InvalidInput."""
        from muster.service.submissions import preview

        return preview(self.context, request, self._require_new_job)

    @requires(Permission.JOB_RUN_CREATE, "start runs", action="runs.start")
    def submit(self, request: StartRequest) -> RunRecord:
        """Start a run, for a client on another machine. Raises InvalidInput, EngineError."""
        from muster.service.submissions import start

        self.recover()
        return start(self.context, request, self._check_new_job)
