"""The network of a run."""

from __future__ import annotations

from typing import Any

import pytest


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
    run = client.start(prepared).wait(60)
    assert run.state == "SUCCEEDED", run.details
    assert {record.message for record in run.logs(streams=["stdout", "stderr"])} == {
        "Network is unreachable"
    }
