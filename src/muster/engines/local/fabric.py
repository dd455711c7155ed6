"""The network of an isolated run: a bridge in a namespace that nobody else is in.

Nothing of it is on the machine's own network, so nothing can clash and nothing stays behind: when
the run's last process has gone, the kernel takes it down. There is no way out of it either, to
the internet or to other runs.
"""

from __future__ import annotations

import os
import signal
import socket

from muster.engines.local import linux
from muster.engines.local.netlink import Netlink
from muster.errors import EngineError

_BRIDGE = "muster"
_LOOPBACK = 1  # its index in every namespace
INTERFACE = "eth0"
_PREFIX = 16
_MAKING = 30.0  # seconds the kernel has for a namespace and its bridge


class Fabric:
    """The bridge, seen from the supervisor, which stays in the machine's network itself."""

    def __init__(self) -> None:
        self._netlink, self._bridge = _make_bridge()
        self._cables = 0

    def connect(self, rank: int, pid: int) -> None:
        """Plug in the node whose agent is `pid`, which is in its own network namespace by now."""
        # the cable of a node that was there before goes some time after it; but what the others
        # remember of that node's hardware is right for this one
        self._cables += 1
        name, hardware = f"n{self._cables}", b"\x02\x4d" + rank.to_bytes(4)
        self._netlink.add_veth(name, self._bridge, INTERFACE, pid, hardware)

    def close(self) -> None:
        self._netlink.close()


def configure_node(address: str) -> None:
    """In the node, once connected: switch its interfaces on and give it its address."""
    netlink = Netlink()
    netlink.up(_LOOPBACK)
    index = socket.if_nametoindex(INTERFACE)
    netlink.up(index)
    netlink.add_address(index, address, _PREFIX)
    netlink.close()


def _make_bridge() -> tuple[Netlink, int]:
    """A child makes the namespace and hands its netlink socket over, which keeps it alive.

    Going there and back ourselves would need rights over the machine's own network.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _hand_over(theirs)
    theirs.close()
    ours.settimeout(_MAKING)
    try:
        data, descriptors, _, _ = socket.recv_fds(ours, 256, 1)
    except TimeoutError:
        data, descriptors = b"it took too long to make", []
        os.kill(pid, signal.SIGKILL)
    ours.close()
    os.waitpid(pid, 0)
    if not descriptors:
        raise EngineError(f"no isolated network on this machine: {data.decode() or 'no answer'}")
    return Netlink(socket.socket(fileno=descriptors[0])), int(data)


def _hand_over(channel: socket.socket) -> None:
    """The child's whole life."""
    try:
        linux.unshare(linux.CLONE_NEWNET)
        netlink = Netlink()
        netlink.up(_LOOPBACK)
        netlink.add_bridge(_BRIDGE)
        index = socket.if_nametoindex(_BRIDGE)
        socket.send_fds(channel, [str(index).encode()], [netlink.socket.fileno()])
    except (OSError, EngineError) as error:
        channel.send(str(error).encode())
    finally:
        os._exit(0)
