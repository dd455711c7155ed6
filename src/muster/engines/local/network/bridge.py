"""The network of a run with `network: isolated` or `cluster`: a bridge in a network namespace.

Each node has an interface that is attached to the bridge. Nothing of it exists in the machine's
network, so it cannot clash with anything, and the kernel removes it when the run's last process
ends. No connection from outside reaches the nodes. In an isolated network they cannot connect to
the outside either; in a cluster network the namespace is their router, and connections leave it
through an uplink.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path

from muster.engines.local import namespaces
from muster.engines.local.network import uplink
from muster.engines.local.network.addresses import INTERFACE
from muster.engines.local.network.netlink import Netlink, watch_routes
from muster.errors import EngineError

_BRIDGE = "muster"
_LOOPBACK = 1  # its index in every namespace
_PREFIX = 17
_ROUTER = "10.77.127.254"
#: The bridge's own hardware address. Without one it takes the lowest of its ports', which changes
#: when a node comes or goes: what others send to the address they remember is lost for a minute.
_ROUTER_HARDWARE = b"\x02\x4d\xff\xff\xff\xff"
_FIRST_PORT = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
_BRIDGE_FILTER = "/proc/sys/net/bridge/bridge-nf-call-iptables"
_FORWARDING = "/proc/sys/net/ipv4/ip_forward"
_CREATION_TIMEOUT = 30.0  # seconds for the namespace and its bridge


class Bridge:
    """The bridge of a run, controlled from the supervisor, which stays in the machine's network.

    uplink_path: a path that the uplink uses while it starts; None for a network without one.
    """

    def __init__(self, uplink_path: Path | None = None) -> None:
        self._index, descriptors = _create(routed=uplink_path is not None)
        self._netlink = Netlink(socket.socket(fileno=descriptors[0]))
        self._uplink: uplink.Uplink | None = None
        if uplink_path is not None:
            namespace, routes = descriptors[1], socket.socket(fileno=descriptors[2])
            self._uplink = uplink.Uplink(namespace, routes, uplink_path)
        self._connected = 0

    def connect(self, rank: int, pid: int) -> None:
        """Give a node an interface. pid: its agent, which is in the node's network namespace.

        Raises EngineError, also if the uplink has failed.
        """
        if self._uplink is not None:
            self._uplink.check()
        # the kernel removes the interface of an earlier node of this rank with a delay, so the name
        # is new; the hardware address is the same, as it is in other nodes' ARP caches
        self._connected += 1
        name, hardware = f"n{self._connected}", b"\x02\x4d" + rank.to_bytes(4)
        self._netlink.add_veth(name, self._index, INTERFACE, pid, hardware)

    @property
    def uplink(self) -> uplink.Uplink | None:
        """The program that carries connections to the outside; None without one."""
        return self._uplink

    def reaped(self, pid: int) -> bool:
        """Handle the end of a child process. Returns whether it was the uplink's."""
        return self._uplink is not None and self._uplink.reaped(pid)

    def close(self) -> None:
        """End the uplink. The kernel removes the network when no node is left."""
        if self._uplink is not None:
            self._uplink.close()
        self._netlink.close()


def isolated_unavailable() -> tuple[str, str] | None:
    """Why `network: isolated` does not work on this machine, and what to do; None if it works."""
    failure = "a network namespace cannot have a bridge here"
    if reason := namespaces.probe(lambda: Bridge().close(), failure):
        works = not namespaces.probe()
        return reason, "load the modules bridge and veth" if works else namespaces.advice()
    return None


def cluster_unavailable() -> tuple[str, str] | None:
    """Why `network: cluster` does not work on this machine, and what to do; None if it works."""
    missing = "the kernel cannot translate addresses in a network namespace"
    reason = namespaces.probe(_try_router, missing)
    if not reason:
        return uplink.unavailable()
    if reason == namespaces.CRASHED:  # it tells nothing about the machine
        return reason, "try again"
    return isolated_unavailable() or (missing, "as root, modprobe nft_chain_nat nft_masq")


def _try_router() -> None:
    """Create what a cluster network needs from the kernel. Raises EngineError."""
    for descriptor in _create(routed=True)[1]:
        os.close(descriptor)


def configure_node(address: str, *, routed: bool) -> None:
    """Switch a node's interfaces on and give it its address. Called in the node, once `connect`
    was. routed: whether the network has an uplink."""
    netlink = Netlink()
    netlink.up(_LOOPBACK)
    index = socket.if_nametoindex(INTERFACE)
    netlink.up(index)
    netlink.add_address(index, address, _PREFIX)
    if routed:
        netlink.add_default_route(_ROUTER)
    netlink.close()
    with contextlib.suppress(FileNotFoundError), open(_FIRST_PORT, "w") as file:
        file.write("0")  # programs may listen on ports below 1024 without being root


def _create(*, routed: bool) -> tuple[int, list[int]]:
    """Create the namespace and the bridge. Returns the bridge's index and descriptors: a netlink
    socket in the namespace, which keeps it alive, and, if routed, what the uplink needs.

    A child process does it: entering the namespace and coming back would take rights over the
    machine's network.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _create_in_child(theirs, routed=routed)
    theirs.close()
    ours.settimeout(_CREATION_TIMEOUT)
    try:
        data, descriptors, _, _ = socket.recv_fds(ours, 256, 3)
    except TimeoutError:
        data, descriptors = b"creating it took too long", []
        os.kill(pid, signal.SIGKILL)
    ours.close()
    os.waitpid(pid, 0)
    if not descriptors:
        text = data.decode() or "no answer"
        raise EngineError(f"the run's own network cannot be created on this machine: {text}")
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return int(data), descriptors


def _create_in_child(channel: socket.socket, *, routed: bool) -> None:
    """Create the namespace and send its descriptors over `channel`, or the error. Then exit."""
    try:
        namespaces.unshare(namespaces.CLONE_NEWNET)
        netlink = Netlink()
        netlink.up(_LOOPBACK)
        netlink.add_bridge(_BRIDGE, _ROUTER_HARDWARE)
        index = socket.if_nametoindex(_BRIDGE)
        descriptors = [netlink.socket.fileno()]
        if routed:
            _route(netlink, index)
            routes = watch_routes()
            descriptors += [os.open("/proc/self/ns/net", os.O_RDONLY), routes.fileno()]
        socket.send_fds(channel, [str(index).encode()], descriptors)
    except (OSError, EngineError) as error:
        channel.send(str(error).encode())
    finally:
        os._exit(0)


def _route(netlink: Netlink, bridge: int) -> None:
    """Make this namespace the router of the nodes on its bridge."""
    from muster.engines.local.network.netlink import masquerade

    netlink.add_address(bridge, _ROUTER, _PREFIX)
    with open(_FORWARDING, "w") as file:
        file.write("1")
    masquerade(uplink.INTERFACE)
    # on some machines packets between nodes would be filtered as if they were routed
    with contextlib.suppress(FileNotFoundError), open(_BRIDGE_FILTER, "w") as file:
        file.write("0")
