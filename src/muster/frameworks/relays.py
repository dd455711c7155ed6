"""The relay as frameworks ask for it: one on each node, for what starts ranks on other nodes."""

from __future__ import annotations

from muster.frameworks.base import Answers, Cluster, Need, Port, Service

DEFAULT_PORT = 7070
NEED = Need(str(DEFAULT_PORT), "every", "Muster's relay: the main node starts ranks through it")


def relay_port() -> Port:
    """Where each node's relay listens."""
    return Port("relay", DEFAULT_PORT, each=True)


def relay_service(grace: float = 5.0) -> Service:
    """What it runs ends with it. grace: seconds between SIGTERM and SIGKILL."""
    address = ("--address", "${node.address}", "--port", "${port.relay}")
    return Service(
        name="relay",
        command=("${python}", "-m", "muster.node.relay", "serve", *address, "--grace", str(grace)),
        ready=Answers("${node.address}", "${port.relay}"),
        output="node",
        grace=grace + 1.0,
    )


def relay_places(cluster: Cluster) -> str:
    """All of them, for MUSTER_RELAYS, as a template."""
    places = (f"${{roster.{rank}.address}}:${{port.relay.{rank}}}" for rank in range(cluster.size))
    return ",".join(places)
