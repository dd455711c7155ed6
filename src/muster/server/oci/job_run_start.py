"""Starts job runs: what a job and the overrides of a request are as a run of Muster."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from muster.api.submissions import RunRequest, SpecSource, StartRequest
from muster.caller import Right
from muster.errors import Conflict, InvalidInput, MusterError, StoreError
from muster.server.oci import jobs, logs
from muster.server.oci.actor import Actor
from muster.server.oci.errors import conflict, invalid
from muster.server.oci.jobs import KIND as JOB_KIND
from muster.server.oci.jobs import RUN_KIND as KIND
from muster.server.oci.resources import create, default_name, find, labels, ocid_of
from muster.spec.formats.oci.conda import conda_python
from muster.spec.formats.oci.job_spec import Surroundings, spec_of
from muster.spec.formats.oci.model import CreateJobRun, JobDetails, OverrideDetails, plain
from muster.spec.formats.oci.overrides import with_overrides
from muster.spec.formats.oci.rules import archive_problems, label_problems, problems
from muster.spec.ocids import TENANCY
from muster.spec.reader import job_name_from
from muster.spec.shapes import catalogue
from muster.storage import job_artifacts, request_keys, uploads
from muster.storage.artifacts import ArtifactRef, load_ref, store_artifact, stored_size
from muster.store.resource_records import ResourceRecord

_OVERRIDES = tuple(name for name in plain(OverrideDetails()) if name.startswith("job"))


def start_job_run(actor: Actor, given: CreateJobRun) -> ResourceRecord:
    """Create a job run, and start it. Raises OciError."""
    project = actor.project_with(given.compartment_id, Right.SUBMIT)
    job = find(actor, JOB_KIND, given.job_id, Right.READ)
    if job.state != "ACTIVE":
        raise conflict(f"The job is {job.state}.")
    details = _effective(actor, job, given)
    logging = logs.place_of(actor, project, details.job_log_configuration_details)
    name, now = given.display_name or default_name("jobrun"), time.time()
    data: dict[str, Any] = {
        **labels(given),
        "projectId": given.project_id,
        "jobId": given.job_id,
        "runProject": project,
        "details": job.data["details"],
        "overrides": {key: value for key, value in plain(given).items() if key in _OVERRIDES},
    }

    def record(identifier: str) -> ResourceRecord:
        made = ResourceRecord(
            *(KIND, identifier, project, name, "ACCEPTED", actor.principal.user, now, now, data),
            parent=job.id,
            run_id=identifier,
        )
        if logging is not None:
            made = replace(made, data=data | {"logDetails": logging.of_run(actor, made)})
        return made

    made, _ = create(actor, record, KIND, "oci.job-runs.create")
    if made.state == "ACCEPTED" and made.run is None:  # also if a server was killed meanwhile
        made = _start(actor, job, made, details)
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
    actor: Actor, job: ResourceRecord, record: ResourceRecord, details: JobDetails
) -> ResourceRecord:
    """Start Muster's run. What keeps it from starting is why the job run has failed. Nothing if
    another request does it."""
    home, project = actor.state.backend.home, record.data["runProject"]
    settings = actor.state.settings.file.oci
    failed = ""
    try:
        with request_keys.held(home, record.id, KIND):
            code = _code(actor, job, details, project)
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
            start = StartRequest(RunRequest(source, {"run_name": record.name}))
            names = _oci_names(actor, job, record)
            environ, python = _conda(details, settings.conda)
            api = actor.api(
                project,
                created_id=record.id,
                oci_names=names,
                environ=environ,
                python=python,
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


def _code(
    actor: Actor, job: ResourceRecord, details: JobDetails, project: str
) -> ArtifactRef | None:
    """The job's code, which the project of the run may use; None if the job has none. Raises
    InvalidInput if nothing says what of it runs."""
    artifact = job.data.get("artifact")
    if not artifact:
        return None
    home = actor.state.backend.home
    if stored_size(home, artifact["sha256"]) is None:  # no run has used it for long
        path = job_artifacts.artifact_path(home, job.id, artifact["name"])
        store_artifact(home, path, "")
    uploads.mark(home, project, artifact["sha256"])
    code = load_ref(home, artifact["sha256"], artifact["name"])
    if code.kind == "archive" and (missing := list(archive_problems(details))):
        raise InvalidInput(*missing)
    return code


def _oci_names(actor: Actor, job: ResourceRecord, record: ResourceRecord) -> Mapping[str, str]:
    """OCI: the variables that the service sets for each job run."""
    compartments = actor.compartments
    return {
        "TENANCY_OCID": compartments.tenancy or TENANCY,
        "PROJECT_OCID": record.data["projectId"],
        "PROJECT_COMPARTMENT_OCID": compartments.ocid(record.project),
        "JOB_OCID": ocid_of(job),
        "JOB_COMPARTMENT_OCID": compartments.ocid(job.project),
        "JOB_RUN_OCID": ocid_of(record),
        "JOB_RUN_COMPARTMENT_OCID": compartments.ocid(record.project),
    }
