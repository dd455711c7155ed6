"""The address of this node and the ports it listens on."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Callable, Iterable

from muster.engines.ports import hold_free_ports, hold_ports
from muster.frameworks.base import Port

#: TEST-NET-1, reserved for documentation. Connecting a datagram socket sends no packet.
_REMOTE = ("192.0.2.1", 9)
_SIOCGIFADDR = 0x8915


def own_address() -> str:
    """The source address of packets to other machines; without a route, that of the host name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_REMOTE)
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostbyname(socket.gethostname())


def interface_of(address: str) -> str | None:
    """The network interface with this address; None for the loopback or an unknown address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(query.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # the interface has no address
            if socket.inet_ntoa(answer[20:24]) == address and name != "lo":
                return name
    return None


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
