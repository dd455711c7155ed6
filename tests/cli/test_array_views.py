"""What the commands show of arrays: the table, the state, output, and retries of replicas."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from muster.cli.log_printer import writer_name
from muster.cli.output import print_json_items
from muster.client.client import Client
from muster.client.run import JobRun
from muster.storage.log_index import StreamInfo
from support.array_runs import START, recorded
from support.command import MUSTER, json_of, muster, output_of
from support.terminals import Screen, Terminal, on_terminal

SWEEP = """
import json, os, pathlib, sys, time
seed = int(os.environ["MUSTER_PARAM_SEED"])
print("seed", seed, "rank", os.environ["NODE_RANK"], flush=True)
results = pathlib.Path(os.environ["MUSTER_OUTPUTS"], "metrics.json")
results.write_text(json.dumps({"loss": seed / 4}))
while len(sys.argv) > 3 and not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
sys.exit(7 if seed == 2 else 0)
"""


@pytest.fixture(autouse=True)
def folder(own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.py").write_text(SWEEP)
    return tmp_path


def node(state: str, seconds: float | None = None, **metrics: Any) -> Mapping[str, Any]:
    end = None if seconds is None else START + seconds
    code = {"SUCCEEDED": 0, "FAILED": 7}.get(state)
    text = json.dumps(metrics) if metrics else ""
    return {"state": state, "exit_code": code, "finished_at": end, "metrics": text}


def many(count: int = 60) -> None:
    """Record a run of 100 replicas, of which `count` have ended and two run."""
    nodes = {rank: node("SUCCEEDED", 1, loss=rank / 3) for rank in range(count)}
    nodes |= {rank: node("FAILED", 2) for rank in (4, 17) if rank < count}
    nodes |= {count: node("READY"), count + 1: node("STARTING")}
    recorded(Client(), nodes, array={"seed": "0..99"}, parallelism=2, state="IN_PROGRESS")


# --- runs table


def test_the_table_of_a_run(folder: Path) -> None:
    muster("run", "sweep.py", "--array", "seed=0..3", code=1)
    lines = output_of("runs", "table", "last").splitlines()
    assert lines[0].split() == ["REPLICA", "seed", "STATE", "EXIT", "TIME", "loss"]
    assert [re.sub(r"\s+\S+s(\s)", r"\1", line).split() for line in lines[1:]] == [
        ["0", "0", "SUCCEEDED", "0", "0"],
        ["1", "1", "SUCCEEDED", "0", "0.25"],
        ["2", "2", "FAILED", "7", "0.5"],
        ["3", "3", "SUCCEEDED", "0", "0.75"],
    ]
    assert lines[1].startswith("      0     0  ")
    assert lines[1].endswith("s     0")
    assert lines[2].endswith("s  0.25")


def test_a_long_table_says_what_is_missing() -> None:
    many()
    done = muster("runs", "table", "last", code=0)
    assert len(done.stdout.splitlines()) == 51
    assert done.stderr.splitlines() == [
        "and 12 more; all: `--limit 0`",
        "38 have not started; `--all` lists them",
    ]
    assert len(output_of("runs", "table", "last", "--limit", "0").splitlines()) == 63
    assert len(output_of("runs", "table", "last", "--limit", "0", "--all").splitlines()) == 101
    failed = muster("runs", "table", "last", "--state", "failed,running", code=0)
    assert [line.split()[0] for line in failed.stdout.splitlines()[1:]] == ["4", "17", "60"]


def test_the_table_as_data() -> None:
    many(6)
    rows = json_of("runs", "table", "last", "--json", "--sort", "-loss")
    assert [row["replica"] for row in rows] == [5, 3, 2, 1, 0, 4, 6, 7]
    assert rows[0] == {
        "run": "sweep-1",
        "group": "workers",
        "replica": 5,
        "state": "SUCCEEDED",
        "parameters": {"seed": 5},
        "exit_code": 0,
        "seconds": 1.0,
        "started_at": "2001-09-09T01:46:40.000000Z",
        "finished_at": "2001-09-09T01:46:41.000000Z",
        "metrics": {"loss": 5 / 3},
    }
    text = output_of("runs", "table", "last", "--csv", "--limit", "5")
    found = list(csv.DictReader(io.StringIO(text)))
    assert [*found[0]] == [
        *("replica", "seed", "state", "exit_code", "seconds", "started_at", "finished_at", "loss")
    ]
    assert (found[3]["replica"], found[3]["loss"], found[4]["loss"]) == ("3", "1.0", "")
    chosen = output_of("runs", "table", "last", "--columns", "loss,replica", "--limit", "2")
    assert chosen.splitlines()[0].split() == ["loss", "REPLICA"]
    timed = output_of("runs", "table", "last", "--csv", "--columns", "replica,time", "--limit", "1")
    assert timed == "replica,time\n0,1.0\n"


NAMES = "REPLICA, state, lr,param.lr,metrics.state,started_at,exit"


def test_columns_have_the_same_names_in_every_format() -> None:
    odd = json.dumps({"state": "x", "replica": 9})
    nodes = {0: {**node("SUCCEEDED", 1), "metrics": odd}, 1: node("FAILED", 2, loss=1)}
    recorded(Client(), nodes, array={"lr": "0.1,0.2"})
    start = "2001-09-09T01:46:40.000000Z"
    rows = json_of("runs", "table", "last", "--json", "--columns", NAMES)
    assert [*rows[0].values()] == [0, "SUCCEEDED", 0.1, 0.1, "x", start, 0]
    assert [*rows[0]] == NAMES.replace(" ", "").split(",")
    assert [*rows[1].values()] == [1, "FAILED", 0.2, 0.2, None, start, 7]
    text = output_of("runs", "table", "last", "--csv", "--columns", NAMES).splitlines()
    assert text[0] == NAMES.replace(" ", "")
    assert text[1:] == [f"0,SUCCEEDED,0.1,0.1,x,{start},0", f"1,FAILED,0.2,0.2,,{start},7"]
    table = output_of("runs", "table", "last", "--columns", NAMES).splitlines()
    titles = ["REPLICA", "STATE", "lr", "metrics.state", "STARTED_AT", "EXIT"]
    assert table[0].split() == titles
    assert table[1].split() == ["0", "SUCCEEDED", "0.1", "x", start, "0"]
    for form in ([], ["--csv"], ["--json"]):
        done = muster("runs", "table", "last", *form, "--columns", "lr,nosuch", code=2)
        assert done.stderr.startswith("error: --columns: there is no column 'nosuch' (there are ")
        assert not done.stdout
    rows = json_of("runs", "table", "last", "--json", "--columns", "loss")
    assert rows == [{"loss": None}, {"loss": 1}], "only the second has it"


def test_numbers_that_json_has_not_are_null() -> None:
    deep = {"epochs": [{"loss": math.nan, "best": [math.inf, 1.5]}], "last": math.nan}
    recorded(Client(), {0: node("SUCCEEDED", 1, **deep)}, array={"lr": "0.1"})
    expected = {"epochs": [{"loss": None, "best": [None, 1.5]}], "last": None}
    (row,) = json_of("runs", "table", "last", "--json")
    assert row["metrics"] == expected
    line = output_of("runs", "table", "last", "--json", "--follow")
    assert json.loads(line, parse_constant=pytest.fail)["metrics"] == expected


def test_a_metric_cannot_break_the_table() -> None:
    recorded(Client(), {0: node("SUCCEEDED", 1, **{"a\n\x1b[31mb": 1})}, array={"lr": "0.1"})
    table = output_of("runs", "table", "last")
    assert len(table.splitlines()) == 2
    assert "\x1b" not in table + str(Client().run("last").table())


def test_states_that_are_named_twice_count_once() -> None:
    many(10)
    done = muster("runs", "table", "last", "--state", "failed", "--state", "FAILED", code=0)
    assert len(done.stdout.splitlines()) == 2
    assert "more" not in done.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--json", "-f", "--limit", "1"], "error: --follow: with --json prints replicas of one "),
        (["--sort", "width"], "error: --sort: sweep-1 has no width (use seed, loss, replica, run"),
        (["--state", "asleep"], "error: --state: unknown state 'asleep' (use pending, "),
        (["--replica", "99"], "error: --replica: sweep-1 has no replica 99 (replicas"),
        (["--columns", "a"], "error: --columns: there is no column 'a' (there are replica, seed, "),
        (["--csv", "--json"], "error: --csv: choose one of --csv and --json"),
    ],
)
def test_what_a_table_has_not_is_refused(words: list[str], error: str) -> None:
    recorded(Client(), {0: node("SUCCEEDED", 1, loss=1)}, array={"seed": "0..3"})
    done = muster("runs", "table", "last", *words, code=2)
    assert done.stderr.splitlines()[0].startswith(error)
    assert done.stdout == ""


def test_nothing_has_started() -> None:
    recorded(Client(), {}, array={"seed": "0..3"}, state="IN_PROGRESS")
    done = muster("runs", "table", "last", code=0)
    assert done.stderr.splitlines() == [
        "sweep-1: no replica has started",
        "4 have not started; `--all` lists them",
    ]
    for state, text in (("failed", "has failed"), ("running,stopped", "is running or was stopped")):
        done = muster("runs", "table", "last", "--state", state, code=0)
        assert done.stderr == f"sweep-1: no replica {text}\n"
    done = muster("runs", "table", "last", "--replica", "1", code=0)
    assert done.stderr == "sweep-1: no replica of these has started\n"


def test_a_retry_replaces_rows_and_a_second_run_adds_some(folder: Path) -> None:
    muster("run", "sweep.py", "--array", "seed=0..3", code=1)
    done = muster("runs", "retry", "sweep-1", "--failed", code=1)
    assert done.stderr.splitlines()[:2] == [
        "note: retries 1 of 4 replicas of sweep-1: 2",
        "sweep-2 starts 1 replica",
    ]
    assert done.stdout == "workers/2 | seed 2 rank 0\n"
    assert json_of("runs", "show", "sweep-2", "--json")["tags"] == {"muster-retry-of": "sweep-1"}
    assert Client().run("sweep-2").retry_of == "sweep-1"
    muster("runs", "retry", "sweep-1", "--only", "0-1", "--detach", code=0)
    muster("wait", "last", code=0)
    rows = json_of("runs", "table", "sweep-1", "sweep-2", "sweep-3", "--json")
    assert sorted((row["replica"], row["run"]) for row in rows) == [
        (0, "sweep-3"),
        (1, "sweep-3"),
        (2, "sweep-2"),
        (3, "sweep-1"),
    ]
    muster("run", "sweep.py", "--array", "seed=0..1", code=0)
    rows = json_of("runs", "table", "sweep-1", "sweep-4", "--json")
    assert len(rows) == 6
    assert muster("runs", "retry", "sweep-4", code=2).stderr == (
        "error: no replica of sweep-4 has failed\n"
    )
    refused = muster("runs", "retry", "sweep-1", "--failed", "--unfinished", code=2).stderr
    assert "--failed, --unfinished and --only exclude each other" in refused


# --- status


def test_the_state_is_told_in_numbers() -> None:
    many()
    lines = output_of("status", "last").splitlines()
    assert lines[0].startswith("sweep-1  IN_PROGRESS, running ")
    assert re.match(r"  60 of 100 done, 2 failed, 2 running, ~\S+ left, \S+/(h|min)", lines[1])
    assert lines[2] == "  failed: replicas 4, 17"
    header = lines.index("REPLICA  GROUP    NAME     ADDRESS  STATE     READY  EXIT  TIME")
    assert [line.split()[0] for line in lines[header + 1 : header + 5]] == ["4", "17", "60", "61"]
    assert lines[header + 5] == ""
    assert "next: `muster runs table sweep-1`, `muster logs sweep-1 --follow`" in lines[-1]
    data = json_of("status", "last", "--json")
    assert [each["rank"] for each in data["nodes"]] == [4, 17, 60, 61]
    assert data["replica_states"] == {
        **{"SUCCEEDED": 58, "FAILED": 2, "RUNNING": 1, "STARTING": 1, "NOT_STARTED": 38}
    }
    assert "outputs" not in data


@pytest.mark.parametrize(
    ("state", "details", "why"),
    [
        (
            "SUCCEEDED",
            "",
            ["all required nodes succeeded; 4 of 5 done, 1 failed, 1 stopped", "failed: replica 1"],
        ),
        (
            "FAILED",
            "too long",
            ["too long", "failed: replica 1", "4 of 5 done, 1 failed, 1 stopped"],
        ),
        (
            "FAILED",
            "exit code 7\n1 of 5 replicas of group workers failed: 1",
            [
                "exit code 7\n1 of 5 replicas of group workers failed: 1",
                "4 of 5 done, 1 failed, 1 stopped",
            ],
        ),
        (
            "CANCELED",
            "canceled by user",
            ["canceled by user", "failed: replica 1", "4 of 5 done, 1 failed, 1 stopped"],
        ),
    ],
)
def test_why_an_array_has_ended(state: str, details: str, why: list[str]) -> None:
    nodes = {rank: node("FAILED" if rank == 1 else "SUCCEEDED", 1) for rank in range(4)}
    nodes[4] = node("STOPPED", 1)
    names_failed = details.endswith("of group workers failed: 1")
    stopping = {"outcome": state, "details": "", "names_failed": names_failed}
    settings: dict[str, Any] = {"array": {"seed": "0..4"}, "state": state, "details": details}
    run = recorded(Client(), nodes, stopping=stopping, **settings)
    assert run.why() == why


def until_rows(run: JobRun, states: Mapping[int, str]) -> None:
    """Wait until the replicas that have started are in these states."""
    for _ in run.events(follow=True):
        if {row["replica"]: row["state"] for row in run.table()} == states:
            return
    raise AssertionError(run.refresh().details)


def test_a_replica_that_has_failed_stays_failed_over_a_suspension() -> None:
    program = "test $MUSTER_PARAM_SEED != 1 || exit 7; exec sleep 1000"
    array = ["--array", "seed=0..5", "--parallelism", "2"]
    output_of("run", "--detach", "--name", "sweep", *array, "--", "sh", "-c", program)
    run = Client().run("last")
    until_rows(run, {0: "RUNNING", 1: "FAILED", 2: "RUNNING"})
    output_of("runs", "suspend", "last")
    assert run.refresh().why()[1:] == [
        "1 of 6 done, 1 failed, 2 interrupted, 3 not started",
        "failed: replica 1",
        "`muster runs resume sweep-1` resumes it",
    ]
    output_of("runs", "resume", "last")
    until_rows(run, {0: "RUNNING", 1: "FAILED", 2: "RUNNING"})
    assert {row["replica"]: row["exit_code"] for row in run.table()} == {0: None, 1: 7, 2: None}
    run.cancel().wait(60)


def test_the_end_of_a_run_counts_what_never_ran(folder: Path) -> None:
    words = ("--name", "sweep", "--array", "seed=0..9", "--parallelism", "1", "--max-failed", "0")
    done = muster("run", *words, "--", "false", code=1)
    assert done.stderr.splitlines()[-3:] == [
        "  1 of 10 done, 1 failed, 9 not started",
        "  failed: replica 0",
        "  next: `muster runs table sweep-1`, `muster runs retry sweep-1 --unfinished`",
    ]
    shown = muster("runs", "table", "last", "--state", "failed", code=0)
    assert shown.stderr == ""


def test_early_success_is_named(folder: Path) -> None:
    groups = "node_groups: [{name: w, replicas: 9, parallelism: 1, early_success: [{count: 1}]}]"
    (folder / "job.yaml").write_text(f'name: sweep\ncommand: ["true"]\n{groups}\n')
    output_of("run", "job.yaml")
    assert Client().run("last").why()[0] == (
        "early success: enough replicas succeeded; 1 of 9 done, 8 not started"
    )


def test_an_output_that_reads_like_a_failed_replica_hides_none() -> None:
    details = "no: 3 of 5 replicas of group workers failed"
    nodes = {rank: node("FAILED" if rank == 1 else "SUCCEEDED", 1) for rank in range(5)}
    run = recorded(Client(), nodes, array={"seed": "0..4"}, details=details)
    assert run.why()[:2] == [details, "failed: replica 1"]


def test_the_end_of_a_run_names_the_failed_replicas(folder: Path) -> None:
    done = muster("run", "sweep.py", "--array", "seed=1..12", "--parallelism", "2", code=1)
    first, failure, *_, failed, hint = done.stderr.splitlines()
    assert first == "sweep-1 starts 12 replicas, 2 at once"
    assert failure == (
        "-- replica 1 (group workers, seed=2) failed with exit code 7, reason exit --"
    )
    assert failed == "  1 of 12 replicas of group workers failed: 1"
    assert hint == "  next: `muster runs table sweep-1`, `muster runs retry sweep-1 --failed`"
    service = (Client().run("last").log_folder().parent / "service.log").read_text()
    assert "starting" not in service
    assert service.count("failed with exit code 7, reason exit") == 1


def test_the_run_is_a_column_of_several_runs(folder: Path) -> None:
    """Also if all rows are of one."""
    for _ in range(2):
        recorded(Client(), {0: node("SUCCEEDED", 1)}, array={"seed": "0..3"})
    titles = output_of("runs", "table", "sweep-1", "sweep-2", "--limit", "1").splitlines()[0]
    assert titles.split() == ["RUN", "REPLICA", "seed", "STATE", "EXIT", "TIME"]
    assert output_of("runs", "table", "sweep-1", "sweep-2", "--limit", "1", "--csv")[:4] == "run,"


def test_a_narrow_table_says_what_it_leaves_out(folder: Path) -> None:
    metrics = {f"metric_{number}": 0.123456 for number in range(6)}
    recorded(Client(), {0: node("FAILED", 1, **metrics)}, array={"seed": "0..3"})
    with on_terminal("runs", "table", "last", cwd=folder, COLUMNS="80") as table:
        assert table.end() == 0
    titles, _, left_out, *_ = table.screen.lines
    assert titles.split() == ["REPLICA", "seed", "STATE", "EXIT", "TIME", *list(metrics)[:4]]
    assert left_out == "left out: metric_4, metric_5 (-o wide shows all)"
    with on_terminal("runs", "table", "last", cwd=folder, columns=40, COLUMNS="40") as table:
        assert table.end() == 0
    titles, _, left_out, *_ = table.screen.lines
    assert titles.split() == ["REPLICA", "seed", "STATE", "EXIT", *list(metrics)[:1]]


# --- retries


FIX = "import os, sys; print('old'); sys.exit(os.environ['MUSTER_PARAM_X'] == '2')"


def test_a_retry_of_a_mended_program(folder: Path) -> None:
    """It runs the old code, and says so, or the new one; then replicas keep their numbers."""
    program = folder / "fix.py"
    program.write_text(FIX)
    muster("run", "fix.py", "--array", "x=1,2,3", "--sample", "3", "--sample-seed", "4", code=1)
    unchanged = muster("runs", "retry", "last", "--failed", code=1)
    assert "has changed" not in unchanged.stderr
    same = muster("runs", "retry", "fix-1", "--failed", "--update-code", code=1)
    assert "note: fix.py is the same as in fix-1\n" in same.stderr
    program.write_text("print('new')")
    old = muster("runs", "retry", "fix-1", "--failed", code=1)
    note = "note: uses the code of fix-1; fix.py has changed since: --update-code uses it\n"
    assert note in old.stderr and "| old" in old.stdout
    (folder / "helper.py").write_text("text = 'mended'")
    program.write_text("import helper; print(helper.text)")
    new = muster("runs", "retry", "fix-1", "--failed", "--update-code", code=0)
    assert "note: uses fix.py as it is now\n" in new.stderr and "| mended" in new.stdout
    rows = json_of("runs", "table", "fix-1", "last", "--json")
    assert {(row["replica"], row["parameters"]["x"], row["state"]) for row in rows} == {
        (row["replica"], row["parameters"]["x"], "SUCCEEDED")
        for row in json_of("runs", "table", "fix-1", "--json")
    }
    program.unlink()
    gone = muster("runs", "retry", "fix-1", "--failed", "--update-code", code=2)
    assert f"{program} not found" in gone.stderr
    assert "has changed" not in muster("runs", "retry", "fix-1", "--failed", code=1).stderr
    assert len(json_of("jobs", "list", "--json")) == 2, "the same code is the same job"


def test_a_folder_is_retried_as_it_is_now(folder: Path) -> None:
    program = folder / "code" / "fix.py"
    program.parent.mkdir()
    program.write_text(FIX)
    muster("run", "code", "--entrypoint", "fix.py", "--array", "x=1,2,3", code=1)
    program.write_text("print('new')")
    assert "code has changed since" in muster("runs", "retry", "code-1", code=1).stderr
    muster("runs", "retry", "code-1", "--update-code", code=0)


def test_a_run_of_some_replicas_takes_their_place_in_the_table(folder: Path) -> None:
    (folder / "fix.py").write_text(FIX)
    array = ["--array", "x=1,2,3"]
    muster("run", "fix.py", *array, code=1)
    (folder / "fix.py").write_text("print('new')")
    muster("run", "fix.py", *array, "--only", "1", code=0)
    muster("run", "fix.py", "--array", "x=1,2,4", "--only", "1", code=0)
    muster("run", "fix.py", *array, code=0)

    def rows(*runs: str) -> list[tuple[str, int]]:
        found = json_of("runs", "table", *runs, "--json", "--columns", "run,replica")
        return [(row["run"], row["replica"]) for row in found]

    assert rows("fix-1", "fix-2") == [("fix-1", 0), ("fix-2", 1), ("fix-1", 2)]
    assert len(rows("fix-1", "fix-3")) == 4, "another array"
    assert len(rows("fix-1", "fix-4")) == 6, "all of it, to compare"


# --- output


@pytest.mark.parametrize(
    ("arrays", "name"),
    [
        ({}, "w/7"),
        ({"w": (2, 1)}, "w/5"),
        ({"w": (1, 3)}, "w/2/0"),
        ({"w": (0, 3)}, "w/2/1"),
        ({"other": (0, 1)}, "w/7"),
    ],
)
def test_lines_name_the_replica(arrays: Mapping[str, tuple[int, int]], name: str) -> None:
    stream = StreamInfo(3, "w-7.out", 7, "w", "n", None, "stdout")
    assert writer_name(stream, arrays) == name


def test_output_of_replicas_is_selected(folder: Path) -> None:
    muster("run", "sweep.py", "--array", "seed=4..7", "--nodes", "2", code=0)
    lines = output_of("logs", "last", "--replica", "1,3").splitlines()
    assert sorted(lines) == [
        "workers/1/0 | seed 5 rank 0",
        "workers/1/1 | seed 5 rank 1",
        "workers/3/0 | seed 7 rank 0",
        "workers/3/1 | seed 7 rank 1",
    ]
    run = Client().run("last")
    assert [record.rank for record in run.logs(replicas=[2], grep="rank 1")] == [5]
    outputs = json_of("outputs", "last", "--replica", "2", "--json")
    assert sorted(one["rank"] for one in outputs) == [4, 5]
    assert muster("logs", "last", "--replica", "9", code=2).stderr == (
        "error: --replica: sweep-1 has no replica 9 (replicas of workers are 0 to 3)\n"
    )
    assert (
        "--rank and --replica exclude"
        in muster("logs", "last", "--replica", "1", "--rank", "1", code=2).stderr
    )
    assert (
        "sweep-1 has no group nope (its groups: workers)"
        in muster("logs", "last", "--replica", "1", "--group", "nope", code=2).stderr
    )
    assert (
        "--replica and the rank in last:1:x exclude each other"
        in muster("cp", "--replica", "1", "last:1:x", ".", code=2).stderr
    )
    assert (
        "'x' is not a replica number; write 3 or" in muster("logs", "last", "--replica", "x").stderr
    )


# --- while it runs


def shows(pattern: str, terminal: Terminal) -> None:
    def found(screen: Screen) -> bool:
        return any(re.search(pattern, line) for line in screen.lines)

    terminal.read_until(found)


def test_progress_is_one_line(folder: Path) -> None:
    words = ("sweep.py", "--array", "seed=3..9", "--parallelism", "2", "--", str(folder / "go"))
    with on_terminal("run", *words, cwd=folder) as run:
        shows(r"^sweep-1 RUNNING 0 of 7 done, 2 running · \d:\d\d$", run)
        with on_terminal("runs", "table", "last", "-f", cwd=folder) as table:
            shows(r"^0 of 7 done, 2 running$", table)
            shows(r"^      1     4  RUNNING     -  ", table)
            with on_terminal("runs", "table", "last", "-f", cwd=folder) as left:
                shows(r"^0 of 7 done, 2 running$", left)
                left.type("\x03")
                assert left.end() == 130
                lines = [line.split()[0] for line in left.screen.lines if line]
                assert lines[-5:] == ["REPLICA", "0", "1", "5", "sweep-1"]
                assert left.screen.lines[-1] == "sweep-1 is still IN_PROGRESS"
            (folder / "go").touch()
            assert table.end() == 0
            assert [line.split()[0] for line in table.screen.lines] == ["REPLICA", *"0123456"]
            assert "done" not in "".join(table.screen.lines), "the last line is gone"
        assert run.end() == 0
        assert run.screen.lines[-2:] == [
            "  7 of 7 done",
            "  next: `muster runs table sweep-1`",
        ]


def test_results_are_followed(folder: Path) -> None:
    words = (
        "sweep.py",
        "--array",
        "seed=2..6",
        "--parallelism",
        "2",
        "--detach",
        "--",
        str(folder / "go"),
    )
    muster("run", *words, code=0)
    (folder / "go").touch()
    text = output_of("runs", "table", "last", "-f", "--json", "--columns", "replica,loss,state")
    rows = [json.loads(line) for line in text.splitlines()]
    assert sorted(row["replica"] for row in rows) == [0, 1, 2, 3, 4]
    assert {"replica": 0, "loss": 0.5, "state": "FAILED"} in rows
    again = output_of("runs", "table", "last", "-f", "--json", "--replica", "1,2")
    assert [json.loads(line)["replica"] for line in again.splitlines()] == [1, 2]


def test_a_replica_that_is_restarted_is_printed_again(folder: Path) -> None:
    (folder / "flaky.py").write_text(
        "import os, pathlib, sys, time\n"
        "while os.environ['MUSTER_REPLICA'] == '0' and not pathlib.Path(sys.argv[1]).exists():\n"
        "    time.sleep(0.01)\n"
        "sys.exit(os.environ['MUSTER_REPLICA'] == '1' and os.environ['MUSTER_RESTART'] == '0')\n"
    )
    more = ("--parallelism", "2", "--max-restarts", "1", "--detach", "--", str(folder / "go"))
    muster("run", "flaky.py", "--array", "a=1,2", *more, code=0)
    argv = [*MUSTER, "runs", "table", "last", "-f", "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        lines = [following.stdout.readline()]
        (folder / "go").touch()
        lines += following.stdout
    first, *others = [(row["replica"], row["state"]) for row in map(json.loads, lines)]
    assert first == (1, "FAILED")
    assert sorted(others) == [(0, "SUCCEEDED"), (1, "SUCCEEDED")]


def test_what_to_retry_is_said_alike(folder: Path) -> None:
    done = muster("run", "sweep.py", "--array", "seed=1..6", "--max-failed", "0", code=1)
    assert "`muster runs retry sweep-1 --unfinished`" in done.stderr
    assert "`muster runs retry sweep-1 --unfinished`" in output_of("status", "last")
    muster("runs", "retry", "last", "--only", "0", code=0)
    again = muster("runs", "retry", "last", "--only", "0,3", code=0)
    assert "retries 2 of 6 replicas of sweep-2: 0, 3" in again.stderr
    assert "runs retry" not in output_of("status", "last")


def test_a_long_list_is_the_same_json_as_a_short_one(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"a": "é\x7f\n\t\u202e", "b": [], "c": {}, "d": [1, {"e": None}], "f": 0.1}] * 1001
    print_json_items(rows)
    assert capsys.readouterr().out == json.dumps(rows, indent=2).replace("\x7f", "\\u007f") + "\n"
    print_json_items([])
    assert capsys.readouterr().out == "[]\n"


@pytest.mark.parametrize("late", [False, True])
def test_a_long_table_is_written_in_pages(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a metric is first seen after the first page."""
    from muster.cli import replica_table

    nodes = {n: node("SUCCEEDED", 1, loss=n / 4, note='a,"\n') for n in range(7)}
    if late:
        nodes[6] = node("SUCCEEDED", 1, loss=1.5, late=True)
    run = recorded(Client(), nodes, array={"seed": "0..8"})
    whole_json = output_of("runs", "table", "last", "--json")
    whole_csv = output_of("runs", "table", "last", "--csv")
    found = list(csv.DictReader(io.StringIO(whole_csv)))
    assert [row["seed"] for row in found] == [*"0123456"]
    assert found[0]["note"] == 'a,"\n'
    assert found[6].get("late") == ("true" if late else None)
    monkeypatch.setattr(replica_table, "_PAGE", 2)
    options: dict[str, Any] = dict.fromkeys(("sort", "limit", "columns"))
    options |= {"reverse": False, "states": (), "replicas": (), "include_not_started": False}
    options["follow"] = False
    for form, whole in (("as_csv", whole_csv), ("as_json", whole_json)):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            both = {"as_csv": False, "as_json": False, form: True}
            replica_table.show_table([run], **options, **both)
        assert shown.getvalue() == whole
