"""The program of a cluster without a user's program: `python -m muster.node.cluster_lifetime`.

It ends, and the cluster with it, when the cluster's lifetime is over or when the cluster was not
used for a given time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any, Mapping, Sequence

from muster.node.checks import fetch

_POLL_INTERVAL = 1.0  # seconds between two polls of the cluster's use
#: Holds how to find out whether the cluster is used: `frameworks.base.Quiet`, filled, as JSON.
QUIET = "MUSTER_QUIET"
#: Holds the time at which the run first started; restarts do not extend the lifetime.
STARTED = "MUSTER_RUN_STARTED"


def main(argv: Sequence[str]) -> int:
    """Block until the cluster has to end. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="muster.node.cluster_lifetime", description=__doc__)
    parser.add_argument("--until", type=float, help="epoch seconds at which the lifetime is over")
    parser.add_argument("--ttl", type=float, help="the same, in seconds from the run's first start")
    parser.add_argument("--idle", type=float, help="seconds without use after which it ends")
    options = parser.parse_args(argv)
    if options.ttl is not None and options.until is None:
        options.until = float(os.environ.get(STARTED) or time.time()) + options.ttl
    text = os.environ.get(QUIET)
    quiet = json.loads(text) if text else None
    # idle time is measured here, by the monotonic clock; `until` was computed elsewhere
    last_used = time.monotonic()
    while True:
        if options.until is not None and time.time() >= options.until:
            print("its time to live is over")  # noqa: T201
            return 0
        if options.idle is not None and quiet is not None:
            if not _is_quiet(quiet):
                last_used = time.monotonic()
            elif time.monotonic() - last_used >= options.idle:
                print("unused for %g s" % options.idle)  # noqa: T201
                return 0
        time.sleep(_pause(options.until, options.idle))


def _pause(until: float | None, idle: float | None) -> float:
    """Seconds until the next poll."""
    pause = 3600.0
    if idle is not None:
        pause = min(_POLL_INTERVAL, max(idle / 4, 0.05))
    return pause if until is None else min(pause, max(until - time.time(), 0.0))


def _is_quiet(quiet: Mapping[str, Any]) -> bool:
    """Whether the cluster is not used; False if that cannot be found out."""
    try:
        status = json.loads(fetch(quiet["address"], int(quiet["port"]), quiet["path"]))
    except (OSError, ValueError):
        return False
    own = quiet.get("own", {})
    return not any(
        _is_used(_at(status, name.split(".")), own.get(name, 0)) for name in quiet["zero"]
    )


def _is_used(value: Any, own: int) -> bool:
    """Whether more than the framework's own uses are counted. own: the number of those."""
    return value > own if isinstance(value, (int, float)) else bool(value)


def _at(data: Any, path: Sequence[str]) -> Any:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
