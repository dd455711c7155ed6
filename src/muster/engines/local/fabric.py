"""The network of a run's own: a bridge in a namespace that nobody else is in.

Nothing of it is on the machine's own network, so nothing can clash and nothing stays behind: when
the run's last process has gone, the kernel takes it down. Nobody outside reaches its nodes. In an
isolated network they reach nobody outside either; in a cluster network, what they send elsewhere
goes through the namespace, which is their router, and out by its uplink.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path

from muster.engines.local import linux, uplink
from muster.engines.local.netlink import Netlink, watch_routes
from muster.errors import EngineError

_BRIDGE = "muster"
_LOOPBACK = 1  # its index in every namespace
INTERFACE = "eth0"
_PREFIX = 17
_ROUTER = "10.77.127.254"
_FIRST_PORT = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
_BRIDGE_FILTER = "/proc/sys/net/bridge/bridge-nf-call-iptables"
_FORWARDING = "/proc/sys/net/ipv4/ip_forward"
_MAKING = 30.0  # seconds the kernel has for a namespace and its bridge


class Fabric:
    """The bridge, seen from the supervisor, which stays in the machine's network itself.

    way_out: the path that the way out may use while it starts; None for a network without one.
    """

    def __init__(self, way_out: Path | None = None) -> None:
        self._bridge, found = _make(routed=way_out is not None)
        self._netlink = Netlink(socket.socket(fileno=found[0]))
        self._uplink: uplink.Uplink | None = None
        if way_out is not None:
            self._uplink = uplink.Uplink(found[1], socket.socket(fileno=found[2]), way_out)
        self._cables = 0

    def connect(self, rank: int, pid: int) -> None:
        """Plug in the node whose agent is `pid`, which is in its own network namespace by now."""
        # the cable of a node that was there before goes some time after it; but what the others
        # remember of that node's hardware is right for this one
        if self._uplink is not None:
            self._uplink.check()
        self._cables += 1
        name, hardware = f"n{self._cables}", b"\x02\x4d" + rank.to_bytes(4)
        self._netlink.add_veth(name, self._bridge, INTERFACE, pid, hardware)

    @property
    def way_out(self) -> uplink.Uplink | None:
        """What carries connections out; None if nothing does."""
        return self._uplink

    def reaped(self, pid: int) -> bool:
        """Whether this child of ours that has ended was the network's."""
        return self._uplink is not None and self._uplink.reaped(pid)

    def close(self) -> None:
        if self._uplink is not None:
            self._uplink.close()
        self._netlink.close()


def try_router() -> None:
    """Make what a network with a way out needs of the kernel. Raises EngineError."""
    for descriptor in _make(routed=True)[1]:
        os.close(descriptor)


def configure_node(address: str, *, routed: bool) -> None:
    """In the node, once connected: switch its interfaces on and give it its address. routed:
    whether there is a way out."""
    netlink = Netlink()
    netlink.up(_LOOPBACK)
    index = socket.if_nametoindex(INTERFACE)
    netlink.up(index)
    netlink.add_address(index, address, _PREFIX)
    if routed:
        netlink.add_default_route(_ROUTER)
    netlink.close()
    with contextlib.suppress(FileNotFoundError), open(_FIRST_PORT, "w") as file:
        file.write("0")  # a user, too, may listen wherever nobody else does


def _make(*, routed: bool) -> tuple[int, list[int]]:
    """A child makes the namespace and hands its netlink socket over, which keeps it alive. routed:
    and what the way out needs. Returns the bridge's index, and descriptors.

    Going there and back ourselves would need rights over the machine's own network.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _hand_over(theirs, routed=routed)
    theirs.close()
    ours.settimeout(_MAKING)
    try:
        data, descriptors, _, _ = socket.recv_fds(ours, 256, 3)
    except TimeoutError:
        data, descriptors = b"it took too long to make", []
        os.kill(pid, signal.SIGKILL)
    ours.close()
    os.waitpid(pid, 0)
    if not descriptors:
        text = data.decode() or "no answer"
        raise EngineError(f"no network of the run's own on this machine: {text}")
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return int(data), descriptors


def _hand_over(channel: socket.socket, *, routed: bool) -> None:
    """The child's whole life."""
    try:
        linux.unshare(linux.CLONE_NEWNET)
        netlink = Netlink()
        netlink.up(_LOOPBACK)
        netlink.add_bridge(_BRIDGE)
        index = socket.if_nametoindex(_BRIDGE)
        handed = [netlink.socket.fileno()]
        if routed:
            _route(netlink, index)
            routes = watch_routes()
            handed += [os.open("/proc/self/ns/net", os.O_RDONLY), routes.fileno()]
        socket.send_fds(channel, [str(index).encode()], handed)
    except (OSError, EngineError) as error:
        channel.send(str(error).encode())
    finally:
        os._exit(0)


def _route(netlink: Netlink, bridge: int) -> None:
    """Have this namespace be the router of those on its bridge."""
    from muster.engines.local.nftables import masquerade

    netlink.add_address(bridge, _ROUTER, _PREFIX)
    with open(_FORWARDING, "w") as file:
        file.write("1")
    masquerade(uplink.INTERFACE)
    # or, on some machines, what nodes send each other is looked at as if it were routed
    with contextlib.suppress(FileNotFoundError), open(_BRIDGE_FILTER, "w") as file:
        file.write("0")
