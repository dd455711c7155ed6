"""Helpers of the benchmarks: alternate measurements, and print medians in a table."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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


def processor_time(argv: Sequence[str]) -> float:
    """Seconds of CPU of a command and of all processes that it leaves behind, once they have ended.

    Unlike the wall-clock time, it hardly depends on the load of the machine.
    """
    import ctypes

    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: they become children of this process
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    timed(argv)()
    with suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def compare(
    title: str, entrants: Mapping[str, Measure], *, rounds: int = 9, count: int | None = None
) -> None:
    """Measure in turns, so that load affects all entrants alike; print medians and ratios.

    The first entrant is the floor, to which the others are compared. count: of what each starts;
    how many it starts in a second is printed, too.
    """
    for measure in entrants.values():
        measure()  # warm up
    taken: dict[str, list[float]] = {name: [] for name in entrants}
    for _ in range(rounds):
        for name, measure in entrants.items():
            taken[name].append(measure())
    floor = statistics.median(next(iter(taken.values())))
    rate = "" if count is None else f"{'a second':>10}"
    print(f"\n{title}\n{'':28} {'median':>9} {'min':>9} {'max':>9} {'x floor':>8}{rate}")
    for name, times in taken.items():
        middle = statistics.median(times)
        rate = "" if count is None else f"{count / middle:10,.0f}"
        print(
            f"{name:28} {middle * 1000:7.1f}ms {min(times) * 1000:7.1f}ms "
            f"{max(times) * 1000:7.1f}ms {middle / floor:8.2f}{rate}",
            flush=True,
        )
