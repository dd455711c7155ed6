"""Preflight checks with real nodes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import muster
from muster.client.check import _answers, check, common_networks
from muster.client.client import Client
from muster.node.requirements import REQUIREMENTS
from support.embedded import embedded

NOISE = """
print("hello from the site")
print('{"rank": 0}')
print("[1, 2]", 3)
"""


def test_output_of_other_programs_is_not_read_as_a_report(
    client: muster.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(NOISE)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)
    job, new = client.job(command="true", nodes=2)
    report = check(client, client.prepare_run(job, new_job=new))
    assert (report.ok, report.nodes) == (True, 2), report
    assert "clocks" in {line.what for line in report.lines}


def test_a_job_called_check_is_not_changed(client: muster.Client) -> None:
    run = client.start(
        client.prepare_run(client.job(command="true", name="check")[0], new_job=True)
    )
    run.wait(60)
    job, new = client.job(command="true")
    check(client, client.prepare_run(job, new_job=new))
    assert [job.version for job in embedded(client).jobs() if job.name == "check"] == [1]
    assert client.runs()[0].id == run.id, "the check leaves no run"


def test_a_successful_check_leaves_no_job(client: Client) -> None:
    job, _ = client.job(command=["true"])
    before = embedded(client).jobs()
    report = check(client, client.prepare_run(job, new_job=True))
    left = [found for found in embedded(client).jobs() if found not in before]
    assert bool(left) is not report.ok, "only a failed check keeps its job and run"


@pytest.fixture
def without_frameworks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes whose Python has none of the frameworks."""
    modules = [module for need in REQUIREMENTS.values() for module in need.modules]
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nfor name in {modules}: sys.modules[name] = None\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    # which is not known before the start: this process has them
    monkeypatch.setattr("muster.service.framework_check.PACKAGES", {})


@pytest.mark.embedded("the packages of the nodes are those of the server")
@pytest.mark.parametrize("framework", ["dask", "horovod", "ray"])
@pytest.mark.usefixtures("without_frameworks")
def test_a_missing_framework_is_reported_by_check_and_by_the_run(
    client: Client, framework: str
) -> None:
    hint = f": {REQUIREMENTS[framework].install}"
    job, new = client.job(command="true", framework=framework, nodes=2)
    report = check(client, client.prepare_run(job, new_job=new))
    (line,) = (line for line in report.lines if line.what == "framework")
    assert not line.ok
    assert all(text.endswith(hint) for text in line.texts)
    run = client.start(client.prepare_run(job)).wait(120)
    assert run.state == "FAILED"
    assert "failed with exit code 127" in run.details
    assert f"muster: no {REQUIREMENTS[framework].name} for /" in run.details
    assert run.details.endswith(hint)


@pytest.mark.usefixtures("without_frameworks")
def test_a_framework_in_the_requirements_need_not_be_installed(client: Client) -> None:
    job, new = client.job(command="true", framework="dask", requirements=["dask"])
    report = check(client, client.prepare_run(job, new_job=new))
    assert report.ok, report


DROP = """
import os, subprocess
if os.environ.get("NODE_RANK") == "0" and "MUSTER_PREFLIGHT" in os.environ:
    rules = b"table inet t { chain c { type filter hook input priority 0; tcp dport 8786 drop; }; }"
    subprocess.run(["nft", "-f", "-"], input=rules, check=True)
"""


@pytest.mark.embedded("mounts a directory of this machine")
@pytest.mark.slow  # nodes wait for each other until a timeout
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nft")
def test_a_port_closed_by_a_firewall_is_reported(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report also has all other problems, and the missing rule."""
    (tmp_path / "sitecustomize.py").write_text(DROP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "empty").mkdir()
    job, new = client.job(
        command="true",
        framework="dask",
        nodes=3,
        network="isolated",
        framework_options={"worker_ports": "8700-8710"},
        mounts=[{"source": f"file://{tmp_path}/empty", "read_only": True}],
    )
    report = check(client, client.prepare_run(job, new_job=new))
    lines = {line.what: line for line in report.lines}
    assert [what for what, line in lines.items() if not line.ok] == ["ports", "urls"]
    *closed, rule = lines["ports"].texts
    assert closed == [
        f"node-{rank}: cannot reach port 8786 of node-0 (10.77.0.1; scheduler): timed out"
        for rank in (1, 2)
    ]
    assert rule.startswith("a firewall rule is missing: open TCP 8786 on node-0 to 10.77.0.0/30 (")
    command = re.search("`(.*)`", rule)
    assert command is not None
    words = shlex.split(command[1])
    printed = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, check=True
    ).stdout
    assert "ip saddr 10.77.0.0/30 tcp dport 8786 accept" in printed, "the hint can be followed"
    assert lines["urls"].texts[0].startswith("/mnt/empty: file:///")


@pytest.mark.parametrize(
    ("addresses", "networks"),
    [
        (["10.0.0.1"], ["10.0.0.1/32"]),
        (["10.0.0.1", "10.0.0.2"], ["10.0.0.0/30"]),
        (["10.0.0.1", "10.0.1.9"], ["10.0.0.0/23"]),
        (["fd00::1", "fd00::2"], ["fd00::/126"]),
        (["fd00::1", "10.0.0.1", "10.0.0.2"], ["10.0.0.0/30", "fd00::1/128"]),
    ],
)
def test_firewall_rules_are_for_the_network_of_the_nodes(
    addresses: list[str], networks: list[str]
) -> None:
    assert common_networks(addresses) == networks


@pytest.mark.embedded("mounts a directory of this machine")
def test_urls_are_checked_for_the_access_that_the_job_needs(client: Client, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").touch()
    job, new = client.job(
        command="true",
        mounts=[
            {"source": f"file://{tmp_path}/in", "read_only": True},
            {"source": f"file://{tmp_path}/out"},
        ],
        env={
            "WORK_DIR": f"file://{tmp_path}/shared",
            "OCI__WORK_DIR": "oci://bucket@namespace/shared",
        },
    )
    report = check(client, client.prepare_run(job, new_job=new))
    (line,) = (line for line in report.lines if line.what == "urls")
    assert line.texts == (
        f"file://{tmp_path}/in can be read (/mnt/in)",
        f"file://{tmp_path}/out can be read and written (/mnt/out)",
        f"file://{tmp_path}/shared can be read and written (WORK_DIR)",
    )
    assert report.ok
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["a"]


def test_nodes_are_named_in_the_order_of_their_ranks() -> None:
    """The order in which nodes report does not matter."""
    reports = ({"rank": rank, "address": "", "found": [], "offset": None} for rank in (2, 0, 1))
    records = [
        SimpleNamespace(message=json.dumps(one), rank=one["rank"], stream="stdout")
        for one in reports
    ]
    run: Any = SimpleNamespace(logs=lambda **_: iter(records))
    assert [*_answers(run, 3, pytest.fail)] == [0, 1, 2]
