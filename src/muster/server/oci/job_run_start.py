"""Starts job runs: turns a job, with the overrides of a request, into a run of Muster."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from muster.api.submissions import RunRequest, SpecSource, StartRequest
from muster.errors import Conflict, InvalidInput, MusterError, StoreError
from muster.iam.resources import ocid_of
from muster.permissions import Permission
from muster.server.oci import jobs, logs, projects
from muster.server.oci.actor import Actor
from muster.server.oci.errors import conflict, invalid
from muster.server.oci.jobs import KIND as JOB_KIND
from muster.server.oci.jobs import RUN_KIND as KIND
from muster.server.oci.resources import compartment_of, create, default_name, find, labels
from muster.service.event_inputs import Inputs, inputs_of_event, tags_of, variables_of
from muster.spec.formats.oci.conda import conda_python
from muster.spec.formats.oci.job_spec import Surroundings, has_own_subnet, spec_of
from muster.spec.formats.oci.model import CreateJobRun, JobDetails, OverrideDetails, plain
from muster.spec.formats.oci.overrides import with_overrides
from muster.spec.formats.oci.rules import archive_problems, label_problems, problems
from muster.spec.formats.oci.runtime_file import (
    LONGEST,
    runtime_file,
    variables_in,
    with_variables,
)
from muster.spec.ocids import TENANCY
from muster.spec.reader import job_name_from
from muster.spec.shapes import catalogue
from muster.storage import job_artifacts, request_keys, uploads
from muster.storage.artifacts import (
    ArtifactRef,
    load_ref,
    read_start,
    store_artifact,
    stored_names,
    stored_size,
)
from muster.store.resource_records import ResourceRecord

if TYPE_CHECKING:
    from muster.lifecycle.trigger import Event

_OVERRIDES = tuple(name for name in plain(OverrideDetails()) if name.startswith("job"))
#: Of a job run's data: the ids of the jobs by whose job runs it was started, one after the other.
AFTER = "after"


def start_job_run(
    actor: Actor, given: CreateJobRun, event: Event | None = None, after: Sequence[str] = ()
) -> ResourceRecord:
    """Create a job run, and start it. event: what has happened that starts it. after: see `AFTER`.
    Raises OciError."""
    project = actor.project_with(given.compartment_id, Permission.JOB_RUN_CREATE)
    job = find(actor, JOB_KIND, given.job_id, Permission.JOB_READ)
    if job.state != "ACTIVE":
        raise conflict(f"The job is {job.state}.")
    details = _effective(actor, job, given)
    projects.project_for(actor, given.project_id, project)
    if has_own_subnet(details):
        actor.require(project, Permission.SUBNET_ATTACH)
    logging = logs.place_of(actor, project, details.job_log_configuration_details)
    name, now = given.display_name or default_name("jobrun"), time.time()
    data: dict[str, Any] = {
        **labels(given),
        "projectId": given.project_id,
        "jobId": given.job_id,
        "runProject": project,
        "details": job.data["details"],
        "overrides": {key: value for key, value in plain(given).items() if key in _OVERRIDES},
        **({AFTER: list(after)} if after else {}),
    }

    def record(identifier: str) -> ResourceRecord:
        made = ResourceRecord(
            *(KIND, identifier, project, name, "ACCEPTED", actor.principal.user, now, now, data),
            parent=job.id,
            run_id=identifier,
        )
        if logging is not None:
            made = replace(made, data=data | logging.of_run(actor, made))
        return made

    made, _ = create(actor, record, KIND, Permission.JOB_RUN_CREATE, "oci.job-runs.create")
    if made.state == "ACCEPTED" and made.run is None:  # also if a server was killed meanwhile
        why = "" if logging is None else logging.why_not(actor, made)
        made = _settle(actor, made, why) if why else _start(actor, job, made, details, event)
    return made


def _effective(actor: Actor, job: ResourceRecord, given: CreateJobRun) -> JobDetails:
    """The job with the overrides. Raises OciError with everything that is wrong with it."""
    found = list(label_problems(given))
    try:
        details = with_overrides(jobs.details_of(job), given)
    except ValueError as error:
        raise invalid("; ".join([*found, str(error)])) from None
    found += problems(details, catalogue(actor.state.backend.home.shapes))
    if found:
        raise invalid("; ".join(found))
    return details


def _start(
    actor: Actor,
    job: ResourceRecord,
    record: ResourceRecord,
    details: JobDetails,
    event: Event | None,
) -> ResourceRecord:
    """Start Muster's run. What keeps it from starting is why the job run has failed. Nothing if
    another request does it."""
    home, project = actor.state.backend.home, record.data["runProject"]
    settings = actor.state.settings.file.oci
    failed = ""
    try:
        with request_keys.held(home, record.id, KIND):
            code = _code(actor, job, project)
            if code is not None and code.kind == "archive":
                details = _with_archive(actor, details, code, job.data["artifact"])
            around = Surroundings(
                name=job_name_from(job.name),
                artifact=None if code is None else code.file_name,
                engine=settings.engine,
                container_engine=settings.container_engine,
                tags=record.data.get("freeformTags") or {},
                display_name=job.name,
                exports=settings.exports,
            )
            source = SpecSource(spec_of(details, around), code)
            overrides: dict[str, Any] = {"run_name": record.name}
            names = _oci_names(actor, job, record)
            environ, python = _conda(details, settings.conda)
            inputs = Inputs()
            if event is not None:
                account = actor.state.account_of_runs(actor.principal.user)
                inputs = inputs_of_event(home, event, account)
                environ |= variables_of(event)
                overrides["tags"] = tags_of(event)
            start = StartRequest(RunRequest(source, overrides, inputs.notes))
            api = actor.api(
                project,
                created_id=record.id,
                oci_names=names,
                environ=environ,
                python=python,
                inputs=inputs.mounts,
            )
            api.submit(start)
    except StoreError as error:
        if isinstance(error, request_keys.InProgress):
            return record
        raise
    except MusterError as error:
        failed = str(error)
    except Exception:
        _settle(actor, record, "internal error: the server's log has it")
        raise
    return _settle(actor, record, failed)


def _conda(details: JobDetails, pythons: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """The variables of an activated conda environment, and its Python. Raises InvalidInput."""
    try:
        found = conda_python(details, pythons)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    if found is None:
        return {}, None
    name, python = found
    prefix = str(Path(python).parent.parent)
    return {"CONDA_PREFIX": prefix, "CONDA_DEFAULT_ENV": name}, python


def _settle(actor: Actor, record: ResourceRecord, failed: str) -> ResourceRecord:
    """Record what the state of a job run is without a run of Muster. failed: why there is none.
    Nothing if another request has done it."""
    # from here on, the state is that of the run while there is one
    now = time.time()
    state = "FAILED" if failed else "DELETED"
    data = {**record.data, **({"failure": failed, "finishedAt": now} if failed else {})}
    after = replace(record, state=state, data=data, updated_at=now)
    resources = actor.store.resources
    try:
        return resources.update(record, after)
    except Conflict:
        return resources.get(KIND, record.id)


def _code(actor: Actor, job: ResourceRecord, project: str) -> ArtifactRef | None:
    """The job's code, which the project of the run may use; None if the job has none."""
    artifact = job.data.get("artifact")
    if not artifact:
        return None
    home = actor.state.backend.home
    if stored_size(home, artifact["sha256"]) is None:  # no run has used it for long
        path = job_artifacts.artifact_path(home, job.id, artifact["name"])
        store_artifact(home, path, "")
    uploads.mark(home, project, artifact["sha256"])
    return load_ref(home, artifact["sha256"], artifact["name"])


def _with_archive(
    actor: Actor, details: JobDetails, code: ArtifactRef, artifact: Mapping[str, Any]
) -> JobDetails:
    """A job with the variables that its archive has. artifact: see `jobs.RUNTIME_FILE`. Raises
    InvalidInput if they are wrong, or nothing says what of the archive runs."""
    home = actor.state.backend.home
    if jobs.RUNTIME_FILE in artifact:
        file = artifact[jobs.RUNTIME_FILE]
    else:  # an earlier version has received it
        file = runtime_file(stored_names(home, code))
    found: list[str] = []
    if file is not None:
        content = read_start(home, code, file, LONGEST + 1)
        details = with_variables(details, variables_in(file, content))
        found += problems(details, catalogue(home.shapes))
    found += archive_problems(details)
    if found:
        raise InvalidInput(*found)
    return details


def _oci_names(actor: Actor, job: ResourceRecord, record: ResourceRecord) -> Mapping[str, str]:
    """OCI: the variables that the service sets for each job run."""
    return {
        "TENANCY_OCID": actor.compartments.tenancy or TENANCY,
        "PROJECT_OCID": record.data["projectId"],
        "PROJECT_COMPARTMENT_OCID": compartment_of(actor, record),
        "JOB_OCID": ocid_of(job),
        "JOB_COMPARTMENT_OCID": compartment_of(actor, job),
        "JOB_RUN_OCID": ocid_of(record),
        "JOB_RUN_COMPARTMENT_OCID": compartment_of(actor, record),
    }
