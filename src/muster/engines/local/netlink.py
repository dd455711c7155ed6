"""Just enough rtnetlink to give nodes a network of their own.

Some 80 lines instead of a library: the library's import alone costs more than a hundred nodes.
Message layouts: linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/veth.h.
"""

from __future__ import annotations

import os
import socket
import struct

from muster.errors import EngineError

_NETLINK_ROUTE = 0
_RTM_NEWLINK, _RTM_NEWADDR, _RTM_NEWROUTE = 16, 20, 24
_NLM_REQUEST, _NLM_ACK, _NLM_EXCL, _NLM_CREATE = 0x1, 0x4, 0x200, 0x400
_NLMSG_ERROR = 2
_IFF_UP = 1
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER = 1, 3, 4, 10
_IFLA_LINKINFO, _IFLA_NET_NS_PID = 18, 19
_IFLA_INFO_KIND, _IFLA_INFO_DATA, _VETH_INFO_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
#: Of every cable: no wire is slower with large packets, and what carries them out is much faster.
MTU = 65520
_RTA_GATEWAY = 5
_RT_TABLE_MAIN, _RTPROT_STATIC, _RT_SCOPE_UNIVERSE, _RTN_UNICAST = 254, 4, 0, 1
_RTMGRP_IPV4_ROUTE = 0x40


class Netlink:
    """A netlink socket of the network namespace it was made in, wherever it is used later."""

    def __init__(self, sock: socket.socket | None = None) -> None:
        self._sock = sock or socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE)
        self._sequence = 0

    @property
    def socket(self) -> socket.socket:
        return self._sock

    def add_bridge(self, name: str) -> None:
        """A bridge, up."""
        info = attribute(_IFLA_LINKINFO, attribute(_IFLA_INFO_KIND, b"bridge"))
        self._link(_link(0, up=True) + _name(name) + info, create=True, what=f"bridge {name}")

    def add_veth(self, name: str, master: int, peer: str, peer_pid: int, hardware: bytes) -> None:
        """A cable: our end `name` plugged into `master`, the other end `peer` in a process's
        network namespace, with this hardware address."""
        other = _link(0) + _name(peer) + attribute(_IFLA_NET_NS_PID, struct.pack("=I", peer_pid))
        other += attribute(_IFLA_ADDRESS, hardware) + _mtu()
        data = attribute(_IFLA_INFO_DATA, attribute(_VETH_INFO_PEER, other))
        info = attribute(_IFLA_LINKINFO, attribute(_IFLA_INFO_KIND, b"veth") + data)
        plugged = attribute(_IFLA_MASTER, struct.pack("=I", master))
        body = _link(0, up=True) + _name(name) + _mtu() + plugged + info
        self._link(body, create=True, what=f"cable {name}")

    def up(self, index: int) -> None:
        """Switch an interface on."""
        self._link(_link(index, up=True), create=False, what=f"interface {index}")

    def add_address(self, index: int, address: str, prefix: int) -> None:
        """Give an interface an IPv4 address."""
        packed = socket.inet_aton(address)
        body = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, index)
        body += attribute(_IFA_LOCAL, packed) + attribute(_IFA_ADDRESS, packed)
        self._request(_RTM_NEWADDR, _NLM_CREATE | _NLM_EXCL, body, f"address {address}")

    def add_default_route(self, gateway: str) -> None:
        """Send what is for nobody here to a router."""
        kind = (_RT_TABLE_MAIN, _RTPROT_STATIC, _RT_SCOPE_UNIVERSE, _RTN_UNICAST)
        body = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, *kind, 0)
        body += attribute(_RTA_GATEWAY, socket.inet_aton(gateway))
        what = f"the route through {gateway}"
        self._request(_RTM_NEWROUTE, _NLM_CREATE | _NLM_EXCL, body, what)

    def close(self) -> None:
        self._sock.close()

    def _link(self, body: bytes, *, create: bool, what: str) -> None:
        self._request(_RTM_NEWLINK, _NLM_CREATE | _NLM_EXCL if create else 0, body, what)

    def _request(self, kind: int, flags: int, body: bytes, what: str) -> None:
        self._sequence += 1
        flags |= _NLM_REQUEST | _NLM_ACK
        header = struct.pack("=IHHII", 16 + len(body), kind, flags, self._sequence, 0)
        self._sock.send(header + body)
        answer = self._sock.recv(1 << 16)
        (answered,) = struct.unpack_from("=H", answer, 4)
        (code,) = struct.unpack_from("=i", answer, 16)
        if answered != _NLMSG_ERROR or code:
            raise EngineError(f"cannot set up the run's network: {what}: {os.strerror(-code)}")


def watch_routes() -> socket.socket:
    """A socket that hears of each new IPv4 route of the network namespace it is made in."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE)
    sock.bind((0, _RTMGRP_IPV4_ROUTE))
    return sock


def has_default_route(data: bytes) -> bool:
    """Whether one of these messages of `watch_routes` says that there is a default route now."""
    while len(data) >= 28:
        length, kind = struct.unpack_from("=IH", data)
        prefix, table = data[17], data[20]
        if kind == _RTM_NEWROUTE and prefix == 0 and table == _RT_TABLE_MAIN:
            return True
        data = data[length + (-length % 4) :]
    return False


def attribute(kind: int, value: bytes) -> bytes:
    """An attribute of a netlink message."""
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + b"\0" * (-length % 4)


def _name(name: str) -> bytes:
    return attribute(_IFLA_IFNAME, name.encode() + b"\0")


def _mtu() -> bytes:
    return attribute(_IFLA_MTU, struct.pack("=I", MTU))


def _link(index: int, *, up: bool = False) -> bytes:
    flag = _IFF_UP if up else 0
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flag, flag)
