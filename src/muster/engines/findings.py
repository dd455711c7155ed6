"""What `muster doctor` shows of an engine."""

from __future__ import annotations

from msgspec import Struct


class Finding(Struct, frozen=True):
    """One ability of this machine."""

    name: str
    works: bool
    #: What was found, for people.
    says: str
    #: How to get the ability; empty if the machine has it.
    advice: str = ""
