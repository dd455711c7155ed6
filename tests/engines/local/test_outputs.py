"""Which files a run's output is in, and whose they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.engines.local.outputs import Outputs
from muster.plan.model import RunPlan

PlanOf = Callable[..., RunPlan]
Whose = list[tuple[str, int | None, str]]


def whose(plan: RunPlan, folder: Path) -> Whose:
    """(file, local rank, stream) of each of node 1."""
    Outputs(plan, folder)
    streams: list[dict[str, Any]] = json.loads((folder / "streams.json").read_text())
    assert len({stream["number"] for stream in streams}) == len(streams)
    return [(s["file"], s["local_rank"], s["stream"]) for s in streams if s["rank"] == 1]


def test_one_process_a_node(plan_of: PlanOf, tmp_path: Path) -> None:
    assert whose(plan_of(nodes=2), tmp_path) == [
        ("workers-1.out", 0, "stdout"),
        ("workers-1.err", 0, "stderr"),
    ]


RANKS: Whose = [
    ("workers-1.0.out", 0, "stdout"),
    ("workers-1.0.err", 0, "stderr"),
    ("workers-1.1.out", 1, "stdout"),
    ("workers-1.1.err", 1, "stderr"),
]
LAUNCHER: Whose = [("workers-1.out", None, "stdout"), ("workers-1.err", None, "stderr")]


@pytest.mark.parametrize("framework", ["pytorch", "accelerate", "lightning", "deepspeed"])
@pytest.mark.parametrize(
    ("elastic", "expected"),
    [(False, RANKS), (True, LAUNCHER + RANKS)],
)
def test_several_processes_a_node(
    plan_of: PlanOf, tmp_path: Path, framework: str, elastic: bool, expected: Whose
) -> None:
    """Whoever starts them, a process has files of its own; so has what starts them."""
    plan = plan_of(
        nodes=2,
        processes_per_node=2,
        framework=framework,
        framework_options={"elastic": elastic},
    )
    assert whose(plan, tmp_path) == expected
    outputs = Outputs(plan, tmp_path).of(1)
    written = [Path(path).name for pair in (*outputs.processes, *outputs.ranks) for path in pair]
    assert written == [file for file, _, _ in expected]
    assert len(outputs.processes) == plan.processes_of(1)


def test_ranks_that_share_the_launcher_s_are_not_taken_for_the_first(
    plan_of: PlanOf, tmp_path: Path
) -> None:
    plan = plan_of(nodes=2, processes_per_node=2, framework="mpi")
    assert {local_rank for _, local_rank, _ in whose(plan, tmp_path)} == {None}


def test_a_single_rank_shares_its_launcher_s(plan_of: PlanOf, tmp_path: Path) -> None:
    plan = plan_of(nodes=2, framework="pytorch", framework_options={"elastic": True})
    assert whose(plan, tmp_path) == whose(plan_of(nodes=2), tmp_path / "static")


def test_output_that_is_not_kept(plan_of: PlanOf, tmp_path: Path) -> None:
    plan = plan_of(
        processes_per_node=2,
        framework="pytorch",
        framework_options={"elastic": True},
        logging={"enabled": False},
    )
    outputs = Outputs(plan, tmp_path / "logs").of(0)
    assert (outputs.processes, outputs.ranks) == ((("/dev/null", "/dev/null"),), ())
    assert not (tmp_path / "logs").exists()
