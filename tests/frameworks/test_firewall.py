"""Firewall rules: parsed in every format, and applied to real network namespaces."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from muster.cli.main import cli
from muster.errors import InvalidInput
from muster.frameworks.firewall import FORMS, Opening, openings, read_peers
from muster.frameworks.registry import framework_names, get_framework
from support.networks import HERE, NETWORK, THERE, two_machines

SOURCE = ("--source", NETWORK)
#: OCI's SDK: the fields of IngressSecurityRule, TcpOptions and PortRange, and their types.
OCI = {
    "icmpOptions": dict,
    "isStateless": bool,
    "protocol": str,
    "source": str,
    "sourceType": str,
    "tcpOptions": {
        "destinationPortRange": {"min": int, "max": int},
        "sourcePortRange": {"min": int, "max": int},
    },
    "udpOptions": dict,
    "description": str,
}


def text_of(framework: str, form: str, *sources: str, selectors: tuple[str, ...] = ()) -> str:
    peers = read_peers(form, sources, selectors, "", "")
    return FORMS[form](framework, openings(get_framework(framework)), peers)


def fits(value: Any, shape: Any) -> bool:
    if isinstance(shape, Mapping):
        return set(value) <= set(shape) and all(fits(value[k], shape[k]) for k in value)
    return isinstance(value, shape)


@pytest.mark.shows("ads-configuration/horovod-ports", "cluster-design/security-list")
def test_rules_open_the_listed_ports() -> None:
    assert [(o.first, o.last) for o in openings(get_framework("dask"))] == [
        (3000, 3100),
        (8700, 8800),
        (8786, 8786),
        (8787, 8787),
    ]
    assert openings(get_framework("horovod"))[0].everything, "all TCP, as on the framework's page"
    assert openings(get_framework("generic")) == (Opening(29400, 29400, "$MUSTER_MAIN_PORT"),)


@pytest.mark.shows("ads-configuration/security-list", "cluster-design/security-list")
@pytest.mark.parametrize("framework", framework_names())
def test_every_framework_has_rules_in_every_form(framework: str) -> None:
    for rule in json.loads(text_of(framework, "security-list", NETWORK)):
        assert fits(rule, OCI), rule
        assert {"source", "protocol"} <= set(rule), "required"
        assert rule["protocol"] == "6"
    for line in text_of(framework, "ufw", NETWORK).splitlines():
        words = shlex.split(line)
        assert words[:8] == ["ufw", "allow", "proto", "tcp", "from", NETWORK, "to", "any"]
        assert words[-2] == "comment" and "'" not in words[-1]
    labels = ("app=train", "jobset.sigs.k8s.io/jobset-name=a")
    policy = yaml.safe_load(text_of(framework, "network-policy", selectors=labels))
    spec = policy["spec"]
    chosen = {"matchLabels": {"app": "train", "jobset.sigs.k8s.io/jobset-name": "a"}}
    assert spec["podSelector"] == chosen and spec["policyTypes"] == ["Ingress"]
    (ingress,) = spec["ingress"]
    assert ingress["from"] == [{"podSelector": chosen}]
    assert all(port.pop("protocol") == "TCP" for port in ingress["ports"])
    assert all(set(port) <= {"port", "endPort"} for port in ingress["ports"])


def test_ports_and_ranges_in_a_network_policy() -> None:
    text = text_of("dask", "network-policy", "10.9.0.0/16", selectors=("app=x",))
    (ingress,) = yaml.safe_load(text)["spec"]["ingress"]
    assert ingress["from"][1] == {"ipBlock": {"cidr": "10.9.0.0/16"}}
    ports = [(port["port"], port.get("endPort")) for port in ingress["ports"]]
    assert ports == [(3000, 3100), (8700, 8800), (8786, None), (8787, None)]
    everything = yaml.safe_load(text_of("mpi", "network-policy", selectors=("app=x",)))
    assert everything["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP"}]


LISTEN = """
import socket, sys
servers = [socket.create_server((sys.argv[1], int(port))) for port in sys.argv[2:]]
print("listening", flush=True)
sys.stdin.read()
"""
TRY = """
import socket, sys
for port in sys.argv[2:]:
    try:
        socket.create_connection((sys.argv[1], int(port)), 1, (ADDRESS, 0)).close()
        print(port, "open")
    except OSError:
        print(port, "closed")
"""


def try_ports(machines: Any, address: str, *ports: int) -> dict[int, str]:
    code = f"ADDRESS = {address!r}\n{TRY}"
    words = map(str, ports)
    out = machines.run(1, sys.executable, "-c", code, HERE, *words)
    return {int(line.split()[0]): line.split()[1] for line in out.splitlines()}


def test_nft_accepts_every_ruleset() -> None:
    with two_machines() as machines:
        for framework in framework_names():
            text = text_of(framework, "nftables", NETWORK, "fd00:1::/64")
            machines.run(0, "nft", "-c", "-f", "-", stdin=text)


def test_a_ruleset_opens_only_the_listed_ports() -> None:
    ports = (22, 3000, 3100, 8700, 8786, 8800, 3101, 8801, 9000)
    with two_machines() as machines:
        machines.run(1, "ip", "address", "add", "10.0.2.2/32", "dev", "cable1")
        machines.run(0, "ip", "route", "add", "10.0.2.2/32", "dev", "cable0")
        words = (sys.executable, "-c", LISTEN, HERE, *map(str, ports))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with machines.start(0, *words, **pipes) as server:
            assert server.stdout is not None and server.stdin is not None
            assert server.stdout.readline() == "listening\n"
            assert set(try_ports(machines, "10.0.2.2", *ports).values()) == {"open"}, "no rules yet"
            text = text_of("dask", "nftables", NETWORK)
            for _ in range(2):  # applied again, a ruleset replaces itself
                machines.rules(0, text)
            shut = {3101, 8801, 9000}
            found = try_ports(machines, THERE, *ports)
            assert {port for port, how in found.items() if how == "closed"} == shut
            assert try_ports(machines, "10.0.2.2", 22, 8786) == {22: "open", 8786: "closed"}
            rules = machines.run(0, "nft", "list", "ruleset")
            assert rules.count("dport 8786") == 1
            server.stdin.close()


@pytest.mark.shows(
    "ads-configuration/dask-worker-ports",
    "ads-configuration/dask-nanny-ports",
    "cluster-design/worker-ports",
)
@pytest.mark.slow
def test_dask_works_behind_its_rules(tmp_path: Path) -> None:
    """Two machines whose firewalls let through only what `muster ports dask` lists."""
    (tmp_path / "sum.py").write_text(
        textwrap.dedent("""
        from distributed import Client
        def port(dask_worker):
            return int(dask_worker.address.rpartition(":")[2]), dask_worker.nanny
        with Client() as client:
            parts = client.map(lambda n: list(range(n)), range(40), pure=False)
            print("sum:", client.submit(lambda lists: sum(map(sum, lists)), parts).result())
            (worker, nanny), = client.run(port).values()
            print("worker:", worker, nanny)
        """)
    )
    shared = [
        "env", f"WORK_DIR={tmp_path}/meet", "JOB_OCID=one", "CLUSTER_TYPE=DASK", "TIMEOUT=60",
        "ENTRY_POINT=sum.py", f"CODE_DIR={tmp_path}", f"MUSTER_HOME={tmp_path}/home",
    ]  # fmt: skip
    node = (sys.executable, "-m", "muster", "node")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with two_machines() as machines:
        for number in (0, 1):
            machines.rules(number, text_of("dask", "nftables", NETWORK))
        worker = machines.start(
            1, *shared, "MODE=WORKER", f"MUSTER_NODE_ADDRESS={THERE}", *node, **pipes
        )
        out = machines.run(0, *shared, "MODE=MAIN", f"MUSTER_NODE_ADDRESS={HERE}", *node)
        output, _ = worker.communicate(timeout=60)
        assert worker.returncode == 0, output
    assert f"sum: {sum(n * (n - 1) // 2 for n in range(40))}" in out
    (line,) = (line for line in out.splitlines() if line.startswith("worker:"))
    _, port, nanny = line.split()
    assert 8700 <= int(port) <= 8800
    assert 3000 <= int(nanny.rpartition(":")[2]) <= 3100


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["dask", "--as", "ufw"], ["--source: is missing (the network that the nodes are in"]),
        (
            ["dask", "--as", "security-list", "--source", "10.0.1.7/24", "--name", "x"],
            [
                "'10.0.1.7/24' is an address in a network, not the network (did you mean "
                "10.0.1.0/24?)",
                "--name: applies to --as network-policy only, not to security-list",
            ],
        ),
        (["dask", "--as", "nftables", "--source", "subnet"], ["'subnet' is not a network (write"]),
        (["dask", "--as", "network-policy"], ["--selector: is missing (labels of the nodes' pods"]),
        (
            ["dask", "--as", "network-policy", "--selector", "app", "--name", "A_b"],
            [
                "--selector: 'app' is not a Kubernetes label",
                "--name: 'A_b' is not a valid Kubernetes name",
            ],
        ),
        (["--as", "ufw", *SOURCE], ["FRAMEWORK: is missing (muster ports dask --as ufw"]),
        (["dask", *SOURCE], ["--as: is missing (choose a firewall"]),
        (["dask", "--as", "ufw", "--json"], ["--json: does not apply to ufw", "--source: is"]),
        (["dsk", "--as", "ufw", *SOURCE], ['did you mean "dask"?']),
    ],
)
def test_invalid_options_are_refused(args: list[str], expected: list[str]) -> None:
    done = CliRunner().invoke(cli, ["ports", *args])
    assert isinstance(done.exception, InvalidInput)
    for text in expected:
        assert text in str(done.exception)


def test_the_command_prints_only_the_rules() -> None:
    words = ["-m", "muster", "ports", "pytorch", "--as", "security-list", *SOURCE]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    (rule,) = json.loads(done.stdout)
    assert "tcpOptions" not in rule, "gloo and NCCL listen on any port"
    assert done.stderr == ""
