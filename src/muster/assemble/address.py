"""Where other nodes reach this one."""

from __future__ import annotations

import fcntl
import socket
import struct

#: For documentation, so never ours; no packet is sent by connecting a datagram socket.
_ELSEWHERE = ("192.0.2.1", 9)
_SIOCGIFADDR = 0x8915


def own_address() -> str:
    """The address that packets to other machines come from, else what our host name stands for."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostbyname(socket.gethostname())


def interface_of(address: str) -> str | None:
    """The network interface that carries it; None if that is the loopback, or none does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asker.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # it has no address
            if socket.inet_ntoa(answer[20:24]) == address and name != "lo":
                return name
    return None
