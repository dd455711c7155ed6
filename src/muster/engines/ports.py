"""Free ports of this machine, and those of a run's services."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from muster.errors import EngineError
from muster.frameworks.base import Port

#: Where free ports are searched. Below the ephemeral range of every system, so that no outgoing
#: connection takes one of them.
_RANGE = range(20000, 32000)


class Ports:
    """The ports of a run's services, reserved until the run ends.

    A reserved port is bound and not listening, with SO_REUSEADDR set. A server of this run that
    sets SO_REUSEADDR (as servers do) can listen on it, while other runs that search for a free
    port find it taken.

    ports: what the run's framework and its job need. own_interfaces: whether each node has all
    ports to itself.
    """

    def __init__(self, ports: Sequence[Port], nodes: int, *, own_interfaces: bool) -> None:
        self._held: list[socket.socket] = []
        #: Port numbers by name, or by NAME.RANK for ports that each node has. Of a row of ports,
        #: the first.
        self.numbers: dict[str, int] = {}
        released: list[socket.socket] = []
        for port in ports:
            names = [f"{port.name}.{n}" for n in range(nodes)] if port.each else [port.name]
            held = self._held if port.held else released
            for name in names:
                if port.can_be_kept(shared=not own_interfaces):
                    self.numbers[name] = port.number
                else:
                    self.numbers[name], sockets = _hold(port)
                    held += sockets
        for one in released:  # held until here so that no two nodes get the same
            one.close()

    def close(self) -> None:
        """Free the ports."""
        for held in self._held:
            held.close()


def _hold(port: Port) -> tuple[int, list[socket.socket]]:
    """Hold a port at its usual number, if that is preferred and free, or at any other."""
    prefer_usual = port.preferred or port.fixed
    usual = hold_ports(port.number, port.count) if prefer_usual else None
    return hold_free_ports(port.count) if usual is None else (port.number, usual)


def hold_free_ports(count: int) -> tuple[int, list[socket.socket]]:
    """Hold `count` consecutive free ports. Returns the first, and the sockets that hold them.

    Raises EngineError if there are none.
    """
    from random import sample  # few runs need free ports

    for first in sample(_RANGE[: len(_RANGE) - count + 1], 200):
        held = hold_ports(first, count)
        if held is not None:
            return first, held
    what = "no free port" if count == 1 else f"no {count} free ports in a row"
    raise EngineError(f"{what} between 20000 and 32000 on this machine")


def hold_ports(first: int, count: int) -> list[socket.socket] | None:
    """Sockets that hold `count` consecutive ports; None if one of the ports is in use."""
    held: list[socket.socket] = []
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
