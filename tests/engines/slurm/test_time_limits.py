"""When programs are told to save before the time limit of their job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from muster.engines.loop import EventLoop, RunLoop
from muster.engines.slurm.client import Job
from muster.engines.slurm.time_limits import TimeLimits


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    made = EventLoop()
    yield made
    made.close()


def job(left: float | None, number: int = 7) -> Job:
    end = None if left is None else time.time() + left
    return Job(number, 7, "muster-r1.0", "RUNNING", "", ("n1",), "None", end)


def run_until(loop: EventLoop, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        loop.run_once()


@pytest.mark.parametrize(
    ("left", "warned"), [([3600.0], []), ([None], []), ([70.0], [3]), ([3600.0, 70.0, None], [3])]
)
def test_nodes_are_warned_once_in_time_to_save(
    loop: EventLoop, left: list[float | None], warned: list[int]
) -> None:
    told: list[int] = []
    limits = TimeLimits(RunLoop(loop, print), 60.0, print, told.append)
    assert limits.is_unknown(3)
    for _ in range(2):
        limits.see(3, [job(one, number) for number, one in enumerate(left)])
    assert told == warned and not limits.is_unknown(3)
    limits.close()


def test_a_limit_that_has_moved(loop: EventLoop) -> None:
    """Slurm is asked again before nodes are warned."""
    told: list[int] = []
    jobs = [job(75.3)]
    limits = TimeLimits(
        RunLoop(loop, print), 60.0, lambda number: limits.see(number, jobs), told.append
    )
    limits.see(3, jobs)
    jobs[:] = [job(75.6)]
    run_until(loop, lambda: told)
    assert told == [3] and jobs[0].end is not None and jobs[0].end - time.time() <= 75.0
    limits.close()


def test_nothing_is_asked_for_runs_without_checkpoints(loop: EventLoop) -> None:
    limits = TimeLimits(RunLoop(loop, print), None, print, print)
    limits.see(3, [job(10.0)])
    assert not limits.is_unknown(3)


@pytest.mark.parametrize("ends", [True, False])
def test_a_limit_that_is_lifted_leaves_the_others(loop: EventLoop, ends: bool) -> None:
    """Also one of a job that ends."""
    asked: list[int] = []

    def look(number: int) -> None:
        asked.append(number)
        if number == 3 and ends:
            limits.forget(3)
        elif number == 3:
            limits.see(3, [job(None)])

    limits = TimeLimits(RunLoop(loop, print), 60.0, look, print)
    limits.see(4, [job(75.6)])
    limits.see(3, [job(75.3)])
    run_until(loop, lambda: 4 in asked)
    assert asked == [3, 4]
    limits.close()


def test_a_controller_that_does_not_answer_leaves_the_others(loop: EventLoop) -> None:
    asked: list[int] = []
    limits = TimeLimits(RunLoop(loop, print), 60.0, asked.append, print)
    limits.see(3, [job(75.3)])
    limits.see(4, [job(75.6)])
    run_until(loop, lambda: 4 in asked)
    limits.close()
