"""1,000 short runs, on an idle machine and on a loaded one: is anything lost?

Counts missing and wrong log lines, wrong exit codes, wrong states, and processes left behind.
Exits with 1 unless all are zero.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import fresh_home

import muster

MARK = f"MUSTER_SOAK={os.urandom(8).hex()}"
SCRIPT = (
    "i=0; while [ $i -lt $LINES ]; do echo out $NODE_RANK $i; echo err $NODE_RANK $i >&2; "
    "i=$((i+1)); done; setsid sleep 1000 & exit $CODE"
)


def check_run(seed: int) -> dict[str, int]:
    rng = random.Random(seed)
    nodes, lines = rng.choice([1, 1, 2, 4]), rng.choice([0, 1, 7, 50])
    code = rng.choice([0, 0, 0, 1, 21, 255])
    name, value = MARK.split("=")
    run = muster.run(
        command=["sh", "-c", SCRIPT],
        nodes=nodes,
        env={name: value, "LINES": str(lines), "CODE": str(code)},
    ).wait()
    wrong = {"state": 0, "exit code": 0, "lines": 0}
    wrong["state"] += run.state != ("FAILED" if code else "SUCCEEDED")
    wrong["exit code"] += run.exit_code != code
    seen: dict[tuple[int, str], list[str]] = {}
    for record in run.logs(streams=["stdout", "stderr"]):
        seen.setdefault((record.rank, record.stream), []).append(record.message)
    # a failing run ends its other nodes in the middle of their output
    expected = range(nodes) if code == 0 else [n.rank for n in run.nodes if n.state == "FAILED"]
    for rank in expected:
        for stream, word in (("stdout", "out"), ("stderr", "err")):
            expected = [f"{word} {rank} {i}" for i in range(lines)]
            wrong["lines"] += seen.get((rank, stream), []) != expected
    return wrong


def orphans() -> int:
    count = 0
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and MARK.encode() in (folder / "environ").read_bytes():
                count += (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            continue  # it has ended since the list was read
    return count


def soak(title: str, runs: int, at_once: int) -> int:
    with fresh_home():
        start = time.perf_counter()
        with ThreadPoolExecutor(at_once) as pool:
            results = list(pool.map(check_run, range(runs)))
        took = time.perf_counter() - start
    wrong = {key: sum(result[key] for result in results) for key in results[0]}
    wrong["orphans"] = orphans()
    summary = ", ".join(f"{count} wrong {name}" for name, count in wrong.items())
    print(f"{title}: {runs} runs, {runs / took:.0f}/s: {summary}", flush=True)
    return sum(wrong.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    options = parser.parse_args()
    lost = soak("quiet", options.runs, at_once=4)
    burn = [sys.executable, "-c", "while True: pass"]
    load = [subprocess.Popen(burn) for _ in range(3 * (os.cpu_count() or 1))]
    try:
        lost += soak("loaded", options.runs, at_once=8)
    finally:
        for process in load:
            process.kill()
            process.wait()
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
