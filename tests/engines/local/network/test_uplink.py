"""The uplink of network: cluster, as root and as a user, with each supported program."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import muster
from muster.client.client import Client
from muster.engines.local import doctor
from muster.engines.local.network import addresses, uplink
from muster.errors import EngineError, Problem
from muster.spec.overrides import overrides_from_mapping
from support.world import INTERNET, PORT, run_in_world

PROGRAMS = ("pasta", "slirp4netns")


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Hide the other programs."""
    name: str = request.param
    found = shutil.which(name)
    if found is None or not doctor.cluster_network().works:
        pytest.skip(f"{name} is not installed, or does not work here")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))
    return name


@pytest.fixture
def usable() -> None:
    found = doctor.cluster_network()
    if not found.works:
        pytest.skip(found.says)


def cluster_run(code: str) -> list[str]:
    """A command that runs a program on two nodes with network: cluster."""
    muster_run = [sys.executable, "-m", "muster", "run", "--network", "cluster", "--nodes", "2"]
    return [*muster_run, "--", sys.executable, "-c", code]


OUTSIDE = f"""
import os, socket
if os.environ["NODE_RANK"] == "0":
    server = socket.create_server(("", 80))
for place in ("{INTERNET}", "www.example.test", "short", "host.muster.internal"):
    try:
        with socket.create_connection((place, {PORT})) as connection:
            print(place, connection.recv(100).decode(), sep=": ")
    except OSError as error:
        print(place, error)
if os.environ["NODE_RANK"] == "0":
    print("from", server.accept()[1][0])
else:
    while True:
        try:
            socket.create_connection(("node-0", 80)).close()
            break
        except ConnectionRefusedError:
            pass
try:
    socket.create_connection(("127.0.0.1", {PORT}))
except OSError as error:
    print("the node's loopback:", error.strerror)
print(*sorted({{os.environ[f"{{name}}_SOCKET_IFNAME"] for name in ("JR", "GLOO", "NCCL")}}))
"""


@pytest.mark.shows(
    "distributed-jobs/capability-network-isolated",
    "jobs/access-external",
    "jobs/creation-networking",
)
@pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
def test_nodes_reach_the_internet_and_the_machine(program: str, user: bool, tmp_path: Path) -> None:
    """Nodes reach the internet, the machine's name server and its loopback, and each other."""
    del program
    done = run_in_world(tmp_path, cluster_run(OUTSIDE), user=user)
    output = [line.partition(" | ")[2] for line in done.stdout.splitlines()]
    assert sorted(output) == sorted(
        [
            f"{INTERNET}: the internet",
            "www.example.test: the internet",
            "short: the internet",
            "host.muster.internal: the machine",
            "the node's loopback: Connection refused",
            "eth0",
        ]
        * 2
        + ["from 10.77.0.2"]
    )


#: For programs that drive runs in the test's machine.
DRIVER = """
import os, pathlib, signal, socket, sys, time
from muster.client.client import Client
from muster.spec.overrides import overrides_from_mapping

client = Client(pathlib.Path(os.environ["MUSTER_HOME"]))

def start(code, nodes=1):
    argv = [sys.executable, "-c", code]
    job, new = client.job(None, command=argv, name="net", network="cluster")
    over = overrides_from_mapping({"nodes": nodes})
    return client.start(client.prepare_run(job, over, new_job=new))

def output(run):
    return [record.message for record in run.logs() if record.stream == "stdout"]

def await_text(run, text):
    for record in run.logs(follow=True):
        if text in record.message:
            return

def uplinks():
    home = os.environ["MUSTER_HOME"].encode()
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if home in words and b"up0" in words and state != "Z":
            found.append(int(folder.name))
    return found
"""

LISTEN = """
import socket
server = socket.create_server(("", 7000))
print("listens", flush=True)
print("heard", server.accept()[1][0])
"""

SEEK = """
import socket
for place in ("10.77.0.2", "10.77.127.254", "10.77.128.2"):
    try:
        socket.create_connection((place, 7000), 0.2)
        print("reached", place)
    except OSError as error:
        print("not reached")
server = socket.create_server(("", 7000))
print("has the port")
"""


@pytest.mark.shows(
    "distributed-jobs/capability-network-isolated", "distributed-jobs/communication-secured"
)
@pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
def test_runs_cannot_reach_each_other(usable: None, user: bool, tmp_path: Path) -> None:
    """Runs use the same ports and do not reach each other's; the machine reaches none of them, and
    its network is unchanged."""
    code = f"""
before = socket.if_nameindex(), open("/proc/sys/net/ipv4/ip_forward").read()
one = start({LISTEN!r}, nodes=2)
await_text(one, "listens")
other = start({SEEK!r}).wait(240)
print(*output(other), sep=", ")
try:
    socket.create_connection((one.nodes[1].address, 7000), 0.2)
except OSError:
    print("nor from the machine")
assert before == (socket.if_nameindex(), open("/proc/sys/net/ipv4/ip_forward").read())
one.cancel("enough").wait(240)
assert output(one) == ["listens"] * 2, output(one)
assert not uplinks()
"""
    done = run_in_world(tmp_path, [sys.executable, "-c", DRIVER + code], user=user)
    assert done.stdout == (
        "not reached, not reached, not reached, has the port\nnor from the machine\n"
    )


AGAIN = f"""
import os, socket, sys, time
print("up", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
with socket.create_connection(("{INTERNET}", {PORT})) as connection:
    print(connection.recv(100).decode())
"""


def test_a_killed_uplink_is_restarted(program: str, tmp_path: Path) -> None:
    code = f"""
home = pathlib.Path(os.environ["MUSTER_HOME"])
run = start({AGAIN!r}.replace("sys.argv[1]", repr(str(home / "flag"))))
await_text(run, "up")
(first,) = uplinks()
os.kill(first, signal.SIGKILL)
while not [pid for pid in uplinks() if pid != first]:
    time.sleep(0.001)
log = home / "runs" / run.id / "supervisor.log"
while (log.parent / "namespace").exists():
    time.sleep(0.001)  # the new uplink is not up yet
(home / "flag").touch()
run.wait(240)
print(*output(run), log.read_text(), sep="|")
"""
    done = run_in_world(tmp_path, [sys.executable, "-c", DRIVER + code])
    assert done.stdout == "up|the internet|\n"


@pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
def test_the_uplink_ends_with_a_killed_supervisor(program: str, user: bool, tmp_path: Path) -> None:
    code = """
from muster.control.run_lock import holder_pid
before = socket.if_nameindex(), open("/proc/self/mountinfo").read()
run = start("import time; print('up', flush=True); time.sleep(600)")
await_text(run, "up")
assert len(uplinks()) == 1
os.kill(holder_pid(client.api.home.run_dir(run.id).lock), signal.SIGKILL)
while uplinks():
    time.sleep(0.001)
assert before == (socket.if_nameindex(), open("/proc/self/mountinfo").read())
print(run.wait(240).state)
"""
    done = run_in_world(tmp_path, [sys.executable, "-c", DRIVER + code], user=user)
    assert done.stdout == "FAILED\n"


# --- missing requirements are reported before the start


def refusal(client: Client) -> Problem:
    job, new = client.job(None, command=["true"], name="net", network="cluster")
    with pytest.raises(muster.InvalidInput) as caught:
        client.prepare_run(job, overrides_from_mapping({}), new_job=new)
    (problem,) = caught.value.problems
    assert not client.runs()
    return problem


def test_a_missing_uplink_program_is_refused(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = refusal(client)
    assert found.path == "network"
    assert (
        found.message == "cluster is not possible here: neither pasta nor slirp4netns is installed"
    )
    assert found.hint == "apt-get install passt, or use network: shared"


def test_a_missing_tun_device_is_refused(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PROGRAMS:
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(uplink, "_DEVICE", str(tmp_path / "tun"))
    found = refusal(client)
    assert "not found" in found.message
    assert "start it with --device" in found.hint
    (tmp_path / "tun").mkdir()
    found = refusal(client)
    assert found.message.endswith("tun cannot be opened: Is a directory")
    assert found.hint.startswith("as root, chmod 0666 ")


def test_a_kernel_without_address_translation_is_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(interface: str) -> None:
        raise EngineError("the kernel's nftables cannot masquerade: Operation not supported")

    monkeypatch.setattr("muster.engines.local.network.netlink.masquerade", refuse)
    found = refusal(client)
    assert "the kernel cannot translate addresses" in found.message
    assert found.hint == "as root, modprobe nft_chain_nat nft_masq, or use network: shared"


@pytest.mark.parametrize(
    ("machine", "node"),
    [
        ("nameserver 10.1.2.3\n", "nameserver 10.1.2.3\n"),
        (
            "# stub\nnameserver 127.0.0.53\noptions edns0 trust-ad\nsearch a.b\n",
            "nameserver 10.77.128.3\n# stub\noptions edns0 trust-ad\nsearch a.b\n",
        ),
        ("nameserver ::1\nnameserver 127.0.0.1", "nameserver 10.77.128.3\n"),
        (
            "nameserver fe80::1%eth0\nnameserver 9.9.9.9\n",
            "nameserver 10.77.128.3\nnameserver 9.9.9.9\n",
        ),
        ("", "nameserver 10.77.128.3\n"),
        ("nameserver\n", "nameserver 10.77.128.3\nnameserver\n"),
    ],
)
def test_unreachable_name_servers_are_replaced(machine: str, node: str) -> None:
    assert addresses.resolver_for_nodes(machine) == node


GLOO = f"""
import os, socket
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ranks = torch.full((1000,), float(dist.get_rank() + 1))
dist.all_reduce(ranks)
mine = socket.inet_aton("10.77.0." + str(dist.get_rank() + 1))[::-1].hex().upper()
lines = open("/proc/net/tcp").read().splitlines()[1:]
peers = {{line.split()[2].partition(":")[0] for line in lines if line.split()[3] == "01"}}
with socket.create_connection(("{INTERNET}", {PORT})) as connection:
    print(ranks.sum().item(), len(peers - {{mine}}), connection.recv(100).decode())
dist.barrier()
"""


@pytest.mark.slow
@pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
def test_gloo_connects_over_the_cluster_network(
    usable: None, user: bool, tmp_path: Path, own_home: Path
) -> None:
    """Ranks of PyTorch connect on the cluster network, and reach the internet."""
    if find_spec("torch") is None:
        pytest.skip("needs PyTorch")
    (tmp_path / "train.py").write_text(GLOO)
    job = {"framework": "pytorch", "nodes": 2, "network": "cluster", "artifact": "train.py"}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    command = [sys.executable, "-m", "muster", "run", str(tmp_path / "job.yaml")]
    done = run_in_world(tmp_path, command, user=user)
    output = [line.partition(" | ")[2] for line in done.stdout.splitlines()]
    assert [line for line in output if "internet" in line] == ["3000.0 1 the internet"] * 2


def test_an_uplink_that_does_not_start_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The session does not wait for it, and later nodes fail at once."""
    (tmp_path / "pasta").write_text("#!/bin/sh\nexec sleep 1000\n")
    (tmp_path / "pasta").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("bind", "unmount"):
        monkeypatch.setattr(f"muster.engines.local.namespaces.{name}", lambda *_: None)
    place, (routes, kernel) = tmp_path / "place", socket.socketpair()
    started = uplink.Uplink(os.open("/proc/self/ns/net", os.O_RDONLY), routes, place)
    started.step()
    assert (started.starting, started.watched()) == (True, routes.fileno())
    pid, start_time = started._pid, time.monotonic()
    monkeypatch.setattr("time.monotonic", lambda: start_time + 31)
    assert started.timeout() == 0.0
    started.step()
    for _ in range(2):
        with pytest.raises(EngineError, match="pasta did not start within 30 s"):
            started.check()
    assert (started.watched(), started.timeout(), place.exists()) == (None, None, False)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    assert started.reaped(pid)
    assert capsys.readouterr().err.count("did not start") == 1
    started.close()
    kernel.close()
