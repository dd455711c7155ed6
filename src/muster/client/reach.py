"""Where dashboards and ports of nodes are reached from this machine."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from muster.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from muster.api.interface import MusterAPI
    from muster.store.records import NodeRecord, RunSummary

#: Endpoints that a browser opens, the most useful first.
_FOR_BROWSERS = ("dashboard", "serve")
#: Seconds for a port of this machine to accept a connection.
_TIMEOUT = 1.0


class NodePort(NamedTuple):
    """A port of a node, and what follows it in the URL."""

    node: NodeRecord
    port: int
    scheme: str = "http"
    #: With a leading slash, or empty.
    path: str = "/"

    def url(self, host: str, port: int | None = None) -> str:
        """The URL with this host and port; default: its own port."""
        bracketed = f"[{host}]" if ":" in host else host
        return f"{self.scheme}://{bracketed}:{port or self.port}{self.path}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Addresses at which a program of the node may listen, for processes in its network."""
        address = self.node.known_address
        return ((address,) if address else ()) + ("127.0.0.1", "::1")


def dashboard(
    run: RunSummary, nodes: Sequence[NodeRecord], endpoints: Mapping[str, str]
) -> NodePort:
    """The dashboard of a run. Raises InvalidInput if it has none, or not yet."""
    url = next((endpoints[name] for name in _FOR_BROWSERS if name in endpoints), None)
    parts = urlsplit(url or "")
    node = next((node for node in nodes if parts.hostname in _names(node)), None)
    if url is None or node is None or parts.port is None:
        hint = "`--port N --rank N` opens a port of a node, such as 6006 of TensorBoard"
        raise InvalidInput(Problem("", f"{run.name} has no dashboard, or it is not up yet", hint))
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return NodePort(node, parts.port, parts.scheme, path)


def _names(node: NodeRecord) -> tuple[str, str, str]:
    return (node.known_address, node.fqdn, node.fqdn.partition(".")[0])


def shares_loopback(api: MusterAPI) -> bool:
    """Whether loopback addresses of nodes are this machine's: there is no server, or it is at one,
    too."""
    from muster.addresses import is_on_loopback  # few commands ask

    location = api.location()
    return not location.startswith(("http:", "https:")) or is_on_loopback(location)


def answering_host(node_port: NodePort) -> str | None:
    """The first of the port's hosts that accepts connections from this machine, for a run on the
    machine's own network, or on other machines; None if none does."""
    # loopback is this machine's, not that of a node elsewhere
    elsewhere = bool(node_port.node.host)
    for host in node_port.hosts[:1] if elsewhere else node_port.hosts:
        try:
            socket.create_connection((host, node_port.port), _TIMEOUT).close()
        except OSError:
            continue
        return host
    return None


def listen(port: int | None, preferred: int) -> socket.socket:
    """A socket that listens on a port of the loopback interface: the given one, else the preferred
    one if it is free, else any. Raises InvalidInput if the given one cannot be used."""
    for number in (port,) if port is not None else (preferred, 0):
        try:
            return socket.create_server(("127.0.0.1", number))
        except OSError as error:
            reason = error.strerror
    hint = "choose another, or leave it out to use a free one"
    raise InvalidInput(Problem("local_port", f"{port} cannot be used: {reason}", hint))
