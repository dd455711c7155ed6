"""Both APIs decide about the same resource by the same variables, and questions know them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Struct
from oci.data_science import DataScienceClient
from oci.data_science import models as ds
from oci.exceptions import ServiceError
from oci.logging import LoggingManagementClient
from oci.logging.models import CreateLogGroupDetails
from oci.loggingsearch import LogSearchClient
from oci.loggingsearch.models import SearchLogsDetails

from muster.api.policies import Question
from muster.caller import CREATED_BY
from muster.errors import InvalidInput
from muster.permissions import Permission
from muster.service.policies import EmbeddedPolicies
from muster.spec.ocids import ocid, user_ocid
from muster.store.account_records import AuditEntry, AuditFilter
from muster.store.records import RunFilter, RunSummary
from muster.store.resource_records import LOG_GROUP, ResourceFilter
from support.faults import until
from support.oci_teams import SOUND, VISION, OciTeams
from support.teams import Reply

TAG = "target.resource.tag.team.name"


class Made(Struct, frozen=True):
    """What anouk has made by the OCI API, and what is recorded for it."""

    server: OciTeams
    project: str
    job: str
    job_run: str
    group: str
    log: str
    run: RunSummary

    @property
    def job_id(self) -> str:
        """Muster's Job that is recorded for the job."""
        return self.run.job_id

    def ask(self, verb: str, path: str, user: str, project: str = "vision") -> Reply:
        """A request to Muster's own API."""
        teams = self.server.teams
        headers = {"Muster-Project": project}
        return teams.request(verb, f"/v1{path}", teams.token(user), headers=headers)

    def refused(self) -> AuditEntry:
        """The last entry of the audit log, which is a refusal."""
        entry = self.server.teams.backend.store.audit.listing(AuditFilter(limit=1))[0]
        assert not entry.allowed
        return entry


@pytest.fixture(scope="module")
def made(oci: OciTeams) -> Iterator[Made]:
    client = oci.client(DataScienceClient)
    project = client.create_project(
        ds.CreateProjectDetails(compartment_id=VISION, display_name="p")
    ).data.id
    logs = oci.client(LoggingManagementClient)
    logs.create_log_group(CreateLogGroupDetails(compartment_id=VISION, display_name="g"))
    chosen = ResourceFilter(LOG_GROUP, "vision")
    (group,) = oci.teams.backend.store.resources.listing(chosen)
    job = client.create_job(
        ds.CreateJobDetails(
            project_id=project,
            compartment_id=VISION,
            display_name="Train it",
            defined_tags={"team": {"name": "of-the-job"}},
            job_configuration_details=ds.DefaultJobConfigurationDetails(),
            job_infrastructure_configuration_details=(
                ds.ManagedEgressStandaloneJobInfrastructureConfigurationDetails(
                    shape_name="VM.Standard.E4.Flex",
                    block_storage_size_in_gbs=50,
                    job_shape_config_details=ds.JobShapeConfigDetails(ocpus=1, memory_in_gbs=1),
                )
            ),
            job_log_configuration_details=ds.JobLogConfigurationDetails(
                enable_logging=True,
                enable_auto_log_creation=True,
                log_group_id=ocid(LOG_GROUP, group.id),
            ),
        )
    ).data.id
    name = "attachment; filename=main.py"
    client.create_job_artifact(job, b"print('hello')\n", content_disposition=name)
    sam = oci.client(DataScienceClient, "sam")
    run = sam.create_job_run(
        ds.CreateJobRunDetails(
            project_id=project,
            compartment_id=VISION,
            job_id=job,
            display_name="First try",
            defined_tags={"team": {"name": "of-the-run"}},
        )
    ).data
    done = ("SUCCEEDED", "FAILED")
    until(lambda: client.get_job_run(run.id).data.lifecycle_state in done, "the job run ends")
    assert client.get_job_run(run.id).data.lifecycle_state == "SUCCEEDED"
    (summary,) = oci.teams.api("anouk", "vision").runs(RunFilter())
    details = run.log_details
    yield Made(oci, project, job, run.id, details.log_group_id, details.log_id, summary)


@pytest.fixture(scope="module")
def local(made: Made) -> EmbeddedPolicies:
    """Policies, for the user of the machine. nora is in the group `guests`."""
    policies = EmbeddedPolicies(made.server.teams.backend)
    policies.create_group("guests")
    policies.add_to_group("guests", "nora")
    return policies


@pytest.fixture
def others(local: EmbeddedPolicies) -> Iterator[None]:
    """nora has rights to other resources: refusals say then what was asked for."""
    about = {
        "manage data-science-jobs": "job",
        "manage data-science-job-runs": "job-run",
        "read log-content": "log",
    }
    policy = local.create_policy(
        "others",
        [
            f"Allow group guests to {what} in compartment vision where target.{kind}.id = 'other'"
            for what, kind in about.items()
        ],
    )
    yield
    local.delete_policy(policy.id, policy.version)


def refusal(call: Any, *args: Any) -> None:
    with pytest.raises(ServiceError) as caught:
        call(*args)
    assert caught.value.status == 404


@pytest.mark.usefixtures("others")
def test_of_a_run(made: Made) -> None:
    refusal(made.server.client(DataScienceClient, "nora").delete_job_run, made.job_run)
    one = made.refused()
    assert made.ask("DELETE", f"/runs/{made.run.id}", "nora").status == 403
    other = made.refused()
    assert one.permission == other.permission == Permission.JOB_RUN_DELETE
    assert other.attributes == {
        "target.job-run.id": made.job_run,
        CREATED_BY: user_ocid("sam"),
        TAG: "of-the-run",
    }
    assert one.attributes == {**other.attributes, "request.operation": "DeleteJobRun"}


@pytest.mark.usefixtures("others")
def test_of_the_job_that_is_recorded_for_a_job(made: Made) -> None:
    refusal(made.server.client(DataScienceClient, "nora").delete_job, made.job)
    one = made.refused()
    assert made.ask("DELETE", f"/jobs/{made.job_id}", "nora").status == 403
    other = made.refused()
    assert one.permission == other.permission == Permission.JOB_DELETE
    assert other.attributes == {
        "target.job.id": made.job,
        "target.job.name": "Train it",
        CREATED_BY: user_ocid("anouk"),
        TAG: "of-the-job",
    }
    assert one.attributes == {**other.attributes, "request.operation": "DeleteJob"}


@pytest.mark.usefixtures("others")
def test_of_output(made: Made) -> None:
    now = datetime.now(UTC)
    search = SearchLogsDetails(
        time_start=now - timedelta(hours=1),
        time_end=now,
        search_query=f'search "{VISION}/{made.group}/{made.log}"',
    )
    refusal(made.server.client(LogSearchClient, "nora").search_logs, search)
    one = made.refused()
    assert made.ask("GET", f"/runs/{made.run.id}/log", "nora").status == 403
    other = made.refused()
    assert one.permission == other.permission == Permission.LOG_CONTENT_READ
    assert other.attributes == {
        "target.loggroup.id": made.group,
        "target.log.id": made.log,
        CREATED_BY: user_ocid("sam"),
    }
    assert one.attributes == {**other.attributes, "request.operation": "SearchLogs"}


def test_a_statement_about_the_oci_api_reaches_muster_s_own(
    made: Made, local: EmbeddedPolicies
) -> None:
    """By tags, by the OCID of the job, and by the log group; and lists show what it is about."""
    policy = local.create_policy(
        "own",
        [
            f"Allow group guests to read {what} in compartment vision where {condition}"
            for what, condition in (
                ("data-science-job-runs", "target.resource.tag.team.name = 'of-the-run'"),
                ("data-science-jobs", f"target.job.id = '{made.job}'"),
                ("log-content", f"target.loggroup.id = '{made.group}'"),
            )
        ],
    )
    # a submitter needs no more than the role gives
    spec = {"run": {"source": {"type": "spec", "spec": {"name": "x", "command": ["true"]}}}}
    teams = made.server.teams
    assert teams.request("POST", "/v1/runs", teams.token("sam"), spec).status == 201
    assert len(teams.api("anouk", "vision").runs(RunFilter())) >= 2
    assert [one["id"] for one in made.ask("GET", "/runs", "nora").json] == [made.run.id]
    assert [one["id"] for one in made.ask("GET", "/jobs", "nora").json] == [made.job_id]
    assert made.ask("GET", f"/jobs/{made.job_id}", "nora").status == 200
    assert made.ask("GET", f"/runs/{made.run.id}/log", "nora").status == 200
    local.delete_policy(policy.id, policy.version)
    assert made.ask("GET", "/runs", "nora").status == 403


def test_jobs_of_the_oci_api_share_no_job(made: Made) -> None:
    """What policies say of one of two jobs with the same content is about that one."""
    client = made.server.client(DataScienceClient)
    found = client.get_job(made.job).data
    names = (
        *("project_id", "compartment_id", "job_configuration_details"),
        *("job_infrastructure_configuration_details", "job_log_configuration_details"),
    )
    given = {name: getattr(found, name) for name in names}
    one, twin = (
        client.create_job(ds.CreateJobDetails(display_name="Twin", **given)).data.id
        for _ in range(2)
    )
    for job in (one, twin):
        name = "attachment; filename=main.py"
        client.create_job_artifact(job, b"print('hello')\n", content_disposition=name)
    api = made.server.teams.api("anouk", "vision")
    jobs = {}
    for job in (one, one, twin):
        details = ds.CreateJobRunDetails(project_id=made.project, compartment_id=VISION, job_id=job)
        run = made.server.client(DataScienceClient, "sam").create_job_run(details).data
        recorded = api.find_run(run.id.rpartition(".")[2]).job_id
        assert jobs.setdefault(job, recorded) == recorded
    assert jobs[one] != jobs[twin]


# Questions


def attributes(local: EmbeddedPolicies, on: str, compartment: str = "vision") -> Any:
    found = local.explain(Question("nora", "inspect", on, compartment))
    return found.compartment, dict(found.attributes)


def test_questions_find_what_the_oci_api_has_made(made: Made, local: EmbeddedPolicies) -> None:
    of_job = {
        "target.job.id": made.job,
        "target.job.name": "Train it",
        CREATED_BY: user_ocid("anouk"),
        TAG: "of-the-job",
    }
    for name in (made.job, "Train it", made.job_id, made.run.job_name):
        assert attributes(local, f"job:{name}") == ("vision", of_job), name
    of_run = {
        "target.job-run.id": made.job_run,
        CREATED_BY: user_ocid("sam"),
        TAG: "of-the-run",
    }
    for name in (made.job_run, "First try", made.run.id, made.run.name):
        assert attributes(local, f"run:{name}") == ("vision", of_run), name
    of_project = {"target.project.id": made.project, CREATED_BY: user_ocid("anouk")}
    for name in (made.project, "p"):
        assert attributes(local, f"project:{name}") == ("vision", of_project)
    of_group = {"target.loggroup.id": made.group, CREATED_BY: user_ocid("anouk")}
    for name in (made.group, "g"):
        assert attributes(local, f"log-group:{name}") == ("vision", of_group)
    for name in ("sound", "Sound", SOUND):
        assert attributes(local, f"compartment:{name}") == ("sound", {})
    assert attributes(local, "compartment:tenancy") == ("default", {})


def test_an_ocid_is_found_in_other_compartments(made: Made, local: EmbeddedPolicies) -> None:
    for on in (f"job:{made.job}", f"run:{made.job_run}", f"log-group:{made.group}"):
        assert attributes(local, on, "sound")[0] == "vision"
    own = ocid("datasciencejob", made.job_id)  # as Muster's own API knows it
    assert attributes(local, f"job:{own}", "sound")[1]["target.job.id"] == made.job


def test_what_others_have_is_as_what_does_not_exist(made: Made) -> None:
    """oscar administers `sound` alone."""
    backend = made.server.teams.backend
    caller = made.server.teams.caller(made.server.teams.token("oscar"), "sound")
    policies = EmbeddedPolicies(backend, caller)

    def answer(on: str, name: str) -> str:
        with pytest.raises(InvalidInput) as caught:
            policies.explain(Question("oscar", "inspect", f"{on}:{name}", "sound"))
        return str(caught.value).replace(name, "NAME")

    for on, there, missing in (
        ("job", made.job, ocid("datasciencejob", "none")),
        ("job", "Train it", "Train that"),
        ("run", made.job_run, ocid("datasciencejobrun", "none")),
        ("run", made.run.name, "train-9"),
        ("run", made.job, ocid("datasciencejob", "none")),
        ("node", made.job_run, ocid("datasciencejobrun", "none")),
        ("project", made.project, ocid("datascienceproject", "none")),
        ("log-group", made.group, ocid("loggroup", "none")),
        ("compartment", "vision", "nothing"),
        ("compartment", VISION, ocid("compartment", "none")),
        ("schedule", "nightly", "daily"),
        ("secret", "KEY", "TOKEN"),
        ("bucket", "data", "dates"),
    ):
        assert answer(on, there) == answer(on, missing)
