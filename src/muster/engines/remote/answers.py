"""What node servers say to a supervisor, checked beyond the types of its fields. Pure.

A node's host may be out of order, or somebody else's. What it says must not end the run as a bug of
the supervisor: a message that no node server sends is as invalid as one that cannot be decoded.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from muster.node import messages
from muster.node.messages import InvalidMessage, Message

_SAID = (
    messages.HostFacts,
    messages.PortsReserved,
    messages.FoldersFound,
    messages.Launched,
    messages.Installing,
    messages.Joined,
    messages.Started,
    messages.Ready,
    messages.DiskExceeded,
    messages.ProgramDone,
    messages.Ended,
)
#: Integers that the store can hold.
_LEAST, _MOST = -(2**63), 2**63 - 1
#: The highest signal; the last second that a time of day can be given for, in the year 9999.
_MAX_SIGNAL, _LAST_TIME = 64, 253402214400.0
_MAX_PORT = 65535


def check(message: Message) -> None:
    """Raises InvalidMessage for what no node server says. The text names the field."""
    name = type(message).__name__
    if not isinstance(message, _SAID):
        raise InvalidMessage(f"{name} is no message of a node server")
    _check_value(message, name)
    if isinstance(message, messages.HostFacts):
        _check_facts(message)
    elif isinstance(message, messages.PortsReserved):
        for port, number in message.numbers.items():
            _need(0 < number <= _MAX_PORT, f"{name}: numbers[{port!r}]", number)
    elif isinstance(message, messages.Ended):
        _check_report(message.report)


def _check_value(value: Any, place: str) -> None:
    """Check that a value can be recorded. Raises InvalidMessage."""
    if isinstance(value, str):
        _need(_is_text(value), place, value)
    elif isinstance(value, int):
        _need(_LEAST <= value <= _MOST, place, value)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            _check_value(key, place)
            _check_value(part, f"{place}[{key!r}]")
    elif hasattr(value, "_asdict"):
        for field, part in value._asdict().items():
            if field != "environ":  # the node's own, which it gets back as it is
                _check_value(part, f"{place}: {field}")
    elif isinstance(value, Sequence):
        for number, part in enumerate(value):
            _check_value(part, f"{place}[{number}]")


def _is_text(value: str) -> bool:
    """Whether it can be written: JSON can have halves of characters."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_facts(facts: messages.HostFacts) -> None:
    """Raises InvalidMessage."""
    try:
        ipaddress.ip_address(facts.address)  # it is written to files of other nodes
    except ValueError:
        raise _invalid("HostFacts: address", facts.address) from None
    _need(facts.cpus > 0, "HostFacts: cpus", facts.cpus)
    _need(facts.memory >= 0, "HostFacts: memory", facts.memory)
    _need(facts.incarnation >= -1, "HostFacts: incarnation", facts.incarnation)
    for field in ("folder", "executable", "modules", "short"):
        path = getattr(facts, field)
        _need(path.startswith("/") and "\0" not in path, f"HostFacts: {field}", path)


def _check_report(report: messages.ExitReport) -> None:
    """Raises InvalidMessage."""
    at = report.raised_at
    _need(0 <= report.signal <= _MAX_SIGNAL, "Ended: signal", report.signal)
    _need(at is None or 0 <= at <= _LAST_TIME, "Ended: raised_at", at)


def _need(holds: bool, place: str, value: object) -> None:
    """Raises InvalidMessage unless it holds."""
    if not holds:
        raise _invalid(place, value)


def _invalid(place: str, value: object) -> InvalidMessage:
    return InvalidMessage(f"{place} cannot be {value!r:.100}")
