"""What runs change of their Jobs, from the command line to the nodes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.client.client import Client

JOB = """
name: train
command: [sh, -c, "echo $NAME of $MUSTER_GROUP"]
env: {NAME: job}
node_groups:
  - {name: a, resources: {cpus: 1, memory: 1GiB}}
  - {name: b, replicas: 2, startup_probe: {tcp: 80, period: 3}}
"""
Done = subprocess.CompletedProcess[str]
Muster = Callable[..., Done]


@pytest.fixture
def muster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Muster:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    command = [sys.executable, "-m", "muster"]
    return lambda *words: subprocess.run(
        [*command, *words], check=False, capture_output=True, text=True, timeout=120
    )


def wrong(result: Done) -> list[str]:
    assert result.returncode == 2, result
    return [line.removeprefix("error: ") for line in result.stderr.splitlines()]


@pytest.mark.shows("distributed-jobs/capability-override-node")
def test_explain_says_what_a_run_changes(muster: Muster) -> None:
    flags = ["startup=in_order", "node_groups.b.min_success=1", "node_groups[0].resources.cpus=0.5"]
    words = [word for flag in flags for word in ("--set", flag)]
    said = muster("explain", "job.yaml", *words, "--env", "b:SECRET_KEY=hush").stdout
    changed = [
        line.partition(": ")[2]
        for line in said.splitlines()
        if line.startswith("changed for this run: ")
    ]
    assert changed == [
        "startup: in_order (the job: parallel)",
        'node_groups[a].resources: {"cpus": 0.5, "memory": "1GiB"} '
        '(the job: {"cpus": 1.0, "memory": "1GiB"})',
        "node_groups[b].min_success: 1 (the job: not set)",
        "node_groups[b].env.SECRET_KEY: *** (the job: not set)",
    ]
    assert "startup: each group when the one before it is up" in said
    assert "group b: 2 nodes, 1 of its 2 replicas must succeed" in said
    assert "changed for this run" not in muster("explain", "job.yaml").stdout


def test_what_is_wrong_is_said_of_the_flag(muster: Muster) -> None:
    flags = [
        "node_groups[1].min_success=5",
        "node_groups[1].startup_probe.file=up",
        "node_groups.c.nodes=2",
        "startup_probe.tcp=3",
        "node_groups.a.hostname=same",
        "node_groups.a.nodes=2",
    ]
    words = [word for flag in flags for word in ("--set", flag)]
    assert wrong(muster("run", "job.yaml", *words, "--network", "isolatd", "-o", "x=1")) == [
        "--network isolatd: cannot be 'isolatd' (did you mean \"isolated\"?)",
        "--set node_groups.c.nodes=2: no group named 'c' (there are: a, b)",
        "--set startup_probe.tcp=3: the job has the groups a, b "
        "(say for which: --set node_groups.a.startup_probe=...)",
        "--set node_groups[1].min_success=5: 5 replicas cannot succeed where there are 2 "
        "(at most 2)",
        "--set node_groups.a.hostname=same: ranks 0 and 1 would both be called same "
        "(${rank} makes it a node's own)",
        "--set node_groups[1].startup_probe.file=up: has tcp and file "
        "(give exactly one of exec, tcp and file)",
        "--option x: unknown field (there are none here; remove it)",
    ]


def test_what_a_job_that_is_there_is_cannot_be_said_beside_its_name(
    muster: Muster, client: Client
) -> None:
    assert muster("run", "job.yaml", "--suspend").returncode == 0
    way = "(`muster run` with the file or code that train is from, changed, makes a new version)"
    assert wrong(muster("run", "train", "--framework", "dask", "--name", "other")) == [
        f"--name: belongs to the Job; a run cannot change it {way}",
        f"--framework: belongs to the Job; a run cannot change it {way}",
    ]
    assert len(client.runs()) == 1


def test_a_run_is_resumed_otherwise(muster: Muster, client: Client) -> None:
    assert muster("run", "job.yaml", "--suspend").returncode == 0
    fixed = [
        *("--set", "node_groups.a.nodes=2", "--set", "node_groups[1].replicas=1"),
        *("--set", "processes_per_node=2", "--set", "logging.directory=x"),
        *("--set", "suspend=true", "--set", "node_groups.a.max_replicas=4"),
    ]
    text = "cannot change while a run is suspended"
    said = wrong(muster("runs", "resume", "last", *fixed))
    assert said == [
        f"--set node_groups.a.nodes=2: the nodes of a replica {text} (start another run)",
        f"--set node_groups.a.max_replicas=4: how many replicas there may be {text} "
        "(start another run)",
        f"--set node_groups[1].replicas=1: replicas {text} by being set (start another run)",
        f"--set processes_per_node=2: the processes of a node {text} (start another run)",
        f"--set logging.directory=x: where output is kept {text} (start another run)",
        "--set suspend=true: the run is being resumed (leave it out, or do not resume train-1)",
    ]
    run = client.run("last")
    assert run.state == "SUSPENDED"
    sets = [
        "node_groups.b.min_success=1",
        "node_groups.b.startup_probe={file: /}",
        "node_groups.b.command=sh -c 'exit 1'",
        "startup=in_order",
        "success.others=wait",
        "success.groups=[a]",
        "node_groups.a.hostname=first",
    ]
    words = [word for flag in sets for word in ("--set", flag)]
    words += ["-e", "NAME=resumed", "--max-runtime", "1h"]
    assert muster("runs", "resume", "last", *words).returncode == 0
    assert run.wait(60).state == "SUCCEEDED"
    assert [node.state for node in run.nodes] == ["SUCCEEDED", "FAILED", "FAILED"]
    assert run.nodes[0].fqdn == "first"
    assert [record.message for record in run.logs(streams=["stdout"])] == ["resumed of a"]
    settings = {setting.path: (setting.origin, setting.value) for setting in run.settings()}
    assert settings["max_runtime"] == ("override", 3600.0)
    assert settings["success.groups"] == ("override", ["a"])
    assert settings["node_groups[a].env.NAME"] == ("override", "resumed")
    assert settings["node_groups[a].resources"][0] == "job"


def test_what_a_run_says_of_a_new_job_is_the_jobs(muster: Muster, client: Client) -> None:
    assert muster("run", "--network", "shared", "--", "true").returncode == 0
    settings = {setting.path: setting.origin for setting in client.run("last").settings()}
    assert settings["network"] == "job"
    assert "changed for this run" not in muster("runs", "show", "last").stdout
