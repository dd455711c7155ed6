"""The command `oci`, as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from muster.spec.ocids import TENANCY
from support.oci_server import OciServer, module_server, needs_clients

# each command takes a second to start
pytestmark = [needs_clients, pytest.mark.slow]


@pytest.fixture(scope="module")
def oci(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciServer]:
    yield from module_server(tmp_path_factory)


def answer(oci: OciServer, *words: str) -> Any:
    """What a command prints."""
    text = oci.oci(*words).stdout
    return json.loads(text) if text.strip() else None


def test_a_job_from_create_to_delete(oci: OciServer) -> None:
    project = answer(
        *(oci, "data-science", "project", "create", "--compartment-id", TENANCY),
        *("--display-name", "by the command", "--wait-for-state", "ACTIVE"),
    )["data"]["id"]
    (oci.folder / "hello.py").write_text("import os, sys\nprint(os.environ['A'], sys.argv[1:])\n")
    group = answer(
        *(oci, "logging", "log-group", "create", "--compartment-id", TENANCY),
        *("--display-name", "command", "--wait-for-state", "SUCCEEDED"),
    )["data"]["resources"][0]["identifier"]
    job = answer(
        *(oci, "data-science", "job", "create", "--compartment-id", TENANCY),
        *("--project-id", project, "--display-name", "hello"),
        *("--configuration-details", json.dumps(configuration(A="job", B="job"))),
        *("--infrastructure-configuration-details", json.dumps(infrastructure())),
        *("--log-configuration-details", json.dumps(logging(group))),
        *("--wait-for-state", "ACTIVE"),
    )["data"]["id"]
    oci.oci(
        *("data-science", "job", "create-job-artifact", "--job-id", job),
        *("--job-artifact-file", "hello.py"),
        *("--content-disposition", "attachment; filename=hello.py"),
    )
    copy = oci.folder / "copy.py"
    oci.oci(*("data-science", "job", "get-artifact-content", "--job-id", job, "--file", str(copy)))
    assert copy.read_text() == (oci.folder / "hello.py").read_text()
    run = answer(
        *(oci, "data-science", "job-run", "create", "--compartment-id", TENANCY),
        *("--project-id", project, "--job-id", job, "--display-name", "first"),
        *("--configuration-override-details", json.dumps(configuration(A="run"))),
        *("--wait-for-state", "SUCCEEDED", "--wait-interval-seconds", "1"),
    )["data"]
    assert run["lifecycle-state"] == "SUCCEEDED"
    listed = answer(
        *(oci, "data-science", "job-run", "list", "--compartment-id", TENANCY, "--all"),
        *("--job-id", job),
    )["data"]
    assert [one["id"] for one in listed] == [run["id"]]
    found = answer(
        *(oci, "logging-search", "search-logs", "--time-start", "2026-01-01T00:00:00Z"),
        *("--time-end", "2026-01-02T00:00:00Z", "--search-query", query(run)),
    )["data"]
    assert found["results"] == [], "of another time"
    start, end = run["time-accepted"], run["time-finished"]
    found = answer(
        *(oci, "logging-search", "search-logs", "--time-start", start, "--time-end", end),
        *("--search-query", query(run)),
    )["data"]
    messages = [one["data"]["logContent"]["data"]["message"] for one in found["results"]]
    assert messages == ["run ['--x', 'a b']"]
    deleted = answer(
        *(oci, "data-science", "job", "delete", "--job-id", job, "--force"),
        *("--wait-for-state", "SUCCEEDED"),
    )["data"]
    assert (deleted["operation-type"], deleted["status"]) == ("JOB_DELETE", "SUCCEEDED")
    got = answer(oci, "data-science", "job", "get", "--job-id", job)["data"]
    assert got["lifecycle-state"] == "DELETED"


def query(run: dict[str, Any]) -> str:
    log = run["log-details"]
    place = f"{TENANCY}/{log['log-group-id']}/{log['log-id']}"
    return f"search \"{place}\" | where source = '*{run['id']}' | sort by datetime desc"


def configuration(**variables: str) -> dict[str, Any]:
    return {
        "jobType": "DEFAULT",
        "environmentVariables": variables,
        "commandLineArguments": "--x 'a b'",
    }


def infrastructure() -> dict[str, Any]:
    return {
        "jobInfrastructureType": "ME_STANDALONE",
        "shapeName": "VM.Standard.E4.Flex",
        "blockStorageSizeInGBs": 50,
        "jobShapeConfigDetails": {"ocpus": 1, "memoryInGBs": 4},
    }


def logging(group: str) -> dict[str, Any]:
    return {"enableLogging": True, "enableAutoLogCreation": True, "logGroupId": group}


def test_cancel(oci: OciServer) -> None:
    run = oci.start(oci.create_job("import time\ntime.sleep(600)"))
    oci.oci("data-science", "job-run", "cancel", "--job-run-id", run.id)
    assert oci.wait(run).lifecycle_state == "CANCELED"
    oci.oci("data-science", "job-run", "delete", "--job-run-id", run.id, "--force")
    got = answer(oci, "data-science", "job-run", "get", "--job-run-id", run.id)["data"]
    assert got["lifecycle-state"] == "DELETED"


def test_an_error_is_told(oci: OciServer) -> None:
    done = oci.oci(
        *("data-science", "job", "get", "--job-id", "ocid1.datasciencejob.muster.local..none"),
        check=False,
    )
    assert done.returncode == 1
    assert '"code": "NotAuthorizedOrNotFound"' in done.stderr
    assert '"opc-request-id"' in done.stderr


def test_policies_groups_and_compartments(oci: OciServer) -> None:
    about = ("--description", "by the command")
    statements = json.dumps(["Allow group readers to read buckets in tenancy"])
    root = ("--compartment-id", TENANCY)
    made = answer(
        *(oci, "iam", "policy", "create", *root, "--name", "ours", *about),
        *("--statements", statements),
    )
    assert made["data"]["statements"] == json.loads(statements)
    listed = answer(oci, "iam", "policy", "list", *root, "--name", "ours")["data"]
    assert listed == [made["data"]]
    more = json.dumps(["Allow group readers to manage buckets in tenancy"])
    one = ("--policy-id", made["data"]["id"])
    changed = answer(
        *(oci, "iam", "policy", "update", *one, "--statements", more, "--version-date", ""),
        *("--if-match", made["etag"], "--force"),
    )
    assert changed["data"]["statements"] == json.loads(more)
    answer(oci, "iam", "policy", "delete", *one, "--force")
    group = answer(oci, "iam", "group", "create", "--name", "readers", *about)["data"]
    assert group["compartment-id"] == TENANCY
    rule = "resource.type = 'datasciencejobrun'"
    dynamic = answer(
        *(oci, "iam", "dynamic-group", "create", "--name", "runs", *about),
        *("--matching-rule", rule),
    )["data"]
    assert dynamic["matching-rule"] == rule
    compartment = answer(
        *(oci, "iam", "compartment", "create", *root, "--name", "inner", *about),
        *("--wait-for-state", "ACTIVE"),
    )["data"]
    answer(
        *(oci, "iam", "compartment", "delete", "--compartment-id", compartment["id"], "--force"),
        *("--wait-for-state", "SUCCEEDED"),
    )
