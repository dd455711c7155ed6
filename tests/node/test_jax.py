"""A process's share of the node's GPUs, and the program that is run with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.node.jax import gpu_count, gpu_share


@pytest.mark.parametrize(
    ("env", "count"),
    [
        ({}, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        ({"CUDA_VISIBLE_DEVICES": "3"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "0, 2,5"}, 3),
        ({"CUDA_VISIBLE_DEVICES": "0,1,-1,2"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937,GPU-a1"}, 2),
        ({"HIP_VISIBLE_DEVICES": "0,1,2,3"}, 4),
    ],
)
def test_gpus_that_a_process_sees(tmp_path: Path, env: dict[str, str], count: int) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert gpu_count(env, str(tmp_path)) == count


@pytest.mark.parametrize(
    ("gpus", "shares"),
    [
        (0, [[], []]),
        (1, [[0], [0]]),
        (2, [[0], [1]]),
        (8, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (8, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        (3, [[0], [1, 2]]),
        (2, [[0], [1], [0]]),
    ],
)
def test_all_gpus_are_shared_between_the_processes(gpus: int, shares: list[list[int]]) -> None:
    assert [gpu_share(gpus, rank, len(shares)) for rank in range(len(shares))] == shares


def ran(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    place = {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    return subprocess.run(
        [sys.executable, "-m", "muster.node.jax", *argv],
        env={**os.environ, **place, **env},
        capture_output=True,
        text=True,
        check=False,
    )


PROGRAM = ("sh", "-c", "echo ${JAX_LOCAL_DEVICE_IDS-none}; exit 3")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, "2,3"),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "JAX_LOCAL_DEVICE_IDS": "0"}, "0"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "none"),
    ],
)
def test_the_process_becomes_the_program(env: dict[str, str], expected: str) -> None:
    done = ran(*PROGRAM, **env)
    assert (done.stdout.strip(), done.returncode) == (expected, 3)


def test_the_program_may_ignore_signals() -> None:
    show = ["grep", "SigIgn", "/proc/self/status"]
    done = ran(*show, CUDA_VISIBLE_DEVICES="")
    mine = subprocess.run(show, capture_output=True, text=True, check=True)
    assert done.stdout == mine.stdout


def test_a_missing_program_is_reported() -> None:
    done = ran("no-such-program", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 127
    assert "muster: no-such-program: command not found" in done.stderr
