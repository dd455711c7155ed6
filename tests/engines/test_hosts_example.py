"""The engine on hosts of docs/internals/engines.md, installed like a package."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.control import run_lock
from muster.engines import registry
from support.command import json_of, muster, output_of
from support.faults import until
from support.node_servers import kill
from support.plugins import install_folders


@pytest.fixture(autouse=True)
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install it. Returns the folder of its nodes."""
    install_folders(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    registry._plug_in.cache_clear()
    return tmp_path / f"folders-{os.getuid()}"


def test_a_job_runs_on_the_engine_and_nothing_is_left(nodes: Path) -> None:
    done = muster("run", "--engine", "folders", "--nodes", "2", "--", "sh", "-c", "echo on $RANK")
    assert sorted(line for line in done.stdout.splitlines() if "| on" in line) == [
        "workers/0 | on 0",
        "workers/1 | on 1",
    ]
    assert list(nodes.iterdir()) == []


def test_nodes_outlive_their_supervisor(nodes: Path, own_home: Path) -> None:
    script = "echo begun; until [ -e $MUSTER_OUTPUTS/go ]; do sleep 0.05; done; echo done"
    output_of("run", "--engine", "folders", "-d", "--", "sh", "-c", script)
    until(lambda: "| begun" in output_of("logs", "last"), "it runs")
    run_id = json_of("runs", "show", "last", "--json")["id"]
    supervisor = run_lock.last_holder(own_home / "runs" / run_id / "lease")
    assert supervisor is not None
    kill(supervisor)
    muster("status", "last", code=0)  # starts another one

    def is_reached() -> bool:
        (node,) = json_of("status", "last", "--json")["nodes"]
        return node["unreachable_since"] is None

    until(is_reached, "it is reached")
    muster("exec", "last", "--rank", "0", "--", "sh", "-c", "touch $MUSTER_OUTPUTS/go", code=0)
    muster("wait", "last", code=0)
    assert output_of("logs", "last").count("| begun") == 1
    assert list(nodes.iterdir()) == []
