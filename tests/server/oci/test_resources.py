"""What the operations on all kinds of resources have in common."""

from __future__ import annotations

from urllib.parse import quote

import pytest
import requests
from oci.data_science import DataScienceClient
from oci.data_science.models import (
    ChangeProjectCompartmentDetails,
    CreateJobDetails,
    CreateJobRunDetails,
    CreateProjectDetails,
    DefaultJobConfigurationDetails,
    ManagedEgressStandaloneJobInfrastructureConfigurationDetails,
    UpdateProjectDetails,
)
from oci.exceptions import ServiceError

from muster.iam import resources as iam_resources
from muster.server.settings import FileSettings, OciSettings, Settings
from support.oci_teams import SOUND, VISION, OciTeams, oci_teams


@pytest.mark.parametrize("name", ["a\0b", "\0", "\\\0"])
def test_a_text_with_a_nul_character_is_refused(oci: OciTeams, name: str) -> None:
    client = oci.client(DataScienceClient)
    details = CreateProjectDetails(compartment_id=VISION, display_name=name)
    for call in (
        lambda: client.create_project(details),
        lambda: client.list_projects(VISION, display_name=name),
    ):
        with pytest.raises(ServiceError, match="NUL") as refused:
            call()
        assert (refused.value.status, refused.value.code) == (400, "InvalidParameter")


def test_a_text_about_a_nul_character_is_kept(oci: OciTeams) -> None:
    details = CreateProjectDetails(compartment_id=VISION, display_name=r"a \u0000 b")
    made = oci.client(DataScienceClient).create_project(details).data
    assert made.display_name == r"a \u0000 b"


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (f"limit={'9' * 5000}", "limit has to be a whole number from 1 to 1000"),
        ("limit=\u0663", "limit has to be a whole number"),
        ("&".join(f"a{number}=" for number in range(1001)), "has more than 1000 parameters"),
    ],
)
def test_queries_that_no_client_sends(oci: OciTeams, query: str, problem: str) -> None:
    client = oci.client(DataScienceClient).base_client
    given = f"compartmentId={VISION}&{quote(query, safe='=&')}"
    answer = requests.get(f"{oci.url}/20190101/projects?{given}", auth=client.signer, timeout=20)
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidParameter")
    assert problem in answer.json()["message"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ocid1.datascienceproject.oc1.iad.shared", "ocid1.datascienceproject.oc1.iad.shared"),
        # another OCID with the same end
        ("ocid1.datascienceproject.oc8.iad.ending", "ocid1.datascienceproject.oc1.iad.ending"),
    ],
)
def test_an_ocid_of_oci_is_each_tenants_own(oci: OciTeams, first: str, second: str) -> None:
    made = {}
    for user, compartment, text in (("oscar", SOUND, first), ("anouk", VISION, second)):
        client = oci.client(DataScienceClient, user)
        details = {"compartmentId": compartment, "projectId": text}
        made[user] = [client.create_job(details).data.id for _ in range(2)]
        assert client.get_project(text).data.compartment_id == compartment
        jobs = client.list_jobs(compartment, project_id=text).data
        assert {job.id for job in jobs} == {*made[user]}
        client.update_project(text, UpdateProjectDetails(display_name=f"of {user}"))
    for user, text in (("oscar", first), ("anouk", second)):
        client = oci.client(DataScienceClient, user)
        assert client.get_project(text).data.display_name == f"of {user}"
    nobody = oci.client(DataScienceClient, "nora")
    for text in (first, second):
        with pytest.raises(ServiceError) as refused:
            nobody.get_project(text)
        assert refused.value.status == 404


def test_so_many_tenants_may_name_an_ocid(oci: OciTeams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iam_resources, "_MOST_ADOPTED", 1)
    details = {"projectId": "ocid1.datascienceproject.oc1.iad.many"}
    oci.client(DataScienceClient, "oscar").create_job({**details, "compartmentId": SOUND})
    with pytest.raises(ServiceError) as refused:
        oci.client(DataScienceClient, "anouk").create_job({**details, "compartmentId": VISION})
    assert (refused.value.status, refused.value.code) == (404, "NotAuthorizedOrNotFound")


@pytest.mark.parametrize("tag", ["[" * 200_000, "[" * 3_000 + "]" * 3_000, "[" * 985 + "]" * 985])
def test_a_body_that_is_nested_too_deep_is_refused(oci: OciTeams, tag: str) -> None:
    signer = oci.client(DataScienceClient).base_client.signer
    headers = {"content-type": "application/json"}
    url = f"{oci.url}/20190101/projects"
    body = f'{{"compartmentId": "{VISION}", "definedTags": {{"a": {{"b": {tag}}}}}}}'
    answer = requests.post(url, body, headers=headers, auth=signer, timeout=20)
    assert (answer.status_code, answer.json()["code"]) == (400, "CannotParseRequest")


def test_tags_are_nested(oci: OciTeams) -> None:
    value: object = "x"
    for _ in range(90):
        value = [value]
    tags = {"a": {"b": value}}
    details = CreateProjectDetails(compartment_id=VISION, display_name="deep", defined_tags=tags)
    client = oci.client(DataScienceClient)
    made = client.create_project(details).data
    assert client.get_project(made.id).data.defined_tags == tags


def test_a_compartment_keeps_the_name_that_its_client_knows() -> None:
    # a project may be several compartments of OCI, and Terraform compares what it gave
    first, second = (f"ocid1.compartment.oc1..aaaa{name}" for name in ("first", "second"))
    file = FileSettings(
        separate_owners=False, oci=OciSettings(compartments={first: "vision", second: "vision"})
    )
    with oci_teams(Settings(file=file)) as oci:
        client = oci.client(DataScienceClient)

        def shown(project: str) -> set[str]:
            listed = client.list_projects(first, id=project).data
            return {one.compartment_id for one in [client.get_project(project).data, *listed]}

        details = CreateProjectDetails(compartment_id=second, display_name="p")
        made = client.create_project(details).data
        assert {made.compartment_id, *shown(made.id)} == {second}
        move = ChangeProjectCompartmentDetails(compartment_id=VISION)
        client.change_project_compartment(made.id, move)
        assert shown(made.id) == {VISION}
        client.update_project(made.id, UpdateProjectDetails(display_name="q"))
        assert shown(made.id) == {VISION}
        work = client.delete_project(made.id).headers["opc-work-request-id"]
        assert client.get_work_request(work).data.compartment_id == VISION


def test_what_others_use_in_another_compartment_is_not_deleted(oci: OciTeams) -> None:
    root, anouk = oci.client(DataScienceClient, "root"), oci.client(DataScienceClient)
    details = CreateProjectDetails(compartment_id=VISION, display_name="shared")
    project = root.create_project(details).data.id
    infrastructure = ManagedEgressStandaloneJobInfrastructureConfigurationDetails(
        shape_name="VM.Standard2.1", block_storage_size_in_gbs=50
    )
    jobs = [
        root.create_job(
            CreateJobDetails(
                project_id=project,
                compartment_id=compartment,
                job_configuration_details=DefaultJobConfigurationDetails(),
                job_infrastructure_configuration_details=infrastructure,
            )
        ).data.id
        for compartment in (VISION, SOUND)
    ]
    started = CreateJobRunDetails(project_id=project, compartment_id=SOUND, job_id=jobs[0])
    run = root.create_job_run(started).data
    assert run.lifecycle_state == "FAILED", "the job has no code"
    with pytest.raises(ServiceError, match="1 of the job's job runs are in compartments") as used:
        anouk.delete_job(jobs[0])
    assert used.value.status == 409
    root.delete_job(jobs[0])
    assert root.get_job_run(run.id).data.lifecycle_state == "DELETED"
    with pytest.raises(ServiceError, match="The project has jobs") as used:
        anouk.delete_project(project)
    assert used.value.status == 409
    root.delete_job(jobs[1])
    anouk.delete_project(project)
