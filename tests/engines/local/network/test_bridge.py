"""The network of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

#: Prints the hardware address of a run's bridge: alone, with more nodes, and when they leave.
_ADDRESSES = """
import fcntl, json, os, signal, socket, struct, time
from muster.engines.local import namespaces
from muster.engines.local.network.bridge import _BRIDGE, _ROUTER_HARDWARE
from muster.engines.local.network.netlink import Netlink

if os.geteuid():
    namespaces.unshare(namespaces.CLONE_NEWUSER)
    namespaces.map_user((0, 0), (os.getuid(), os.getgid()))
namespaces.unshare(namespaces.CLONE_NEWNET)
netlink = Netlink()
netlink.add_bridge(_BRIDGE, _ROUTER_HARDWARE)
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
SIOCGIFHWADDR = 0x8927
found, nodes = [], []

def look():
    answer = fcntl.ioctl(sock, SIOCGIFHWADDR, struct.pack("16s24x", _BRIDGE.encode()))
    found.append(answer[18:24].hex(":"))

look()
for number in range(4):
    node = os.fork()
    if node == 0:
        namespaces.unshare(namespaces.CLONE_NEWNET)
        os.kill(os.getpid(), signal.SIGSTOP)  # until it has its interface
        os._exit(0)
    os.waitpid(node, os.WUNTRACED)
    hardware = bytes([2, 77, 0, 0, 0, number])
    netlink.add_veth(f"n{number}", socket.if_nametoindex(_BRIDGE), "eth0", node, hardware)
    look()
    nodes.append(node)
for number, node in enumerate(nodes):
    os.kill(node, signal.SIGKILL)
    os.waitpid(node, 0)
    while f"n{number}" in dict(socket.if_nameindex()).values():
        time.sleep(0.01)
    look()
print(json.dumps(found))
"""


@pytest.mark.shows("distributed-jobs/communication-secured", "jobs/creation-networking")
@pytest.mark.parametrize("nodes", [2, 40])
def test_nodes_of_an_isolated_network_reach_each_other_only(nodes: int, client: Any) -> None:
    """Nodes reach each other by name on any port, and no other network."""
    code = (
        "import os, socket, sys\n"
        "n, me = int(sys.argv[1]), int(os.environ['NODE_RANK'])\n"
        "server = socket.create_server(('', 80))\n"
        "if me:\n"
        "    while True:\n"
        "        try:\n"
        "            socket.create_connection(('node-0', 80)).close()\n"
        "            break\n"
        "        except ConnectionRefusedError:\n"
        "            pass\n"
        "else:\n"
        "    seen = {server.accept()[1][0] for _ in range(n - 1)}\n"
        "    assert len(seen) == n - 1, seen\n"
        "try:\n"
        "    socket.create_connection(('192.0.2.1', 9), 1)\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n"
    )
    argv = ["python", "-c", code, str(nodes)]
    job, new = client.job(None, command=argv, name="net", network="isolated")
    from muster.spec.overrides import overrides_from_mapping

    prepared = client.prepare_run(job, overrides_from_mapping({"nodes": nodes}), new_job=new)
    run = client.start(prepared).wait(240)
    assert run.state == "SUCCEEDED", run.details
    assert {record.message for record in run.logs(streams=["stdout", "stderr"])} == {
        "Network is unreachable"
    }


def test_the_router_keeps_its_hardware_address_when_nodes_come_and_go() -> None:
    """The others remember it; what they send to another one is lost."""
    argv = [sys.executable, "-c", _ADDRESSES]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    if "Operation not permitted" in done.stderr and os.geteuid():
        pytest.skip("this account cannot create network namespaces")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == {"02:4d:ff:ff:ff:ff"}
