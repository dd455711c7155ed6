"""From `muster run` to the first training step, per framework, on two nodes.

    python bench/frameworks.py [NAME ...] [--repeats N]

The floor is the same cluster and program, started with the framework's own commands by a program
that runs already (by_hand.py). Both take turns, after one turn each that does not count, so that
a busy machine is busy for both. Each step says how many take part in it: a wrong cluster is no
floor. Frameworks that are not installed are left out.
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

#: The goal: at most so many seconds more than the floor, and so much of the floor.
SECONDS, SHARE = 0.5, 0.05
STEP = re.compile(r"first-step (\d+\.\d+) of (\d+)")
SCRIPTS = Path(__file__).with_name("first_steps")


class Case(NamedTuple):
    """A framework. ranks: who says that the first step is done. module, command: without which it
    is not installed."""

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
        """What is not installed; empty if all is."""
        if find_spec(self.module) is None:
            return f"no {self.module}"
        return f"no {self.command}" if not (by_hand.BIN / self.command).exists() else ""


ONE_THREAD = {"OMP_NUM_THREADS": "1"}
SMALL = {"num_cpus": 1, "object_store_memory": "100000000"}
#: Ray's own is half a gigabyte for each of many files.
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


def first_step(case: Case, begin: float, said: str) -> float:
    """Seconds from `begin` until all had done it."""
    steps = STEP.findall(said)
    if len(steps) != case.ranks or any(size != "2" for _, size in steps):
        raise SystemExit(f"{case.name}: not the first step of two nodes:\n{said[-3000:]}")
    return max(float(when) for when, _ in steps) - begin


def floor(case: Case, script: Path) -> float:
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # as Muster's nodes' ${folder}
    with tempfile.TemporaryDirectory(prefix="hand-", dir=memory) as folder:
        hand = by_hand.Hand(Path(folder))
        try:
            begin = time.time()
            programs = case.by_hand(hand, script)
            hand.until(lambda: all(program.poll() is not None for program in programs))
            return first_step(case, begin, "".join(map(hand.said, programs)))
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
            "max_runtime": f"{by_hand.PATIENCE:.0f}s",
        }
        (home / "job.json").write_text(json.dumps(job))
        begin = time.time()
        try:
            done = muster_does("run", str(home / "job.json"))
        except BaseException:  # the run would go on
            muster_does("runs", "cancel", "last")
            raise
        return first_step(case, begin, done.stdout + done.stderr)


def muster_does(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([MUSTER, *words], capture_output=True, text=True, check=False)


def compare(case: Case, repeats: int) -> None:
    """Print the medians of both; of the overhead, the median over the turns."""
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
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--repeats", type=int, default=5, help="turns (default: %(default)s)")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(known):
        parser.error(f"no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what was started
    for case in CASES:
        if asked.names and case.name not in asked.names:
            continue
        if case.missing:
            print(f"{case.name:16} left out: {case.missing} beside {by_hand.PYTHON}", flush=True)
            continue
        compare(case, asked.repeats)


if __name__ == "__main__":
    main()
