"""Whether a supervisor may have as many open files as it needs."""

from __future__ import annotations

import resource

from muster.errors import Problem


def check_open_files(needed: int) -> Problem | None:
    """Why a run cannot start from this process; None if its limit, which the run's supervisor
    inherits, allows so many open files."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY or needed <= allowed:
        return None
    text = f"Too many open files: the run needs {needed:,}, and this shell allows {allowed:,}"
    return Problem("nodes", text, f"allow more: `ulimit -n {max(needed, 1024)}`")
