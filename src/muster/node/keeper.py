"""Keeps a cluster that has no program of its own: `python -m muster.node.keeper`.

It ends, and the cluster with it, when its time is over or when nobody has used it for long enough.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any, Mapping, Sequence

from muster.node.checks import fetch

_LOOK = 1.0  # seconds between two looks whether anybody uses it
#: What to look at, as `frameworks.base.Quiet` with its gaps filled, in JSON.
VARIABLE = "MUSTER_QUIET"
#: When the run first started: what it began again since makes no difference to its time.
STARTED = "MUSTER_RUN_STARTED"


def main(argv: Sequence[str]) -> int:
    """Stay as long as the cluster is wanted. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="muster.node.keeper", description=__doc__)
    parser.add_argument("--until", type=float, help="epoch seconds at which its time is over")
    parser.add_argument("--ttl", type=float, help="the same, in seconds from the run's first start")
    parser.add_argument("--idle", type=float, help="seconds without use after which it ends")
    asked = parser.parse_args(argv)
    if asked.ttl is not None and asked.until is None:
        asked.until = float(os.environ.get(STARTED) or time.time()) + asked.ttl
    told = os.environ.get(VARIABLE)
    quiet = json.loads(told) if told else None
    # its own clock for the idle time; the wall's for a time that was agreed on elsewhere
    busy = time.monotonic()
    while True:
        if asked.until is not None and time.time() >= asked.until:
            print("its time to live is over")  # noqa: T201
            return 0
        if asked.idle is not None and quiet is not None:
            if not _is_quiet(quiet):
                busy = time.monotonic()
            elif time.monotonic() - busy >= asked.idle:
                print("nobody has used it for %g s" % asked.idle)  # noqa: T201
                return 0
        time.sleep(_nap(asked.until, asked.idle))


def _nap(until: float | None, idle: float | None) -> float:
    """Seconds until there is something to look at."""
    nap = 3600.0
    if idle is not None:
        nap = min(_LOOK, max(idle / 4, 0.05))
    return nap if until is None else min(nap, max(until - time.time(), 0.0))


def _is_quiet(quiet: Mapping[str, Any]) -> bool:
    """Whether nobody uses it. One that does not answer is not taken for one that is not used."""
    try:
        told = json.loads(fetch(quiet["address"], int(quiet["port"]), quiet["path"]))
    except (OSError, ValueError):
        return False
    own = quiet.get("own", {})
    return not any(_used(_at(told, name.split(".")), own.get(name, 0)) for name in quiet["zero"])


def _used(value: Any, own: int) -> bool:
    """own: so many are always there."""
    return value > own if isinstance(value, (int, float)) else bool(value)


def _at(told: Any, way: Sequence[str]) -> Any:
    for key in way:
        told = told.get(key) if isinstance(told, dict) else None
    return told


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
