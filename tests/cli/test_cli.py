"""The command line end to end: real processes, real runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

import muster as api
from muster.cli.main import cli
from muster.client.client import Client
from muster.errors import EngineError
from support.command import MUSTER, json_of, muster, output_of
from support.embedded import embedded
from support.faults import until
from support.terminals import Terminal

# --- run


@pytest.mark.shows(
    "distributed-jobs/capability-logging",
    "distributed-jobs/several-nodes",
    "jobs/ends-with-process",
)
def test_output_is_prefixed_by_group_and_rank() -> None:
    done = muster("run", "--nodes", "2", "--", "sh", "-c", "echo $NODE_RANK; echo oops >&2")
    assert sorted(done.stdout.splitlines()) == [
        "workers/0 ! oops",
        "workers/0 | 0",
        "workers/1 ! oops",
        "workers/1 | 1",
    ]
    first, last = (line for line in done.stderr.splitlines() if not line.startswith("note: "))
    assert first == "sh-1 starts 2 nodes"
    assert re.fullmatch(r"sh-1 SUCCEEDED in \d\.\ds, 2 nodes", last)
    assert done.returncode == 0


@pytest.mark.shows("distributed-jobs/metadata-example-group-names")
def test_group_names_keep_their_spelling(tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    show = 'cat "$CLUSTER_NODES_METADATA_FILE" | tr -d "\\n"; hostname; echo "$NODE_GROUP_NAME $X"'
    group = {"name": "NODE_GROUP_1", "command": ["sh", "-c", show], "hostname": "${group}-${rank}"}
    second = {"name": "NODE_GROUP_0", "command": "true"}
    # the file is complete when the last group starts
    groups = {"node_groups": [second, group], "startup": "in_order"}
    spec.write_text(yaml.safe_dump(groups))
    out = output_of("run", str(spec), "--nodes", "NODE_GROUP_0=2", "--env", "NODE_GROUP_1:X=own")
    nodes, name = (line.removeprefix("NODE_GROUP_1/2 | ") for line in out.splitlines())
    assert name == "NODE_GROUP_1 own"
    nodes, hostname = nodes.rsplit("]", 1)
    assert hostname in ("node-group-1-2", os.uname().nodename)  # the machine's without namespaces
    found = json.loads(f"{nodes}]")
    assert [node["NodeGroupName"] for node in found] == [*2 * ["NODE_GROUP_0"], "NODE_GROUP_1"]
    assert "NODE_GROUP_1 own" in output_of("logs", "last", "--group", "NODE_GROUP_1")


@pytest.mark.shows("jobs/ends-with-process", "jobs/monitor-errors", "jobs/run-lifecycle")
def test_a_failure_is_explained_by_its_cause() -> None:
    script = 'if [ $NODE_RANK = 2 ]; then echo "ValueError: boom" >&2; exit 21; fi; sleep 1000'
    done = muster("run", "--nodes", "4", "--", "sh", "-c", script)
    assert done.returncode == 1
    cause = "  ValueError: boom (node-2, group workers, rank 2: exit code 21)\n"
    assert done.stderr.endswith(cause)
    shown = output_of("runs", "show", "last")
    assert shown.splitlines()[0].startswith("sh-1  FAILED after")
    assert cause in shown
    run = json_of("runs", "show", "last", "--json")
    assert run["exit_code"] == 21
    assert [node["state"] for node in run["nodes"]] == ["STOPPED", "STOPPED", "FAILED", "STOPPED"]


def test_a_file_that_was_not_sent_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("open('data.csv')")
    (tmp_path / "data.csv").touch()
    hint = f"`muster run {tmp_path} --entrypoint train.py` stores the whole folder"
    ran = muster("run", str(tmp_path / "train.py"), "--nodes", "1")
    assert hint in ran.stderr
    assert hint in output_of("runs", "show", "last")


@pytest.mark.shows("jobs/use-pipelines")
def test_json_is_alone_on_stdout() -> None:
    done = muster("run", "--json", "--", "echo", "hello")
    assert json.loads(done.stdout)["state"] == "SUCCEEDED"
    assert "workers/0 | hello\n" in done.stderr


@pytest.mark.shows("jobs/job-run")
def test_the_keys_of_a_run_in_json() -> None:
    run = json_of("run", "--json", "--nodes", "2", "--", "true")
    assert run["state"] == "SUCCEEDED"
    expected = {
        "id", "job_id", "job_name", "state", "details", "engine", "attempt", "created_at",
        "started_at", "finished_at", "exit_code", "nodes",
    }  # fmt: skip
    assert expected <= set(run)
    expected = {
        "rank", "group", "replica", "index", "node_id", "fqdn", "address", "state", "exit_code",
        "started_at", "finished_at", "unreachable_since", "unreachable_why", "waits_for", "host",
        "host_id",
    }  # fmt: skip
    assert all(set(node) == expected for node in run["nodes"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", run["started_at"])
    assert run == {
        k: v for k, v in json_of("runs", "show", run["id"], "--json").items() if k in run
    }


@pytest.mark.shows("distributed-jobs/capability-logging")
@pytest.mark.shows("jobs/logging")
def test_log_records_have_streams_ranks_and_times() -> None:
    muster("run", "--", "sh", "-c", "echo hello; sleep 0.1; echo oops >&2; exit 3")
    records = [json.loads(line) for line in output_of("logs", "last", "--json").splitlines()]
    assert {(r["stream"], r["message"], r["rank"]) for r in records} == {
        ("service", "the run was accepted", None),
        ("service", "node 0 is starting", None),
        ("service", "node 0 is ready", None),
        ("service", "the run is in progress", None),
        ("stdout", "hello", 0),
        ("stderr", "oops", 0),
        ("service", "node-0 (group workers) failed with exit code 3, reason exit: oops", None),
        (
            "service",
            "the run failed: node-0 (group workers, rank 0) failed with exit code 3: oops",
            None,
        ),
    }
    output = [record["message"] for record in records]
    assert output[:2] == ["the run was accepted", "node 0 is starting"]
    assert output.index("the run is in progress") < output.index("hello")
    assert output[-1].startswith("the run failed")
    assert [r["time"] for r in records] == sorted(r["time"] for r in records)
    expected = {"time", "rank", "group", "node_id", "attempt", "stream", "message"}
    assert all(expected <= set(record) for record in records)


def test_logs_can_be_narrowed() -> None:
    script = "echo out $NODE_RANK; echo err $NODE_RANK >&2"
    output_of("run", "--nodes", "3", "--", "sh", "-c", script)
    only = output_of("logs", "sh-1", "--rank", "1", "--stream", "stderr")
    assert only == "workers/1 ! err 1\n"
    assert len(output_of("logs", "sh-1", "--tail", "4").splitlines()) == 4
    both = output_of("logs", "sh-1", "--stream", "stdout", "--stream", "stderr").splitlines()
    assert len(both) == 6
    output = output_of("logs", "sh-1", "--stream", "service").splitlines()
    assert output[0] == "muster    | the run was accepted"
    assert output[-1] == "muster    | the run succeeded"
    assert len(output_of("logs", "sh-1").splitlines()) == len(both) + len(output)
    wrong = muster("logs", "sh-1", "--rank", "1", "--stream", "service")
    assert wrong.returncode == 2
    assert "stream: Muster's own messages belong to no node" in wrong.stderr
    wrong = muster("logs", "sh-1", "--rank", "7")
    assert wrong.returncode == 2
    assert "rank: sh-1 has no rank 7 (ranks are 0 to 2)" in wrong.stderr


def test_a_script_gets_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import os, sys\nprint(sys.argv[1:], os.environ['X'])\n")
    out = output_of("run", str(tmp_path / "a.py"), "--env", "X=1 2", "--", "--epochs", "3", "a b")
    assert out == "workers/0 | ['--epochs', '3', 'a b'] 1 2\n"


@pytest.mark.shows("jobs/artifact-python")
def test_jobs_run_with_the_interpreter_that_started_muster() -> None:
    out = output_of("run", "--", "python", "-c", "import sys; print(sys.executable)")
    assert Path(out.split()[-1]).parent == Path(sys.executable).parent


@pytest.mark.shows("jobs/artifact-immutable")
def test_same_content_is_the_same_job_and_a_change_is_a_new_version(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("command: true\n")
    first = json_of("run", str(path), "--json")
    again = json_of("run", str(path), "--json", "--env", "X=1")
    path.write_text("command: 'false'\n")
    changed = json_of("run", str(path), "--json", "--detach")
    assert first["job_id"] == again["job_id"] != changed["job_id"]
    assert [r["name"] for r in (first, again, changed)] == ["a-1", "a-2", "a-3"]
    assert [f"{j['name']}@{j['version']}" for j in json_of("jobs", "list", "--json")] == [
        "a@2",
        "a@1",
    ]


@pytest.mark.shows(
    "cluster-design/run-default-configuration",
    "distributed-jobs/capability-override-node",
    "jobs/run-overrides",
    "jobs/start-with-parameters",
    "jobs/use-hyperparameters",
)
def test_overrides_reach_the_nodes_and_are_shown_with_their_origin(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "command: [sh, -c, 'echo $A $B']\nenv: {A: job, B: job}\n"
        "node_groups: [{name: a}, {name: b}]\n"
    )
    out = output_of("run", str(path), "--nodes", "b=2", "--env", "A=run", "--env", "b:B=mine")
    assert sorted(out.splitlines()) == ["a/0 | run job", "b/1 | run mine", "b/2 | run mine"]
    settings = {s["path"]: s for s in json_of("runs", "show", "last", "--json")["settings"]}
    assert settings["node_groups[b].nodes"] == {
        "path": "node_groups[b].nodes",
        "value": 2,
        "origin": "override",
    }
    assert settings["node_groups[a].env.B"]["origin"] == "job"
    assert settings["max_runtime"]["origin"] == "default"


@pytest.mark.shows("distributed-jobs/start-a-run", "jobs/job-template")
def test_editing_a_job_does_not_change_its_runs() -> None:
    first = json_of("run", "--json", "--", "true")
    output_of("jobs", "edit", "true", "--set", "description=changed", "--set", "resources.cpus=1")
    job = json_of("jobs", "show", "true", "--json")
    assert (job["description"], job["spec"]["resources"]["cpus"]) == ("changed", 1.0)
    run = json_of("runs", "show", first["id"], "--json")
    assert not [s for s in run["settings"] if "resources" in s["path"]]
    refused = muster("jobs", "edit", "true", "--set", "command=x")
    assert refused.returncode == 2
    assert "command cannot change" in refused.stderr


def test_a_job_is_shown_as_a_spec_file(tmp_path: Path) -> None:
    path = tmp_path / "shown.yaml"
    path.write_text(
        "command: 'true'\nmax_runtime: 90m\nenv: {A_TOKEN: hush}\n"
        "resources: {memory: 256MiB}\n"
        "node_groups:\n  - {name: a, nodes: 2, timeout: 10m}\n"
        "failure: {max_restarts: 3, backoff: {initial: 500ms}}\n"
    )
    json_of("run", str(path), "--json")
    head, *lines = output_of("jobs", "show", "shown").splitlines()
    assert head.startswith("# shown@1, id ")
    assert yaml.safe_load("\n".join(lines)) == {
        "name": "shown",
        "command": ["true"],
        "env": {"A_TOKEN": "***"},
        "node_groups": [{"name": "a", "nodes": 2, "timeout": "10m"}],
        "failure": {"max_restarts": 3, "backoff": {"initial": "0.5s"}},
        "resources": {"memory": "256Mi"},
        "max_runtime": "1h30m",
    }
    again = json_of("jobs", "show", "shown", "--json")["spec"]
    assert (again["max_runtime"], again["artifact"], again["resources"]["memory"]) == (
        5400.0,
        None,
        256 << 20,
    )


@pytest.mark.shows(
    "cluster-design/example-max-runtime", "distributed-jobs/capability-timeout", "jobs/max-runtime"
)
def test_the_maximum_runtime_cancels_a_run() -> None:
    done = muster("run", "--max-runtime", "0.2s", "--", "sleep", "1000")
    assert done.returncode == 3
    assert "CANCELED" in done.stderr
    assert "maximum runtime of 0.2 s exceeded" in done.stderr


@pytest.mark.shows(
    "distributed-jobs/capability-sequential", "distributed-jobs/parallel-or-in-sequence"
)
def test_groups_start_in_order_of_their_probes(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "startup: in_order\nnode_groups:\n"
        "  - name: first\n    command: [sh, -c, 'sleep 0.2; touch up; echo up; sleep 0.2']\n"
        "    startup_probe: {file: up, period: 10ms, threshold: 10000}\n"
        "  - {name: second, command: echo second}\n"
    )
    assert output_of("run", str(path)).splitlines() == [
        "first/0  | up",
        "second/1 | second",
    ]


def test_started_runs_are_named_if_another_cannot_start(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from muster.cli.run import _start

    prepared_runs = []
    for command in ("true", "false"):
        job, new = client.job(None, command=[command])
        prepared_runs.append(client.prepare_run(job, new_job=new))
    start = client.start

    def once(prepared: Any, **options: Any) -> Any:
        if prepared is prepared_runs[1]:
            raise EngineError("cannot start a supervisor: no space")
        return start(prepared, **options)

    monkeypatch.setattr(client, "start", once)
    with pytest.raises(EngineError):
        _start(client, prepared_runs)
    assert (
        "Detached from true-1; still running. Follow it with `muster logs true-1 "
        in capsys.readouterr().err
    )


# --- follow


def start_detached(*args: str) -> str:
    return output_of("run", "--detach", *args).strip()


@pytest.mark.shows("jobs/use-batch")
def test_a_detached_run_can_be_followed_and_canceled() -> None:
    run_id = start_detached("--", "sh", "-c", "echo hello; exec sleep 1000")
    follower = subprocess.Popen(
        [*MUSTER, "logs", run_id[:5], "--follow"], stdout=subprocess.PIPE, text=True
    )
    assert follower.stdout is not None
    # the program may print before the supervisor has recorded that its node is ready
    pending = {"workers/0 | hello\n", "muster    | node 0 is ready\n"}
    while pending:
        line = follower.stdout.readline()
        assert line, "the log ended"
        pending.discard(line)
    assert output_of("runs", "cancel", "last") == "sh-1 is CANCELED\n"
    assert follower.stdout.readlines() == [
        "muster    | cancel requested by user\n",
        "muster    | the run is being canceled by user\n",
        "muster    | the run was canceled by user\n",
    ]
    assert follower.wait(30) == 0
    follower.stdout.close()
    assert muster("runs", "wait", "last").returncode == 3
    assert output_of("runs", "cancel", "last") == "sh-1 is already CANCELED\n"


def test_a_run_survives_the_command_that_started_it(client: Client, tmp_path: Path) -> None:
    script = 'echo one; while [ ! -e "$0" ]; do sleep 0.01; done; echo two'
    args = [*MUSTER, "run", "--", "sh", "-c", script, str(tmp_path / "go")]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == b"workers/0 | one\n"
    process.kill()
    process.wait()
    process.stdout.close()
    run = client.run("last")
    assert run.state == "IN_PROGRESS"
    (tmp_path / "go").touch()
    followed = output_of("logs", "last", "--follow", "--stream", "stdout")
    assert followed == "workers/0 | one\nworkers/0 | two\n"
    assert run.wait(30).state == "SUCCEEDED"


def test_a_killed_supervisor_fails_the_run_and_leaves_no_process(
    client: Client, alive: Callable[[str], list[str]]
) -> None:
    mark = f"MARK={os.urandom(8).hex()}"
    start_detached(
        "--nodes", "2", "--env", mark, "--", "sh", "-c", "setsid sleep 1000 & sleep 1000"
    )
    until(lambda: client.run("last").state == "IN_PROGRESS", "the start of the run")
    run = client.run("last")
    pid = int(embedded(client).home.run_dir(run.id).lock.read_text())
    os.kill(pid, signal.SIGKILL)
    run.wait(30)
    assert alive(mark) == []
    shown = json_of("runs", "show", "last", "--json")
    assert shown["state"] == "FAILED"
    assert "the run's supervisor was killed" in shown["details"]
    assert shown["cause"]["reason"] == "node_lost"
    assert muster("runs", "wait", "last").returncode == 1


# --- list


def test_runs_are_listed_and_filtered() -> None:
    output_of("run", "--", "true")
    muster("run", "--", "false")
    assert [r["name"] for r in json_of("runs", "list", "--json")] == ["false-1", "true-1"]
    assert [r["name"] for r in json_of("runs", "list", "--json", "--state", "failed")] == [
        "false-1"
    ]
    assert json_of("runs", "list", "--json", "--state", "succeeded", "--job", "false") == []
    assert len(json_of("runs", "list", "--json", "--since", "1h", "--limit", "1")) == 1
    text = output_of("runs", "list")
    deleted = json_of("rm", "--state", "failed", "--yes", "--json")
    assert [run["name"] for run in deleted] == ["false-1"]
    assert text.splitlines()[0].split()[:4] == ["RUN", "ID", "STATE", "NODES"]
    wrong = muster("runs", "list", "--state", "happy")
    assert wrong.returncode == 2
    assert "--state: no state named 'happy'" in wrong.stderr


@pytest.mark.shows("jobs/lifecycle-events", "jobs/run-lifecycle")
def test_events_list_the_states_of_a_run() -> None:
    output_of("run", "--", "true")
    trace = [(e["kind"], e.get("state")) for e in json_of("events", "last", "--json")]
    assert trace[0] == ("run", "ACCEPTED")
    assert ("run", "IN_PROGRESS") in trace
    assert ("run", "SUCCEEDED") in trace
    assert [e["seq"] for e in json_of("events", "last", "--json")] == list(range(1, len(trace) + 1))


def test_secrets_are_not_shown() -> None:
    args = ["--env", "HF_TOKEN=hunter2", "--", "sh", "-c", "test $HF_TOKEN = hunter2"]
    shown = output_of("explain", *args) + output_of("explain", "--json", *args)
    output_of("run", *args)
    for command in (["runs", "show", "last"], ["events", "last"], ["jobs", "show", "sh"]):
        shown += output_of(*command) + output_of(*command, "--json")
    assert "HF_TOKEN" in shown
    assert "hunter2" not in shown.replace("= hunter2", ""), (
        "apart from the command, which contains it"
    )


def test_explain_starts_nothing(own_home: Path) -> None:
    text = output_of("explain", "--nodes", "2", "--framework", "pytorch", "--", "true")
    assert "network: shared" in text
    assert "WORLD_SIZE=2" in text
    assert json_of("runs", "list", "--json") == []
    assert json_of("explain", "--json", "--", "true")["groups"][0]["command"] == ["true"]
    assert list((own_home / "runs").iterdir()) == []


# --- errors


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run"], "error: nothing to run (name a spec file, a script or a folder, or give"),
        (["run", "nope.yaml"], "error: nope.yaml: no such file"),
        (["run", "nope.py"], "nope.py not found (check the path)"),
        (["run", "--nodes", "0", "--", "x"], "error: --nodes 0: must be at least 1, not 0"),
        (["run", "--framework", "tf", "--", "x"], "error: framework: no framework named 'tf'"),
        (
            ["run", "--set", "resources.gpus=99", "--", "x"],
            "a node needs 99 GPUs, this machine has",
        ),
        (["runs", "show", "nope"], "error: no run named 'nope'"),
        (["runs", "show", "last"], "error: no runs yet"),
        (["jobs", "show", "nope"], "error: no job named 'nope'"),
        (["rum"], "No such command 'rum'. Did you mean `muster run`?"),
        (["run", "--nodse", "2"], "No such option"),
    ],
)
def test_bad_input_is_reported_and_leaves_nothing(
    args: list[str], message: str, own_home: Path
) -> None:
    done = muster(*args)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    for name in ("runs", "artifacts"):
        assert not (own_home / name).exists() or list((own_home / name).iterdir()) == []


def test_a_missing_program_is_reported() -> None:
    done = muster("run", "--", "no-such-program")
    assert done.returncode == 2
    assert done.stderr == "error: command: there is no program no-such-program on PATH\n"
    done = muster("run", "--", "sh", "-c", "exec no-such-program")
    assert done.returncode == 1
    assert "sh: 1: exec: no-such-program: not found" in done.stderr
    assert "exit code 127" in done.stderr


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("", 0)) as server:
        port = str(server.getsockname()[1])
        args = ["--framework", "pytorch", "--env", f"MASTER_PORT={port}", "--", "true"]
        done = muster("run", *args)
        assert done.returncode == 2
        assert f"--env MASTER_PORT: port {port} is in use on this machine" in done.stderr
    assert muster("run", *args).returncode == 0


@pytest.mark.embedded("the records are on the server")
def test_an_unusable_home_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = muster("runs", "list", env={**os.environ, "MUSTER_HOME": str(tmp_path / "file" / "x")})
    assert done.returncode == 2
    assert "error: MUSTER_HOME: cannot use" in done.stderr


@pytest.mark.embedded("the records are on the server")
def test_a_corrupt_database_is_reported(own_home: Path) -> None:
    (own_home / "muster.db").write_bytes(b"not a database at all" * 100)
    done = muster("runs", "list")
    assert done.returncode == 2
    assert "is corrupt (file is not a database); nothing was changed" in done.stderr


def test_a_closed_reader_ends_the_command() -> None:
    output_of("run", "--", "seq", "100000")
    piped = f"{sys.executable} -m muster logs last --stream stdout | head -1"
    done = subprocess.run(["sh", "-c", piped], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("workers/0 | 1\n", "")


@pytest.mark.parametrize("error", [RuntimeError, OSError])
def test_an_internal_error_has_its_own_exit_code(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from muster.cli import main

    def broken() -> int:
        raise error("no such thing as --token=hunter2")

    monkeypatch.setattr(main, "_invoke", broken)
    monkeypatch.setattr(main.warnings, "showwarning", main.warnings.showwarning)
    assert main._run() == 4
    printed = capsys.readouterr().err
    assert printed.startswith("Traceback")
    assert printed.endswith(f"{error.__name__}: no such thing as --token=***\n")


# --- other commands


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_for_each_shell(shell: str) -> None:
    assert "_MUSTER_COMPLETE" in output_of("completion", shell)


def test_completion_suggests_runs() -> None:
    output_of("run", "--", "true")
    env = {**os.environ, "_MUSTER_COMPLETE": "bash_complete", "COMP_CWORD": "3"}
    out = output_of(env={**env, "COMP_WORDS": "muster\nruns\nshow\ntr"})
    assert "true-1" in out


def test_doctor_gives_advice_for_what_does_not_work() -> None:
    findings = {f["name"]: f for f in json_of("doctor", "--json")}
    assert findings["machine"]["works"]
    assert all(f["works"] or f["advice"] for f in findings.values())
    assert "guaranteed kill" in output_of("doctor")


def test_the_schema_describes_jobs() -> None:
    assert json_of("schema")["$ref"] == "#/$defs/JobSpec"


def test_the_reference_page_is_current() -> None:
    """Generated in a new process: click caches help options from earlier tests in this one."""
    page = Path(__file__).parent.parent.parent / "docs/reference/cli.md"
    command = [sys.executable, "-m", "muster.cli.reference"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert page.read_text() == printed.stdout, "run `make docs`"


def test_several_runs_are_waited_for_and_the_worst_decides() -> None:
    good, bad = (api.run(command=word) for word in ("true", "false"))
    done = muster("wait", bad.name, good.name, bad.name, code=1)
    assert done.stdout == f"{bad.name} FAILED\n{good.name} SUCCEEDED\n"
    data = json_of("wait", good.name, good.id, "--json")
    assert data["id"] == good.id, "one run, named twice"
    slow = api.run(command=["sleep", "1000"])
    late = muster("wait", slow.name, bad.name, "--timeout", "0.1s", code=3)
    assert slow.name in late.stderr
    assert late.stdout == f"{bad.name} FAILED\n", "it has ended in time"
    slow.cancel().wait(60)


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ([], 1),
        (["--quiet"], 3),
        (["-o", "yaml"], 3),
        (["--json"], 3),
        (["--json", "--limit", "2"], 2),
    ],
)
def test_only_the_table_of_runs_has_a_default_limit(
    words: list[str], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.cli.runs._MAX_ROWS", 1)
    for _ in range(3):
        api.run(command="true", name="some").wait()
    listed = CliRunner().invoke(cli, ["ps", *words])
    assert listed.exit_code == 0
    assert len(set(re.findall(r"some-\d", listed.stdout))) == count


NOTE = "note: standard input is not passed to the nodes"


def test_standard_input_that_is_not_read_is_noted(tmp_path: Path) -> None:
    done = muster("run", "--", "cat", code=0, input="hi")
    assert (done.stdout, NOTE in done.stderr) == ("", True)
    (tmp_path / "data").write_text("hi")
    with open(tmp_path / "data") as file:
        assert NOTE in muster("run", "-d", "--", "cat", code=0, stdin=file).stderr
        file.seek(0, os.SEEK_END)
        assert NOTE not in muster("run", "-d", "--", "cat", code=0, stdin=file).stderr
    assert NOTE not in muster("run", "--", "cat", code=0, input="").stderr
    assert NOTE not in muster("run", "--", "cat", code=0, stdin=subprocess.DEVNULL).stderr
    assert NOTE not in muster("run", "-", code=0, input="command: cat").stderr


def test_lines_are_broken_between_words_on_a_terminal() -> None:
    run = api.run(command=["sh", "-c", "exit 3"], display_name="word " * 20).wait()
    for words in (["doctor"], ["status", run.name], ["check", "--nodes", "2", "--", "true"]):
        with Terminal([*MUSTER, *words], columns=80) as terminal:
            terminal.end()
        plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.output)
        long = [line for line in plain.splitlines() if len(line) > 80 and " " in line.strip()]
        assert long == [], words


def test_sentences_in_tables_are_cut_at_their_end() -> None:
    program = (
        "from muster.cli.output import print_table\n"
        "row = ['train-' + 'x' * 40 + '-7', 'its first words matter ' * 9]\n"
        "print_table(['RUN', 'DETAILS'], [row], shorten={'RUN': 16, 'DETAILS': 40})"
    )
    with Terminal([sys.executable, "-c", program], columns=60) as terminal:
        terminal.end()
    row = re.sub(r"\x1b\[[0-9;]*m", "", terminal.output).splitlines()[1]
    name, details = row.split("  ")
    assert name.startswith("train-xxx") and name.endswith("x-7") and "…" in name
    assert details.startswith("its first words matter its") and details.endswith("…")


def test_summaries_of_commands_fit_in_80_columns() -> None:
    cut = []
    for path, _ in groups_of(cli, ()):
        lines = CliRunner().invoke(cli, [*path, "--help"]).output.splitlines()[1:]
        cut += [(path, line) for line in lines if line.endswith("...")]
    assert cut == []


def groups_of(
    group: click.Group, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Group]]:
    """A group of commands and those in it, with their names."""
    yield path, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from groups_of(command, (*path, name))
