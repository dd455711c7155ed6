"""Free ports of this machine, and those that a node server reserves."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import Dict, Iterator, List, Tuple

from muster.node.files import read_regular, replace_file
from muster.node.messages import PortRequest, PortsReserved, ReservePorts

#: Where free ports are searched. Below the ephemeral range of every system, so that no outgoing
#: connection takes one of them.
_RANGE = range(20000, 32000)
#: How many are tried.
_ATTEMPTS = 200
#: A first port, and sockets that hold it and those that follow.
Held = Tuple[int, List[socket.socket]]


class NoFreePorts(Exception):  # noqa: N818
    """The text says how many, and where they were searched."""


class PortKeeper:
    """The ports that supervisors have asked for, reserved while this object exists: as
    `engines.ports.Ports`, on the machine where they are used.

    path: of a file with their numbers, by which a server that takes over from one that was killed
    reserves the same, if they are free: other nodes know them.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._known = _read(path)  # name -> first number
        self._held: Dict[str, List[socket.socket]] = {}  # by name; empty if only drawn

    def reserve(self, request: ReservePorts) -> PortsReserved:
        """Reserve ports. Those that are reserved already keep their numbers."""
        released: List[socket.socket] = []
        problem = ""
        for port in request.ports:
            if port.name in self._held:
                continue
            try:
                self._known[port.name], sockets = self._hold(port)
            except NoFreePorts as error:
                problem = str(error)
                break
            self._held[port.name] = sockets if port.held else []
            released += [] if port.held else sockets
        for one in released:  # held until here so that no two ports get the same number
            one.close()
        with contextlib.suppress(OSError):  # a full disk: a server that takes over draws others
            replace_file(self._path, json.dumps(self._known).encode(), 0o600)
        named = [port.name for port in request.ports if port.name in self._held]
        return PortsReserved({name: self._known[name] for name in named}, problem)

    def _hold(self, port: PortRequest) -> Held:
        """Raises NoFreePorts."""
        wanted = self._known.get(port.name, port.number if port.preferred else None)
        usual = None if wanted is None else hold_ports(wanted, port.length)
        return hold_free_ports(port.length) if usual is None else (wanted or 0, usual)

    def close(self) -> None:
        """Free the ports."""
        for sockets in self._held.values():
            for one in sockets:
                one.close()
        self._held.clear()


def _read(path: str) -> Dict[str, int]:
    try:
        data = json.loads(read_regular(path))
    except (OSError, ValueError):  # there is none, or it is incomplete
        return {}
    known = data.items() if isinstance(data, dict) else ()
    return {name: number for name, number in known if type(number) is int and 0 < number < 65536}


def hold_free_ports(count: int) -> Held:
    """Hold `count` consecutive free ports. Returns the first, and the sockets that hold them.

    Raises NoFreePorts.
    """
    firsts = _RANGE[: max(0, len(_RANGE) - count + 1)]
    for first in _drawn(firsts):
        held = hold_ports(first, count)
        if held is not None:
            return first, held
    what = "no free port" if count == 1 else "no %d free ports in a row" % count
    raise NoFreePorts("%s between 20000 and 32000 on this machine" % what)


def _drawn(numbers: range) -> Iterator[int]:
    """Random ones of the numbers."""
    for _ in range(
        _ATTEMPTS if numbers else 0
    ):  # to import `random` takes longer than to start a node
        yield numbers[int.from_bytes(os.urandom(4), "big") % len(numbers)]


def hold_ports(first: int, count: int) -> List[socket.socket] | None:
    """Sockets that hold `count` consecutive ports; None if one of the ports is in use."""
    held: List[socket.socket] = []
    for number in range(first, first + count):
        one = hold_port(number)
        if one is None:
            for other in held:
                other.close()
            return None
        held.append(one)
    return held


def hold_port(number: int, address: str = "") -> socket.socket | None:
    """A socket that holds a port on an address (empty: on all); None if the port is in use."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.bind((address, number))
    except OSError:
        held.close()
        return None
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held
