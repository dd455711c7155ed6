"""The GPUs of a run."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from muster.engines.reservations import gpus
from muster.engines.reservations.gpus import GpuPool
from muster.errors import EngineError


@pytest.mark.shows("distributed-jobs/gpu-nodes")
def test_gpus_are_never_shared(tmp_path: Path) -> None:
    numbers = [0, 1, 2]
    pool = GpuPool(tmp_path, lambda: numbers)
    assert pool.acquire(2) == (0, 1)
    assert pool.acquire(1) == (2,)
    with pytest.raises(EngineError) as refused:
        pool.acquire(1)
    text = "needs 1 GPU, but only 0 of the run's 3 are free; its other nodes hold 3"
    assert str(refused.value) == text
    assert pool.locked([0, 1, 2, 3]) == (0, 1, 2)
    pool.release([1])
    assert pool.locked([0, 1, 2, 3]) == (0, 2)
    assert pool.acquire(1) == (1,)
    numbers.append(3)
    assert pool.acquire(1) == (3,), "the run was given one more"
    pool.release([0, 1, 2, 3])


def test_a_refusal_holds_no_gpu(tmp_path: Path) -> None:
    pool = GpuPool(tmp_path, lambda: [0, 1])
    with pytest.raises(EngineError) as refused:
        pool.acquire(3)
    assert str(refused.value) == "needs 3 GPUs, but only 2 of the run's 2 are free"
    assert pool.locked([0, 1]) == ()


def test_only_gpus_that_others_hold_are_blamed_on_earlier_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "_flock", try_lock)
    other, pool = (GpuPool(tmp_path, lambda: [0, 1, 2]) for _ in range(2))
    assert other.acquire(1) == (0,)
    assert pool.acquire(1) == (1,)
    with pytest.raises(EngineError) as refused:
        pool.acquire(2)
    assert str(refused.value) == (
        "needs 2 GPUs, but only 1 of the run's 3 are free; its other nodes hold 1; runs of an "
        "earlier version of Muster hold 1 (`muster ps --state in_progress`)"
    )
    other.release([0])
    pool.release([1])


def try_lock(descriptor: int) -> bool:
    """Without a thread that waits for the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_gpus_of_a_killed_run_are_waited_for(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from muster.engines.reservations.gpus import GpuPool\n"
        "p = GpuPool(Path(sys.argv[1]), lambda: [0]); p.acquire(1)\n"
        "print('held', flush=True); time.sleep(99)"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        pool = GpuPool(tmp_path, lambda: [0])
        assert pool.locked([0]) == (0,)
        threading.Timer(0.1, holder.kill).start()
        assert pool.acquire(1) == (0,)
    pool.release([0])
