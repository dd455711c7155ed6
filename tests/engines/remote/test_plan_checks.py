"""What a supervisor of nodes on other machines needs here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster.client.client import Client
from muster.control import run_lock
from muster.engines.remote.plan_checks import check_open_files, notes, problems
from muster.errors import NotRecovered
from muster.plan.model import EnvironmentPlan
from support.command import json_of, muster
from support.faults import until
from support.node_servers import kill


@pytest.mark.parametrize(
    ("group", "allowed", "needed"),
    [
        ({}, 723, 724),
        ({}, 724, None),
        ({}, -1, None),
        ({"replicas": 50}, 374, None),
        ({"replicas": 50}, 373, 374),
    ],
)
def test_more_nodes_than_open_files(
    group: dict[str, int],
    allowed: int,
    needed: int | None,
    plan_of: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (allowed, allowed))
    plan = plan_of(node_groups=[{"name": "w", "replicas": 100}])
    found = check_open_files(plan, {"w": group.get("replicas", 100)})
    text = f"the run needs {needed}, and this shell allows {allowed} (allow more: `ulimit -n 1024`)"
    assert (found and str(found)) == (needed and f"nodes: Too many open files: {text}")


def test_each_process_has_output_files(plan_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (0, 0))
    plan = plan_of(processes_per_node=8, framework="pytorch", nodes=2)
    found = check_open_files(plan, {"workers": 1})
    assert found is not None
    assert "the run needs 66," in found.message
    carried = check_open_files(plan, {"workers": 1}, of_connection=3)
    assert carried is not None and "the run needs 72," in carried.message


def test_files_for_nodes_of_their_own(plan_of: Any) -> None:
    plan = plan_of(resources={"disk": "1GiB", "disk_image": True})
    (problem,) = problems("hosts", plan)
    assert problem.path == "node_groups[workers].resources.disk_image"
    assert problems("hosts", plan_of(resources={"disk": "1GiB"})) == []


def test_requirements_that_are_files_are_noted(plan_of: Any) -> None:
    lines = ("numpy>=2", "/opt/mine-1.0-py3-none-any.whl", "-c /opt/pins.txt")
    plan = msgspec.structs.replace(plan_of(), environment=EnvironmentPlan(lines))
    assert problems("hosts", plan) == []
    assert notes(plan) == [
        f"requirement {path} has to be on the machines, at this path"
        for path in ("/opt/mine-1.0-py3-none-any.whl", "/opt/pins.txt")
    ]
    conda = msgspec.structs.replace(plan, environment=EnvironmentPlan(conda="name: x"))
    assert [problem.path for problem in problems("hosts", conda)] == ["conda"]


def test_a_run_is_left_alone_where_it_would_have_too_few_open_files(
    prepare: Callable[[str], str], own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another supervisor that cannot open their logs would end its nodes."""
    prepare("servers")
    muster("run", "--engine", "servers", "-d", "--nodes", "3", "--", "sleep", "1000")
    until(lambda: json_of("status", "last", "--json")["state"] == "IN_PROGRESS", "it runs")
    run = json_of("runs", "show", "last", "--json")["id"]
    pid = run_lock.last_holder(own_home / "runs" / run / "lease")
    assert pid is not None
    kill(pid)
    with monkeypatch.context() as patch:
        patch.setattr("resource.getrlimit", lambda _: (30, 30))
        warned = pytest.warns(NotRecovered, match="Too many open files: the run needs 45, and")
        with Client(own_home) as other, warned:
            other.runs()
    assert json_of("status", "last", "--json")["state"] == "IN_PROGRESS"
    muster("cancel", "last", code=0)
    muster("wait", "last")


def test_a_forgotten_unit_of_memory(plan_of: Any) -> None:
    plan = plan_of(nodes=1, resources={"memory": 200})
    (problem,) = problems("lab", plan)
    assert str(problem) == (
        "node_groups[workers].resources.memory: 200 bytes are too few for any program "
        "(did you mean 200GiB?)"
    )
