"""Jobs and their artifacts (OCI: Job, JobArtifact)."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import quote, unquote

from muster.errors import InvalidInput
from muster.iam.resources import variables_of_new
from muster.permissions import Permission
from muster.server.answers import BYTES, Answer, Stream
from muster.server.oci import projects, work_requests
from muster.server.oci.errors import OciError, conflict, invalid, not_found, not_yet
from muster.server.oci.listings import listing
from muster.server.oci.request import OciRequest
from muster.server.oci.resources import (
    allows,
    change,
    check_match,
    common,
    create,
    default_name,
    etag,
    find,
    labels,
    moved,
    shown,
    target_of,
)
from muster.server.oci.routes import OciRoute
from muster.server.oci.streams import file_range
from muster.spec.formats.oci.decoding import decode
from muster.spec.formats.oci.model import (
    CreateJob,
    EmptyConfiguration,
    EmptyInfrastructure,
    JobDetails,
    UpdateJob,
    plain,
)
from muster.spec.formats.oci.rules import label_problems, problems
from muster.spec.formats.oci.runtime_file import runtime_file
from muster.spec.shapes import catalogue
from muster.storage import job_artifacts, request_keys
from muster.storage.artifacts import ArtifactRef, store_artifact, stored_names
from muster.storage.home import Home
from muster.store.resource_records import JOB, JOB_RUN, ResourceFilter, ResourceRecord

KIND, RUN_KIND = JOB, JOB_RUN
_PATH, _ONE = "/20190101/jobs", "/20190101/jobs/{job_id}"
_STATES = ("CREATING", "ACTIVE", "DELETING", "FAILED", "DELETED")
#: Bytes of an artifact (OCI).
_MOST_ARTIFACT = 4 << 30
#: How archives begin.
_STARTS = {b"PK\x03\x04": ".zip", b"\x1f\x8b": ".tar.gz"}
_CONFIGURATION = tuple(name for name in plain(JobDetails()) if name.startswith("job"))
#: Of a job's artifact: the name of its file with variables (`runtime_file`); None: it has none.
RUNTIME_FILE = "runtimeFile"
_CHANGEABLE = ("jobInfrastructureConfigurationDetails", "jobStorageMountConfigurationDetailsList")
_FILE_NAME = re.compile(r"""filename\*?=(?:UTF-8''|utf-8'')?("(?:[^"\\]|\\.)*"|[^;]+)""")


def create_job(request: OciRequest) -> Answer:
    """POST /jobs"""
    shapes = catalogue(request.state.backend.home.shapes)
    given = request.read(CreateJob, lambda job: (*label_problems(job), *problems(job, shapes)))
    name, now = given.display_name or default_name("job"), time.time()
    on = variables_of_new(KIND, name)
    project = request.project_with(given.compartment_id, request.permission, on)
    parent = projects.project_for(request, given.project_id, project)
    details = {key: value for key, value in plain(given).items() if key in _CONFIGURATION}
    data = {
        **labels(given),
        "projectId": given.project_id,
        "details": details,
    }

    def record(identifier: str) -> ResourceRecord:
        user = request.principal.user
        return ResourceRecord(
            *(KIND, identifier, project, name, "ACTIVE", user, now, now, data), parent=parent.id
        )

    made, _ = create(request, record, KIND, request.permission, "oci.jobs.create")
    return shown(made, _shown(request, made))


def list_jobs(request: OciRequest) -> Answer:
    """GET /jobs"""

    def show(record: ResourceRecord) -> Mapping[str, Any]:
        return common(request, record) | {"projectId": record.data["projectId"]}

    return listing(request, KIND, show, parent="projectId", states=_STATES)


def get_job(request: OciRequest) -> Answer:
    """GET /jobs/{job_id}"""
    record = _find(request)
    return shown(record, _shown(request, record))


def update_job(request: OciRequest) -> Answer:
    """PUT /jobs/{job_id}"""
    record = _find(request)
    shapes = catalogue(request.state.backend.home.shapes)

    def rules(given: UpdateJob) -> Iterator[str]:
        yield from label_problems(given)
        yield from problems(decode(JobDetails, _updated(record, given)), shapes)

    given = request.read(UpdateJob, rules)
    _check_active(record)
    data = {**record.data, **labels(given), "details": _updated(record, given)}
    name = given.display_name or record.name
    after = change(request, record, "oci.jobs.update", name=name, data=data)
    return shown(after, _shown(request, after))


def _updated(record: ResourceRecord, given: UpdateJob) -> dict[str, Any]:
    """The configuration of a job after an update: what is not given stays."""
    new = {name: plain(given)[name] for name in _CHANGEABLE}
    return {**record.data["details"], **{k: one for k, one in new.items() if one is not None}}


def delete_job(request: OciRequest) -> Answer:
    """DELETE /jobs/{job_id}"""
    record = _find(request)
    check_match(request, record)
    # OCI: its runs are deleted with it, and none may be in progress
    from muster.server.oci.job_runs import delete_run, has_ended

    # a job run may be in another compartment than its job
    runs = request.store.resources.listing(ResourceFilter(RUN_KIND, None, parent=record.id))
    if others := [run for run in runs if not _may_delete(request, run)]:
        text = f"{len(others)} of the job's job runs are in compartments where you delete nothing"
        raise conflict(f"{text}; ask their owners.")
    if live := [run for run in runs if not has_ended(run)]:
        raise conflict(f"{len(live)} of the job's job runs have not ended; cancel them first.")
    for run in runs:
        delete_run(request, run)
    if record.state != "DELETED":
        change(request, record, "oci.jobs.delete", state="DELETED")
    job_artifacts.remove(request.state.backend.home, record.id)
    return work_requests.done(request, record, "JOB_DELETE", "DELETED")


def _may_delete(request: OciRequest, run: ResourceRecord) -> bool:
    return allows(request, run, Permission.JOB_RUN_DELETE)


def change_job_compartment(request: OciRequest) -> Answer:
    """POST /jobs/{job_id}/actions/changeCompartment"""
    record = _find(request)
    change(request, record, "oci.jobs.move", **moved(request, record, Permission.JOB_CREATE))
    return Answer(status=204)


# Artifacts


async def create_job_artifact(request: OciRequest) -> Answer:
    """POST /jobs/{job_id}/artifact"""
    in_thread = request.state.in_thread
    record = await in_thread(_without_artifact, request)
    parts = request.parts(_MOST_ARTIFACT)
    first = await anext(parts, b"")
    name = _file_name(request.header("content-disposition")) or _guessed_name(first)
    home = request.state.backend.home
    receiver = await in_thread(job_artifacts.Receiver, home, record.id, name)
    try:
        await in_thread(receiver.write, first)
        async for part in parts:
            await in_thread(receiver.write, part)
        await in_thread(_keep, request, record, receiver)
    finally:
        await in_thread(receiver.close)
    return Answer(status=204)


def _without_artifact(request: OciRequest) -> ResourceRecord:
    """The job in the path, if the caller may give it its artifact: OCI asks for JOB_CREATE only,
    with which anybody could put code into the job of another user, who runs it. Raises OciError,
    Forbidden."""
    record = _find(request)
    if record.created_by != request.principal.user:
        request.require(record.project, Permission.JOB_UPDATE, target_of(request, record))
    _check_active(record)
    if record.data.get("artifact"):
        raise _has_artifact()
    return record


def _keep(request: OciRequest, record: ResourceRecord, receiver: job_artifacts.Receiver) -> None:
    """Make what was received the job's artifact. Raises OciError."""
    received, home = receiver.flush(), request.state.backend.home
    if not received.size:
        raise invalid("the artifact is empty")
    try:
        stored = store_artifact(home, receiver.path, "")
    except InvalidInput as error:
        raise invalid(f"the artifact cannot run: {error}") from None
    artifact = {
        "name": received.name,
        "size": received.size,
        "md5": base64.b64encode(bytes.fromhex(received.md5)).decode(),
        "sha256": stored.sha256,
        "time": time.time(),
        RUNTIME_FILE: _runtime_file(home, stored),
    }
    try:
        with request_keys.held(home, f"artifact-{record.id}", record.id):
            record = request.store.resources.get(KIND, record.id)
            _check_active(record)
            if record.data.get("artifact"):
                raise _has_artifact()
            receiver.keep()
            data = {**record.data, "artifact": artifact}
            change(request, record, "oci.jobs.upload", data=data)
    except request_keys.InProgress:
        raise not_yet("Another request uploads the artifact.") from None


def _runtime_file(home: Home, code: ArtifactRef) -> str | None:
    """The file with variables in an archive: to look for it in a large one for each run would take
    long."""
    return runtime_file(stored_names(home, code)) if code.kind == "archive" else None


def _has_artifact() -> OciError:
    return conflict("The job has an artifact, which cannot be replaced; create another job.")


def head_job_artifact(request: OciRequest) -> Answer:
    """HEAD /jobs/{job_id}/artifact/content"""
    record = _find(request)
    artifact = _artifact(record)
    headers = {**_artifact_headers(record, artifact), "content-length": str(artifact["size"])}
    return Answer(media_type=BYTES, headers=headers)


async def get_job_artifact_content(request: OciRequest) -> Answer | Stream:
    """GET /jobs/{job_id}/artifact/content"""
    record = await request.state.in_thread(_find, request)
    artifact = _artifact(record)
    home = request.state.backend.home
    path = job_artifacts.artifact_path(home, record.id, artifact["name"])
    headers = _artifact_headers(record, artifact)
    return await file_range(request, path, artifact["size"], headers)


def _artifact(record: ResourceRecord) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = record.data.get("artifact")
    if not found or record.state == "DELETED":
        raise not_found()
    return found


def _artifact_headers(record: ResourceRecord, artifact: Mapping[str, Any]) -> dict[str, str]:
    modified = datetime.fromtimestamp(artifact["time"], UTC)
    name = artifact["name"]
    shown_name = name if name.isascii() and '"' not in name else quote(name)
    return {
        "content-disposition": f"attachment; filename={shown_name}",
        "content-md5": artifact["md5"],
        "last-modified": format_datetime(modified, usegmt=True),
        "etag": etag(record),
    }


def _file_name(header: str) -> str:
    """The name of a file in a header content-disposition (RFC 6266); "" if it has none."""
    found = _FILE_NAME.search(header)
    if found is None:
        return ""
    text = found[1].strip()
    if text.startswith('"'):
        text = re.sub(r"\\(.)", r"\1", text[1:-1])
    with suppress(UnicodeError):  # it was not UTF-8
        text = text.encode("latin-1").decode()
    return unquote(text) if "*=" in found[0] else text


def _guessed_name(first: bytes) -> str:
    """A name for a file whose sender gives none, as the CLI does: what it is follows from it.
    first: how its content begins."""
    known = next((suffix for start, suffix in _STARTS.items() if first.startswith(start)), None)
    if known is None:
        line = first.partition(b"\n")[0]
        known = ".sh" if line.startswith(b"#!") and line.rstrip().endswith(b"sh") else ".py"
    return f"artifact{known}"


def _find(request: OciRequest) -> ResourceRecord:
    return find(request, KIND, request.path["job_id"], request.permission)


def _check_active(record: ResourceRecord) -> None:
    if record.state != "ACTIVE":
        raise conflict(f"The job is {record.state}.")


def details_of(record: ResourceRecord) -> JobDetails:
    """The configuration of a job."""
    return decode(JobDetails, record.data["details"])


def _shown(request: OciRequest, record: ResourceRecord) -> Mapping[str, Any]:
    details = dict(record.data["details"])
    if details["jobConfigurationDetails"] is None:
        details["jobConfigurationDetails"] = plain(EmptyConfiguration())
    if details["jobInfrastructureConfigurationDetails"] is None:
        details["jobInfrastructureConfigurationDetails"] = plain(EmptyInfrastructure())
    return common(request, record) | {
        "projectId": record.data["projectId"],
        "description": record.data.get("description") or "",
        "lifecycleDetails": "",
        **details,
    }


ROUTES = (
    OciRoute(
        *("create_job", "POST", _PATH, create_job),
        permission=Permission.JOB_CREATE,
        also=(Permission.PROJECT_READ,),
    ),
    OciRoute("list_jobs", "GET", _PATH, list_jobs, Permission.JOB_INSPECT),
    OciRoute("get_job", "GET", _ONE, get_job, Permission.JOB_READ),
    OciRoute("update_job", "PUT", _ONE, update_job, Permission.JOB_UPDATE),
    OciRoute("delete_job", "DELETE", _ONE, delete_job, Permission.JOB_DELETE),
    OciRoute(
        "change_job_compartment",
        *("POST", f"{_ONE}/actions/changeCompartment", change_job_compartment),
        permission=Permission.JOB_MOVE,
        also=(Permission.JOB_CREATE,),
    ),
    OciRoute(
        *("create_job_artifact", "POST", f"{_ONE}/artifact"),
        permission=Permission.JOB_CREATE,
        stream=create_job_artifact,
    ),
    OciRoute(
        *("head_job_artifact", "HEAD", f"{_ONE}/artifact/content", head_job_artifact),
        permission=Permission.JOB_READ,
    ),
    OciRoute(
        *("get_job_artifact_content", "GET", f"{_ONE}/artifact/content"),
        permission=Permission.JOB_READ,
        stream=get_job_artifact_content,
    ),
)
