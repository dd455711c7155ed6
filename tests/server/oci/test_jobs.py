"""Projects, jobs and artifacts, by OCI's SDK."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from typing import Any

import oci as oci_sdk
import pytest

from muster.spec.ocids import TENANCY
from support.oci_server import OciServer, module_server

models = oci_sdk.data_science.models
ServiceError = oci_sdk.exceptions.ServiceError


@pytest.fixture(scope="module")
def oci(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciServer]:
    yield from module_server(tmp_path_factory)


def refused(call: Any, *args: Any, **given: Any) -> Any:
    """The error of a call."""
    with pytest.raises(ServiceError) as caught:
        call(*args, **given)
    return caught.value


def infrastructure(**given: Any) -> Any:
    size = models.JobShapeConfigDetails(ocpus=1, memory_in_gbs=4)
    fields = {
        "shape_name": "VM.Standard.E4.Flex",
        "block_storage_size_in_gbs": 50,
        "job_shape_config_details": size,
    }
    kind = models.ManagedEgressStandaloneJobInfrastructureConfigurationDetails
    return kind(**{**fields, **given})


def test_a_job_is_as_it_was_created(oci: OciServer) -> None:
    given = models.DefaultJobConfigurationDetails(
        environment_variables={"A": "1"},
        command_line_arguments="--epochs 3",
        maximum_runtime_in_minutes=60,
    )
    made = oci.create_job(
        display_name="train",
        description="digits",
        job_configuration_details=given,
        freeform_tags={"team": "vision"},
        defined_tags={"cost": {"center": "42"}},
    )
    found = oci.science.get_job(made.id).data
    assert found == made
    assert found.job_configuration_details == given
    assert found.job_infrastructure_configuration_details == infrastructure()
    assert (found.display_name, found.description) == ("train", "digits")
    assert (found.freeform_tags, found.defined_tags) == (
        {"team": "vision"},
        {"cost": {"center": "42"}},
    )
    assert (found.lifecycle_state, found.compartment_id) == ("ACTIVE", TENANCY)


def test_what_is_not_given_has_a_default(oci: OciServer) -> None:
    job = oci.create_job(job_infrastructure_configuration_details=None)
    assert job.display_name.startswith("job")
    assert job.display_name.removeprefix("job").isdigit()
    assert job.job_configuration_details.job_type == "EMPTY"
    assert job.job_infrastructure_configuration_details.job_infrastructure_type == "EMPTY"


def test_update_a_job(oci: OciServer) -> None:
    job = oci.create_job()
    tag = oci.science.get_job(job.id).headers["etag"]
    details = models.UpdateJobDetails(
        display_name="new name",
        job_infrastructure_configuration_details=infrastructure(block_storage_size_in_gbs=100),
    )
    updated = oci.science.update_job(job.id, details, if_match=tag)
    assert updated.data.display_name == "new name"
    shown = updated.data.job_infrastructure_configuration_details
    assert shown.block_storage_size_in_gbs == 100
    stale = refused(oci.science.update_job, job.id, details, if_match=tag)
    assert (stale.status, stale.code) == (412, "NoEtagMatch")
    stale = refused(oci.science.delete_job, job.id, if_match=tag)
    assert (stale.status, stale.code) == (412, "NoEtagMatch")


def test_a_deleted_job_stays_listed(oci: OciServer) -> None:
    job = oci.create_job(display_name="gone")
    deleted = oci.science.delete_job(job.id)
    request = oci.science.get_work_request(deleted.headers["opc-work-request-id"]).data
    assert (request.status, request.percent_complete) == ("SUCCEEDED", 100.0)
    assert oci.science.list_work_request_errors(request.id).data == []
    assert oci.science.list_work_request_logs(request.id).data
    listed = oci.science.list_jobs(TENANCY, display_name="gone").data
    assert [(one.id, one.lifecycle_state) for one in listed] == [(job.id, "DELETED")]
    assert refused(oci.science.update_job, job.id, models.UpdateJobDetails()).status == 409


def test_a_retry_token_creates_one_job(oci: OciServer) -> None:
    details = models.CreateJobDetails(
        project_id=oci.project, compartment_id=TENANCY, display_name="once"
    )
    made = {oci.science.create_job(details, opc_retry_token="t").data.id for _ in range(2)}
    assert len(made) == 1
    details.display_name = "another"
    error = refused(oci.science.create_job, details, opc_retry_token="t")
    assert (error.status, error.code) == (409, "InvalidatedRetryToken")


def test_answers_and_errors_have_the_id_of_the_request(oci: OciServer) -> None:
    given = "A" * 32
    answer = oci.science.list_jobs(TENANCY, opc_request_id=given)
    assert answer.headers["opc-request-id"].startswith(f"{given}/")
    error = refused(oci.science.get_job, "ocid1.datasciencejob.muster.local..x")
    assert error.request_id
    assert (error.status, error.code) == (404, "NotAuthorizedOrNotFound")


INVALID = {
    "shape": (
        {"shape_name": "VM.Big"},
        "jobInfrastructureConfigurationDetails: there is no shape 'VM.Big' (`oci data-science "
        "job-shape list` lists those there are)",
    ),
    "size of a shape that has one": (
        {"shape_name": "VM.Standard2.1"},
        "jobInfrastructureConfigurationDetails: VM.Standard2.1 is not flexible, and has no "
        "jobShapeConfigDetails",
    ),
    "disk": (
        {"block_storage_size_in_gbs": 10},
        "jobInfrastructureConfigurationDetails: blockStorageSizeInGBs has to be 50 to 1024, not 10",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_infrastructure(oci: OciServer, case: str) -> None:
    given, message = INVALID[case]
    details = infrastructure(**given)
    error = refused(oci.create_job, job_infrastructure_configuration_details=details)
    assert (error.status, error.code, error.message) == (400, "InvalidParameter", message)


def test_wrong_types_and_wrong_values_are_told_at_once(oci: OciServer) -> None:
    infra = {"jobInfrastructureType": "ME_STANDALONE", "shapeName": "VM.Big"}
    details: dict[str, Any] = {
        "compartmentId": TENANCY,
        "displayName": "x" * 300,
        "freeformTags": {"team": 7},
        "jobInfrastructureConfigurationDetails": {**infra, "blockStorageSizeInGBs": "50"},
        "jobLogConfigurationDetails": {"enableLogging": "maybe"},
    }
    error = refused(oci.science.create_job, details)
    assert error.status == 400
    for text in (
        *("freeformTags.team: must be text, not 7", "displayName has 300 characters"),
        *("enableLogging: must be true or false, not 'maybe'", "there is no shape 'VM.Big'"),
        "projectId: is missing",
    ):
        assert text in error.message
    job = oci.create_job()
    details = {
        "displayName": 5,
        "jobInfrastructureConfigurationDetails": {**infra, "blockStorageSizeInGBs": 7},
    }
    error = refused(oci.science.update_job, job.id, details)
    for text in ("displayName: must be text, not 5", "no shape 'VM.Big'", "has to be 50 to 1024"):
        assert text in error.message


def test_texts_are_taken_as_numbers(oci: OciServer) -> None:
    """Payloads in the documentation have them."""
    details = {
        "projectId": oci.project,
        "compartmentId": TENANCY,
        "jobInfrastructureConfigurationDetails": {
            "jobInfrastructureType": "ME_STANDALONE",
            "shapeName": "VM.Standard2.1",
            "blockStorageSizeInGBs": "50",
        },
        "someField": "of a later version",
    }
    job = oci.science.create_job(details).data
    assert job.job_infrastructure_configuration_details.block_storage_size_in_gbs == 50


# Artifacts


def test_an_artifact_that_a_killed_server_has_not_recorded_is_replaced(oci: OciServer) -> None:
    job = oci.create_job()
    left = oci.backend.home.job_artifacts / job.id.rpartition(".")[2] / "left.py"
    left.parent.mkdir(parents=True)
    left.write_text("half")
    oci.science.create_job_artifact(
        job.id, b"print(1)", content_disposition="attachment; filename=train.py"
    )
    assert oci.science.get_job_artifact_content(job.id).data.content == b"print(1)"
    assert not left.exists()


def test_an_artifact_is_uploaded_once(oci: OciServer) -> None:
    job = oci.create_job("print(1)", name="train.py")
    head = oci.science.head_job_artifact(job.id).headers
    assert head["content-disposition"] == "attachment; filename=train.py"
    assert head["content-length"] == "8"
    assert head["content-md5"]
    assert head["last-modified"].endswith("GMT")
    found = oci.science.get_job_artifact_content(job.id)
    assert (found.status, found.data.content) == (200, b"print(1)")
    part = oci.science.get_job_artifact_content(job.id, range="bytes=2-4")
    assert (part.status, part.data.content) == (206, b"int")
    assert part.headers["content-range"] == "bytes 2-4/8"
    again = refused(oci.science.create_job_artifact, job.id, b"print(2)")
    assert (again.status, again.code) == (409, "Conflict")


def test_a_job_without_an_artifact(oci: OciServer) -> None:
    job = oci.create_job()
    assert refused(oci.science.head_job_artifact, job.id).status == 404
    assert refused(oci.science.get_job_artifact_content, job.id).status == 404


@pytest.mark.parametrize(
    "disposition",
    [
        "attachment; filename=größe.py",
        'attachment; filename="a b.py"',
        "attachment; filename*=UTF-8''gr%C3%B6%C3%9Fe.py",
    ],
)
def test_names_of_artifacts(oci: OciServer, disposition: str) -> None:
    job = oci.create_job()
    oci.science.create_job_artifact(
        job.id, b"print(1)", content_disposition=disposition.encode().decode("latin-1")
    )
    run = oci.wait(oci.start(job))
    assert run.lifecycle_state == "SUCCEEDED", run.lifecycle_details


@pytest.mark.parametrize(
    ("name", "content"), [("x.zip", b"no archive"), ("x.py", b""), ("x.tar.gz", b"\x1f\x8bno")]
)
def test_artifacts_that_cannot_run(oci: OciServer, name: str, content: bytes) -> None:
    job = oci.create_job()
    disposition = f"attachment; filename={name}"
    given = {"content_disposition": disposition}
    error = refused(oci.science.create_job_artifact, job.id, content, **given)
    assert (error.status, error.code) == (400, "InvalidParameter")
    oci.science.create_job_artifact(job.id, b"print(1)", content_disposition="filename=x.py")


ZIP = io.BytesIO()
with zipfile.ZipFile(ZIP, "w") as _archive:
    _archive.writestr("main.py", "")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"print(1)", "artifact.py"),
        (b"#!/bin/bash\necho", "artifact.sh"),
        (b"#!/usr/bin/env python3\n", "artifact.py"),
        (ZIP.getvalue(), "artifact.zip"),
    ],
    ids=["python", "shell", "python with a shebang", "zip"],
)
def test_the_kind_of_an_artifact_without_a_name(oci: OciServer, content: bytes, name: str) -> None:
    job = oci.create_job()
    oci.science.create_job_artifact(job.id, content)
    head = oci.science.head_job_artifact(job.id).headers
    assert head["content-disposition"] == f"attachment; filename={name}"


# Shapes, and lists


def test_shapes(oci: OciServer) -> None:
    shapes = oci_sdk.pagination.list_call_get_all_results(oci.science.list_job_shapes, TENANCY).data
    by_name = {shape.name: shape for shape in shapes}
    flex = by_name["VM.Standard.E4.Flex"]
    assert (flex.shape_series, flex.core_count) == ("GENERIC", 4)
    assert by_name["VM.GPU.A10.1"].shape_series == "NVIDIA_GPU"
    fast = oci.science.list_fast_launch_job_configs(TENANCY).data
    assert {one.managed_egress_support for one in fast} == {"SUPPORTED"}


def test_sorting(oci: OciServer) -> None:
    for name in ("b", "a", "c"):
        oci.create_job(display_name=f"sorted-{name}")

    def names(**given: Any) -> list[str]:
        listed = oci.science.list_jobs(TENANCY, **given).data
        found = [one.display_name for one in listed]
        return [name[-1] for name in found if name.startswith("sorted-")]

    assert names() == ["c", "a", "b"], "the newest first"
    assert names(sort_by="timeCreated", sort_order="ASC") == ["b", "a", "c"]
    assert names(sort_by="displayName") == ["a", "b", "c"]
    assert names(sort_by="displayName", sort_order="DESC") == ["c", "b", "a"]


def test_lists_need_a_compartment_that_is_the_callers(oci: OciServer) -> None:
    other = "ocid1.compartment.oc1..aaaa"
    error = refused(oci.science.list_jobs, other)
    assert (error.status, error.code) == (404, "NotAuthorizedOrNotFound")
    error = refused(oci.science.list_jobs, "")
    assert error.status == 400


# Projects


def test_a_project_with_jobs_is_not_deleted(oci: OciServer) -> None:
    details = models.CreateProjectDetails(compartment_id=TENANCY, display_name="p")
    project = oci.science.create_project(details).data
    job = models.CreateJobDetails(project_id=project.id, compartment_id=TENANCY)
    job_id = oci.science.create_job(job).data.id
    error = refused(oci.science.delete_project, project.id)
    assert (error.status, error.code) == (409, "Conflict")
    oci.science.delete_job(job_id)
    assert oci.science.delete_project(project.id).status == 202
    assert oci.science.get_project(project.id).data.lifecycle_state == "DELETED"
    assert refused(oci.science.create_job, job).status == 404
