"""Relays: a service on each node through which the main node starts ranks there."""

from __future__ import annotations

from muster.frameworks.base import Answers, Cluster, Need, Port, Service

DEFAULT_PORT = 7070
NEED = Need(str(DEFAULT_PORT), "every", "Muster's relay: the main node starts ranks through it")


def relay_port() -> Port:
    """The port of each node's relay."""
    return Port("relay", DEFAULT_PORT, each=True)


def relay_service(grace: float = 5.0) -> Service:
    """The relay. Its programs end with it. grace: their seconds between SIGTERM and SIGKILL."""
    address = ("--address", "${node.address}", "--port", "${port.relay}")
    return Service(
        name="relay",
        command=("${python}", "-m", "muster.node.relay", "serve", *address, "--grace", str(grace)),
        ready=Answers("${node.address}", "${port.relay}"),
        output="node",
        grace=grace + 1.0,
    )


def relay_places(cluster: Cluster) -> str:
    """The addresses of all relays, as a template for MUSTER_RELAYS."""
    places = (f"${{roster.{rank}.address}}:${{port.relay.{rank}}}" for rank in range(cluster.size))
    return ",".join(places)
