"""Programs without a framework: variables with which processes find each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.client.client import Client, overrides_from
from muster.errors import InvalidInput
from muster.frameworks.base import Cluster, Role
from muster.frameworks.registry import get_framework


def cluster(nodes: int = 2, processes: int = 1, **env: str) -> Cluster:
    return Cluster((Role("a", 0, 1, env), Role("b", 1, nodes - 1, {})), processes)


@pytest.mark.shows("jobs/use-batch-inference")
def test_variables_of_ranks_and_of_the_main_node() -> None:
    setup = get_framework("generic").setup(cluster(3, 4))
    assert setup.env == {
        "RANK": "${process.rank}",
        "LOCAL_RANK": "${process.local_rank}",
        "WORLD_SIZE": "12",
        "LOCAL_WORLD_SIZE": "4",
        "MUSTER_MAIN_ADDRESS": "${roster.0.address}",
        "MUSTER_MAIN_PORT": "${port.main}",
    }
    (port,) = setup.ports
    assert (port.number, port.fixed, port.each) == (29400, False, False)


def test_a_variable_sets_the_port() -> None:
    (port,) = get_framework("generic").setup(cluster(MUSTER_MAIN_PORT="1234")).ports
    assert (port.number, port.fixed) == (1234, True)
    with pytest.raises(InvalidInput, match=r"node_groups\[a\].env.MUSTER_MAIN_PORT"):
        get_framework("generic").setup(cluster(MUSTER_MAIN_PORT="x"))


#: Rank 0 reads a line from every other rank; the host file has the nodes' addresses.
MEET = """
import os, socket
where = os.environ["MUSTER_MAIN_ADDRESS"], int(os.environ["MUSTER_MAIN_PORT"])
lines = open(os.environ["MUSTER_HOSTFILE"]).read().splitlines()
hosts = [line.split()[0] for line in lines]
assert hosts[int(os.environ["NODE_RANK"])] == os.environ["MUSTER_NODE_ADDRESS"]
if os.environ["RANK"] == "0":
    with socket.create_server(where) as server:
        for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
            with server.accept()[0] as other:
                print(other.makefile().readline(), end="")
    print([line.split()[1] for line in lines], hosts[0] == where[0])
else:
    while True:
        try:
            with socket.create_connection(where) as main:
                main.sendall(f"rank {os.environ['RANK']}\\n".encode())
            break
        except ConnectionRefusedError:
            pass
"""


@pytest.mark.shows("distributed-jobs/framework-custom")
@pytest.mark.parametrize("network", ["shared", "isolated"])
def test_all_ranks_connect_to_rank_0(client: Client, tmp_path: Path, network: str) -> None:
    (tmp_path / "meet.py").write_text(MEET)
    job, new = client.job(tmp_path / "meet.py", processes_per_node=2, network=network)
    run = client.start(client.prepare_run(job, overrides_from({"nodes": 3}), new_job=new)).wait(120)
    assert run.state == "SUCCEEDED", run.details
    *ranks, slots = [record.message for record in run.logs(streams=["stdout", "stderr"])]
    assert sorted(ranks) == [f"rank {rank}" for rank in range(1, 6)]
    assert slots == "['slots=2', 'slots=2', 'slots=2'] True"
