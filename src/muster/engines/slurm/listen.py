"""The address of this machine that the nodes of a cluster reach."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Mapping

from muster.engines.slurm.client import CannotRun, run

_LOOPBACK = "127.0.0.1"
#: Nodes whose addresses are looked up at most.
_MOST = 8
#: Any port will do: nothing is sent.
_PORT = 9


def listen_address(environ: Mapping[str, str]) -> str | CannotRun:
    """The address by which this machine is in the network of the nodes; that of the loopback if
    they are on this machine. Blocks."""
    try:
        names = run(("sinfo", "--noheader", "--format=%o"), environ).split()
    except CannotRun as error:
        return error
    return address_towards(dict.fromkeys(names))


def address_towards(nodes: Iterable[str]) -> str:
    """The address of this machine on the way to the first of these nodes that has another one."""
    for name in list(nodes)[:_MOST]:
        try:
            family, _, _, _, there = socket.getaddrinfo(name, _PORT, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect(there)
                here = str(sock.getsockname()[0])
        except OSError:
            continue
        if here != there[0] and not ipaddress.ip_address(here.partition("%")[0]).is_loopback:
            return here
    return _LOOPBACK
