"""Which results are returned, and which rank's exception is raised."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any, cast

import pytest

from muster.client.results import Results
from muster.client.run import JobRun
from muster.errors import RunFailed
from muster.frameworks.base import RoleSetup
from muster.plan.model import RunPlan
from muster.storage import run_files
from muster.storage.home import Home

PROCESSES_PER_NODE = 2
LAUNCHER = RoleSetup(launcher=("mpiexec",), processes=1)
SERVER = RoleSetup(program=False)


class Run:
    """A run that has ended, as far as results need it."""

    id = "1"
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
    """Each node in its own group."""

    processes_per_node = PROCESSES_PER_NODE

    def __init__(self, *roles: RoleSetup) -> None:
        self.roles = roles

    def group(self, name: str) -> Any:
        rank = int(name.removeprefix("group-"))
        return type("Group", (), {"role": self.roles[rank]})

    def processes_of(self, rank: int) -> int:
        return self.roles[rank].processes or PROCESSES_PER_NODE


class Files:
    """The methods of the API that results need, for a run without a record."""

    def __init__(self, folder: Path) -> None:
        self._home = Home(folder)

    def ranks_with_result(self, run_id: str) -> list[int]:
        return list(run_files.ranks_with_result(self._home.run_dir(run_id)))

    def result(self, run_id: str, rank: int) -> bytes | None:
        return run_files.read_result(self._home.run_dir(run_id), rank)


def results_of(folder: Path, run: Run, *roles: RoleSetup) -> Results:
    nodes = [Node(rank) for rank in range(len(roles))]
    plan = cast(RunPlan, Plan(*roles))
    return Results(cast(JobRun, run), plan, cast(Any, Files(folder)), cast(Any, nodes))


def write_result(
    folder: Path, rank: int, at: int, content: dict[str, Any], restart: str = "1"
) -> None:
    """Write the result file of a rank; `at` is its modification time in nanoseconds."""
    path = Home(folder).run_dir(Run.id).results / f"rank-{rank}" / "result.pickle"
    path.parent.mkdir(parents=True)
    path.write_bytes(pickle.dumps({**content, "restart": restart}))
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


def test_a_failed_launcher_can_name_a_rank_on_any_node(tmp_path: Path) -> None:
    write_result(tmp_path, 0, 4, value(0))
    write_result(tmp_path, 1, 3, error(1))
    write_result(tmp_path, 2, 1, error(2), restart="0")
    write_result(tmp_path, 3, 2, error(3))
    with pytest.raises(ValueError, match="of rank 3"):
        results_of(tmp_path, failed(0), LAUNCHER, SERVER).raise_failure()


def test_exceptions_after_the_loss_of_a_node_are_not_raised(tmp_path: Path) -> None:
    write_result(tmp_path, 3, 1, error(3))
    for run, roles in (
        (failed(0, "node_lost"), (LAUNCHER, SERVER)),
        (failed(0), (RoleSetup(), RoleSetup())),
    ):
        with pytest.raises(RunFailed, match="run-1 is FAILED: it failed"):
            results_of(tmp_path, run, *roles).raise_failure()


def test_only_ranks_of_the_failed_node_are_searched_for_an_exception(tmp_path: Path) -> None:
    write_result(tmp_path, 0, 1, error(0))
    write_result(tmp_path, 3, 2, error(3))
    for roles in ((RoleSetup(), RoleSetup()), (LAUNCHER, SERVER)):
        with pytest.raises(ValueError, match="of rank 3"):
            results_of(tmp_path, failed(1), *roles).raise_failure()


def test_only_ranks_that_returned_have_results(tmp_path: Path) -> None:
    for rank, output in enumerate((value(0), value(1), error(2), value(3))):
        write_result(tmp_path, rank, 9 - rank, output)
    write_result(tmp_path, 4, 0, value(4), restart="0")
    others = Home(tmp_path).run_dir(Run.id).results / "rank-x"  # of the program itself
    others.mkdir()
    (others / "result.pickle").touch()
    run = Run("SUCCEEDED", None)
    assert results_of(tmp_path, run, LAUNCHER, SERVER).values() == [0, 1, 3]
    with pytest.raises(RunFailed, match="rank 7 of run-1 returned no result"):
        results_of(tmp_path, run, LAUNCHER, SERVER).value(7)


def test_results_of_runs_of_the_previous_version_are_found(tmp_path: Path) -> None:
    run_dir = Home(tmp_path).run_dir(Run.id)
    for rank in range(4):
        write_result(tmp_path, rank, rank, value(rank))
    run_dir.results.rename(run_dir.outputs)
    assert results_of(tmp_path, Run("SUCCEEDED", None), LAUNCHER, SERVER).values() == [0, 1, 2, 3]
