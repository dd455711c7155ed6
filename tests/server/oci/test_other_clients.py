"""Requests as OCI's SDKs for Java, Go and Ruby, and its Terraform provider, which is written with
the one for Go, make them. None of them is on the package registries that tests use, so requests of
their form are signed here: the order of the signed headers, what JSON leaves out or sends as null,
and how bodies are sent."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from email.utils import formatdate
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from msgspec import Struct

from support.faults import until
from support.keys import private_key
from support.oci_teams import USERS, VISION, OciTeams, config_of


class Form(Struct, frozen=True):
    """How an SDK makes requests."""

    #: The signed headers of every request, and those of a body, in their order.
    signed: Sequence[str]
    of_body: Sequence[str]
    #: The order and the spelling of the parameters of Authorization.
    parameters: Sequence[str]
    #: Sent with each request.
    headers: Mapping[str, str]
    #: Whether fields without a value are sent as null.
    nulls: bool = False
    #: Whether an artifact is sent in chunks, without a length.
    chunked: bool = False


_LAST = ("x-content-sha256", "content-type", "content-length")
FORMS = {
    "java": Form(
        ("date", "(request-target)", "host"),
        ("content-length", "content-type", "x-content-sha256"),
        ("headers", "keyId", "algorithm", "signature", "version"),
        {"accept": "application/json", "opc-client-retries": "true"},
        chunked=True,
    ),
    "go": Form(
        ("date", "(request-target)", "host"),
        ("content-length", "content-type", "x-content-sha256"),
        ("version", "headers", "keyId", "algorithm", "signature"),
        {"accept": "*/*", "opc-client-info": "Oracle-GoSDK/65.0.0"},
    ),
    "terraform": Form(
        ("date", "(request-target)", "host"),
        ("content-length", "content-type", "x-content-sha256"),
        ("version", "headers", "keyId", "algorithm", "signature"),
        {"accept": "*/*", "user-agent": "Oracle-GoSDK/65.0.0 Oracle-TerraformProvider/6.0.0"},
        nulls=True,
    ),
    "ruby": Form(
        ("date", "(request-target)", "host"),
        _LAST,
        ("headers", "keyId", "algorithm", "version", "signature"),
        {"accept": "application/json"},
    ),
    "with-x-date": Form(
        ("(request-target)", "host", "x-date"), _LAST, ("keyId", "headers", "algorithm"), {}
    ),
}


class Client:
    """Sends requests in one form, as a user."""

    def __init__(self, oci: OciTeams, form: Form, user: str) -> None:
        self._port, self._form, self._user = oci.teams.port, form, user

    def send(
        self, verb: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, Mapping[str, str]]:
        """The status of the answer, its JSON, and its headers. body: bytes are not signed."""
        form, raw = self._form, isinstance(body, bytes)
        sent = {"host": f"127.0.0.1:{self._port}", **form.headers}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent["x-date" if "x-date" in form.signed else "date"] = formatdate(usegmt=True)
        names = [*form.signed]
        data = body if raw else json.dumps(body).encode() if body is not None else b""
        if raw:
            sent["content-type"] = "application/octet-stream"
        elif verb in ("POST", "PUT"):
            digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
            sent |= {"content-type": "application/json", "x-content-sha256": digest}
            sent["content-length"] = str(len(data))
            names += form.of_body
        sent["authorization"] = self._authorization(verb, path, names, sent)
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, 30)) as connection:
            content = iter([data[:5], data[5:]]) if raw and form.chunked else data or None
            chunks = raw and form.chunked
            connection.request(verb, path, content, sent, encode_chunked=chunks)
            answer = connection.getresponse()
            text = answer.read()
            found = {name.lower(): value for name, value in answer.headers.items()}
            return answer.status, json.loads(text) if text else None, found

    def _authorization(
        self, verb: str, path: str, names: Sequence[str], sent: Mapping[str, str]
    ) -> str:
        values = {**sent, "(request-target)": f"{verb.lower()} {path}"}
        text = "\n".join(f"{name}: {values[name]}" for name in names)
        key = private_key(USERS.index(self._user))
        config = config_of(self._user)
        found = {
            "version": "1",
            "algorithm": "rsa-sha256",
            "headers": " ".join(names),
            "keyId": f"{config['tenancy']}/{config['user']}/{config['fingerprint']}",
            "signature": base64.b64encode(key.sign(text.encode(), PKCS1v15(), SHA256())).decode(),
        }
        order = [
            *self._form.parameters,
            *(one for one in found if one not in self._form.parameters),
        ]
        return "Signature " + ",".join(f'{name}="{found[name]}"' for name in order)


@pytest.mark.parametrize("name", FORMS)
def test_a_job_is_created_run_watched_and_deleted(oci: OciTeams, name: str) -> None:
    form = FORMS[name]
    client, data_science = Client(oci, form, "anouk"), "/20190101"
    empty: dict[str, Any] = {"description": None, "definedTags": None} if form.nulls else {}
    made = {"compartmentId": VISION, "displayName": name}
    status, project, _ = client.send(
        "POST", f"{data_science}/projects", made | empty, opc_retry_token=f"{name}-token"
    )
    assert status == 200, project
    again = client.send(
        "POST", f"{data_science}/projects", made | empty, opc_retry_token=f"{name}-token"
    )
    assert again[1]["id"] == project["id"]
    details = made | {
        "projectId": project["id"],
        "jobConfigurationDetails": {"jobType": "DEFAULT", "commandLineArguments": "--x 1"},
        "jobInfrastructureConfigurationDetails": {
            "jobInfrastructureType": "ME_STANDALONE",
            "shapeName": "VM.Standard.E4.Flex",
            "blockStorageSizeInGBs": 50,
            "jobShapeConfigDetails": {"ocpus": 1, "memoryInGBs": 1},
        },
    }
    if form.nulls:
        details |= {"jobLogConfigurationDetails": None, "jobEnvironmentConfigurationDetails": None}
    status, job, headers = client.send("POST", f"{data_science}/jobs", details | empty)
    assert (status, bool(headers["etag"])) == (200, True), job
    one = f"{data_science}/jobs/{job['id']}"
    program = b"import sys; sys.exit(0 if sys.argv[1:] == ['--x', '1'] else 1)"
    named = "attachment; filename=main.py"
    found = client.send("POST", f"{one}/artifact", program, content_disposition=named)
    assert found[0] == 204, found
    run_details = made | {"projectId": project["id"], "jobId": job["id"]}
    status, run, _ = client.send("POST", f"{data_science}/jobRuns", run_details)
    assert status == 200, run
    path = f"{data_science}/jobRuns/{run['id']}"
    until(lambda: client.send("GET", path)[1]["lifecycleState"] == "SUCCEEDED", "it succeeds")
    query = f"compartmentId={VISION}&jobId={job['id']}&limit=1&sortBy=timeCreated&sortOrder=DESC"
    listed = client.send("GET", f"{data_science}/jobRuns?{query}")[1]
    assert [each["id"] for each in listed] == [run["id"]]
    wrong = client.send("PUT", one, {"displayName": "x"}, if_match="another")
    assert (wrong[0], wrong[1]["code"]) == (412, "NoEtagMatch")
    status, _, headers = client.send("DELETE", f"{one}?deleteRelatedJobRuns=true")
    assert status == 202
    request = client.send("GET", f"{data_science}/workRequests/{headers['opc-work-request-id']}")
    assert request[1]["status"] == "SUCCEEDED"
    assert client.send("GET", path)[1]["lifecycleState"] == "DELETED"


class Terraform:
    """The requests of the provider's resources, and what it reads of the answers."""

    def __init__(self, oci: OciTeams) -> None:
        self._client = Client(oci, FORMS["terraform"], "anouk")

    def send(self, verb: str, path: str, body: Any = None, **headers: str) -> Any:
        """The JSON of an answer, or the status of one that has none."""
        status, found, _ = self._client.send(verb, path, body, **headers)
        assert status < 300, found
        return status if found is None else found

    def work(self, verb: str, path: str, body: Any, entity: str, action: str) -> str:
        """The OCID of the resource of a work request, which the provider waits for."""
        status, found, headers = self._client.send(verb, path, body)
        assert status < 300, found
        one = self.send("GET", f"{_LOGGING}/workRequests/{headers['opc-work-request-id']}")
        assert one["status"] == "SUCCEEDED"
        (resource,) = one["resources"]
        assert (resource["entityType"], resource["actionType"]) == (entity, action)
        return str(resource["identifier"])

    def state(self, path: str) -> str:
        """The state that the provider waits for after it has deleted a resource."""
        status, found, _ = self._client.send("GET", path)
        return "gone" if status == 404 else str(found["lifecycleState"])


_SCIENCE, _LOGGING = "/20190101", "/20200531"


@pytest.fixture
def terraform(oci: OciTeams) -> Terraform:
    return Terraform(oci)


def test_resources_of_data_science_in_terraform(terraform: Terraform) -> None:
    labels = {"definedTags": {}, "freeformTags": {"by": "terraform"}, "description": "d"}
    made = {"compartmentId": VISION, "displayName": "tf", **labels}
    project = terraform.send("POST", f"{_SCIENCE}/projects", made)
    in_place = {**labels, "displayName": "tf-2", "freeformTags": {}}
    path = f"{_SCIENCE}/projects/{project['id']}"
    assert terraform.send("PUT", path, in_place)["displayName"] == "tf-2"
    infrastructure = {
        "jobInfrastructureType": "ME_STANDALONE",
        "shapeName": "VM.Standard.E4.Flex",
        "blockStorageSizeInGBs": 50,
        "jobShapeConfigDetails": {"memoryInGBs": 1, "ocpus": 1},
    }
    job = terraform.send(
        *("POST", f"{_SCIENCE}/jobs"),
        {
            **made,
            "projectId": project["id"],
            "jobConfigurationDetails": {
                "jobType": "DEFAULT",
                "environmentVariables": {"A": "1"},
                "maximumRuntimeInMinutes": "10",
            },
            "jobInfrastructureConfigurationDetails": infrastructure,
            "jobEnvironmentConfigurationDetails": None,
            "jobLogConfigurationDetails": {
                "enableAutoLogCreation": False,
                "enableLogging": False,
                "logGroupId": None,
                "logId": None,
            },
            "jobStorageMountConfigurationDetailsList": [],
        },
    )
    one = f"{_SCIENCE}/jobs/{job['id']}"
    named = "attachment; filename=main.py"
    terraform.send("POST", f"{one}/artifact", b"print('tf')", content_disposition=named)
    bigger = {**infrastructure, "blockStorageSizeInGBs": "100"}
    changes = {**in_place, "jobInfrastructureConfigurationDetails": bigger}
    changes["jobStorageMountConfigurationDetailsList"] = []
    updated = terraform.send("PUT", one, changes)
    assert updated["jobInfrastructureConfigurationDetails"]["blockStorageSizeInGBs"] == 100
    assert updated["jobConfigurationDetails"]["environmentVariables"] == {"A": "1"}
    assert terraform.send("GET", one) == updated

    run_details = {**made, "projectId": project["id"], "jobId": job["id"]}
    overrides = {"jobType": "DEFAULT", "environmentVariables": {"B": "2"}}
    run_details["jobConfigurationOverrideDetails"] = overrides
    run = terraform.send("POST", f"{_SCIENCE}/jobRuns", run_details)
    run_path = f"{_SCIENCE}/jobRuns/{run['id']}"
    until(lambda: terraform.state(run_path) == "SUCCEEDED", "it succeeds")
    renamed = terraform.send("PUT", run_path, {"displayName": "tf-run", "freeformTags": {}})
    assert renamed["displayName"] == "tf-run"
    assert terraform.send("DELETE", run_path) == 204
    assert terraform.state(run_path) == "DELETED"
    assert terraform.send("DELETE", f"{one}?deleteRelatedJobRuns=true") == 202
    assert terraform.state(one) == "DELETED"
    assert terraform.send("DELETE", path) == 202
    assert terraform.state(path) == "DELETED"


def test_resources_of_logging_in_terraform(terraform: Terraform) -> None:
    labels = {"definedTags": {}, "freeformTags": {}, "displayName": "tf-logs"}
    made = {**labels, "compartmentId": VISION, "description": "d"}
    group = terraform.work("POST", f"{_LOGGING}/logGroups", made, "loggroup", "CREATED")
    path = f"{_LOGGING}/logGroups/{group}"
    changes = {**labels, "description": "e"}
    assert terraform.work("PUT", path, changes, "loggroup", "UPDATED") == group
    assert terraform.send("GET", path)["description"] == "e"
    moved = f"{path}/actions/changeCompartment"
    terraform.work("POST", moved, {"compartmentId": VISION}, "loggroup", "RELATED")
    details = {**labels, "isEnabled": True, "logType": "CUSTOM", "retentionDuration": 30}
    log = terraform.work("POST", f"{path}/logs", details, "log", "CREATED")
    one = f"{path}/logs/{log}"
    changes = {**labels, "isEnabled": False, "retentionDuration": 60}
    assert terraform.work("PUT", one, changes, "log", "UPDATED") == log
    shown = terraform.send("GET", one)
    assert (shown["isEnabled"], shown["retentionDuration"]) == (False, 60)
    terraform.work("DELETE", one, None, "log", "DELETED")
    assert terraform.state(one) == "gone"
    terraform.work("DELETE", path, None, "loggroup", "DELETED")
    assert terraform.state(path) == "gone"
