"""Job runs (OCI: JobRun): each is a run of Muster, which gives it its state."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from muster.describe.times import time_text_ms
from muster.iam.resources import LOG_DETAILS
from muster.lifecycle.states import RunState
from muster.permissions import Permission
from muster.server.answers import Answer
from muster.server.oci.actor import Actor
from muster.server.oci.errors import conflict, not_yet
from muster.server.oci.job_run_start import start_job_run
from muster.server.oci.jobs import RUN_KIND as KIND
from muster.server.oci.listings import listing
from muster.server.oci.node_groups import node_groups
from muster.server.oci.request import OciRequest
from muster.server.oci.resources import (
    change,
    change_related,
    check_match,
    common,
    find,
    labels,
    moved,
    shown,
)
from muster.server.oci.routes import OciRoute
from muster.spec.formats.oci.decoding import decode
from muster.spec.formats.oci.model import (
    CreateJobRun,
    DefaultConfiguration,
    EmptyInfrastructure,
    JobDetails,
    UpdateJobRun,
    plain,
)
from muster.spec.formats.oci.rules import label_problems
from muster.store.resource_records import ResourceRecord

if TYPE_CHECKING:
    from muster.service.embedded import EmbeddedAPI

_PATH, _ONE = "/20190101/jobRuns", "/20190101/jobRuns/{job_run_id}"
_STATES = (
    *("ACCEPTED", "IN_PROGRESS", "FAILED", "SUCCEEDED"),
    *("CANCELING", "CANCELED", "DELETED", "NEEDS_ATTENTION"),
)
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


def list_job_runs(request: OciRequest) -> Answer:
    """GET /jobRuns"""
    return listing(
        request, KIND, lambda record: _summary(request, record), parent="jobId", states=_STATES
    )


def get_job_run(request: OciRequest) -> Answer:
    """GET /jobRuns/{job_run_id}"""
    record = _find(request)
    return shown(record, _shown(request, record))


def update_job_run(request: OciRequest) -> Answer:
    """PUT /jobRuns/{job_run_id}"""
    record, given = _find(request), request.read(UpdateJobRun, label_problems)
    if record.state in ("ACCEPTED", "CANCELING"):
        raise not_yet(f"The job run is {record.state}.")
    if record.state in ("DELETED", "NEEDS_ATTENTION"):
        raise conflict(f"The job run is {record.state}.")
    after = change(
        request,
        record,
        "oci.job-runs.update",
        name=given.display_name or record.name,
        data={**record.data, **labels(given)},
        state=_own_state(record),
    )
    return shown(after, _shown(request, after))


def cancel_job_run(request: OciRequest) -> Answer:
    """POST /jobRuns/{job_run_id}/actions/cancelJobRun"""
    record = _find(request)
    check_match(request, record)
    if record.state in ("SUCCEEDED", "FAILED", "DELETED"):
        raise conflict(f"The job run is {record.state}, and cannot be canceled.")
    if record.state == "CANCELED":
        return Answer(status=202)
    if record.run is None:
        raise not_yet("The job run is being accepted.")
    assert record.run_id is not None
    _run_api(request, record, request.permission).cancel(record.run_id)
    return Answer(status=202)


def delete_job_run(request: OciRequest) -> Answer:
    """DELETE /jobRuns/{job_run_id}"""
    record = _find(request)
    check_match(request, record)
    if not has_ended(record):
        raise conflict(f"The job run is {record.state}; cancel it first.")
    delete_run(request, record)
    return Answer(status=204)


def has_ended(record: ResourceRecord) -> bool:
    """Whether a job run can be deleted."""
    return record.state in (*_ENDED, "NEEDS_ATTENTION")


def delete_run(request: OciRequest, record: ResourceRecord) -> None:
    """Delete a job run that has ended: the one that the request is about, which was checked, or one
    of its job. What is known of it stays for a while (OCI: 30 days)."""
    if record.state == "DELETED" and record.run is None and record.data.get("finishedAt"):
        return
    run, data = record.run, dict(record.data)
    if run is not None:
        data |= {"startedAt": run.started_at, "finishedAt": run.finished_at or time.time()}
    data.setdefault("finishedAt", time.time())
    changes, deletes = {"state": "DELETED", "data": data}, Permission.JOB_RUN_DELETE
    change_related(request, record, deletes, "oci.job-runs.delete", **changes)
    if run is not None:
        assert record.run_id is not None
        api = _run_api(request, record, deletes, Permission.JOB_RUN_UPDATE)
        if not RunState(run.state).at_rest:
            api.cancel(record.run_id, force=True)
        api.delete(record.run_id)


def change_job_run_compartment(request: OciRequest) -> Answer:
    """POST /jobRuns/{job_run_id}/actions/changeCompartment"""
    record = _find(request)
    change(
        request,
        record,
        "oci.job-runs.move",
        state=_own_state(record),
        **moved(request, record, Permission.JOB_RUN_CREATE),
    )
    return Answer(status=204)


def _own_state(record: ResourceRecord) -> str:
    """What is recorded for when there is no run of Muster."""
    return record.state if record.run is None else "DELETED"


def _run_api(request: OciRequest, record: ResourceRecord, *permissions: Permission) -> EmbeddedAPI:
    """Muster for a caller who was allowed to change a job run, in the project where the run is: the
    job run may have moved."""
    return request.allowed_api(record.data["runProject"], *permissions)


def _find(request: OciRequest) -> ResourceRecord:
    return find(request, KIND, request.path["job_run_id"], request.permission)


def _summary(request: OciRequest, record: ResourceRecord) -> dict[str, Any]:
    data, run = record.data, record.run
    made = common(request, record)
    made["timeAccepted"] = made.pop("timeCreated")
    started = data.get("startedAt") if run is None else run.started_at
    finished = data.get("finishedAt") if run is None else run.finished_at
    return made | {
        "timeStarted": time_text_ms(started),
        "timeFinished": time_text_ms(finished),
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
        "logDetails": data.get(LOG_DETAILS),
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
    OciRoute(
        *("create_job_run", "POST", _PATH, create_job_run),
        permission=Permission.JOB_RUN_CREATE,
        also=(Permission.JOB_READ, Permission.PROJECT_READ),
    ),
    OciRoute("list_job_runs", "GET", _PATH, list_job_runs, Permission.JOB_RUN_INSPECT),
    OciRoute("get_job_run", "GET", _ONE, get_job_run, Permission.JOB_RUN_READ),
    OciRoute("update_job_run", "PUT", _ONE, update_job_run, Permission.JOB_RUN_UPDATE),
    OciRoute("delete_job_run", "DELETE", _ONE, delete_job_run, Permission.JOB_RUN_DELETE),
    OciRoute(
        *("cancel_job_run", "POST", f"{_ONE}/actions/cancelJobRun", cancel_job_run),
        permission=Permission.JOB_RUN_UPDATE,
    ),
    OciRoute(
        "change_job_run_compartment",
        *("POST", f"{_ONE}/actions/changeCompartment", change_job_run_compartment),
        permission=Permission.JOB_RUN_MOVE,
        also=(Permission.JOB_RUN_CREATE,),
    ),
)
