"""`muster schedules`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.main import cli
from muster.client.client import Client
from muster.errors import InvalidInput, NotFound
from muster.lifecycle.schedule import Missed, Overlap
from support.command import muster

WAITS = "runs start only while a `muster server` runs on this MUSTER_HOME\n"


@pytest.fixture(autouse=True)
def folder(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("import os\nprint(os.environ['MUSTER_SCHEDULE'])\n")
    monkeypatch.chdir(tmp_path)


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, ["schedules", *words], catch_exceptions=False)


def out(*words: str) -> str:
    """What a command prints on standard output."""
    done = call(*words)
    assert done.exit_code == 0, done.output
    return done.stdout


def create(name: str = "nightly", *more: str) -> str:
    zone = ("--time-zone", "Europe/Rome")
    return out("create", name, "train.py", "--cron", "0 3 * * *", *zone, *more).strip()


def test_a_schedule_is_created_as_a_run_is_described(client: Client) -> None:
    words = ("--every", "6h", "--overlap", "replace", "--missed", "run_once", "--tag", "a=b")
    more = ("--start-within", "1h", "--nodes", "2", "--env", "X=1", "--", "--epochs", "3")
    done = call("create", "refresh", "train.py", *words, *more)
    schedule = client.schedule("refresh")
    assert done.stdout == f"{schedule.id}\n"
    assert "schedule refresh starts train@1: next at 20" in done.stderr
    timing = schedule.timing
    assert (timing.every, timing.start_within) == (21600.0, 3600.0)
    assert (timing.overlap, timing.missed) == (Overlap.REPLACE, Missed.RUN_ONCE)
    found = schedule.overrides
    assert (found["env"], found["args"], found["tags"]) == (
        {"X": "1"},
        ["--epochs", "3"],
        {"a": "b"},
    )
    assert client.runs() == []


@pytest.mark.embedded("a server starts the runs")
def test_commands_say_what_starts_the_runs() -> None:
    assert call("list").stderr == "no schedules: `muster schedules create` makes one\n"
    done = call("create", "nightly", "train.py", "--cron", "0 3 * * *")
    assert done.stderr.endswith(WAITS)
    assert call("list").stderr == WAITS


def test_schedules_are_listed_by_name() -> None:
    create()
    create("daily")
    header, *rows = [line.split() for line in out("list").splitlines()]
    assert header == ["SCHEDULE", "JOB", "WHEN", "NEXT", "BY"]
    assert [row[:2] for row in rows] == [["daily", "train@1"], ["nightly", "train@1"]]
    assert "0 3 * * * Europe/Rome" in out("list")
    first, _ = json.loads(out("list", "--json"))
    assert (first["name"], first["cron"], first["overlap"]) == ("daily", "0 3 * * *", "skip")
    assert first["next_at"].endswith("Z")


def test_a_schedule_is_shown_with_what_was_done(client: Client) -> None:
    create()
    text = out("show", "nightly")
    assert text.startswith("nightly  0 3 * * * Europe/Rome, starts train@1, created by ")
    assert text.count("next: ") == 3
    assert "no time has come yet" in text
    run = client.run(out("trigger", "nightly").strip())
    assert run.wait(60).state == "SUCCEEDED"
    assert [line.message for line in run.logs(streams=["stdout"])] == ["nightly"]
    text = out("show", "nightly")
    assert f"triggered by {run.created_by}" in text and f"{run.name}" in text
    shown = json.loads(out("show", "nightly", "--json"))
    assert [one["run"] for one in shown["firings"]] == [run.name]
    assert len(shown["next_times"]) == 5


def test_a_run_says_which_schedule_it_is_of(client: Client) -> None:
    create()
    run = json.loads(out("trigger", "nightly", "--json"))
    assert run["schedule"] == "nightly"
    shown = CliRunner().invoke(cli, ["status", run["name"]]).stdout
    assert "started by schedule nightly for 20" in shown
    again = client.run(run["id"]).wait(60)
    assert again.scheduled_at is not None
    muster("rerun", again.name, "--detach", code=0)
    copy = client.run("last").wait(60)
    assert (copy.schedule, copy.scheduled_at) == (None, None)
    assert [line.message for line in copy.logs(streams=["stdout"])] == ["nightly"]


def test_a_schedule_is_edited_paused_and_deleted(client: Client) -> None:
    create()
    assert out("edit", "nightly", "--every", "30m").startswith("nightly: next at 20")
    assert client.schedule("nightly").timing.cron is None
    assert json.loads(out("edit", "nightly", "--cron", "30 4 * * *", "--json"))["every"] is None
    Path("train.py").write_text("print(2)\n")
    client.create(client.prepare_job("train.py"))
    assert json.loads(out("edit", "nightly", "--job", "train", "--json"))["job"] == "train@2"
    assert out("pause", "nightly").startswith("nightly is paused")
    assert out("edit", "nightly", "--cron", "0 5 * * *") == "nightly: paused\n"
    assert " paused " in out("list")
    assert "nightly  paused  0 5 * * *" in out("show", "nightly")
    assert out("resume", "nightly").startswith("nightly: next at 20")
    assert out("delete", "nightly") == "nightly is deleted; train@2 and its runs stay\n"
    with pytest.raises(NotFound, match="no schedule named 'nightly'"):
        call("show", "nightly")
    assert call("edit", "nightly").exit_code == 2


def test_a_job_with_a_schedule_is_not_deleted(client: Client) -> None:
    create()
    with pytest.raises(InvalidInput, match="schedule nightly starts runs of it"):
        CliRunner().invoke(cli, ["jobs", "delete", "train"], catch_exceptions=False)
    assert client.api.job("train").state == "ACTIVE"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("train.py",), "a schedule needs a time, or an event"),
        (("train.py", "--cron", "0 3 * *"), "--cron: '0 3 * *' needs five fields, not 4"),
        (("train.py", "--every", "30"), "--every: 30 has no unit"),
        (("train.py", "--every", "1h", "--time-zone", "Rome"), "--time-zone: 'Rome' is not"),
        (("missing.py", "--every", "1h"), "missing.py not found"),
    ],
)
def test_what_is_wrong_is_named(client: Client, words: tuple[str, ...], expected: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        call("create", "x", *words)
    assert expected in str(caught.value)
    assert client.schedules() == []
    assert client.api.jobs() == []
