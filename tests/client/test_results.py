"""Whose exception is raised, of those that the ranks of a run have left."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any, cast

import pytest

from muster.client.results import Left
from muster.client.run import JobRun
from muster.errors import RunFailed
from muster.frameworks.base import RoleSetup
from muster.plan.model import RunPlan
from muster.storage.home import RunDir

EACH = 2
LAUNCHER = RoleSetup(launcher=("mpiexec",), processes=1)
SERVES = RoleSetup(program=False)


class Run:
    """One that has ended, as far as its results go."""

    name = "run-1"
    details = "it failed"

    def __init__(self, state: str, cause: dict[str, Any] | None) -> None:
        self.state = state
        self.cause = cause


class Node:
    def __init__(self, rank: int, state: str = "SUCCEEDED") -> None:
        self.rank = rank
        self.group = f"group-{rank}"
        self.state = state
        self.incarnation = 1


class Plan:
    """Each node a group of its own."""

    processes_per_node = EACH

    def __init__(self, *roles: RoleSetup) -> None:
        self.roles = roles

    def group(self, name: str) -> Any:
        rank = int(name.removeprefix("group-"))
        return type("Group", (), {"role": self.roles[rank]})

    def processes_of(self, rank: int) -> int:
        return self.roles[rank].processes or EACH


def left(folder: Path, run: Run, *roles: RoleSetup) -> Left:
    nodes = [Node(rank) for rank in range(len(roles))]
    plan = cast(RunPlan, Plan(*roles))
    return Left(cast(JobRun, run), plan, RunDir(folder), cast(Any, nodes))


def leave(folder: Path, rank: int, at: int, said: dict[str, Any], restart: str = "1") -> None:
    """at: when, in an order of our own."""
    path = RunDir(folder).output(rank) / "result.pickle"
    path.parent.mkdir(parents=True)
    path.write_bytes(pickle.dumps({**said, "restart": restart}))
    os.utime(path, ns=(at, at))


def error(rank: int) -> dict[str, Any]:
    text = f"of rank {rank}"
    return {
        "error": pickle.dumps(ValueError(text)),
        "type": "ValueError",
        "text": text,
        "traceback": text,
    }


def value(rank: int) -> dict[str, Any]:
    return {"value": pickle.dumps(rank)}


def failed(rank: int, reason: str = "exit") -> Run:
    return Run("FAILED", {"rank": rank, "reason": reason, "signal": 0})


def test_a_launcher_that_failed_tells_of_a_rank_that_may_be_anywhere(tmp_path: Path) -> None:
    leave(tmp_path, 0, 4, value(0))
    leave(tmp_path, 1, 3, error(1))
    leave(tmp_path, 2, 1, error(2), restart="0")
    leave(tmp_path, 3, 2, error(3))
    with pytest.raises(ValueError, match="of rank 3"):
        left(tmp_path, failed(0), LAUNCHER, SERVES).raise_failure()


def test_what_follows_from_a_loss_is_not_what_ended_it(tmp_path: Path) -> None:
    leave(tmp_path, 3, 1, error(3))
    for run, roles in (
        (failed(0, "node_lost"), (LAUNCHER, SERVES)),
        (failed(0), (RoleSetup(), RoleSetup())),
    ):
        with pytest.raises(RunFailed, match="run-1 is FAILED: it failed"):
            left(tmp_path, run, *roles).raise_failure()


def test_the_blamed_node_s_own_ranks(tmp_path: Path) -> None:
    leave(tmp_path, 0, 1, error(0))
    leave(tmp_path, 3, 2, error(3))
    for roles in ((RoleSetup(), RoleSetup()), (LAUNCHER, SERVES)):
        with pytest.raises(ValueError, match="of rank 3"):
            left(tmp_path, failed(1), *roles).raise_failure()


def test_of_ranks_that_a_launcher_started_those_count_that_returned(tmp_path: Path) -> None:
    for rank, said in enumerate((value(0), value(1), error(2), value(3))):
        leave(tmp_path, rank, 9 - rank, said)
    leave(tmp_path, 4, 0, value(4), restart="0")
    (tmp_path / "outputs" / "rank-x").mkdir()
    (tmp_path / "outputs" / "rank-x" / "result.pickle").touch()  # the program's own
    run = Run("SUCCEEDED", None)
    assert left(tmp_path, run, LAUNCHER, SERVES).values() == [0, 1, 3]
    with pytest.raises(RunFailed, match="run-1: rank 7 has left no result"):
        left(tmp_path, run, LAUNCHER, SERVES).value(7)
