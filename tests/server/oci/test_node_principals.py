"""Each node of a run acts with credentials of its own: of use on its host, while it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from msgspec import Struct
from msgspec.structs import replace
from oci.auth.signers import EphemeralResourcePrincipalSigner
from oci.data_science import DataScienceClient, models
from oci.exceptions import ServiceError
from oci.object_storage import ObjectStorageClient
from oci.object_storage import models as storage
from oci.retry import NoneRetryStrategy

from muster.identity import is_id
from muster.lifecycle.status import NodeRef
from muster.plan.model import PrincipalPlan, RunPlan
from muster.run_tokens import RunToken, run_token
from muster.spec.ocids import TENANCY
from muster.storage.home import Home, RunDir
from muster.storage.key_pool import new_key
from muster.storage.run_credentials import RunCredentials
from muster.storage.token_seed import signed_tokens
from muster.store.account_records import AuditFilter
from muster.store.records import NodeFilter
from support.command import MUSTER
from support.faults import until
from support.installed_engines import install_engine
from support.networks import HERE, THERE, Machines, two_machines
from support.oci_server import CLIENTS, needs_clients
from support.oci_teams import VISION, From, OciTeams, oci_teams
from support.server_process import admin_token
from support.server_thread import ONE_USER
from support.sessions import make_plan
from support.slurm_cluster import require_slurm, shared_cluster, use_cluster

NODES = 3
#: Acts as its node with the SDK's own signer, and waits. The first start of node 1 fails when a
#: file says so.
PROGRAM = """
import os, pathlib, sys, time, oci

rank, restart = os.environ["NODE_RANK"], int(os.environ["MUSTER_RESTART"])
folder = pathlib.Path(os.environ["MEETING"])
signer = oci.auth.signers.get_resource_principals_signer()
given = {"signer": signer, "service_endpoint": os.environ["OCI_CLI_ENDPOINT"]}
objects = oci.object_storage.ObjectStorageClient({}, **given)
objects.put_object("muster", "results", f"node-{rank}-{restart}", b"hello")
(folder / f"up-{rank}-{restart}").touch()
while not (folder / "end").exists():
    if rank == "1" and restart == 0 and (folder / "fail").exists():
        sys.exit(7)
    time.sleep(0.05)
"""


class Job(Struct, frozen=True):
    """A run of three nodes, of anouk."""

    server: OciTeams
    id: str
    meeting: Path

    @property
    def folder(self) -> RunDir:
        return self.server.teams.backend.home.run_dir(self.id)

    def file(self, rank: int, name: str) -> Path:
        return self.folder.principal / str(rank) / name

    def copy(self, rank: int) -> tuple[str, str]:
        """What somebody has copied who has read the files of a node: token and key."""
        return self.file(rank, "rpst").read_text(), self.file(rank, "key.pem").read_text()

    def token(self, rank: int) -> RunToken:
        home = self.server.teams.backend.home
        return run_token(signed_tokens(home).read(self.copy(rank)[0]), time.time())

    def status(self, copied: tuple[str, str], source: str = "127.0.0.1") -> int:
        """The status of a list of job runs. source: the address that it is asked for from."""
        client = client_of(self.server.url, copied, source)
        return status(lambda: client.list_job_runs(VISION))

    def host(self, rank: int) -> str:
        """Where a node was started last."""
        runs = self.server.teams.backend.store.runs
        (found,) = runs.nodes(self.id, NodeFilter(ranks=[rank]))
        assert found.host is not None
        return found.host

    def wait_until_up(self, rank: int, restart: int) -> None:
        until((self.meeting / f"up-{rank}-{restart}").exists, f"node {rank} acts as its run", 120)


def client_of(url: str, copied: tuple[str, str], source: str = "127.0.0.1") -> DataScienceClient:
    """Signs as a node, with a copy of its credentials or with their files."""
    token, key = copied
    signer = EphemeralResourcePrincipalSigner(
        session_token=token, private_key=key, region="us-ashburn-1"
    )
    client = DataScienceClient(
        {}, signer=signer, service_endpoint=url, retry_strategy=NoneRetryStrategy()
    )
    client.base_client.session.mount("http://", From(source))
    return client


def status(call: Callable[[], Any]) -> int:
    try:
        call()
    except ServiceError as error:
        return int(error.status)
    return 200


@pytest.fixture(scope="module")
def server() -> Iterator[OciTeams]:
    with oci_teams(ONE_USER) as made:
        details = storage.CreateBucketDetails(name="results", compartment_id=VISION)
        made.client(ObjectStorageClient, "anouk").create_bucket("muster", details)
        yield made


def environ_of(server: OciTeams, folder: Path) -> dict[str, str]:
    """What commands of anouk need."""
    return {
        **os.environ,
        "MUSTER_URL": server.url,
        "MUSTER_TOKEN": server.teams.token("anouk"),
        "MUSTER_HOME": str(folder / "home"),
    }


def start(server: OciTeams, folder: Path, more: str = "") -> Job:
    """more: further settings of the job."""
    (folder / "program.py").write_text(PROGRAM)
    (folder / "job.yaml").write_text(
        f"{{artifact: program.py, nodes: {NODES}, failure: {{max_restarts: 1}}, "
        f"env: {{MEETING: {folder}}}{more}}}"
    )
    done = subprocess.run(
        [*MUSTER, "run", "--detach", str(folder / "job.yaml")],
        env=environ_of(server, folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    job = Job(server, done.stdout.split()[-1], folder)
    for rank in range(NODES):
        job.wait_until_up(rank, 0)
    return job


@pytest.fixture
def job(server: OciTeams, tmp_path: Path) -> Iterator[Job]:
    made = start(server, tmp_path)
    yield made
    (tmp_path / "end").touch()
    server.teams.api("anouk", "vision").cancel(made.id)


def test_each_node_has_its_own(job: Job, server: OciTeams) -> None:
    client = server.client(ObjectStorageClient, "anouk")
    found = client.list_objects("muster", "results").data.objects
    assert {f"node-{rank}-0" for rank in range(NODES)} <= {one.name for one in found}
    tokens = [job.token(rank) for rank in range(NODES)]
    assert [one.node for one in tokens] == [NodeRef(rank, 0) for rank in range(NODES)]
    claims = [signed_tokens(server.teams.backend.home).read(job.copy(r)[0]) for r in range(NODES)]
    assert len({one["res_id"] for one in claims}) == 1, "one job run, as in OCI"
    until(lambda: len({job.copy(rank)[1] for rank in range(NODES)}) == NODES, "each has a key", 60)
    for rank in range(NODES):
        key = load_pem_private_key(job.copy(rank)[1].encode(), None)
        assert job.token(rank).keys[0] == key.public_key()
        assert job.status(job.copy(rank)) == 200
        details = models.CreateProjectDetails(compartment_id=VISION, display_name=f"of-{rank}")
        client_of(server.url, job.copy(rank)).create_project(details)
    # not one that has begun with the key of another one
    rank = next(rank for rank in range(NODES) if len(job.token(rank).keys) == 1)
    other = (rank + 1) % NODES
    assert job.status((job.copy(rank)[0], job.copy(other)[1])) == 401
    entries = server.teams.backend.store.audit.listing(AuditFilter())
    credentials = {entry.token_id for entry in entries}
    assert {f"run {job.id} node {rank}" for rank in range(NODES)} <= credentials


def test_from_another_address(job: Job, server: OciTeams) -> None:
    assert job.status(job.copy(0)) == 200
    assert job.status(job.copy(0), source="127.0.0.2") == 401
    why = f"the token of run {job.id} node 0 was used from 127.0.0.2, and can only be used from"
    assert why in server.teams.log.getvalue()


def test_after_a_restart(job: Job, server: OciTeams) -> None:
    before = [job.copy(rank) for rank in range(NODES)]
    assert [job.status(one) for one in before] == [200] * NODES
    (job.meeting / "fail").touch()
    job.wait_until_up(1, 1)
    assert job.status(before[1]) == 401
    assert f"node 1 of run {job.id} of the token was started again since" in (
        server.teams.log.getvalue()
    )
    for rank in range(NODES):
        job.wait_until_up(rank, job.token(rank).node.incarnation)  # type: ignore[union-attr]
        assert job.status(job.copy(rank)) == 200


def test_after_the_end(job: Job, server: OciTeams) -> None:
    copies = [job.copy(rank) for rank in range(NODES)]
    (job.meeting / "end").touch()
    api = server.teams.api("anouk", "vision")
    until(lambda: api.find_run(job.id).state == "SUCCEEDED", "the run has ended", 60)
    assert [job.status(one) for one in copies] == [401] * NODES
    assert f"run {job.id} of the token is SUCCEEDED" in server.teams.log.getvalue()
    until(lambda: not job.folder.principal.exists(), "its credentials are gone")


def test_replaced_under_load(job: Job, server: OciTeams) -> None:
    """The SDK reads the files of each node again while they are replaced, as each token is near its
    end."""
    home = server.teams.backend.home
    plan = RunPlan.from_json(server.teams.backend.store.runs.get(job.id).plan)
    assert plan.principal is not None
    made = RunCredentials(home, plan, plan.principal, lifetime=50)
    for rank in range(NODES):
        made.issue(rank, NodeRef(rank, 0), here=[])
    failed: list[Exception] = []
    done = threading.Event()
    asked = [threading.Semaphore(0) for _ in range(NODES)]

    def ask(rank: int) -> None:
        files = (str(job.file(rank, "rpst")), str(job.file(rank, "key.pem")))
        client = client_of(server.url, files)
        while not done.is_set():
            try:
                client.list_job_runs(VISION)
            except Exception as error:  # noqa: BLE001
                failed.append(error)
            asked[rank].release()

    threads = [threading.Thread(target=ask, args=(rank,)) for rank in range(NODES)]
    for thread in threads:
        thread.start()
    for _ in range(6):
        for rank, one in enumerate(asked):
            made.replace(rank)
            # a client that is slow to read two files sees one replacement between them, not two:
            # they are half an hour apart
            one.acquire()
            one.acquire()
    done.set()
    for thread in threads:
        thread.join()
    assert failed == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "more"),
    # a network of the run's own does not reach a server that listens on 127.0.0.1
    [("container", ", engine: container, network: shared"), ("slurm", ", engine: slurm")],
)
def test_on_other_engines(
    engine: str, more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server_for(engine, tmp_path, monkeypatch) as server:
        job = start(server, tmp_path, more)
        tokens = [job.token(rank) for rank in range(NODES)]
        assert [one.node for one in tokens] == [NodeRef(rank, 0) for rank in range(NODES)]
        assert all(one.place is not None for one in tokens)
        copies = [job.copy(rank) for rank in range(NODES)]
        assert [job.status(one) for one in copies] == [200] * NODES
        assert [job.status(one, source="127.0.0.2") for one in copies] == [401] * NODES
        (tmp_path / "end").touch()
        api = server.teams.api("anouk", "vision")
        until(lambda: api.find_run(job.id).state == "SUCCEEDED", "the run has ended")
        assert [job.status(one) for one in copies] == [401] * NODES


@pytest.mark.slow
def test_on_another_host_of_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host is down, and another one gets its node: what somebody has copied there is refused. As
    jobs are not requeued by Slurm, a node moves as a restart of its run alone."""
    with server_for("slurm", tmp_path, monkeypatch) as server:
        job = start(server, tmp_path, ", engine: slurm, slurm: {spares: 1}")
        lost, before = job.host(1), job.copy(1)
        assert job.status(before) == 200
        cluster = shared_cluster()
        node = ("scontrol", "update", f"nodename={lost}")
        try:
            cluster.run(*node, "state=down", "reason=test")
            job.wait_until_up(1, 1)
            assert job.host(1) != lost
            assert job.status(before) == 401
            assert f"node 1 of run {job.id} of the token was started again since" in (
                server.teams.log.getvalue()
            )
            after = job.copy(1)
            assert after[0] != before[0]
            assert job.status(after) == 200
            (tmp_path / "end").touch()
            api = server.teams.api("anouk", "vision")
            until(lambda: api.find_run(job.id).state == "SUCCEEDED", "the run has ended")
        finally:
            with suppress(subprocess.SubprocessError):  # it may be back by itself
                cluster.run(*node, "state=resume")


@contextmanager
def server_for(engine: str, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[OciTeams]:
    """A server with an engine, and a bucket for results."""
    file = ONE_USER.file
    if engine == "slurm":  # before the server starts, which tells its programs where it is
        require_slurm()
        use_cluster(shared_cluster(), patch)
        conf = {"SLURM_CONF": os.environ["SLURM_CONF"]}
        file = replace(file, environ={**file.environ, **conf})
    with oci_teams(replace(ONE_USER, file=file)) as server:
        if engine != "local":
            install_engine(engine, server.teams.backend.home.root, folder, patch)
        details = storage.CreateBucketDetails(name="results", compartment_id=VISION)
        server.client(ObjectStorageClient, "anouk").create_bucket("muster", details)
        yield server


#: As ADS's own users write it.
ADS_PROGRAM = """
import os, ads, oci
from ads.common.auth import default_signer

ads.set_auth("resource_principal")
auth = default_signer()
endpoint = {"service_endpoint": os.environ["OCI_CLI_ENDPOINT"]}
objects = oci.object_storage.ObjectStorageClient({}, signer=auth["signer"], **endpoint)
objects.put_object("muster", "results", "ads", b"hello")
print("wrote as", auth["signer"].get_claim("res_type"))
"""


@pytest.mark.slow
@needs_clients
@pytest.mark.parametrize(
    ("engine", "more"),
    [
        ("local", ""),
        ("container", ", engine: container, network: shared"),
        ("slurm", ", engine: slurm"),
    ],
)
def test_ads_acts_as_the_run(
    engine: str, more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server_for(engine, tmp_path, monkeypatch) as server:
        (tmp_path / "program.py").write_text(ADS_PROGRAM)
        python = CLIENTS / "bin" / "python"
        (tmp_path / "job.yaml").write_text(
            f"{{command: [{python}, program.py], artifact: program.py{more}}}"
        )
        done = subprocess.run(
            [*MUSTER, "run", str(tmp_path / "job.yaml")],
            env=environ_of(server, tmp_path),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "wrote as datasciencejobrun" in done.stdout
        client = server.client(ObjectStorageClient, "anouk")
        assert client.get_object("muster", "results", "ads").data.content == b"hello"


PRINCIPAL = PrincipalPlan("tenancy", "compartment", "muster.invalid", "http://127.0.0.1:1")


def test_a_process_that_is_killed_while_it_replaces_them(tmp_path: Path) -> None:
    """Whatever a client reads then fits, and the next process continues."""
    home, plan = Home(tmp_path / "home"), make_plan("true")
    home.prepare()
    home.run_dir(plan.run_id).path.mkdir()
    signed_tokens(home)
    keys = [new_key() for _ in range(8)]

    def fits() -> bool:
        folder = home.run_dir(plan.run_id).principal / "0"
        key = load_pem_private_key((folder / "key.pem").read_bytes(), None)
        found = run_token(signed_tokens(home).read((folder / "rpst").read_text()), time.time())
        return key.public_key() in found.keys

    for number in range(30):
        pid = os.fork()
        if pid == 0:
            made = RunCredentials(home, plan, PRINCIPAL, make_key=iter(keys * 1000).__next__)
            made.issue(0, NodeRef(0, number), here=[])
            while True:
                made.replace(0)
        time.sleep(0.01 + 0.003 * number)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if not (home.run_dir(plan.run_id).principal / "0" / "rpst").exists():
            continue  # it had not begun
        assert fits(), number
    later = RunCredentials(home, plan, PRINCIPAL)
    later.issue(0, NodeRef(0, 30), here=[])
    assert fits()
    later.replace(0)
    assert fits()


ASKS = """
import json, sys, oci
url, token, key, compartment = sys.argv[1:]
signer = oci.auth.signers.EphemeralResourcePrincipalSigner(
    session_token=token, private_key=key, region="us-ashburn-1"
)
client = oci.data_science.DataScienceClient(
    {}, signer=signer, service_endpoint=url, retry_strategy=oci.retry.NoneRetryStrategy()
)
try:
    print(client.list_job_runs(compartment).status)
except oci.exceptions.ServiceError as error:
    print(error.status)
"""


@pytest.mark.slow
def test_from_another_machine(tmp_path: Path) -> None:
    """A server and a job on one machine, and somebody on another one who has copied the job's
    credentials. Both machines are network namespaces."""
    home = Home(tmp_path / "home")
    home.prepare()
    token = admin_token(home)
    (home.root / "server.toml").write_text("separate_owners = false\n")
    environ = {**os.environ, "MUSTER_HOME": str(home.root)}
    environ.pop("MUSTER_URL", None)
    url = f"http://{HERE}:8431"
    with two_machines() as machines, open(tmp_path / "log", "wb") as log:
        argv = [*MUSTER, "server", "--host", HERE, "--plain"]
        server = machines.start(0, *argv, env=environ, stdout=log, stderr=log)
        try:
            until(lambda: b"8431" in (tmp_path / "log").read_bytes(), "the server listens", 60)
            check_from_another_machine(machines, home, token, tmp_path)
        finally:
            server.terminate()
            server.wait(60)
    assert f"was used from {THERE}" in (tmp_path / "log").read_text()
    assert url in (tmp_path / "log").read_text()


def check_from_another_machine(machines: Machines, home: Home, token: str, folder: Path) -> None:
    """Start a run, and use its credentials from both machines."""
    url = f"http://{HERE}:8431"
    given = [f"MUSTER_URL={url}", f"MUSTER_TOKEN={token}", f"MUSTER_HOME={folder / 'client'}"]
    end = folder / "end"
    os.mkfifo(end)
    run = [*MUSTER, "run", "--detach", "--name", "job", "--", "sh", "-c", f"cat {end}"]
    run_id = next(filter(is_id, machines.run(0, "env", *given, *run).split()))
    files = home.run_dir(run_id).principal / "0"
    until((files / "rpst").exists, "the node has its credentials", 60)
    copied = [(files / name).read_text() for name in ("rpst", "key.pem")]
    asks = [sys.executable, "-c", ASKS, url, *copied, TENANCY]
    try:
        assert machines.run(0, *asks).split() == ["200"]
        assert machines.run(1, *asks).split() == ["401"]
    finally:
        end.write_text("")
        machines.run(0, "env", *given, *MUSTER, "wait", run_id)
