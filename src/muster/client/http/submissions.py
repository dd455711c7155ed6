"""Prepare and start runs on a server.

The server plans a run from its request, each time anew: what is remembered here is the request of
each prepared run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from msgspec import to_builtins
from msgspec.structs import replace

from muster.api.answers import PlanLimits
from muster.api.operations import OPERATIONS, PREFIX
from muster.api.prepared import FrameworkCheck, PreparedJob, PreparedRun
from muster.api.retry import Retry
from muster.api.submissions import (
    JobRequest,
    JobSource,
    PresentCode,
    Preview,
    PreviewRequest,
    RerunSource,
    RetrySource,
    RunRequest,
    SpecSource,
    StartRequest,
)
from muster.client.http.code import digest_here, send
from muster.client.http.connection import Connection
from muster.engines.findings import Finding
from muster.errors import InvalidInput, Problem
from muster.identity import new_id
from muster.plan.model import RunPlan
from muster.spec.models import JobSpec
from muster.spec.override_models import RunOverrides
from muster.spec.overrides import Changes
from muster.spec.reader import ParsedSpec
from muster.storage.sources import before_reading
from muster.store.records import JobRecord, RunRecord
from muster.submission import sent_variables
from muster.type_info import decode_json, encode_json

if TYPE_CHECKING:
    from muster.lifecycle.schedule import Timing
    from muster.lifecycle.trigger import Trigger
    from muster.store.schedule_records import ScheduleRecord

#: Names of the kinds of JSON, in the lines of a stream or not.
_JSON = {"Content-Type": "application/json"}


class Submissions:
    """What this process has prepared. Threads may share an object."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        #: Id of a Job that was prepared -> where it comes from.
        self._jobs: dict[str, JobRequest] = {}
        #: Id of a Job -> what its runs are to be noted with.
        self._notes: dict[str, tuple[str, ...]] = {}
        #: Id of a run that was prepared -> its request.
        self._runs: dict[str, RunRequest] = {}

    # --- jobs

    def prepare_job(self, spec: JobSpec, *, always_new: bool) -> PreparedJob:
        """See `MusterAPI.prepare_job`. The code is uploaded."""
        found, code = send(self._connection, spec)
        sent, notes = _without_own_directory(found)
        source = SpecSource(to_builtins(sent), code, always_new)
        made = self._post("/jobs/preview", source, PreparedJob)
        self._jobs[made.record.id] = source
        self._notes[made.record.id] = notes
        return replace(made, spec=sent)

    def copy_job(self, job: JobRecord) -> JobRecord:
        """See `MusterAPI.copy_job`."""
        job.check_active()
        made = replace(job, id=new_id(), version=0)
        self._jobs[made.id] = JobSource(job.id, copy=True)
        return made

    def create_job(self, job: JobRecord) -> JobRecord:
        """See `MusterAPI.create_job`."""
        return self._post("/jobs", self._source(job), JobRecord, _idempotency(job.id))

    def discard(self, job: JobRecord) -> None:
        """See `MusterAPI.discard`. The server deletes code that gets no Job, after a while."""
        self._jobs.pop(job.id, None)

    def _source(self, job: JobRecord) -> JobRequest:
        return self._jobs.get(job.id) or JobSource(job.id)

    # --- runs

    def prepare_run(
        self, job: JobRecord, overrides: RunOverrides, notes: Sequence[str]
    ) -> PreparedRun:
        """See `MusterAPI.prepare_run`."""
        notes = (*notes, *self._notes.get(job.id, ()))
        environ = sent_variables(os.environ)
        return self._prepare(RunRequest(self._source(job), _given(overrides), notes, environ))

    def prepare_retry(self, run_id: str, retry: Retry) -> PreparedRun:
        """See `MusterAPI.prepare_retry`."""
        code, notes = self._code_of(run_id, update=retry.update_code)
        source = RetrySource(run_id, retry, code)
        return self._prepare(RunRequest(source, notes=notes, environ=sent_variables(os.environ)))

    def prepare_rerun(self, run_id: str, changes: Changes, *, update_code: bool) -> PreparedRun:
        """See `MusterAPI.prepare_rerun`."""
        code, notes = self._code_of(run_id, update=update_code)
        source = RerunSource(run_id, changes, code)
        return self._prepare(RunRequest(source, notes=notes, environ=sent_variables(os.environ)))

    def _code_of(self, run_id: str, *, update: bool) -> tuple[PresentCode | None, tuple[str, ...]]:
        """The code of a run as it is now on this machine, uploaded, if the run is to be updated;
        otherwise a note if it has changed. Raises InvalidInput if it cannot be read."""
        run = self._get("run", RunRecord, text=run_id)
        spec = before_reading(
            self._get("job_spec", JobSpec, job_id=run.job_id), run.spec.get("artifact")
        )
        if spec.artifact is None and spec.git is None:
            return None, ()
        if not update:
            before = self._get("job", JobRecord, text=run.job_id).artifact_sha256
            if spec.git is not None or digest_here(spec) in (None, before):
                return None, ()
            name = os.path.basename(os.path.abspath(str(spec.artifact)))
            text = f"uses the code of {run.name}; {name} has changed since: --update-code uses it"
            return None, (text,)
        spec = replace(spec, requirements=None, conda=None)  # those are read already
        found, code = send(self._connection, spec)
        assert code is not None  # there is an artifact
        commit = None if found.git is None else found.git.commit
        return PresentCode(code, found.entrypoint, commit), ()

    def _get(self, name: str, answer: Any, /, **given: str) -> Any:
        return self._connection.call(OPERATIONS[name], given, answer)

    def _prepare(self, request: RunRequest) -> PreparedRun:
        found = self._preview(PreviewRequest(request)).prepared
        self._runs[found.plan.run_id] = request
        if found.new_job and isinstance(request.source, (SpecSource, JobSource)):
            self._jobs[found.job.id] = request.source
        return found

    def start(
        self,
        prepared: PreparedRun,
        environ: Mapping[str, str] | None,
        *,
        queue: bool = True,
        arguments: bytes | None = None,
    ) -> RunRecord:
        """See `MusterAPI.start` and `start_function`."""
        request = self._request(prepared.plan)
        if prepared.missing:
            raise InvalidInput(*prepared.missing)
        if environ is not None:
            request = replace(request, environ=environ)
        started = self._post(
            "/runs",
            StartRequest(request, queue, arguments),
            RunRecord,
            _idempotency(prepared.plan.run_id),
        )
        self._runs.pop(prepared.plan.run_id, None)
        return started

    def create_schedule(
        self, name: str, timing: Timing, prepared: PreparedRun, trigger: Trigger | None = None
    ) -> ScheduleRecord:
        """See `MusterAPI.create_schedule`."""
        from muster.api.schedules import ScheduleRequest
        from muster.store.schedule_records import ScheduleRecord

        request = ScheduleRequest(name, timing, self._request(prepared.plan), trigger)
        key = _idempotency(prepared.plan.run_id)
        return self._post("/schedules", request, ScheduleRecord, key)

    def trigger_schedule(self, schedule_id: str) -> RunRecord:
        """See `MusterAPI.trigger_schedule`."""
        path = f"/schedules/{quote(schedule_id, safe='')}/trigger"
        return self._post(path, {}, RunRecord, _idempotency(new_id()))

    def _request(self, plan: RunPlan) -> RunRequest:
        """The request of a prepared run. Raises InvalidInput if it was not prepared here, or was
        started."""
        request = self._runs.get(plan.run_id)
        if request is None:
            raise InvalidInput("this prepared run was started already: prepare another one")
        return request

    # --- what else is to be known of a run

    def plan_limits(self, plan: RunPlan) -> PlanLimits:
        """See `MusterAPI.plan_limits`."""
        found = self._preview(PreviewRequest(self._request(plan), limits=True)).limits
        assert found is not None  # requested
        return found

    def check_framework(self, plan: RunPlan) -> FrameworkCheck:
        """See `MusterAPI.check_framework`."""
        found = self._preview(PreviewRequest(self._request(plan), framework=True)).framework
        assert found is not None  # requested
        return found

    def dry_run(self, plan: RunPlan) -> list[Finding]:
        """See `MusterAPI.dry_run`."""
        return list(self._preview(PreviewRequest(self._request(plan), dry_run=True)).findings)

    def packed_files(self, prepared: PreparedRun) -> list[str]:
        """See `MusterAPI.packed_files`."""
        request = self._request(prepared.plan)
        return list(self._preview(PreviewRequest(request, files=True)).files)

    def review(
        self, written: ParsedSpec, changes: Changes, found: Sequence[Problem]
    ) -> list[Problem]:
        """See `MusterAPI.review`. The code is checked here, the rest by the server."""
        from muster.client.http.code import code_problems

        here = [*found, *code_problems(written)]
        written = replace(written, spec=_without_own_directory(written.spec)[0])
        body = {"written": written, "changes": changes, "found": here}
        return self._post("/specs/review", body, list[Problem])

    def _preview(self, request: PreviewRequest) -> Preview:
        return self._post("/runs/preview", request, Preview)

    def _post(
        self, path: str, body: Any, answer: Any, headers: Mapping[str, str] | None = None
    ) -> Any:
        data = self._connection.request(
            "POST", f"{PREFIX}{path}", encode_json(body), {**_JSON, **(headers or {})}
        )
        return decode_json(data, answer)


def _without_own_directory(spec: JobSpec) -> tuple[JobSpec, tuple[str, ...]]:
    """The spec of a command, which does not run in the directory where it was typed, and a note on
    that."""
    here = spec.working_dir
    if here is None or spec.artifact is not None or here not in (os.getcwd(), os.getenv("PWD")):
        return spec, ()
    note = "the command runs in an empty directory on the server; `--copy` sends this directory"
    return replace(spec, working_dir=None), (note,)


def _given(overrides: RunOverrides) -> dict[str, Any]:
    """The overrides that are given."""
    return {name: value for name, value in to_builtins(overrides).items() if value is not None}


def _idempotency(key: str) -> dict[str, str]:
    """So that a request that is sent again after a lost answer has no second effect."""
    return {"Idempotency-Key": key}
