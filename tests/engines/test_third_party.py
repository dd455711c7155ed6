"""The engine of docs/internals/own-session.md, installed like a package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.control import run_lock
from muster.engines import registry
from muster.errors import EngineError, InvalidInput, NotRecovered
from support.command import json_of, muster, output_of
from support.faults import until
from support.node_servers import kill
from support.plugins import install_processes


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    install_processes(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    registry._plug_in.cache_clear()
    return folder


@pytest.fixture
def sleeping() -> Iterator[str]:
    """The name of a run of two nodes in progress on the engine."""
    script = "echo up; exec sleep 1000"
    output_of("run", "--engine", "processes", "--nodes", "2", "-d", "--", "sh", "-c", script)
    until(lambda: output_of("logs", "last").count("up") == 2, "both write")
    yield "last"
    muster("cancel", "last", "--force")


def test_a_job_runs_on_the_engine() -> None:
    script = "echo rank $RANK of $WORLD_SIZE; echo kept > $MUSTER_OUTPUTS/file; exit $RANK"
    done = muster(
        *("run", "--engine", "processes", "--nodes", "2", "--max-restarts", "1"),
        *("--", "sh", "-c", script),
        code=1,
    )
    lines = sorted(line for line in done.stdout.splitlines() if "rank" in line)
    assert lines.count("workers/1 | rank 1 of 2") == 2
    # it may be stopped before it prints anything, if rank 1 fails sooner
    assert lines.count("workers/0 | rank 0 of 2") in (1, 2)
    run = json_of("runs", "show", "last", "--json")
    assert (run["engine"], run["state"]) == ("processes", "FAILED")
    assert "exit code 1" in run["details"]
    assert json_of("outputs", "last", "--json")


def test_the_spec_chooses_the_engine_and_a_run_another(tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text("engine: processes\ncommand: 'true'\n")
    assert json_of("explain", str(spec), "-o", "json")["engine"] == "processes"
    assert "\nengine: local\n" in output_of("explain", str(spec), "--engine", "local")
    assert "overridden for this run: engine: local (in the job: processes)" in output_of(
        "explain", str(spec), "--engine", "local"
    )


def test_the_engine_refuses_with_all_other_problems(tmp_path: Path, site: Path) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text(
        "engine: processes\nnetwork: isolated\ncommand: 'true'\n"
        "node_groups:\n- {name: a, max_replicas: 2}\n- {name: b, nodes: 0}\n"
        "failure:\n  strategy: in_place\n  action: restart_node\n"
        "  rules:\n  - {action: fail, exit_codes: [3]}\n  - {action: restart_node, groups: [c]}\n"
    )
    module = site / "processes.py"
    module.write_text(module.read_text().replace("replace_node=True, ", ""))
    done = muster("run", str(spec), code=2)
    assert done.stderr.splitlines() == [
        f"error: {spec}:2: network: engine processes has no network of its own",
        f"error: {spec}:5: node_groups[0].max_replicas: engine processes cannot scale runs in "
        "progress (leave it out)",
        f"error: {spec}:6: node_groups[1].nodes: must be at least 1, not 0",
        f"error: {spec}:8: failure.strategy: engine processes cannot restart programs in place "
        "(use recreate or blocking_recreate)",
        f"error: {spec}:9: failure.action: engine processes cannot replace single nodes "
        "(use restart_replica)",
        f"error: {spec}:12: failure.rules[1].groups[0]: no group named 'c' (use a or b)",
        f"error: {spec}:12: failure.rules[1].action: engine processes cannot replace single nodes "
        "(use restart_replica)",
    ]


def test_the_rules_of_a_framework_are_those_that_the_engine_can_follow(
    tmp_path: Path, site: Path
) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text("framework: dask\ncommand: 'true'\nnodes: 3\nfailure: {max_restarts: 2}\n")
    explained = ("explain", str(spec), "--engine", "processes", "-o", "json")
    assert "restart_node" in json.dumps(json_of(*explained))
    module = site / "processes.py"
    module.write_text(module.read_text().replace("replace_node=True, ", ""))
    assert "restart_node" not in json.dumps(json_of(*explained))


def test_an_unknown_engine_is_reported_with_all_other_problems(tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text("engine: proceses\nshape: no-such\ncommand: 'true'\nnodes: 0\n")
    lines = muster("run", str(spec), code=2).stderr.splitlines()
    assert lines[0] == (
        f"error: {spec}:1: engine: no engine named 'proceses' is installed "
        '(did you mean "processes"? installed: local, container, kubernetes, processes, slurm)'
    )
    assert lines[1].startswith(f"error: {spec}:2: shape: ")
    assert lines[2] == f"error: {spec}:4: nodes: must be at least 1, not 0"
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("exec", "last", "--rank", "0", "--", "true"), "run commands in nodes"),
        (("shell", "last", "--rank", "0"), "run commands in nodes"),
        (("cp", "last:0:x", "."), "run commands in nodes"),
        (("stacks", "last"), "read stacks of Python threads"),
        (("top", "last", "--once"), "measure what nodes use"),
    ],
)
def test_commands_say_what_the_engine_cannot_do(
    sleeping: str, command: tuple[str, ...], what: str
) -> None:
    done = muster(*command, code=2, stdin=-3)
    assert f"engine processes cannot {what}" in done.stderr, sleeping


def test_runs_that_cannot_be_measured_are_named(sleeping: str) -> None:
    done = muster("top", "--once", code=0)
    assert done.stdout == "", sleeping
    assert done.stderr == "sh-1 is not shown: engine processes cannot measure what nodes use\n"


def test_engines_are_listed_with_what_they_can_do(site: Path) -> None:
    text = output_of("engines", "list")
    # whether those are usable depends on the machine
    others = ("container", "kubernetes", "slurm")
    table = text.splitlines()[: text.splitlines().index("")]
    assert [line for line in table if not line.startswith(others)] == [
        "ENGINE      FROM                  USABLE HERE",
        "local       built in              yes",
        "processes   muster-processes 0.1  yes",
    ]
    own = _listed("processes")
    assert own == {
        "name": "processes",
        "from": "muster-processes 0.1",
        "usable": True,
        "why_not": None,
        "capabilities": dict.fromkeys(own["capabilities"], False)
        | {"replace_node": True, "suspend": True, "shared_files": True},
    }
    (site / "processes.py").write_text("import nothing_like_this")
    assert "cannot be loaded" in _listed("processes")["why_not"]
    findings = json_of("doctor", "--json")
    (found,) = (one for one in findings if one["name"] == "engine processes")
    assert not found["works"]


def _listed(name: str) -> dict[str, Any]:
    (found,) = (one for one in json_of("engines", "list", "--json") if one["name"] == name)
    return dict(found)


def test_a_run_whose_engine_is_gone_is_left_alone_until_it_is_back(
    sleeping: str, own_home: Path, monkeypatch: pytest.MonkeyPatch, site: Path
) -> None:
    run = json_of("runs", "show", sleeping, "--json")
    pid = run_lock.last_holder(own_home / "runs" / run["id"] / "lease")
    assert pid is not None
    kill(pid)
    monkeypatch.delenv("PYTHONPATH")
    done = muster("status", "last", code=0)
    assert "no engine named 'processes' is installed" in done.stdout
    assert f"{run['name']} has lost its supervisor, and cannot be recovered here" in done.stderr
    client = Client(own_home)
    with (
        pytest.warns(NotRecovered),
        pytest.raises(EngineError, match="its supervisor has ended, and it cannot be recovered"),
    ):
        client.run("last").wait(240)
    client.close()
    assert json.loads(muster("ps", "--json", code=0).stdout)[0]["state"] == "IN_PROGRESS"
    monkeypatch.setenv("PYTHONPATH", str(site))
    assert muster("wait", "last").returncode == 1
    assert json_of("runs", "show", "last", "--json")["state"] == "FAILED"


def test_a_run_is_suspended_and_resumed_on_its_engine(sleeping: str) -> None:
    output_of("runs", "suspend", sleeping)
    muster("wait", sleeping, code=3)
    done = muster("runs", "resume", sleeping, "--set", "engine=local", code=2)
    assert "the engine cannot change while a run is suspended" in done.stderr
    output_of("runs", "resume", sleeping)
    logs = ("logs", sleeping, "--attempt", "all")
    until(lambda: output_of(*logs).count("up") == 4, "both write again")

    def state() -> tuple[str, str]:
        run = json_of("runs", "show", sleeping, "--json")
        return run["state"], run["engine"]

    until(lambda: state() == ("IN_PROGRESS", "processes"), "that is recorded")


def test_the_python_api_takes_the_engine(own_home: Path) -> None:
    import muster as api

    with pytest.raises(InvalidInput, match="engine: no engine named 'pbs' is installed"):
        api.run(command="true", engine="pbs", home=own_home)
    run = api.run(command="true", engine="local", home=own_home).wait(240)
    assert (run.state, run.to_dict()["engine"]) == ("SUCCEEDED", "local")
