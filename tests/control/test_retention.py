"""Which ended runs are deleted, and when."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import muster
from muster.client.client import Client
from muster.control import retention
from muster.control.retention import surplus
from muster.errors import InvalidInput
from muster.storage.config import Retention
from muster.store.records import RunSummary
from support.embedded import embedded
from support.faults import until


def ended(name: str, finished_at: float) -> RunSummary:
    return RunSummary(
        id=name,
        name=name,
        job_id="j",
        job_name="j",
        state="SUCCEEDED",
        details="",
        engine="local",
        created_at=0.0,
        started_at=0.0,
        finished_at=finished_at,
        exit_code=0,
        node_count=1,
    )


#: Newest first; they ended 10, 20, 30 and 40 seconds ago.
RUNS = [ended(name, 100.0 - 10 * age) for age, name in enumerate("abcd", 1)]


@pytest.mark.parametrize(
    ("keep", "older_than", "deleted"),
    [
        (None, None, "abcd"),
        (0, None, "abcd"),
        (3, None, "d"),
        (9, None, ""),
        (None, 30.0, "cd"),
        (3, 20.0, "d"),
        (1, 40.0, "d"),
        (9, 0.0, ""),
    ],
)
def test_a_run_stays_if_any_condition_says_so(
    keep: int | None, older_than: float | None, deleted: str
) -> None:
    chosen = surplus(RUNS, Retention(keep, older_than), now=100.0)
    assert "".join(run.name for run in chosen) == deleted


@given(
    st.lists(st.floats(0, 1000), max_size=20),
    st.none() | st.integers(0, 25),
    st.none() | st.floats(0, 1000),
)
def test_the_newest_and_the_young_always_stay(
    ages: list[float], keep: int | None, older_than: float | None
) -> None:
    runs = [ended(str(number), 1000.0 - age) for number, age in enumerate(sorted(ages))]
    chosen = [*surplus(runs, Retention(keep, older_than), now=1000.0)]
    assert not {run.name for run in chosen} & {run.name for run in runs[: keep or 0]}
    assert all(1000.0 - (run.finished_at or 0) >= (older_than or 0) for run in chosen)
    assert len(chosen) + (keep or 0) >= len(runs) or older_than is not None


def configure(home: Path, text: str) -> None:
    (home / "config.toml").write_text(text)


def test_old_runs_are_deleted_when_a_run_has_ended(client: Client, own_home: Path) -> None:
    first = [muster.run(command="true").wait(60) for _ in range(3)]
    database = embedded(client).context.backend.store.database
    with database.transaction() as connection:  # they ended yesterday
        connection.execute("UPDATE runs SET finished_at = finished_at - 86400000000")
    configure(own_home, "[retention]\nkeep = 2\n")
    muster.run(command="true").wait(60)
    until(lambda: len(client.runs()) == 2, "two runs left", 30)
    assert [run.id for run in client.runs()][1] == first[-1].id
    left = lambda: len([*(own_home / "runs").iterdir()])  # noqa: E731
    until(lambda: left() == 2, "their folders are deleted", 30)


def test_automatic_retention_keeps_what_has_just_ended(client: Client, own_home: Path) -> None:
    configure(own_home, "[retention]\nkeep = 0\n")
    run = muster.run(command="true").wait(60)
    retention.apply_retention(embedded(client).store, embedded(client).home)
    assert client.run(run.id).state == "SUCCEEDED"


def test_a_wrong_configuration_refuses_runs_with_its_line(client: Client, own_home: Path) -> None:
    configure(own_home, "[retention]\nkeep = many\n")
    with pytest.raises(InvalidInput, match=r"config\.toml:2: not TOML"):
        muster.run(command="true")
    assert client.runs() == []
