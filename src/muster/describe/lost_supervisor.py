"""Hints for runs that fail because their supervisor was ended, as at a shutdown of the machine."""

from __future__ import annotations

import re


def hint_for(message: str, max_restarts: int) -> str:
    """What to do about a failure whose message says that a signal ended the supervisor, in a run
    that never restarts; else ""."""
    if max_restarts or not re.search(r"^the run's supervisor received \w+", message):
        return ""
    return "failure.max_restarts (`--max-restarts 3`) lets the run restart after a shutdown"
