"""The ports of a run's services on this machine."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from muster.errors import EngineError
from muster.frameworks.base import Port
from muster.node import free_ports
from muster.node.free_ports import hold_ports


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


def count_held(ports: Sequence[Port], nodes: int, own_interfaces: bool) -> int:
    """The most sockets that `Ports` holds."""
    return sum(
        port.count * (nodes if port.each else 1)
        for port in ports
        if port.held and not port.can_be_kept(shared=not own_interfaces)
    )


def _hold(port: Port) -> tuple[int, list[socket.socket]]:
    """Hold a port at its usual number, if that is preferred and free, or at any other."""
    prefer_usual = port.preferred or port.fixed
    usual = hold_ports(port.number, port.count) if prefer_usual else None
    return hold_free_ports(port.count) if usual is None else (port.number, usual)


def hold_free_ports(count: int) -> free_ports.Held:
    """Hold `count` consecutive free ports. Returns the first, and the sockets that hold them.

    Raises EngineError if there are none.
    """
    try:
        return free_ports.hold_free_ports(count)
    except free_ports.NoFreePorts as error:
        raise EngineError(str(error)) from None
