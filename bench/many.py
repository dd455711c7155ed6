"""200 trivial runs from one Python process, one after the other and 8 at a time.

The floor is the time the kernel needs to start that many processes. Each run is recorded,
supervised and logged, and leaves no process behind.
"""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from common import Measure, compare, fresh_home

import muster

RUNS = 200


def floor() -> float:
    start = time.perf_counter()
    for _ in range(RUNS):
        subprocess.run(["true"], check=True)
    return time.perf_counter() - start


def ours(at_once: int) -> Measure:
    def one(_: int) -> None:
        run = muster.run(command=["true"]).wait()
        assert run.state == "SUCCEEDED", run.details

    def measure() -> float:
        with fresh_home(), ThreadPoolExecutor(at_once) as pool:
            one(0)  # the launcher starts once per process
            start = time.perf_counter()
            list(pool.map(one, range(RUNS)))
            took = time.perf_counter() - start
        print(f"   {at_once} at once: {RUNS / took:.0f} runs/s", flush=True)
        return took

    return measure


if __name__ == "__main__":
    compare(
        f"{RUNS} runs of `true` from one process",
        {
            "floor: subprocess.run": floor,
            "muster.run, one by one": ours(1),
            "muster.run, 8 at a time": ours(8),
        },
        rounds=3,
    )
