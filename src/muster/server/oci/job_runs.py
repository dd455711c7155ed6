"""Job runs (OCI: JobRun): each is a run of Muster, which gives it its state."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from muster.api.submissions import RunRequest, SpecSource, StartRequest
from muster.caller import Right
from muster.errors import InvalidInput, MusterError, StoreError
from muster.lifecycle.states import RunState
from muster.server.answers import Answer
from muster.server.oci import jobs, logs
from muster.server.oci.actor import Actor
from muster.server.oci.errors import conflict, invalid, not_yet
from muster.server.oci.jobs import KIND as JOB_KIND
from muster.server.oci.jobs import RUN_KIND as KIND
from muster.server.oci.node_groups import node_groups
from muster.server.oci.request import OciRequest
from muster.server.oci.resources import (
    change,
    check_match,
    common,
    create,
    default_name,
    find,
    labels,
    listing,
    ocid_of,
    shown,
    time_text,
)
from muster.server.oci.routes import OciRoute
from muster.spec.formats.oci.conda import conda_python
from muster.spec.formats.oci.job_spec import Surroundings, spec_of
from muster.spec.formats.oci.model import (
    ChangeCompartment,
    CreateJobRun,
    DefaultConfiguration,
    EmptyInfrastructure,
    JobDetails,
    OverrideDetails,
    UpdateJobRun,
    decode,
    plain,
)
from muster.spec.formats.oci.overrides import with_overrides
from muster.spec.formats.oci.rules import archive_problems, label_problems, problems
from muster.spec.ocids import TENANCY
from muster.spec.reader import job_name_from
from muster.spec.shapes import catalogue
from muster.storage import job_artifacts, request_keys, uploads
from muster.storage.artifacts import ArtifactRef, load_ref, store_artifact, stored_size
from muster.store.resource_records import ResourceRecord

if TYPE_CHECKING:
    from muster.service.embedded import EmbeddedAPI

_PATH, _ONE = "/20190101/jobRuns", "/20190101/jobRuns/{job_run_id}"
_STATES = (
    *("ACCEPTED", "IN_PROGRESS", "FAILED", "SUCCEEDED"),
    *("CANCELING", "CANCELED", "DELETED", "NEEDS_ATTENTION"),
)
_OVERRIDES = tuple(name for name in plain(OverrideDetails()) if name.startswith("job"))
_ENDED = ("SUCCEEDED", "FAILED", "CANCELED", "DELETED")
#: ADS's tests look for this text.
_IN_PROGRESS = "Job run artifact execution in progress."
_ACCEPTED = "Infrastructure provisioning."
#: ADS keeps the last details that it has read, if there are none.
_SUCCEEDED = "Job run artifact execution succeeded."
#: Clients read the number from this text.
_FAILED = "Job run artifact execution failed with exit code {}."


def create_job_run(request: OciRequest) -> Answer:
    """POST /jobRuns"""
    made = start_job_run(request, request.read(CreateJobRun))
    return shown(made, _shown(request, made))


def start_job_run(actor: Actor, given: CreateJobRun) -> ResourceRecord:
    """Create a job run, and start it. Raises OciError."""
    project = actor.project_of(given.compartment_id)
    actor.require(project, Right.SUBMIT)
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
    """Record what the state of a job run is without a run of Muster. failed: why there is none."""
    # from here on, the state is that of the run while there is one
    now = time.time()
    state = "FAILED" if failed else "DELETED"
    data = {**record.data, **({"failure": failed, "finishedAt": now} if failed else {})}
    after = replace(record, state=state, data=data, updated_at=now)
    return actor.store.resources.update(record, after)


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


def list_job_runs(request: OciRequest) -> Answer:
    """GET /jobRuns"""
    return listing(
        request, KIND, lambda record: _summary(request, record), parent="jobId", states=_STATES
    )


def get_job_run(request: OciRequest) -> Answer:
    """GET /jobRuns/{job_run_id}"""
    record = _find(request, Right.READ)
    return shown(record, _shown(request, record))


def update_job_run(request: OciRequest) -> Answer:
    """PUT /jobRuns/{job_run_id}"""
    record, given = _find(request, Right.SUBMIT), request.read(UpdateJobRun)
    if found := list(label_problems(given)):
        raise invalid("; ".join(found))
    if record.state in ("ACCEPTED", "CANCELING"):
        raise not_yet(f"The job run is {record.state}.")
    if record.state in ("DELETED", "NEEDS_ATTENTION"):
        raise conflict(f"The job run is {record.state}.")
    after = change(
        request,
        record,
        Right.SUBMIT,
        "oci.job-runs.update",
        name=given.display_name or record.name,
        data={**record.data, **labels(given)},
        state=_own_state(record),
    )
    return shown(after, _shown(request, after))


def cancel_job_run(request: OciRequest) -> Answer:
    """POST /jobRuns/{job_run_id}/actions/cancelJobRun"""
    record = _find(request, Right.SUBMIT)
    check_match(request, record)
    if record.state in ("SUCCEEDED", "FAILED", "DELETED"):
        raise conflict(f"The job run is {record.state}, and cannot be canceled.")
    if record.state == "CANCELED":
        return Answer(status=202)
    if record.run is None:
        raise not_yet("The job run is being accepted.")
    assert record.run_id is not None
    _run_api(request, record).cancel(record.run_id)
    return Answer(status=202)


def delete_job_run(request: OciRequest) -> Answer:
    """DELETE /jobRuns/{job_run_id}"""
    record = _find(request, Right.DELETE)
    check_match(request, record)
    if not has_ended(record):
        raise conflict(f"The job run is {record.state}; cancel it first.")
    delete_run(request, record)
    return Answer(status=204)


def has_ended(record: ResourceRecord) -> bool:
    """Whether a job run can be deleted."""
    return record.state in (*_ENDED, "NEEDS_ATTENTION")


def delete_run(request: OciRequest, record: ResourceRecord) -> None:
    """Delete a job run that has ended. What is known of it stays for a while (OCI: 30 days)."""
    if record.state == "DELETED" and record.run is None and record.data.get("finishedAt"):
        return
    run, data = record.run, dict(record.data)
    if run is not None:
        data |= {"startedAt": run.started_at, "finishedAt": run.finished_at or time.time()}
    data.setdefault("finishedAt", time.time())
    change(request, record, Right.DELETE, "oci.job-runs.delete", state="DELETED", data=data)
    if run is not None:
        assert record.run_id is not None
        api = _run_api(request, record)
        if not RunState(run.state).at_rest:
            api.cancel(record.run_id, force=True)
        api.delete(record.run_id)


def change_job_run_compartment(request: OciRequest) -> Answer:
    """POST /jobRuns/{job_run_id}/actions/changeCompartment"""
    record, given = _find(request, Right.DELETE), request.read(ChangeCompartment)
    target = request.project_of(given.compartment_id)
    request.require(target, Right.SUBMIT)
    change(
        request,
        record,
        Right.DELETE,
        "oci.job-runs.move",
        project=target,
        state=_own_state(record),
    )
    return Answer(status=204)


def _own_state(record: ResourceRecord) -> str:
    """What is recorded for when there is no run of Muster."""
    return record.state if record.run is None else "DELETED"


def _run_api(request: OciRequest, record: ResourceRecord) -> EmbeddedAPI:
    """Muster for the caller, in the project where the run is: the job run may have moved."""
    return request.api_elsewhere(record.project, record.data["runProject"])


def _find(request: OciRequest, right: Right) -> ResourceRecord:
    return find(request, KIND, request.path["job_run_id"], right)


def run_of(request: OciRequest, text: str) -> ResourceRecord | None:
    """The job run with this OCID, if the caller may see it; None otherwise."""
    try:
        return find(request, KIND, text, Right.READ)
    except MusterError:
        return None


def _summary(request: OciRequest, record: ResourceRecord) -> dict[str, Any]:
    data, run = record.data, record.run
    made = common(request, record)
    made["timeAccepted"] = made.pop("timeCreated")
    started = data.get("startedAt") if run is None else run.started_at
    finished = data.get("finishedAt") if run is None else run.finished_at
    return made | {
        "timeStarted": time_text(started),
        "timeFinished": time_text(finished),
        "projectId": data["projectId"],
        "jobId": data["jobId"],
        "lifecycleDetails": lifecycle_details(record),
    }


def lifecycle_details(record: ResourceRecord) -> str:
    """The sentence about a state. Clients look for the exit code in it."""
    run = record.run
    details = str(record.data.get("failure") or "") if run is None else run.details
    if record.state == "IN_PROGRESS":
        return f"{_IN_PROGRESS} {details}".strip()
    if record.state == "ACCEPTED":
        return f"{_ACCEPTED} {details}".strip()
    if record.state == "SUCCEEDED":
        return f"{_SUCCEEDED} {details}".strip()
    if record.state == "FAILED" and run is not None and run.exit_code is not None:
        # what the program has written last is in the log
        cause = details.partition("\n")[0].removesuffix(":")
        return f"{_FAILED.format(run.exit_code)} {cause}".strip()
    return details


def _shown(request: OciRequest, record: ResourceRecord) -> Mapping[str, Any]:
    data = record.data
    overrides = dict(data["overrides"])
    if overrides["jobConfigurationOverrideDetails"] is None:
        overrides["jobConfigurationOverrideDetails"] = plain(DefaultConfiguration())
    details = data["details"]
    infrastructure = details["jobInfrastructureConfigurationDetails"]
    mounts = details["jobStorageMountConfigurationDetailsList"]
    return _summary(request, record) | {
        "jobInfrastructureConfigurationDetails": infrastructure or plain(EmptyInfrastructure()),
        "jobStorageMountConfigurationDetailsList": mounts or [],
        "logDetails": data.get("logDetails"),
        "nodeGroupDetailsList": _groups(request, record),
        **overrides,
    }


def _groups(actor: Actor, record: ResourceRecord) -> Sequence[Mapping[str, str]]:
    job = decode(JobDetails, record.data["details"])
    if job.job_node_configuration_details is None:
        return []
    nodes = [] if record.run is None else actor.store.runs.nodes(record.run_id or "")
    return node_groups(job, nodes, ended=record.state in _ENDED)


ROUTES = (
    OciRoute("create_job_run", "POST", _PATH, create_job_run),
    OciRoute("list_job_runs", "GET", _PATH, list_job_runs),
    OciRoute("get_job_run", "GET", _ONE, get_job_run),
    OciRoute("update_job_run", "PUT", _ONE, update_job_run),
    OciRoute("delete_job_run", "DELETE", _ONE, delete_job_run),
    OciRoute("cancel_job_run", "POST", f"{_ONE}/actions/cancelJobRun", cancel_job_run),
    OciRoute(
        "change_job_run_compartment",
        *("POST", f"{_ONE}/actions/changeCompartment", change_job_run_compartment),
    ),
)
