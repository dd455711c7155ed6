"""Job runs, by OCI's SDK."""

from __future__ import annotations

import io
import json
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oci as oci_sdk
import pytest

from muster.server.settings import OciSettings
from muster.spec.ocids import TENANCY
from support.oci_server import OciServer, module_server

models = oci_sdk.data_science.models
ServiceError = oci_sdk.exceptions.ServiceError

#: Prints variables and arguments.
SHOW = """
import json, os, sys
print(json.dumps({"env": dict(os.environ), "argv": sys.argv[1:], "cwd": os.getcwd()}))
"""
#: Runs until it is killed.
ENDLESS = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(60)\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that stands for a conda environment."""
    folder = tmp_path_factory.mktemp("conda") / "pytorch_v1"
    venv.create(folder, symlinks=True)
    return folder


@pytest.fixture(scope="module")
def oci(tmp_path_factory: pytest.TempPathFactory, environment: Path) -> Iterator[OciServer]:
    conda = {"pytorch_v1": str(environment / "bin" / "python")}
    yield from module_server(tmp_path_factory, oci=OciSettings(conda=conda))


def configuration(*args: str, **env: str) -> Any:
    return models.DefaultJobConfigurationDetails(
        environment_variables=env, command_line_arguments=" ".join(args) or None
    )


def seen(oci: OciServer, run: Any) -> Any:
    assert run.lifecycle_state == "SUCCEEDED", run
    return json.loads(oci.output(run))


def refusal(call: Any, *args: Any, **given: Any) -> tuple[int, str]:
    with pytest.raises(ServiceError) as caught:
        call(*args, **given)
    return caught.value.status, caught.value.code


def test_a_run_has_the_variables_of_the_service(oci: OciServer) -> None:
    job = oci.create_job(SHOW, name="show.py")
    run = oci.wait(oci.start(job))
    env = seen(oci, run)["env"]
    expected = {
        "TENANCY_OCID": TENANCY,
        "PROJECT_OCID": oci.project,
        "PROJECT_COMPARTMENT_OCID": TENANCY,
        "JOB_OCID": job.id,
        "JOB_COMPARTMENT_OCID": TENANCY,
        "JOB_ARTIFACT_FILE_NAME": "show.py",
        "JOB_RUN_OCID": run.id,
        "JOB_RUN_COMPARTMENT_OCID": TENANCY,
        "FQDN": "node-0",
    }
    assert {name: env.get(name) for name in expected} == expected


def test_overrides_of_a_run(oci: OciServer) -> None:
    job = oci.create_job(
        SHOW, job_configuration_details=configuration("of job", A="job", B="job", JOB_OCID="mine")
    )
    given = configuration("'of run'", "x", B="run", C="run")
    run = oci.wait(oci.start(job, job_configuration_override_details=given))
    found = seen(oci, run)
    assert {name: found["env"].get(name) for name in "ABC"} == {"A": "job", "B": "run", "C": "run"}
    assert found["env"]["JOB_OCID"] == job.id, "the service's variables win"
    assert found["argv"] == ["of run", "x"], "replaced, and split as a shell does"
    kept = oci.wait(oci.start(job))
    assert seen(oci, kept)["argv"] == ["of", "job"]


def test_variables_of_a_cluster_are_the_jobs_own_on_one_node(oci: OciServer) -> None:
    """ADS distributes programs over several job runs, and numbers them itself."""
    given = {"NODE_RANK": "1", "NODE_COUNT": "2", "RANK": "1", "WORLD_SIZE": "2"}
    run = oci.run(SHOW, job_configuration_details=configuration(**given))
    env = seen(oci, run)["env"]
    assert {name: env[name] for name in given} == given


def test_states_and_times(oci: OciServer) -> None:
    run = oci.run("print('done')")
    assert run.lifecycle_state == "SUCCEEDED"
    assert run.time_accepted <= run.time_started <= run.time_finished


@pytest.mark.parametrize("code", [1, 7, 255])
def test_the_details_of_a_failure_have_the_exit_code(oci: OciServer, code: int) -> None:
    run = oci.run(f"import sys; print('x\\ny', file=sys.stderr); sys.exit({code})")
    assert run.lifecycle_state == "FAILED"
    start = f"Job run artifact execution failed with exit code {code}."
    assert run.lifecycle_details.startswith(start)
    assert "\n" not in run.lifecycle_details


def test_a_shell_script(oci: OciServer) -> None:
    run = oci.wait(
        oci.start(
            oci.create_job(
                'echo "$GREETING $1"; exit 3',
                name="greet.sh",
                job_configuration_details=configuration("Ana", GREETING="hello"),
            )
        )
    )
    assert oci.output(run) == "hello Ana\n"
    assert "exit code 3" in run.lifecycle_details


FILES = {"main.py": "import helper, sys; helper.hello(sys.argv)", "data/x.txt": "x"}
HELPER = "def hello(args): print('hello', *args[1:], open({!r}).read())"


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
@pytest.mark.parametrize("root", ["", "digits/"], ids=["flat", "with a root folder"])
def test_archives_with_and_without_a_root_folder(oci: OciServer, root: str, kind: str) -> None:
    files = {root + name: text for name, text in FILES.items()}
    files[f"{root}helper.py"] = HELPER.format(f"{root}data/x.txt")
    job = oci.create_job(
        archive(kind, files),
        name=f"digits.{kind}",
        job_configuration_details=configuration("Ana", JOB_RUN_ENTRYPOINT=f"{root}main.py"),
    )
    run = oci.wait(oci.start(job))
    assert run.lifecycle_state == "SUCCEEDED", run.lifecycle_details
    assert oci.output(run) == "hello Ana x\n"


def archive(kind: str, files: dict[str, str]) -> bytes:
    made = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(made, "w") as out:
            for name, text in files.items():
                out.writestr(name, text)
    else:
        with tarfile.open(fileobj=made, mode="w:gz") as tar:
            for name, text in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(text.encode())
                tar.addfile(info, io.BytesIO(text.encode()))
    return made.getvalue()


def test_an_archive_without_an_entrypoint_fails(oci: OciServer) -> None:
    job = oci.create_job(archive("zip", FILES), name="digits.zip")
    run = oci.wait(oci.start(job))
    assert run.lifecycle_state == "FAILED"
    assert "JOB_RUN_ENTRYPOINT" in run.lifecycle_details


def test_an_archive_has_its_variables_in_a_file(oci: OciServer) -> None:
    files = {
        "work/main.py": "import os; print(os.environ['GREETING'], os.environ['WORDS'])",
        "work/jobruntime.yaml": "JOB_RUN_ENTRYPOINT: main.py\nGREETING: hi\nWORDS: 0123\n",
    }
    own = configuration(GREETING="hello")
    job = oci.create_job(
        archive("tar.gz", files), name="work.tar.gz", job_configuration_details=own
    )
    run = oci.wait(oci.start(job))
    assert run.lifecycle_state == "SUCCEEDED", run.lifecycle_details
    assert oci.output(run) == "hello 0123\n", "what the job sets comes first"


def test_a_file_of_variables_that_cannot_be_read_fails_the_run(oci: OciServer) -> None:
    files = {"main.py": "", "jobruntime.yaml": "JOB_RUN_ENTRYPOINT: main.py\nGREETING: [hi]\n"}
    run = oci.wait(oci.start(oci.create_job(archive("zip", files), name="work.zip")))
    assert run.lifecycle_state == "FAILED"
    assert "jobruntime.yaml:2: GREETING: has to be text" in run.lifecycle_details


def test_a_job_run_is_in_a_project_that_there_is(oci: OciServer) -> None:
    job = oci.create_job("print(1)")
    for project in (f"{oci.project[:-4]}0000", job.id):
        details = models.CreateJobRunDetails(
            project_id=project, compartment_id=TENANCY, job_id=job.id
        )
        refused = refusal(oci.science.create_job_run, details)
        assert refused == (404, "NotAuthorizedOrNotFound")


# Cancel and delete


def test_cancel_a_run_that_is_in_progress(oci: OciServer) -> None:
    run = oci.start(oci.create_job(ENDLESS))
    oci.wait(run, "IN_PROGRESS")
    assert refusal(oci.science.delete_job_run, run.id) == (409, "Conflict")
    assert oci.science.cancel_job_run(run.id).status == 202
    ended = oci.wait(run)
    assert ended.lifecycle_state == "CANCELED"
    assert ended.time_finished is not None
    assert oci.science.cancel_job_run(run.id).status == 202, "once more"


def test_cancel_a_run_that_is_accepted(oci: OciServer) -> None:
    run = oci.start(oci.create_job(ENDLESS))
    assert oci.science.cancel_job_run(run.id).status == 202
    assert oci.wait(run).lifecycle_state == "CANCELED"


def test_a_run_that_has_ended_cannot_be_canceled(oci: OciServer) -> None:
    run = oci.run("print(1)")
    assert refusal(oci.science.cancel_job_run, run.id) == (409, "Conflict")
    assert oci.science.delete_job_run(run.id).status == 204
    assert refusal(oci.science.cancel_job_run, run.id) == (409, "Conflict")


def test_a_deleted_run_stays_listed_and_can_be_deleted_again(oci: OciServer) -> None:
    job = oci.create_job("print(1)")
    run = oci.wait(oci.start(job))
    for _ in range(2):
        assert oci.science.delete_job_run(run.id).status == 204
    found = oci.science.get_job_run(run.id).data
    assert found.lifecycle_state == "DELETED"
    assert found.time_started == run.time_started
    listed = oci.science.list_job_runs(TENANCY, job_id=job.id).data
    assert [(one.id, one.lifecycle_state) for one in listed] == [(run.id, "DELETED")]
    none = oci.science.list_job_runs(TENANCY, job_id=job.id, lifecycle_state="SUCCEEDED").data
    assert none == []


def test_a_job_with_live_runs_is_not_deleted(oci: OciServer) -> None:
    job = oci.create_job(ENDLESS)
    run = oci.start(job)
    assert refusal(oci.science.delete_job, job.id) == (409, "Conflict")
    oci.science.cancel_job_run(run.id)
    oci.wait(run)
    tag = oci.science.get_job(job.id).headers["etag"]
    deleted = oci.science.delete_job(job.id, if_match=tag)
    request = oci.science.get_work_request(deleted.headers["opc-work-request-id"]).data
    assert (request.operation_type, request.status) == ("JOB_DELETE", "SUCCEEDED")
    assert [(one.action_type, one.identifier) for one in request.resources] == [("DELETED", job.id)]
    assert oci.science.get_job_run(run.id).data.lifecycle_state == "DELETED"
    assert refusal(oci.start, job) == (409, "Conflict")


@pytest.mark.slow
def test_a_run_that_is_too_long_is_canceled(oci: OciServer) -> None:
    given = models.DefaultJobConfigurationDetails(maximum_runtime_in_minutes=1)
    run = oci.start(oci.create_job(ENDLESS, job_configuration_details=given))
    ended = oci_sdk.wait_until(
        oci.science,
        oci.science.get_job_run(run.id),
        evaluate_response=lambda answer: answer.data.time_finished is not None,
        max_interval_seconds=1,
        max_wait_seconds=120,
    ).data
    assert ended.lifecycle_state == "CANCELED", ended


# Requests


def test_update_a_run(oci: OciServer) -> None:
    run = oci.run("print(1)")
    before = oci.science.get_job_run(run.id).headers["etag"]
    details = models.UpdateJobRunDetails(display_name="best", freeform_tags={"team": "vision"})
    found = oci.science.update_job_run(run.id, details, if_match=before)
    assert (found.data.display_name, found.data.freeform_tags) == ("best", {"team": "vision"})
    assert found.headers["etag"] != before
    stale = refusal(oci.science.update_job_run, run.id, details, if_match=before)
    assert stale == (412, "NoEtagMatch")
    kept = oci.science.update_job_run(run.id, models.UpdateJobRunDetails(display_name="better"))
    assert kept.data.freeform_tags == {"team": "vision"}, "what is not given stays"


def test_a_retry_token_starts_one_run(oci: OciServer) -> None:
    job = oci.create_job("print(1)")
    details = models.CreateJobRunDetails(
        project_id=oci.project, compartment_id=TENANCY, job_id=job.id, display_name="once"
    )
    made = {oci.science.create_job_run(details, opc_retry_token="again").data.id for _ in range(3)}
    assert len(made) == 1
    details.display_name = "another"
    other = refusal(oci.science.create_job_run, details, opc_retry_token="again")
    assert other == (409, "InvalidatedRetryToken")
    assert len(oci.science.list_job_runs(TENANCY, job_id=job.id).data) == 1


# Conda environments


@pytest.mark.parametrize(
    "given",
    [
        {"CONDA_ENV_TYPE": "service", "CONDA_ENV_SLUG": "pytorch_v1"},
        {"CONDA_ENV_TYPE": "published", "CONDA_ENV_OBJECT_NAME": "conda/cpu/pytorch_v1"},
    ],
    ids=["service", "published"],
)
def test_a_conda_environment(oci: OciServer, environment: Path, given: dict[str, str]) -> None:
    program = "import os, sys; print(sys.prefix, os.environ['CONDA_PREFIX'])"
    run = oci.run(program, job_configuration_details=configuration(**given))
    assert oci.output(run) == f"{environment} {environment}\n", run.lifecycle_details


def test_programs_of_a_conda_environment_are_found(oci: OciServer, environment: Path) -> None:
    given = configuration(CONDA_ENV_TYPE="service", CONDA_ENV_SLUG="pytorch_v1")
    job = oci.create_job("command -v python", name="job.sh", job_configuration_details=given)
    assert oci.output(oci.wait(oci.start(job))) == f"{environment}/bin/python\n"


def test_an_unknown_conda_environment(oci: OciServer) -> None:
    given = configuration(CONDA_ENV_TYPE="service", CONDA_ENV_SLUG="tensorflow_v9")
    run = oci.run("print(1)", job_configuration_details=given)
    assert run.lifecycle_state == "FAILED"
    assert "there is no conda environment 'tensorflow_v9' here" in run.lifecycle_details
    assert "[oci.conda]" in run.lifecycle_details
    assert run.time_finished is not None
    assert run.time_started is None
