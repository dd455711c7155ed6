"""`muster open`."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from muster.client.client import Client, overrides_from
from muster.client.run import JobRun
from muster.engines.local.namespaces import probe
from support.command import MUSTER, muster
from support.runs import until_ready

#: Answers with the node's rank on a port of the loopback interface.
SERVER = """
import http.server, os

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"node %s" % os.environ["NODE_RANK"].encode())

server = http.server.HTTPServer(("127.0.0.1", int(os.environ.get("SERVE", 0))), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def start(client: Client, engine: str, nodes: int, **fields: object) -> tuple[JobRun, int]:
    """A run whose nodes serve, and the port of the first one that does."""
    job, new = client.job(None, command=[sys.executable, "-c", SERVER], name="demo", **fields)
    run = client.start(
        client.prepare_run(job, overrides_from({"nodes": nodes, "engine": engine}), new_job=new)
    )
    until_ready(run)
    missing = set(range(nodes))
    for record in run.logs(follow=True, streams=["stdout"]):
        missing.discard(-1 if record.rank is None else record.rank)
        if not missing:
            return run, int(record.message)
    raise AssertionError(run.refresh().why())


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        text: str = answer.read().decode()
        return text


def test_a_port_on_the_machines_network_is_reached_directly(client: Client) -> None:
    run, port = start(client, "local", 1)
    shown = muster("open", run.name, "--port", str(port), code=0)
    assert (shown.stdout, shown.stderr) == (f"http://127.0.0.1:{port}/\n", "")
    assert read(shown.stdout.strip()) == "node 0"
    refused = muster("open", run.name, code=2).stderr
    assert refused.startswith(f"error: {run.name} has no dashboard, or it is not up yet")


def test_a_port_of_a_nodes_loopback_interface_is_forwarded_from_a_chosen_port(
    client: Client, engine: str
) -> None:
    run, port = start(client, engine, 1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        local = free.getsockname()[1]
    words = [*MUSTER, "open", run.name, "--port", str(port), "--local-port", str(local)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"http://127.0.0.1:{local}/\n"
        assert read(f"http://127.0.0.1:{local}/") == "node 0"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


@pytest.mark.skipif(bool(probe()), reason="needs namespaces")
def test_a_port_of_a_node_with_its_own_network_is_forwarded(client: Client) -> None:
    run, _ = start(client, "local", 2, network="isolated", env={"SERVE": "8123"})
    words = [*MUSTER, "open", run.name, "--port", "8123", "--rank"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen([*words, "1"], **pipes) as one,
        subprocess.Popen(  # type: ignore[call-overload]
            [*words, "0"], **pipes
        ) as other,
    ):
        urls = [process.stdout.readline().strip() for process in (one, other)]
        assert [read(url) for url in (*urls, *urls)] == ["node 1", "node 0"] * 2
        assert all(url.startswith("http://127.0.0.1:") for url in urls)
        one.send_signal(signal.SIGINT)
        assert one.wait(20) == 0
        run.cancel().wait(60)
        assert other.wait(20) == 0
        assert "node-0 of demo-1 has ended" in other.stderr.read()
