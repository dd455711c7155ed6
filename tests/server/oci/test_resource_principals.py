"""Programs of job runs that act as their run, with the SDK's own signer."""

from __future__ import annotations

import base64
import errno
import json
import os
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from msgspec import Struct
from msgspec.structs import replace
from oci.auth.signers import EphemeralResourcePrincipalSigner
from oci.data_science import DataScienceClient
from oci.exceptions import ServiceError
from oci.identity import IdentityClient
from oci.identity.models import CreateApiKeyDetails
from oci.object_storage import ObjectStorageClient
from oci.object_storage import models as storage
from oci.retry import NoneRetryStrategy

from muster import run_tokens
from muster.caller import CREATED_BY
from muster.iam.authority import authority_of_run
from muster.lifecycle.status import NodeRef
from muster.permissions import RIGHT_OF, Permission, Right
from muster.run_tokens import RunIdentity
from muster.server.oci.routes import all_routes
from muster.server.settings import OciSettings
from muster.signed_tokens import SignedTokens
from muster.spec.ocids import TENANCY, user_ocid
from muster.storage.home import RunDir
from muster.storage.token_seed import signed_tokens
from muster.store.account_records import AuditFilter
from support.command import MUSTER
from support.faults import until
from support.installed_engines import install_engine
from support.judged import judge_signers, only
from support.keys import public_pem
from support.oci_teams import SOUND, VISION, From, OciTeams, oci_teams
from support.server_thread import ONE_USER

#: Writes an object and lists job runs as OCI's code does in a job, and says what the run has. Then
#: it waits for a line in a FIFO.
PROGRAM = """
import json, os, sys, oci

signer = oci.auth.signers.get_resource_principals_signer()
given = {"signer": signer, "service_endpoint": os.environ["OCI_CLI_ENDPOINT"]}
objects = oci.object_storage.ObjectStorageClient({}, **given)
objects.put_object("muster", "data-of-anouk", "from-the-job", b"hello")
science = oci.data_science.DataScienceClient({}, **given)
runs = oci.pagination.list_call_get_all_results(
    science.list_job_runs, os.environ["JOB_RUN_COMPARTMENT_OCID"]
).data
names = ("RPST", "PRIVATE_PEM")
files = [os.environ["OCI_RESOURCE_PRINCIPAL_" + name] for name in names]
said = {
    "runs": [run.id for run in runs],
    "tenancy": signer.tenancy_id,
    "compartment": signer.compartment_id,
    "modes": [oct(os.stat(file).st_mode & 0o777) for file in files],
    "region": os.environ["OCI_RESOURCE_PRINCIPAL_REGION"],
}
sys.stdout.write(json.dumps(said) + chr(10))
sys.stdout.flush()
open(os.environ["GATE"]).read()
"""
#: Waits, and has the same credentials.
WAITS = """
print("{}", flush=True)
open(os.environ["GATE"]).read()
"""


class Running(Struct, frozen=True):
    """A job run whose program waits."""

    ocid: str
    folder: RunDir
    gate: Path
    said: dict[str, Any]

    @property
    def token(self) -> str:
        return (self.folder.principal / "0" / "rpst").read_text()

    @property
    def key(self) -> str:
        return (self.folder.principal / "0" / "key.pem").read_text()

    def signer(self, token: str = "", key: str = "") -> Any:
        """Signs as the job run, with a copy of its credentials; or with others."""
        return EphemeralResourcePrincipalSigner(
            session_token=token or self.token, private_key=key or self.key, region="us-ashburn-1"
        )

    def end(self) -> None:
        """Have the program end. A blocking open would wait forever if it has ended."""
        until(self._open_gate, "the program waits at its gate")

    def _open_gate(self) -> bool:
        try:
            os.close(os.open(self.gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            assert error.errno == errno.ENXIO, "nobody reads it yet"
            return False
        return True


def bucket_of(user: str) -> str:
    return f"data-of-{user}"


def start(server: OciTeams, gate: Path, program: str) -> Running:
    os.mkfifo(gate)
    program = f"import os\nos.environ['GATE'] = {str(gate)!r}\n" + program
    client, ocid = server.run_job(program)
    home = server.teams.backend.home
    run = home.run_dir(ocid.rpartition(".")[2])

    def output() -> str:
        state = client.get_job_run(ocid).data
        assert state.time_finished is None, (
            state.lifecycle_details,
            [e.read_text() for e in run.logs(0).glob("*.err")],
        )
        return "".join(one.read_text() for one in run.logs(0).glob("*-0.out"))

    until(lambda: output().endswith("\n"), "the program has written")
    return Running(ocid, run, gate, json.loads(output()))


@pytest.fixture(scope="module")
def oci() -> Iterator[OciTeams]:
    """A server whose users mount nothing of its own network, but its object storage."""
    file = replace(ONE_USER.file, allow_private_addresses=False)
    with oci_teams(replace(ONE_USER, file=file)) as made:
        for user, compartment in (("anouk", VISION), ("oscar", SOUND)):
            details = storage.CreateBucketDetails(name=bucket_of(user), compartment_id=compartment)
            made.client(ObjectStorageClient, user).create_bucket("muster", details)
        yield made


@pytest.fixture(scope="module")
def runs(oci: OciTeams, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Running]]:
    """Two job runs of anouk, who administers `vision`."""
    folder = tmp_path_factory.mktemp("gates")
    made = [start(oci, folder / "first", PROGRAM), start(oci, folder / "second", WAITS)]
    yield made
    client = oci.client(DataScienceClient, "anouk")

    def is_finished(run: Running) -> bool:
        return client.get_job_run(run.ocid).data.time_finished is not None

    for one in made:
        with suppress(ServiceError):  # it has ended
            client.cancel_job_run(one.ocid)
    until(lambda: all(map(is_finished, made)), "the job runs have ended")


def status(call: Callable[[], Any]) -> int:
    try:
        call()
    except ServiceError as error:
        return int(error.status)
    return 200


class As:
    """Clients that sign as a job run, or with something like it."""

    def __init__(self, server: OciTeams, signer: Any) -> None:
        self._given = {
            "signer": signer,
            "service_endpoint": server.url,
            "retry_strategy": NoneRetryStrategy(),
        }
        self.objects = ObjectStorageClient({}, **self._given)
        self.science = DataScienceClient({}, **self._given)
        self.identity = IdentityClient({}, **self._given)

    def lists(self, compartment: str = VISION) -> int:
        """The status of a list of job runs."""
        return status(lambda: self.science.list_job_runs(compartment))

    def puts(self, bucket: str = bucket_of("anouk")) -> int:
        """The status of an object that is put."""
        return status(lambda: self.objects.put_object("muster", bucket, "x", b"x"))


def test_a_program_acts_as_its_run(oci: OciTeams, runs: list[Running]) -> None:
    said = runs[0].said
    assert said["runs"] == [runs[0].ocid]
    assert (said["tenancy"], said["compartment"]) == (TENANCY, VISION)
    assert said["modes"] == ["0o600", "0o600"]
    assert said["region"] == "muster.invalid"
    client = oci.client(ObjectStorageClient, "anouk")
    stored = client.get_object("muster", bucket_of("anouk"), "from-the-job")
    assert stored.data.content == b"hello"


def test_nobody_else_sees_the_credentials(oci: OciTeams, runs: list[Running]) -> None:
    run = runs[0]
    assert stat.S_IMODE(run.folder.principal.stat().st_mode) == 0o700
    record = oci.teams.backend.store.runs.get(run.ocid.rpartition(".")[2])
    shown = oci.teams.api("anouk", "vision").run(record.id)
    logs = [file.read_bytes().decode("latin-1") for file in run.folder.logs(0).glob("*")]
    for text in (repr(record), repr(shown), oci.teams.log.getvalue(), *logs):
        assert "PRIVATE KEY" not in text
        assert run.token not in text


def test_a_run_stays_in_its_project(oci: OciTeams, runs: list[Running]) -> None:
    own = As(oci, runs[0].signer())
    assert (own.lists(), own.puts()) == (200, 200)
    assert (own.lists(SOUND), own.puts(bucket_of("oscar"))) == (404, 404)
    assert status(lambda: own.science.list_job_runs(TENANCY)) == 404


def test_a_run_does_not_all_that_its_user_may(oci: OciTeams, runs: list[Running]) -> None:
    """Anouk administers the project."""
    own, bucket = As(oci, runs[1].signer()), bucket_of("anouk")
    details = storage.CreateBucketDetails(name="another", compartment_id=VISION)
    assert status(lambda: own.objects.create_bucket("muster", details)) == 404
    assert status(lambda: own.objects.delete_bucket("muster", bucket)) == 404
    assert status(lambda: own.science.delete_job_run(runs[1].ocid)) == 404
    assert [user.name for user in own.identity.list_users(TENANCY).data] == ["anouk", "sam", "vera"]


def test_a_run_makes_nothing_that_outlasts_it(oci: OciTeams, runs: list[Running]) -> None:
    own = As(oci, runs[1].signer())
    link = storage.CreatePreauthenticatedRequestDetails(
        name="link", access_type="AnyObjectRead", time_expires="2100-01-01T00:00:00Z"
    )
    bucket = bucket_of("anouk")
    asked = status(lambda: own.objects.create_preauthenticated_request("muster", bucket, link))
    assert asked == 404
    reply = requests.post(
        f"{oci.url}/v1/authentication/refresh",
        headers={"content-type": "application/json"},
        data=json.dumps({"currentToken": runs[1].token}),
        auth=runs[1].signer(),
        timeout=30,
    )
    assert reply.status_code == 404
    key = CreateApiKeyDetails(key=public_pem(77))
    assert status(lambda: own.identity.upload_api_key(user_ocid("anouk"), key)) == 404
    told = oci.teams.log.getvalue()
    assert told.count("USER_UPDATE is missing") == 2
    assert "PAR_MANAGE is missing" in told


def test_a_run_makes_nothing_in_the_name_of_its_user_whatever_policies_say(
    oci: OciTeams, runs: list[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_signers(monkeypatch, only(frozenset(Permission)))
    own = As(oci, runs[1].signer())
    link = storage.CreatePreauthenticatedRequestDetails(
        name="link", access_type="AnyObjectRead", time_expires="2100-01-01T00:00:00Z"
    )
    with pytest.raises(
        ServiceError, match=r"job run .+ of anouk may not create a pre-auth"
    ) as refused:
        own.objects.create_preauthenticated_request("muster", bucket_of("anouk"), link)
    assert (refused.value.status, refused.value.code) == (403, "NotAllowed")


def test_each_operation_is_one_for_runs_or_not(oci: OciTeams) -> None:
    """Whoever adds one that changes something decides whether it outlasts the run."""
    authority = authority_of_run(oci.teams.backend.policies, "ocid1.run", "vision", "anouk")
    own = {CREATED_BY: user_ocid("anouk")}
    changing = {
        (route.operation, route.permission)
        for route in all_routes()
        if route.verb not in ("GET", "HEAD") and not route.public
    }
    ordinary = {one for one, right in RIGHT_OF.items() if right in (Right.READ, Right.SUBMIT)}
    ours = {one for one in Permission if authority.decide(one, "vision", own).allowed}
    refused = {name for name, needed in changing if needed is not None and needed not in ours}
    for_nobody_else = {name for name, needed in changing if needed in ordinary - ours}
    assert for_nobody_else == LASTING
    assert refused == LASTING | OF_OTHERS
    assert {name for name, _ in changing} - refused == OF_RUNS | OF_USERS


#: Those who start runs may do these, and runs may not.
LASTING = {
    *("activate_schedule", "change_rule_compartment"),
    *("create_preauthenticated_request", "create_rule", "create_schedule"),
    *("deactivate_schedule", "delete_preauthenticated_request", "delete_rule", "delete_schedule"),
    *("update_rule", "update_schedule"),
}
IDENTITY = ("compartment", "dynamic_group", "group", "policy", "user")
#: They need a right that no run has.
OF_OTHERS = {
    *("cancel_work_request", "change_job_compartment", "change_job_run_compartment"),
    *("change_log_group_compartment", "change_project_compartment", "change_schedule_compartment"),
    *("create_bucket", "create_secret", "delete_api_key", "delete_bucket", "delete_job"),
    *("delete_job_run", "delete_log", "delete_log_group", "delete_project", "update_bucket"),
    *("update_secret", "upload_api_key"),
    # who may do what
    *(f"{verb}_{what}" for verb in ("create", "delete", "update") for what in IDENTITY),
    *("add_user_to_group", "move_compartment", "remove_user_from_group", "update_user_state"),
}
#: They are about who asks, if that is a user.
OF_USERS = {"refresh_session"}
OF_RUNS = {
    *("abort_multipart_upload", "batch_delete_objects", "cancel_job_run"),
    *("commit_multipart_upload", "copy_object", "create_job", "create_job_artifact"),
    *("create_job_run", "create_log", "create_log_group", "create_multipart_upload"),
    *("create_project", "delete_object", "get_secret_bundle_by_name", "list_metrics"),
    *("post_metric_data", "put_logs", "put_object", "rename_object", "search_logs"),
    *("search_resources", "summarize_metrics_data", "update_job", "update_job_run", "update_log"),
    *("update_log_group", "update_project", "upload_part"),
}


def changed(token: str, **claims: Any) -> str:
    """A token with other claims, and its signature."""
    header, payload, signature = token.split(".")
    found = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    text = base64.urlsafe_b64encode(json.dumps(found | claims).encode()).decode().rstrip("=")
    return f"{header}.{text}.{signature}"


def test_forged_credentials_are_refused(oci: OciTeams, runs: list[Running]) -> None:
    run, other = runs
    forged = {
        "the key of another run": run.signer(key=other.key),
        "another run in the token": run.signer(changed(run.token, run=other.folder.path.name)),
        "a later end": run.signer(changed(run.token, exp=4_000_000_000)),
        "a user's token": run.signer(changed(run.token, ptype="user", sub="root")),
        "no signature": run.signer(f"{run.token.rpartition('.')[0]}."),
        "a token of another server": run.signer(
            run_tokens.issue(
                SignedTokens(b"x" * 32),
                RunIdentity(run.folder.path.name, run.ocid, TENANCY, VISION),
                load_pem_private_key(run.key.encode(), None).public_key(),
                time.time(),
            )
        ),
        "an expired token": run.signer(
            run_tokens.issue(
                signed_tokens(oci.teams.backend.home),
                RunIdentity(run.folder.path.name, run.ocid, TENANCY, VISION),
                load_pem_private_key(run.key.encode(), None).public_key(),
                time.time() - 3700,
            )
        ),
    }
    assert {why: As(oci, signer).lists() for why, signer in forged.items()} == dict.fromkeys(
        forged, 401
    )
    assert As(oci, run.signer()).lists() == 200


def test_mounts_are_copied_as_the_run(oci: OciTeams, tmp_path: Path) -> None:
    pytest.importorskip("ocifs")
    bucket = bucket_of("anouk")
    client, job = oci.client(ObjectStorageClient, "anouk"), tmp_path / "job.yaml"
    client.put_object("muster", bucket, "in/a.txt", b"what the node reads\n")
    job.write_text(f"""
command: cp $MUSTER_MOUNT_IN/a.txt $MUSTER_MOUNT_OUT/b.txt
mounts:
  - {{source: "oci://{bucket}@muster/in", read_only: true}}
  - {{source: "oci://{bucket}@muster/out"}}
""")
    environ = {
        **os.environ,
        "MUSTER_URL": oci.url,
        "MUSTER_TOKEN": oci.teams.token("anouk"),
        "MUSTER_HOME": str(tmp_path / "home"),
    }
    argv = [*MUSTER, "run", str(job)]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    copied = client.get_object("muster", bucket, "out/b.txt").data
    assert copied.content == b"what the node reads\n"


def test_a_run_that_has_ended_acts_no_more(oci: OciTeams, runs: list[Running]) -> None:
    run = runs[0]
    own, client = As(oci, run.signer()), oci.client(DataScienceClient, "sam")
    assert own.lists() == 200
    run.end()
    until(lambda: client.get_job_run(run.ocid).data.time_finished, "the run has ended")
    assert (own.lists(), own.puts()) == (401, 401)
    assert "of the token is SUCCEEDED" in oci.teams.log.getvalue()
    until(lambda: not run.folder.principal.exists(), "its credentials are gone")


def test_the_audit_log_has_the_run_and_the_statement(oci: OciTeams, runs: list[Running]) -> None:
    run = runs[1]
    assert status(lambda: As(oci, run.signer()).science.cancel_job_run(run.ocid)) == 200
    entries = oci.teams.backend.store.audit.listing(AuditFilter(project="vision"))
    (entry,) = (one for one in entries if one.action == "runs.cancel")
    assert (entry.run, entry.user) == (run.ocid.rpartition(".")[2], "anouk")
    assert entry.statement.startswith("job-runs#")


@pytest.mark.slow
def test_nodes_elsewhere_act_as_their_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = replace(ONE_USER.file, oci=OciSettings(engine="hosts"))
    with oci_teams(replace(ONE_USER, file=file)) as server:
        install_engine("hosts", server.teams.backend.home.root, tmp_path, monkeypatch)
        details = storage.CreateBucketDetails(name=bucket_of("anouk"), compartment_id=VISION)
        server.client(ObjectStorageClient, "anouk").create_bucket("muster", details)
        run = start(server, tmp_path / "gate", PROGRAM)
        token = run_tokens.run_token(
            signed_tokens(server.teams.backend.home).read(run.token), time.time()
        )
        assert (token.node, token.place is not None) == (NodeRef(0, 0), True)
        copied = As(server, run.signer())
        assert copied.lists() == 200
        copied.science.base_client.session.mount("http://", From("127.0.0.2"))
        assert copied.lists() == 401
        run.end()
    assert run.said["runs"] == [run.ocid]
    assert run.said["modes"] == ["0o600", "0o600"]
