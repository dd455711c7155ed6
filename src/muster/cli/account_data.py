"""Records of users, projects and tokens as data, the same in every command."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from muster.describe.times import time_text


def account_data(record: Struct) -> dict[str, Any]:
    """A record as JSON, with its times as text."""
    return {name: _data(name, value) for name, value in asdict(record).items()}


def _data(name: str, value: Any) -> Any:
    if name == "time" or name.endswith("_at"):
        return time_text(value)
    return sorted(value) if isinstance(value, frozenset) else to_builtins(value)
