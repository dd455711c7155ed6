"""`muster open`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from muster.cli.arguments import Count, chosen_rank, node_options, run_argument
from muster.cli.flags import as_flags
from muster.cli.terminal import echo, warn
from muster.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from muster.client.client import Client
    from muster.client.reach import NodePort
    from muster.store.records import RunSummary

_Port = Count(min=1, max=65535)


@click.command("open")
@run_argument()
@click.option(
    "--port", type=_Port, metavar="N", help="Open this port of a node instead of the dashboard."
)
@node_options()
@click.option("--local-port", type=_Port, metavar="N", help="Local port to listen on.")
@click.option("--no-browser", is_flag=True, help="Only print the URL.")
def open_(
    run_name: str,
    port: int | None,
    rank: int | None,
    replica: int | None,
    node: int | None,
    local_port: int | None,
    no_browser: bool,
) -> None:
    """Open a run's dashboard (Dask, Ray, Spark), or a node's port.

    Prints the URL, and opens it in a browser if there is a display. With --local-port, if the nodes
    have a network of their own, if the server is on another machine, or if the port of a node on
    another machine cannot be reached from here, the port is forwarded from this machine's loopback
    interface until Ctrl-C.

    \b
    muster open dask-1
    muster open train-3 --port 6006 --rank 0
    muster open sweep-1 --port 6006 --replica 17
    """
    from muster.client.client import Client
    from muster.client.reach import shares_loopback

    client = Client()
    run = client.api.find_run(run_name)
    if replica is not None or node is not None:
        rank = chosen_rank(client.run(run.id), rank, replica, node)
    if rank is not None and port is None:
        option = f"--rank {rank}" if replica is None else f"--replica {replica}"
        hint = f"muster open {run.name} --port 6006 {option}"
        raise InvalidInput(Problem(option.split(maxsplit=1)[0], "needs --port", hint))
    node_port = _node_port(client, run, port, rank)
    shared = shares_loopback(client.api) and client.run(run.id).network == "shared"
    direct = local_port is None and shared
    url = _direct_url(node_port) if direct else None
    if url is not None:
        _show(url, browser=not no_browser)
    else:
        _forward(client, run, node_port, local_port, browser=not no_browser)


def _node_port(client: Client, run: RunSummary, port: int | None, rank: int | None) -> NodePort:
    """What to open. Raises InvalidInput."""
    from muster.client import reach

    if port is not None:
        with as_flags("rank", "replica"):
            return reach.NodePort(client.node_access.find(run.id, rank), port)
    client.node_access.check_in_progress(run.id)  # otherwise it has no dashboard
    return reach.dashboard(run, client.api.nodes(run.id), client.api.endpoints(run.id))


def _direct_url(node_port: NodePort) -> str | None:
    """The URL of a node that is reached from here: it is on this machine's network, or accepts
    connections from here; None if neither is the case."""
    from muster.client.reach import answering_host

    host = answering_host(node_port)
    if host is None:
        if node_port.node.host:
            return None
        warn(f"nothing listens on port {node_port.port} of node-{node_port.node.rank} yet")
    return node_port.url(host or node_port.node.address)


def _show(url: str, *, browser: bool) -> None:
    """Print the URL, and open it in a browser if somebody can see that."""
    echo(url)
    sys.stdout.flush()
    display = sys.platform == "darwin" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    if browser and display and os.isatty(1):
        import webbrowser

        webbrowser.open(url)


def _forward(
    client: Client, run: RunSummary, node_port: NodePort, local_port: int | None, *, browser: bool
) -> None:
    """Forward a port until Ctrl-C, or until the node ends."""
    from muster.client.reach import listen

    rank = node_port.node.rank
    client.node_access.find(run.id, rank)
    with as_flags("local_port"):
        listener = listen(local_port, node_port.port)
    with listener:
        number = listener.getsockname()[1]
        forwarded = client.node_access.forward(
            run.id, rank, node_port.hosts, node_port.port, listener
        )
    try:
        echo(f"forwarding to port {node_port.port} of node-{rank}; Ctrl-C ends it", err=True)
        _show(node_port.url("127.0.0.1", number), browser=browser)
        forwarded.wait()
        echo(f"node-{rank} of {run.name} has ended", err=True)
    except KeyboardInterrupt:
        pass  # the documented way to end it
    finally:
        forwarded.close()
