"""The files with a run's output, and the processes that write them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from muster.engines import logs
from muster.engines.logs import AttemptLogs, RunLogs
from muster.node import file_watch
from muster.plan.model import RunPlan
from muster.storage.home import Home
from muster.storage.log_index import is_finished
from muster.storage.log_reader import LogCursor

PlanOf = Callable[..., RunPlan]
Streams = list[tuple[str, int | None, str]]


def streams_of(plan: RunPlan, folder: Path) -> Streams:
    """(file, local rank, stream) of each stream of node 1."""
    AttemptLogs(plan, folder)
    streams: list[dict[str, Any]] = json.loads((folder / "streams.json").read_text())
    assert len({stream["number"] for stream in streams}) == len(streams)
    return [(s["file"], s["local_rank"], s["stream"]) for s in streams if s["rank"] == 1]


def test_one_process_per_node_has_one_pair_of_files(plan_of: PlanOf, tmp_path: Path) -> None:
    assert streams_of(plan_of(nodes=2), tmp_path) == [
        ("workers-1.out", 0, "stdout"),
        ("workers-1.err", 0, "stderr"),
    ]


RANKS: Streams = [
    ("workers-1.0.out", 0, "stdout"),
    ("workers-1.0.err", 0, "stderr"),
    ("workers-1.1.out", 1, "stdout"),
    ("workers-1.1.err", 1, "stderr"),
]
LAUNCHER: Streams = [("workers-1.out", None, "stdout"), ("workers-1.err", None, "stderr")]


@pytest.mark.parametrize("framework", ["pytorch", "accelerate", "lightning", "deepspeed"])
@pytest.mark.parametrize(
    ("elastic", "expected"),
    [(False, RANKS), (True, LAUNCHER + RANKS)],
)
def test_each_process_and_launcher_has_its_own_files(
    plan_of: PlanOf, tmp_path: Path, framework: str, elastic: bool, expected: Streams
) -> None:
    """Each process has its own files, and so does the framework's launcher."""
    plan = plan_of(
        nodes=2,
        processes_per_node=2,
        framework=framework,
        framework_options={"elastic": elastic},
    )
    assert streams_of(plan, tmp_path) == expected
    outputs = AttemptLogs(plan, tmp_path).assign_outputs(plan.nodes[1])
    written = [Path(path).name for pair in (*outputs.processes, *outputs.ranks) for path in pair]
    assert written == [file for file, _, _ in expected]
    assert len(outputs.processes) == plan.processes_of(1)


def test_output_shared_by_several_ranks_has_no_local_rank(plan_of: PlanOf, tmp_path: Path) -> None:
    plan = plan_of(nodes=2, processes_per_node=2, framework="mpi")
    assert {local_rank for _, local_rank, _ in streams_of(plan, tmp_path)} == {None}


def test_a_single_rank_writes_to_its_launcher_s_files(plan_of: PlanOf, tmp_path: Path) -> None:
    plan = plan_of(nodes=2, framework="pytorch", framework_options={"elastic": True})
    assert streams_of(plan, tmp_path) == streams_of(plan_of(nodes=2), tmp_path / "static")


def test_no_log_files_are_written_if_logging_is_disabled(plan_of: PlanOf, tmp_path: Path) -> None:
    plan = plan_of(
        processes_per_node=2,
        framework="pytorch",
        framework_options={"elastic": True},
        logging={"enabled": False},
    )
    outputs = AttemptLogs(plan, tmp_path / "logs").assign_outputs(plan.nodes[0])
    assert (outputs.processes, outputs.ranks) == ((("/dev/null", "/dev/null"),), ())
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize("other", [True, False])
def test_attempts_that_an_earlier_session_has_left_are_completed(
    plan_of: PlanOf, tmp_path: Path, other: bool
) -> None:
    plan, run_dir = plan_of(nodes=1), Home(tmp_path).run_dir("r1")
    left = RunLogs(plan, run_dir)
    left.open(0)
    left.open(1)
    for attempt in (0, 1):
        (run_dir.logs(attempt) / "workers-0.out").write_text("a line\n")
    mine = RunLogs(plan, run_dir)
    if other:
        mine.open(2)
    assert not is_finished(run_dir.logs(1))
    mine.finish()
    for attempt in (0, 1, 2) if other else (0, 1):
        cursor = LogCursor(run_dir.logs(attempt))
        lines = [chunk.data for chunk in cursor.read()]
        assert lines == ([b"a line\n"] if attempt < 2 else [])
        assert cursor.finished
        cursor.close()


@pytest.mark.parametrize("inotify", [True, False])
def test_growth_is_not_polled_for_until_the_interval_has_passed(
    plan_of: PlanOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inotify: bool
) -> None:
    """Whenever there is no descriptor to poll, there is a time limit."""
    if not inotify:
        monkeypatch.setattr(file_watch, "_take_descriptor", lambda: -1)
    now = 100.0
    clock = SimpleNamespace(monotonic=lambda: now, time_ns=time.time_ns)
    monkeypatch.setattr(logs, "time", clock)
    attempt = AttemptLogs(plan_of(nodes=1), tmp_path)

    def are_polled() -> bool:  # other processes may have all that this user can have of inotify
        watched, timeout = attempt.waits()
        return watched is not None or timeout is not None

    assert are_polled()
    (tmp_path / "workers-0.out").write_text("a line\n")
    attempt.record_growth()
    watched, pause = attempt.waits()
    assert (watched, pause is not None and pause > 0) == (None, True)
    now += pause or 0
    assert are_polled()
    attempt.finish()
