"""One `squeue` for all jobs of a process, as often as is needed. A script stands for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from muster.engines.loop import EventLoop, RunLoop
from muster.engines.slurm.client import CannotRun, Job
from muster.engines.slurm.watcher import Watcher

SQUEUE = """\
#!/bin/sh
echo "$@" >> {folder}/calls
[ -e {folder}/fails ] && {{ echo "squeue: error: Unable to contact slurm controller" >&2; exit 1; }}
cat {folder}/jobs
"""


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    made = EventLoop()
    yield made
    made.close()


@pytest.fixture
def watcher(loop: EventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watcher:
    script = tmp_path / "squeue"
    script.write_text(SQUEUE.format(folder=tmp_path))
    script.chmod(0o755)
    (tmp_path / "jobs").write_text(
        "1|1|a|PENDING|N/A|N/A|main|5|0||Resources\n2|2|b|RUNNING|N/A|N/A|main|5|0|n1|None\n"
    )
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return Watcher(loop, os.environ)


def run_until(loop: EventLoop, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        loop.post(lambda: None)
        loop.run_once()


Seen = list[Sequence[Job] | CannotRun]


def watch(
    watcher: Watcher, loop: EventLoop, job: int, name: str | None = None
) -> tuple[object, Seen]:
    owner, seen = object(), list[Sequence[Job] | CannotRun]()
    watcher.watch(owner, str(job), name, RunLoop(loop, print), seen.append)
    return owner, seen


def test_jobs_of_several_runs_are_asked_for_at_once(
    watcher: Watcher, loop: EventLoop, tmp_path: Path
) -> None:
    _, first = watch(watcher, loop, 1)
    _, second = watch(watcher, loop, 2)
    run_until(loop, lambda: first and second)
    assert not isinstance(first[0], CannotRun) and not isinstance(second[0], CannotRun)
    assert [job.state for job in first[0]] == ["PENDING"]
    assert [job.state for job in second[0]] == ["RUNNING"]
    assert "--jobs=1,2" in (tmp_path / "calls").read_text().splitlines()[0]


def test_a_job_that_is_forgotten_is_not_asked_for(
    watcher: Watcher, loop: EventLoop, tmp_path: Path
) -> None:
    owner, _ = watch(watcher, loop, 1)
    _, second = watch(watcher, loop, 2)
    watcher.forget(owner, "1")
    run_until(loop, lambda: second)
    assert "--jobs=2" in (tmp_path / "calls").read_text().split()


def test_a_controller_that_does_not_answer(
    watcher: Watcher, loop: EventLoop, tmp_path: Path
) -> None:
    (tmp_path / "fails").touch()
    owner, seen = watch(watcher, loop, 1)
    run_until(loop, lambda: seen)
    (answer,) = seen
    assert isinstance(answer, CannotRun) and not answer.refused
    (tmp_path / "fails").unlink()
    watcher.look_soon(owner, "1")
    run_until(loop, lambda: len(seen) > 1)
    assert not isinstance(seen[1], CannotRun)


def test_a_job_of_another_name_is_not_known(watcher: Watcher, loop: EventLoop) -> None:
    _, own = watch(watcher, loop, 1, "a")
    _, other = watch(watcher, loop, 2, "a")
    run_until(loop, lambda: own and other)
    assert not isinstance(own[0], CannotRun) and [job.id for job in own[0]] == [1]
    assert other[0] == []


def test_the_place_in_the_queue_is_looked_up_for_jobs_that_wait(
    watcher: Watcher, loop: EventLoop, tmp_path: Path
) -> None:
    with (tmp_path / "jobs").open("a") as file:
        file.write("3|3|other|PENDING|N/A|N/A|main|9|1000||Priority\n")
    owner, seen = watch(watcher, loop, 1)
    run_until(loop, lambda: seen)
    watcher.look_soon(owner, "1")
    run_until(loop, lambda: len(seen) > 1)
    assert not isinstance(seen[0], CannotRun) and not isinstance(seen[1], CannotRun)
    assert [job.ahead for job in (*seen[0], *seen[1])] == [None, 1]
    first, second = (tmp_path / "calls").read_text().splitlines()[:2]
    assert "--jobs=1" in first and "--jobs" not in second


def test_a_bug_reaches_the_runs_alone(
    watcher: Watcher, loop: EventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that begin later are watched."""
    errors: list[Exception] = []
    monkeypatch.setattr("muster.engines.slurm.watcher.jobs_with_ids", None)
    watcher.watch(object(), "1", None, RunLoop(loop, errors.append), print)
    run_until(loop, lambda: errors)
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    _, seen = watch(watcher, loop, 2)
    run_until(loop, lambda: seen)
    assert isinstance(errors[0], TypeError) and len(errors) == 1
