"""The interface of this node and the ports it listens on."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

from muster.engines.ports import hold_free_ports
from muster.frameworks.base import Port
from muster.node.free_ports import hold_ports
from muster.node.machine import interfaces


def interface_of(address: str) -> str | None:
    """The network interface with this address; None for the loopback or an unknown address."""
    return next((name for name, found in interfaces() if found == address), None)


class ReservedPorts:
    """The ports of one node: the usual number where it is free, another one otherwise.

    They stay reserved until `close`, so that another node on this machine takes different ones.

    main: whether this node has rank 0. log: called with a message for each port whose usual number
    is in use. Raises EngineError if no port is free.
    """

    def __init__(self, ports: Iterable[Port], log: Callable[[str], None], *, main: bool) -> None:
        #: By name; of several in a row, the first.
        self.numbers: dict[str, int] = {}
        self._held: list[socket.socket] = []
        probes: list[socket.socket] = []
        for port in ports:
            if port.each or main:
                keep = self._held if port.held else probes
                self.numbers[port.name] = _reserve(port, log, keep)
        for probe in probes:
            probe.close()

    def close(self) -> None:
        """Release the ports."""
        for held in self._held:
            held.close()


def _reserve(port: Port, log: Callable[[str], None], keep: list[socket.socket]) -> int:
    number, held = port.number, hold_ports(port.number, port.count)
    if held is None and port.fixed:
        log(f"port {number} ({port.name}) is in use here, and may not be replaced by another")
        return number
    if held is None:
        number, held = hold_free_ports(port.count)
        log(f"port {port.number} ({port.name}) is in use here; using {number}")
    keep += held
    return number
