"""What `muster iam suggest` prints is what a job needs: with its statements the job succeeds, and
without any one of them somebody reads which one is missing."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from oci.data_science import DataScienceClient
from oci.data_science.models import CreateJobRunDetails, CreateProjectDetails
from oci.exceptions import ServiceError
from oci.logging import LoggingManagementClient
from oci.logging.models import CreateLogGroupDetails
from oci.loggingsearch import LogSearchClient
from oci.loggingsearch.models import SearchLogsDetails
from oci.object_storage import ObjectStorageClient
from oci.object_storage.models import CreateBucketDetails

from support import podman_service
from support.command import muster
from support.faults import until
from support.image_registry import image_registry
from support.installed_engines import install_engine
from support.oci_teams import VISION, OciTeams, oci_teams

#: A job with what policies decide about: a secret, a bucket that it reads, one that it writes to,
#: output and kept files.
JOB = """
name: train
command: |
  sh -ec 'cat "$MUSTER_MOUNT_IN/a.txt"; echo "secret of ${#TOKEN}";
  echo kept > "$MUSTER_OUTPUTS/kept"; echo "$NODE_RANK" > "$MUSTER_MOUNT_RESULTS/$NODE_RANK"'
node_groups:
  - {name: workers, nodes: 2, node_env: {TOKEN: "${secret.hf-token}"}}
mounts:
  - {source: "oci://data@muster/in", read_only: true}
  - {source: "oci://out@muster/results"}
"""
FOR_USERS, FOR_RUNS = "Allow group", "Allow dynamic-group"


class World:
    """A server whose runs may do nothing by default. root administers it; nora has no role, and is
    in the groups of jobs. Commands are typed in a folder."""

    def __init__(self, oci: OciTeams, folder: Path) -> None:
        self.oci, self.folder = oci, folder
        self._tokens = {user: oci.teams.token(user) for user in ("root", "nora")}

    def type(self, user: str, *words: str, code: int | None = 0, **options: Any) -> str:
        """What a command prints."""
        address = {"MUSTER_URL": self.oci.url, "MUSTER_PROJECT": "vision"}
        environ = {**os.environ, **address, "MUSTER_TOKEN": self._tokens[user]}
        done = muster(*words, env=environ, cwd=self.folder, timeout=100, **options)
        assert code is None or done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return f"{done.stdout}{done.stderr}"

    def suggest(self, name: str, text: str) -> list[str]:
        """Write a file, and do what `suggest` says about it. The statements."""
        (self.folder / name).write_text(text)
        policy = self.type("root", "iam", "suggest", name)
        (self.folder / f"{name}.policy").write_text(policy)
        lines = policy.splitlines()
        commands = [shlex.split(one[1:]) for one in lines if one.startswith("#     muster iam ")]
        for words in commands:
            self.type("root", *words[1:])
        self.type("root", "iam", "groups", "add", commands[0][-1], "nora")
        self.type("root", "iam", "policies", "create", name, "--file", f"{name}.policy")
        return [line for line in lines if line.startswith("Allow ")]

    def allow(self, name: str, statements: Iterable[str]) -> None:
        """Have the policy that `suggest` has made consist of these statements."""
        backend = self.oci.teams.backend
        found = next(one for one in backend.store.policies.policies() if one.name == name)
        given = tuple(statements)
        changed = replace(found, statements=given, updated_by="root", updated_at=1.0)
        backend.store.policies.change_policy(found, changed)
        backend.policies_changed()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with oci_teams() as oci:
        made = World(oci, tmp_path_factory.mktemp("typed"))
        storage = oci.client(ObjectStorageClient, "root")
        for name in ("data", "out"):
            storage.create_bucket("muster", CreateBucketDetails(name=name, compartment_id=VISION))
        storage.put_object("muster", "data", "in/a.txt", b"what the nodes read\n")
        made.type("root", "secrets", "set", "hf-token", input="hunter2-4711")
        made.type("root", "iam", "policies", "delete", "job-runs", "--yes")
        yield made
        storage.base_client.session.close()


def test_a_job_of_two_nodes(world: World) -> None:
    (world.folder / "other.yaml").write_text("{name: other, command: echo other}")
    world.type("root", "jobs", "create", "other.yaml")
    statements = world.suggest("job.yaml", JOB)
    assert len([one for one in statements if one.startswith(FOR_USERS)]) == 3
    assert len([one for one in statements if one.startswith(FOR_RUNS)]) == 3
    said = world.type("nora", "run", "job.yaml")
    assert said.count("what the nodes read") == said.count("secret of 12") == 2
    assert "kept" in world.type("nora", "outputs", "last")
    assert_jobs_of_others_are_safe(world)
    for one in statements:
        world.allow("job.yaml", (other for other in statements if other != one))
        said = world.type("nora", "run", "job.yaml", code=None)
        assert f": {one}\n" in said, said
        assert "SUCCEEDED" not in said
    world.type("root", "iam", "policies", "delete", "job.yaml", "--yes")


def assert_jobs_of_others_are_safe(world: World) -> None:
    """Who has the statements neither sees, changes, starts nor deletes a job of somebody else."""
    for words in (
        ("jobs", "show", "other"),
        ("jobs", "edit", "other", "--set", "description=mine"),
        ("jobs", "delete", "--yes", "other"),
        ("run", "other"),
    ):
        assert "nora may not" in world.type("nora", *words, code=None), words
    assert "other" not in world.type("nora", "jobs", "list")
    assert "other" in world.type("root", "jobs", "list")


@pytest.mark.slow
def test_an_image_that_is_pulled(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run pulls as itself: on the engine `container`, the one that pulls."""
    install_engine("container", world.oci.teams.backend.home.root, tmp_path, monkeypatch)
    address = podman_service.shared_podman().registry
    image = "{}:{}/vision/train:1".format(*address)
    job = f"{{name: inside, engine: container, image: '{image}', command: echo it runs}}"
    with image_registry(address) as asked:
        statements = world.suggest("image.yaml", job)
        (needed,) = (one for one in statements if one.startswith(FOR_RUNS))
        assert "to read repos in" in needed
        world.allow("image.yaml", (one for one in statements if one != needed))
        said = world.type("nora", "run", "image.yaml", code=1)
        assert f"image {image} cannot be used: run " in said
        assert f": {needed} (" in said, said
        assert asked == []
        world.allow("image.yaml", statements)
        assert "it runs" in world.type("nora", "run", "image.yaml")
        assert [path for path in asked if "/blobs/" in path]
        world.allow("image.yaml", (one for one in statements if one != needed))
        said = world.type("nora", "run", "image.yaml", code=1)
        assert f": {needed} (" in said, "though it was pulled before"


JOB_OF_OCI: dict[str, Any] = {
    "displayName": "digits",
    "jobConfigurationDetails": {"jobType": "DEFAULT"},
    "jobInfrastructureConfigurationDetails": {
        "jobInfrastructureType": "ME_STANDALONE",
        "shapeName": "VM.Standard.E4.Flex",
        "blockStorageSizeInGBs": 50,
        "jobShapeConfigDetails": {"ocpus": 1, "memoryInGBs": 1},
    },
    "jobStorageMountConfigurationDetailsList": [
        {
            "storageType": "OBJECT_STORAGE",
            "destinationDirectoryName": "data",
            "namespace": "muster",
            "bucket": "out",
        }
    ],
}


@pytest.mark.slow
def test_a_job_of_the_oci_api(world: World) -> None:
    """Its client is told that there is nothing: the server's log says what is missing."""
    science = world.oci.client(DataScienceClient, "root")
    logging = world.oci.client(LoggingManagementClient, "root")
    details = CreateProjectDetails(compartment_id=VISION, display_name="digits")
    project = science.create_project(details).data.id
    made = logging.create_log_group(
        CreateLogGroupDetails(compartment_id=VISION, display_name="runs")
    )
    work = logging.get_work_request(made.headers["opc-work-request-id"]).data
    group = work.resources[0].identifier
    given = {"projectId": project, "compartmentId": VISION, **JOB_OF_OCI}
    given["jobLogConfigurationDetails"] = {
        "enableLogging": True,
        "enableAutoLogCreation": True,
        "logGroupId": group,
    }
    statements = world.suggest("digits.json", json.dumps(given))
    client = world.oci.client(DataScienceClient, "nora")
    search = world.oci.client(LogSearchClient, "nora")

    def run() -> str:
        job = client.base_client.call_api(
            "/jobs",
            "POST",
            {"content-type": "application/json"},
            body=json.dumps(given),
            response_type="Job",
        )
        client.create_job_artifact(
            job.data.id, b"print('done')", content_disposition="attachment; filename=main.py"
        )
        started = client.create_job_run(
            CreateJobRunDetails(project_id=project, compartment_id=VISION, job_id=job.data.id)
        ).data
        found: list[Any] = []

        def has_ended() -> bool:
            found[:] = [client.get_job_run(started.id).data]
            return found[0].lifecycle_state in ("SUCCEEDED", "FAILED")

        until(has_ended, "the job run has ended", 60)
        now, day = datetime.now(UTC), timedelta(days=1)
        query = SearchLogsDetails(
            time_start=now - day,
            time_end=now + day,
            search_query=f'search "{VISION}/{group}/{started.log_details.log_id}"',
        )
        if found[0].lifecycle_state == "SUCCEEDED":
            assert "done" in str(search.search_logs(query).data.results)
        return f"{found[0].lifecycle_state} {found[0].lifecycle_details}\n"

    assert run().startswith("SUCCEEDED")
    for one in statements:
        world.allow("digits.json", (other for other in statements if other != one))
        assert f": {one}\n" in _failure(world, run), one
    for each in (science, logging, client, search):
        each.base_client.session.close()


def _failure(world: World, run: Callable[[], str]) -> str:
    """How a run of a job fails: what the server's log says if its client is refused."""
    before = len(world.oci.teams.log.getvalue())
    try:
        said = run()
    except ServiceError as error:
        assert error.status == 404, error
        lines = world.oci.teams.log.getvalue()[before:].splitlines()
        return "".join(f"{json.loads(line)['message']}\n" for line in lines)
    return said
