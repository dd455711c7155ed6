"""From `muster run` to the first training step, per framework, on two nodes.

    python bench/frameworks.py [NAME ...] [--repeats N]

The floor is the same cluster and program, started with the framework's own commands by a running
program (by_hand.py). Both take turns, after a warm-up turn each, so that load affects both alike.
Each step checks the number of participants: a wrong cluster is not measured. Frameworks that are
not installed are skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import by_hand
from common import MUSTER, fresh_home

#: The goal: at most this many seconds, and this share of the floor, above the floor.
SECONDS, SHARE = 0.5, 0.05
STEP = re.compile(r"first-step (\d+\.\d+) of (\d+)")
SCRIPTS = Path(__file__).with_name("first_steps")


class Case(NamedTuple):
    """A framework: `ranks` report the first step; `module` and `command` must be installed."""

    name: str
    script: str
    by_hand: Callable[[by_hand.Hand, Path], Sequence[by_hand.Process]]
    ranks: int
    module: str
    command: str = ""
    framework: str = ""
    options: Mapping[str, Any] = {}
    env: Mapping[str, str] = {}

    @property
    def missing(self) -> str:
        """The missing module or command; empty if all are installed."""
        if find_spec(self.module) is None:
            return f"no {self.module}"
        return f"no {self.command}" if not (by_hand.BIN / self.command).exists() else ""


ONE_THREAD = {"OMP_NUM_THREADS": "1"}
SMALL = {"num_cpus": 1, "object_store_memory": "100000000"}
#: Ray's default is half a gigabyte for each of many files.
FILES = {"RAY_ROTATION_MAX_BYTES": str(32 << 20), "RAY_ROTATION_BACKUP_COUNT": "1"}
ON_CPU = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2", "TF_NUM_INTRAOP_THREADS": "1"}
GLOO = {"JAX_PLATFORMS": "cpu", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
CASES = (
    Case("pytorch", "pytorch", by_hand.pytorch, 2, "torch"),
    Case(
        *("pytorch-elastic", "pytorch", by_hand.torchrun, 2, "torch", "torchrun"),
        framework="pytorch",
        options={"elastic": True},
        env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    ),
    Case("dask", "dask", by_hand.dask, 1, "distributed", "dask", options={"threads": 1}),
    Case("ray", "ray", by_hand.ray, 1, "ray", "ray", options=SMALL, env=FILES),
    Case("mpi", "mpi", by_hand.mpi, 2, "mpi4py", "mpiexec.hydra", options={"flavour": "mpich"}),
    Case("jax", "jax", by_hand.jax, 2, "jax", env=GLOO),
    Case("tensorflow", "tensorflow", by_hand.tensorflow, 2, "tensorflow", env=ON_CPU),
    Case("horovod", "horovod", by_hand.horovod, 2, "horovod", "horovodrun"),
)


def first_step(case: Case, start: float, output: str) -> float:
    """Seconds from `start` until all ranks had done the first step."""
    steps = STEP.findall(output)
    if len(steps) != case.ranks or any(size != "2" for _, size in steps):
        raise SystemExit(f"{case.name}: not the first step of two nodes:\n{output[-3000:]}")
    return max(float(when) for when, _ in steps) - start


def floor(case: Case, script: Path) -> float:
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # as Muster's nodes' ${folder}
    with tempfile.TemporaryDirectory(prefix="hand-", dir=memory) as folder:
        hand = by_hand.Hand(Path(folder))
        try:
            start = time.time()
            programs = case.by_hand(hand, script)
            hand.until(lambda: all(program.poll() is not None for program in programs))
            return first_step(case, start, "".join(map(hand.output, programs)))
        finally:
            hand.close()


def muster(case: Case, script: Path) -> float:
    with fresh_home() as home:
        job = {
            "name": case.name,
            "artifact": str(script),
            "framework": case.framework or case.name,
            "framework_options": case.options,
            "nodes": 2,
            "max_runtime": f"{by_hand.TIMEOUT:.0f}s",
        }
        (home / "job.json").write_text(json.dumps(job))
        start = time.time()
        try:
            done = run_muster("run", str(home / "job.json"))
        except BaseException:  # else the run would continue
            run_muster("runs", "cancel", "last")
            raise
        return first_step(case, start, done.stdout + done.stderr)


def run_muster(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([MUSTER, *words], capture_output=True, text=True, check=False)


def compare(case: Case, repeats: int) -> None:
    """Print the medians of both, and the median of the overhead over all turns."""
    script = SCRIPTS / f"with_{case.script}.py"
    before = dict(os.environ)
    os.environ.update({**ONE_THREAD, **case.env})
    try:
        turns = [(floor(case, script), muster(case, script)) for _ in range(repeats + 1)][1:]
    finally:
        os.environ.clear()
        os.environ.update(before)
    hand, ours = (statistics.median(times) for times in zip(*turns, strict=True))
    more = statistics.median(ours - hand for hand, ours in turns)
    goal = SECONDS + SHARE * hand
    print(
        f"{case.name:16} by hand {hand:6.2f} s   muster {ours:6.2f} s   "
        f"overhead {more:+5.2f} s {more / hand:+4.0%}   load {os.getloadavg()[0]:.1f}\n"
        f"{'':16} goal: under {goal:.2f} s: {'met' if more < goal else 'not met'}   "
        f"of each turn: {' '.join(f'{ours - hand:+.2f}' for hand, ours in turns)}",
        flush=True,
    )


def main() -> None:
    known = [case.name for case in CASES]
    parser = argparse.ArgumentParser(description="Muster against each framework's own commands.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(known)}")
    parser.add_argument("--repeats", type=int, default=5, help="turns (default: %(default)s)")
    options = parser.parse_args()
    if unknown := set(options.names) - set(known):
        parser.error(f"no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the started processes
    for case in CASES:
        if options.names and case.name not in options.names:
            continue
        if case.missing:
            print(
                f"{case.name:16} skipped: {case.missing} not installed with {by_hand.PYTHON}",
                flush=True,
            )
            continue
        compare(case, options.repeats)


if __name__ == "__main__":
    main()
