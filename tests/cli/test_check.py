"""`muster ports` and `muster check`, with real nodes."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from support.command import muster


@pytest.mark.shows(
    "ads-configuration/dask-scheduler-port",
    "cluster-design/firewall",
    "cluster-design/security-list",
)
def test_ports_of_a_framework_are_listed() -> None:
    shown = muster("ports", "dask").stdout
    assert "8786" in shown and "the scheduler" in shown
    shown = json.loads(muster("ports", "pytorch", "--json").stdout)
    assert {"29400", "any"} <= {row["ports"] for row in shown}
    assert "MUSTER_MAIN_PORT" in muster("ports", "generic").stdout
    wrong = muster("ports", "dsk")
    assert wrong.returncode == 2
    assert 'did you mean "dask"?' in wrong.stderr


def test_frameworks_are_listed() -> None:
    listed = {row["name"] for row in json.loads(muster("ports", "--json").stdout)}
    assert {"generic", "pytorch", "dask"} <= listed
    assert "preflight" not in listed


@pytest.mark.embedded("mounts a directory of this machine")
@pytest.mark.shows("cluster-design/firewall")
def test_a_check_reports_that_nodes_can_work_together(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    job = {
        "command": "true",
        "framework": "dask",
        "nodes": 3,
        "mounts": [{"source": "data", "read_only": True}],
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = muster("check", str(tmp_path / "job.json"), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["ok"], report["nodes"], report["engine"]) == (True, 3, "local")
    lines = {line["what"]: line["texts"] for line in report["lines"]}
    assert list(lines) == ["framework", "address", "names", "ports", "clocks", "folders", "disk"]
    assert len(lines["ports"]) == 3
    assert lines["ports"][-1] == "a random port is reachable on 3 nodes"
    assert [text.endswith("of node-0 is reachable") for text in lines["ports"][:-1]] == [True, True]
    assert any("data (/mnt/data) can be read, not written" in text for text in lines["folders"])
    assert not list((tmp_path / "data").iterdir())
    assert json.loads(muster("runs", "list", "--json").stdout) == [], "the check leaves no run"


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    """Nodes in separate namespaces still share the machine's network."""
    job = {"command": "true", "framework": "pytorch", "nodes": 2}
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        job["env"] = {"MASTER_PORT": str(taken.getsockname()[1])}
        (tmp_path / "job.json").write_text(json.dumps(job))
        done = muster("check", str(tmp_path / "job.json"))
    assert done.returncode == 2
    assert "is in use on this machine" in done.stderr
