"""The colours of states, the same on terminals and in notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Color = Literal["green", "red", "yellow", "cyan"]

#: Every state of runs, nodes and clusters -> its colour; None: that of other text.
STATE_COLORS: Mapping[str, Color | None] = {
    "ACCEPTED": None,
    "QUEUED": "yellow",
    "PENDING": None,
    "STARTING": "cyan",
    "IN_PROGRESS": "cyan",
    "RUNNING": "cyan",
    "READY": "cyan",
    "UP": "green",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "CANCELING": "yellow",
    "CANCELED": "yellow",
    "SUSPENDED": "yellow",
    "STOPPED": "yellow",
    "NEEDS_ATTENTION": "red",
    "SCALED_DOWN": None,
    "DELETED": None,
}
