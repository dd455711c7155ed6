"""One rule of nftables, without the program of that name: what leaves has the sender's address.

It stands in a run's own network namespace and goes with it; the machine has no rule of ours.
Message layouts: linux/netfilter/nfnetlink.h, linux/netfilter/nf_tables.h.
"""

from __future__ import annotations

import os
import socket
import struct

from muster.engines.local.netlink import attribute
from muster.errors import EngineError

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
    """In this network namespace: what leaves by this interface has the interface's address. Raises
    EngineError where the kernel cannot."""
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
    asked = [
        (_NEWTABLE, attribute(_TABLE_NAME, _TABLE)),
        (_NEWCHAIN, chain),
        (_NEWRULE, rule),
    ]
    messages = [_message(_BATCH_BEGIN, 0, _REQUEST, b"", family=0, resource=_SUBSYSTEM)]
    for number, (kind, body) in enumerate(asked, 1):
        flags = _REQUEST | _ACK | _CREATE
        messages.append(_message(_SUBSYSTEM << 8 | kind, number, flags, body))
    messages.append(_message(_BATCH_END, 0, _REQUEST, b"", family=0, resource=_SUBSYSTEM))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as sock:
        sock.send(b"".join(messages))
        for code in _answers(sock, len(asked)):
            if code:
                raise EngineError(f"the kernel's nftables cannot masquerade: {os.strerror(-code)}")


def _answers(sock: socket.socket, wanted: int) -> list[int]:
    """Error numbers, 0 for none: of the first requests, or fewer once one has failed."""
    codes: list[int] = []
    while len(codes) < wanted and not any(codes):
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
