"""200 trivial runs from one Python process, one after the other and 8 at a time.

The floor is the time the kernel needs to start that many processes. Each run is recorded,
supervised and logged, and leaves no process behind. TorchX's runner is
measured if it is installed: pip install torchx.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

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
        with fresh_home():
            return measured(one, at_once)

    return measure


def torchx(at_once: int) -> Measure:
    from torchx.runner import get_runner
    from torchx.specs import AppDef, Role

    runner = get_runner()

    def measure() -> float:
        with tempfile.TemporaryDirectory() as logs:

            def one(_: int) -> None:
                app = AppDef("many", roles=[Role("true", image=logs, entrypoint="true")])
                handle = runner.run(app, scheduler="local_cwd", cfg={"log_dir": logs})
                status = runner.wait(handle, wait_interval=0.001)
                assert status is not None
                assert status.state.name == "SUCCEEDED"

            return measured(one, at_once)

    return measure


def measured(one: Callable[[int], None], at_once: int) -> float:
    """Seconds that the runs take."""
    with ThreadPoolExecutor(at_once) as pool:
        one(0)  # what starts once per process
        start = time.perf_counter()
        list(pool.map(one, range(RUNS)))
        return time.perf_counter() - start


if __name__ == "__main__":
    others = {}
    if find_spec("torchx") is not None:
        others = {"TorchX, one by one": torchx(1), "TorchX, 8 at a time": torchx(8)}
    compare(
        f"{RUNS} runs of `true` from one process",
        {
            "floor: subprocess.run": floor,
            "muster.run, one by one": ours(1),
            "muster.run, 8 at a time": ours(8),
            **others,
        },
        rounds=3,
        count=RUNS,
    )
