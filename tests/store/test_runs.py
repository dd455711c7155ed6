"""Queries and changes of runs and Jobs: indexes, filters, concurrent edits, missing rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from muster.errors import InvalidInput, NotFound
from muster.lifecycle.states import TERMINAL, RunState
from muster.store import lookup
from muster.store.records import CorruptRecord, JobRecord, NodeRecord, RunRecord
from muster.store.sqlite.database import Database, Row


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    database = Database.open(tmp_path / "m.db")
    yield database
    database.close()


def accept(db: Database, state: str = "ACCEPTED") -> RunRecord:
    job = JobRecord("jobid", "train", 0, "content", {}, None, None, "", {}, 1.0, 1.0)

    def build(kept: JobRecord, n: int, name: str) -> tuple[RunRecord, list[NodeRecord]]:
        rest = [1.0, None, None, None, 0, {}, {}, {}, {}, {}, [], None, None]
        return RunRecord(f"run{n}", name, n, kept.id, kept.name, state, "", "local", 0, *rest), []

    return db.runs.insert(job, build)


class Explained(Database):
    """Also records SQLite's plan for each query."""

    plans: list[str]

    def read(self, sql: str, parameters: object = ()) -> list[Row]:
        steps = super().read(f"EXPLAIN QUERY PLAN {sql}", parameters)  # type: ignore[arg-type]
        self.plans.append("; ".join(step["detail"] for step in steps))
        return super().read(sql, parameters)  # type: ignore[arg-type]


def test_frequent_queries_use_an_index(tmp_path: Path) -> None:
    """Reading each of 10,000 runs takes 15 ms."""
    db = Explained.open(tmp_path / "m.db")
    assert isinstance(db, Explained)
    db.plans = []
    db.runs.live()
    db.runs.listing(limit=50)
    db.runs.listing(since=1.0)
    lookup.by_prefix(db, "runs", "abc")
    lookup.by_prefix(db, "jobs", "abc")
    db.events.since("abc", 5)
    db.runs.nodes("abc")
    db.jobs.events("abc", 5)
    alive, newest, since, *searches = db.plans
    assert "USING INDEX runs_alive" in alive
    assert newest == "SCAN runs", "read in order from the end: nothing is sorted"
    assert "USING INDEX runs_by_time" in since
    assert len(searches) == 5
    for plan in searches:
        assert plan.startswith("SEARCH")
    db.close()


@pytest.mark.parametrize("state", RunState)
def test_runs_that_have_not_ended_are_live(db: Database, state: RunState) -> None:
    accept(db, state)
    assert bool(db.runs.live()) is (state not in TERMINAL)
    assert db.runs.request("run1", "cancel", "enough") is (state not in TERMINAL)


def test_step_of_a_missing_run_is_refused(db: Database) -> None:
    with pytest.raises(NotFound, match="no run with the id 'missing'"):
        db.runs.save("missing", {"state": "FAILED"}, [], [("run", {})], 1.0)
    assert db.events.since("missing") == []


def test_edit_of_a_missing_job_is_refused(db: Database) -> None:
    accept(db)
    job = replace(db.jobs.find("train"), id="missing")
    with pytest.raises(NotFound, match="no job with the id 'missing'"):
        db.jobs.update(job, job, by="ann", changes={})
    with pytest.raises(NotFound, match="no job with the id 'missing'"):
        db.jobs.delete("missing", by="ann", now=1.0)


def test_one_of_two_concurrent_edits_is_refused(db: Database) -> None:
    accept(db)
    job = db.jobs.find("train")
    db.jobs.update(job, replace(job, description="mine", updated_at=2.0), by="ann", changes={})
    with pytest.raises(InvalidInput, match="train@1 was changed by another user meanwhile"):
        db.jobs.update(job, replace(job, description="his", updated_at=3.0), by="bob", changes={})
    assert db.jobs.find("train").description == "mine"


def test_run_of_a_job_that_was_edited_after_its_lookup(db: Database) -> None:
    """The run belongs to the edited Job; no second Job with that id is stored."""
    accept(db)
    job = db.jobs.find("train")
    db.jobs.update(job, replace(job, spec={"nodes": 2}, updated_at=2.0), by="", changes={})
    assert accept(db).job_id == "jobid"
    assert [job.spec for job in db.jobs.listing()] == [{"nodes": 2}]


def test_events_of_a_job_are_recorded(db: Database) -> None:
    accept(db, "FAILED")
    job = db.jobs.find("train")
    changes = {"description": {"from": None, "to": "x"}}
    edited = replace(job, description="x", updated_at=3.0)
    db.jobs.update(job, edited, by="ann", changes=changes)
    assert db.jobs.delete("jobid", by="bob", now=2.0)  # by a clock that is behind
    assert not db.jobs.delete("jobid", by="bob", now=4.0)
    recorded = [
        (event.seq, event.time, event.kind, event.by, event.data)
        for event in db.jobs.events("jobid")
    ]
    assert recorded == [
        (1, 1.0, "created", "", {}),
        (2, 3.0, "edited", "ann", {"changes": changes}),
        (3, 3.0, "deleted", "bob", {}),
    ]
    assert [event.kind for event in db.jobs.events("jobid", 2)] == ["deleted"]


def test_an_unreadable_event_is_named(db: Database) -> None:
    accept(db)
    with db.transaction() as connection:
        connection.execute("UPDATE job_events SET data = '{'")
    with pytest.raises(CorruptRecord, match=r"event 1 of the job jobid in .* --after 1` shows"):
        db.jobs.events("jobid")


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ({}, ["c", "b", "a"]),
        ({"team": None}, ["b", "a"]),
        ({"team": "ml"}, ["a"]),
        ({"team": "ml", "tier": "1"}, []),
        ({'te"am$': "x"}, ["b"]),
        ({"te": None}, []),
    ],
)
def test_runs_are_filtered_by_tag(
    db: Database, tags: dict[str, str | None], found: list[str]
) -> None:
    given = {"a": {"team": "ml"}, "b": {"team": "web", 'te"am$': "x"}, "c": {}}
    for run_id, own in given.items():
        job = JobRecord(run_id, run_id, 0, run_id, {}, None, None, "", own, 1.0, 1.0)

        def build(kept: JobRecord, n: int, name: str) -> tuple[RunRecord, list[NodeRecord]]:
            rest: list[Any] = ["", "local", 0, 1.0, None, None, None, 0, {}, {}, {}, {}, {}, []]
            run = RunRecord(kept.id, name, n, kept.id, kept.name, "FAILED", *rest, None, None)
            return replace(run, tags=kept.tags), []

        db.runs.insert(job, build)
    assert [run.id for run in db.runs.listing(tags=tags)] == found
    assert [job.id for job in db.jobs.listing(tags=tags)] == found
    with db.transaction() as connection:
        connection.execute("UPDATE runs SET tags = '{' WHERE id = 'c'")
    shown = [run for run in db.runs.listing(tags=tags) if "corrupt: tags" not in run.details]
    assert [run.id for run in shown] == [run_id for run_id in found if run_id != "c"]


def test_an_empty_list_of_states_selects_no_runs(db: Database) -> None:
    accept(db)
    assert db.runs.listing(states=[]) == []


def test_any_text_is_read_as_it_was_stored(db: Database) -> None:
    run = accept(db)
    strange = "naïve \u2028 🎺 'quoted\" \x1b[31m"
    db.runs.save(run.id, {"details": strange, "notes": [strange]}, [], [(strange, {})], 1.0)
    kept = db.runs.get(run.id)
    assert (kept.details, kept.notes) == (strange, [strange])
    assert db.events.since(run.id, 1)[0].kind == strange
