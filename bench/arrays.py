"""An array of trivial replicas: how many end in a second, each recorded and with its output kept.

Beside them the same commands, as many at once, by GNU xargs, which records and keeps nothing, and
by HyperQueue if it is installed: pip install hyperqueue. `python bench/arrays.py 1000` for fewer.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from common import MUSTER, Measure, compare, fresh_home, timed

AT_ONCE = 8
COMMAND = ("sh", "-c", "echo done")


def xargs(count: int) -> Measure:
    numbers = "\n".join(map(str, range(count)))
    argv = ["xargs", f"-P{AT_ONCE}", "-I{}", *COMMAND]

    def measure() -> float:
        start = time.perf_counter()
        subprocess.run(argv, input=numbers, text=True, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start

    return measure


def muster(count: int) -> Measure:
    array = ("--array", f"n=1..{count}", "--parallelism", str(AT_ONCE))
    run = timed([MUSTER, "run", *array, "--", *COMMAND])

    def measure() -> float:
        with fresh_home() as home:
            took = run()
            with sqlite3.connect(home / "muster.db") as store:
                ((ended,),) = store.execute("SELECT count(*) FROM nodes WHERE exit_code = 0")
            assert ended == count, f"{ended} of {count} were recorded"
        return took

    return measure


@contextmanager
def hyperqueue(count: int) -> Iterator[Measure]:
    """The tasks of one job, each with a file for its output. The worker pretends to have as many
    CPUs as commands run at once."""
    os.environ["TQDM_DISABLE"] = "1"  # no progress bar
    from hyperqueue import Job, LocalCluster  # type: ignore[import-not-found]
    from hyperqueue.cluster import WorkerConfig  # type: ignore[import-not-found]

    def measure() -> float:
        with tempfile.TemporaryDirectory() as folder:
            job = Job(folder, max_fails=0)
            for _ in range(count):
                job.program(list(COMMAND))
            start = time.perf_counter()
            client.wait_for_jobs([client.submit(job)])
            return time.perf_counter() - start

    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(str(Path(folder, "server")), WorkerConfig(AT_ONCE)) as cluster,
    ):
        client = cluster.client()
        yield measure


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    title = f"{count:,} replicas of {' '.join(COMMAND)!r}, {AT_ONCE} at once"
    entrants = {"floor: GNU xargs": xargs(count), "muster run --array": muster(count)}
    if not find_spec("hyperqueue"):
        compare(title, entrants, rounds=3, count=count)
        return
    with hyperqueue(count) as other:
        compare(title, {**entrants, "HyperQueue": other}, rounds=3, count=count)


if __name__ == "__main__":
    main()
