"""Netlink messages that create a run's network: interfaces, addresses, routes, a nftables rule.

Written by hand because importing a netlink library takes longer than starting a hundred nodes.
Message layouts: linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/veth.h,
linux/netfilter/nfnetlink.h, linux/netfilter/nf_tables.h.
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
#: Of every interface. Large packets cost a virtual network nothing and make the uplink faster.
MTU = 65520
_RTA_GATEWAY = 5
_RT_TABLE_MAIN, _RTPROT_STATIC, _RT_SCOPE_UNIVERSE, _RTN_UNICAST = 254, 4, 0, 1
_RTMGRP_IPV4_ROUTE = 0x40


class Netlink:
    """A netlink socket. It acts on the network namespace in which the socket was created."""

    def __init__(self, sock: socket.socket | None = None) -> None:
        self._sock = sock or socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE)
        self._sequence = 0

    @property
    def socket(self) -> socket.socket:
        return self._sock

    def add_bridge(self, name: str, hardware: bytes) -> None:
        """Create a bridge with this hardware address and switch it on."""
        info = attribute(_IFLA_LINKINFO, attribute(_IFLA_INFO_KIND, b"bridge"))
        body = _link(0, up=True) + _name(name) + attribute(_IFLA_ADDRESS, hardware) + info
        self._link(body, create=True, what=f"bridge {name}")

    def add_veth(self, name: str, master: int, peer: str, peer_pid: int, hardware: bytes) -> None:
        """Create a veth pair: `name`, attached to the bridge `master`, and `peer`, in the network
        namespace of a process, with this hardware address."""
        other = _link(0) + _name(peer) + attribute(_IFLA_NET_NS_PID, struct.pack("=I", peer_pid))
        other += attribute(_IFLA_ADDRESS, hardware) + _mtu()
        data = attribute(_IFLA_INFO_DATA, attribute(_VETH_INFO_PEER, other))
        info = attribute(_IFLA_LINKINFO, attribute(_IFLA_INFO_KIND, b"veth") + data)
        plugged = attribute(_IFLA_MASTER, struct.pack("=I", master))
        body = _link(0, up=True) + _name(name) + _mtu() + plugged + info
        self._link(body, create=True, what=f"interface {name}")

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
        """Send packets for other networks to this router."""
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
    """A socket that receives a message for each new IPv4 route of this network namespace."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE)
    sock.bind((0, _RTMGRP_IPV4_ROUTE))
    return sock


def has_default_route(data: bytes) -> bool:
    """Whether messages from `watch_routes` report a default route."""
    while len(data) >= 28:
        length, kind = struct.unpack_from("=IH", data)
        prefix, table = data[17], data[20]
        if kind == _RTM_NEWROUTE and prefix == 0 and table == _RT_TABLE_MAIN:
            return True
        data = data[length + (-length % 4) :]
    return False


def attribute(kind: int, value: bytes) -> bytes:
    """Encode an attribute of a netlink message."""
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + b"\0" * (-length % 4)


def _name(name: str) -> bytes:
    return attribute(_IFLA_IFNAME, name.encode() + b"\0")


def _mtu() -> bytes:
    return attribute(_IFLA_MTU, struct.pack("=I", MTU))


def _link(index: int, *, up: bool = False) -> bytes:
    flag = _IFF_UP if up else 0
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flag, flag)


_NETLINK_NETFILTER = 12
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_SUBSYSTEM = 10
_NEWTABLE, _NEWCHAIN, _NEWRULE = 0, 3, 6
_REQUEST, _ACK, _CREATE = 0x1, 0x4, 0x400
_ERROR = 2
_NESTED = 0x8000
_IPV4 = 2
_POSTROUTING, _SOURCE_NAT_PRIORITY = 4, 100
_TABLE_NAME = 1
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_TYPE = 1, 3, 4, 7
_HOOK_NUMBER, _HOOK_PRIORITY = 1, 2
_RULE_TABLE, _RULE_CHAIN, _RULE_EXPRESSIONS = 1, 2, 4
_LIST_ELEMENT, _EXPRESSION_NAME, _EXPRESSION_DATA = 1, 1, 2
_META_REGISTER, _META_KEY, _OUTPUT_NAME = 1, 2, 7
_COMPARE_REGISTER, _COMPARE_HOW, _COMPARE_DATA, _VALUE = 1, 2, 3, 1
_REGISTER, _EQUAL = 1, 0

_TABLE = _CHAIN = b"muster\0"


def masquerade(interface: str) -> None:
    """Replace the source address of packets that leave this network namespace by an interface with
    the interface's address (source NAT). Raises EngineError if the kernel cannot."""
    hook = attribute(_HOOK_NUMBER, struct.pack(">I", _POSTROUTING))
    hook += attribute(_HOOK_PRIORITY, struct.pack(">I", _SOURCE_NAT_PRIORITY))
    chain = attribute(_CHAIN_TABLE, _TABLE) + attribute(_CHAIN_NAME, _CHAIN)
    chain += attribute(_CHAIN_HOOK | _NESTED, hook) + attribute(_CHAIN_TYPE, b"nat\0")
    load = attribute(_META_REGISTER, struct.pack(">I", _REGISTER))
    load += attribute(_META_KEY, struct.pack(">I", _OUTPUT_NAME))
    name = attribute(_VALUE, interface.encode().ljust(16, b"\0"))
    compare = attribute(_COMPARE_REGISTER, struct.pack(">I", _REGISTER))
    compare += attribute(_COMPARE_HOW, struct.pack(">I", _EQUAL))
    compare += attribute(_COMPARE_DATA | _NESTED, name)
    expressions = _expression("meta", load) + _expression("cmp", compare) + _expression("masq")
    rule = attribute(_RULE_TABLE, _TABLE) + attribute(_RULE_CHAIN, _CHAIN)
    rule += attribute(_RULE_EXPRESSIONS | _NESTED, expressions)
    requests = [
        (_NEWTABLE, attribute(_TABLE_NAME, _TABLE)),
        (_NEWCHAIN, chain),
        (_NEWRULE, rule),
    ]
    messages = [_message(_BATCH_BEGIN, 0, _REQUEST, b"", family=0, resource=_SUBSYSTEM)]
    for number, (kind, body) in enumerate(requests, 1):
        flags = _REQUEST | _ACK | _CREATE
        messages.append(_message(_SUBSYSTEM << 8 | kind, number, flags, body))
    messages.append(_message(_BATCH_END, 0, _REQUEST, b"", family=0, resource=_SUBSYSTEM))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as sock:
        sock.send(b"".join(messages))
        for code in _answers(sock, len(requests)):
            if code:
                raise EngineError(f"the kernel's nftables cannot masquerade: {os.strerror(-code)}")


def _answers(sock: socket.socket, count: int) -> list[int]:
    """Error numbers of the first `count` requests, 0 for success; fewer after a failure."""
    codes: list[int] = []
    while len(codes) < count and not any(codes):
        data = sock.recv(1 << 16)
        while len(data) >= 20:
            length, kind = struct.unpack_from("=IH", data)
            if kind == _ERROR:
                codes += struct.unpack_from("=i", data, 16)
            data = data[length + (-length % 4) :]
    return codes


def _expression(name: str, data: bytes = b"") -> bytes:
    body = attribute(_EXPRESSION_NAME, name.encode() + b"\0")
    body += attribute(_EXPRESSION_DATA | _NESTED, data)
    return attribute(_LIST_ELEMENT | _NESTED, body)


def _message(
    kind: int, number: int, flags: int, body: bytes, *, family: int = _IPV4, resource: int = 0
) -> bytes:
    body = struct.pack(">BBH", family, 0, resource) + body
    return struct.pack("=IHHII", 16 + len(body), kind, flags, number, 0) + body
