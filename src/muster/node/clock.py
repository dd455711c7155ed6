"""The clock of a node server."""

from __future__ import annotations

import time

_BOOT = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Seconds that only grow, also while the machine is suspended, as a laptop is: its supervisor
    keeps counting meanwhile."""
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)
