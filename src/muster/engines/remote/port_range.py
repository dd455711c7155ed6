"""The setting `ports` of profiles: the ports of this machine that nodes may dial. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from muster.errors import Problem
from muster.spec.wording import say

_PORTS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")


def read_ports(text: object) -> tuple[int, int] | None:
    """The first and the last one; None if the text is no range of ports."""
    found = _PORTS.fullmatch(str(text))
    if found is None:
        return None
    first, last = int(found[1]), int(found[2] or found[1])
    return (first, last) if 0 < first <= last < 65536 else None


def port_problems(table: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the setting in a profile."""
    if "ports" in table and read_ports(table["ports"]) is None:
        yield Problem(
            "ports", f"must be FIRST-LAST, not {say(table['ports'])}", 'as in "7000-7100"'
        )
