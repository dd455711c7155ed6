"""What `muster status` and the summary of a run say, and how long it ran."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.describe.failure import cause_lines
from muster.describe.times import ran
from muster.node.failure_text import LAST_LINE
from muster.store.records import RunSummary
from support import command

HEAD = "node-0 (group a, rank 0) failed with exit code 1"
INSIDE = "node-0, group a, rank 0: exit code 1"


@pytest.mark.parametrize(
    ("details", "lines"),
    [
        ("canceled by user", ["canceled by user"]),
        (f"{HEAD}:\nValueError: x", [f"ValueError: x ({INSIDE})"]),
        (
            f"{HEAD}:\nTraceback (most recent call last):\n  a\n  b\nValueError: x",
            [f"ValueError: x ({INSIDE})", "...", "  b", "ValueError: x"],
        ),
        (f"{HEAD}:\n{LAST_LINE}\nstep 3", [f"{HEAD}: {LAST_LINE} step 3"]),
    ],
)
def test_the_error_comes_first(details: str, lines: list[str]) -> None:
    assert cause_lines(details, 2) == lines


@pytest.mark.parametrize(
    ("started", "before", "since", "finished", "seconds"),
    [
        (None, None, None, None, None),
        (100.0, None, 100.0, None, 900.0),
        (100.0, None, 100.0, 200.0, 100.0),
        (100.0, 50.0, None, None, 50.0),
        (100.0, 50.0, 800.0, 900.0, 150.0),
    ],
)
def test_time_does_not_count_while_suspended(
    started: float | None,
    before: float | None,
    since: float | None,
    finished: float | None,
    seconds: float | None,
) -> None:
    run = RunSummary(
        *("id", "a-1", "job", "a", "FAILED", "", "local", 0.0, started, finished, None, 1),
        ran_before=before,
        running_since=since,
    )
    assert run.seconds(1000.0) == seconds


def test_a_suspension_is_named() -> None:
    assert ran(720, 0) == "12m"
    assert ran(720, 7200) == "12m (suspended 2h)"


def test_the_time_of_a_suspended_run(client: Client, own_home: Path, tmp_path: Path) -> None:
    job, new = client.job(None, command=["sleep", "1000"])
    run = client.start(client.prepare_run(job, new_job=new))
    for entry in run.events(follow=True):
        if entry.kind == "run" and entry.data["state"] == "IN_PROGRESS":
            break
    run.suspend().wait(60)
    with sqlite3.connect(own_home / "muster.db") as db:  # it started two hours earlier
        db.execute("UPDATE runs SET started_at = started_at - 7200000000")
        db.execute("UPDATE runs SET lifecycle = json_set(lifecycle, '$.ran', 660.0)")
    (found,) = client.summaries()
    assert found.seconds(0) == 660.0
    shown = command.muster("runs", "show", "last").stdout.splitlines()
    assert shown[0].startswith("sleep-1  SUSPENDED after 11m (suspended 1h49m)")
    assert shown[-1].startswith("next: `muster runs resume sleep-1`, `muster cancel sleep-1`")
    db = sqlite3.connect(own_home / "muster.db")
    with db:
        db.execute("UPDATE runs SET lifecycle = 'no JSON'")
    db.close()
    (found,) = client.summaries()
    assert found.name == "sleep-1"
    with sqlite3.connect(own_home / "muster.db") as db:
        db.execute("UPDATE runs SET lifecycle = '{}'")


def test_a_run_is_shown_in_short(tmp_path: Path) -> None:
    command.muster("run", "--max-restarts", "0", "--", "sh", "-c", "echo out; exit 3", cwd=tmp_path)
    short = command.muster("runs", "show", "last").stdout
    assert "max_restarts" in short
    assert "grace_period" not in short
    assert "job sh (" not in short
    assert short.splitlines()[-1] == (
        "next: `muster logs sh-1`, `muster events sh-1`, `muster status sh-1 --all`"
    )
    every = command.muster("runs", "show", "last", "--all").stdout
    assert "grace_period" in every
    assert "job sh (" in every
    assert "logs in /" in every
