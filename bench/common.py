"""Helpers of the benchmarks: alternate measurements, and print medians in a table."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

MUSTER = str(Path(sys.executable).with_name("muster"))
Measure = Callable[[], float]


@contextmanager
def fresh_home() -> Iterator[Path]:
    """A temporary MUSTER_HOME."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        before = os.environ.get("MUSTER_HOME")
        os.environ["MUSTER_HOME"] = folder
        try:
            yield Path(folder)
        finally:
            os.environ.pop("MUSTER_HOME")
            if before is not None:
                os.environ["MUSTER_HOME"] = before


def timed(argv: Sequence[str]) -> Measure:
    """Wall-clock seconds of a command as a process; its output is read and discarded."""

    def measure() -> float:
        start = time.perf_counter()
        done = subprocess.run(argv, capture_output=True, check=False)
        took = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)}: {done.stderr.decode()[-500:]}")
        return took

    return measure


def compare(title: str, entrants: Mapping[str, Measure], *, rounds: int = 9) -> None:
    """Measure in turns, so that load affects all entrants alike; print medians and ratios.

    The first entrant is the floor, to which the others are compared.
    """
    for measure in entrants.values():
        measure()  # warm up
    taken: dict[str, list[float]] = {name: [] for name in entrants}
    for _ in range(rounds):
        for name, measure in entrants.items():
            taken[name].append(measure())
    floor = statistics.median(next(iter(taken.values())))
    print(f"\n{title}\n{'':28} {'median':>9} {'min':>9} {'max':>9} {'x floor':>8}")
    for name, times in taken.items():
        middle = statistics.median(times)
        print(
            f"{name:28} {middle * 1000:7.1f}ms {min(times) * 1000:7.1f}ms "
            f"{max(times) * 1000:7.1f}ms {middle / floor:8.2f}",
            flush=True,
        )
