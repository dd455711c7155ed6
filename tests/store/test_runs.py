"""Runs: what the queries cost, and steps of a run that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from muster.errors import InvalidInput, NotFound
from muster.lifecycle.states import TERMINAL, RunState
from muster.store import events, job_events, jobs, lookup, runs
from muster.store.database import Database, Row
from muster.store.records import CorruptRecord, JobRecord, NodeRecord, RunRecord


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

    return runs.insert(db, job, build)


class Asked(Database):
    """Also keeps how SQLite goes about each query."""

    plans: list[str]

    def read(self, sql: str, parameters: object = ()) -> list[Row]:
        steps = super().read(f"EXPLAIN QUERY PLAN {sql}", parameters)  # type: ignore[arg-type]
        self.plans.append("; ".join(step["detail"] for step in steps))
        return super().read(sql, parameters)  # type: ignore[arg-type]


def test_what_every_command_asks_is_answered_by_an_index(tmp_path: Path) -> None:
    """With 10,000 runs a look at each takes 15 ms."""
    db = Asked.open(tmp_path / "m.db")
    assert isinstance(db, Asked)
    db.plans = []
    runs.live(db)
    runs.listing(db, limit=50)
    runs.listing(db, since=1.0)
    lookup.by_prefix(db, "runs", "abc")
    lookup.by_prefix(db, "jobs", "abc")
    events.since(db, "abc", 5)
    runs.nodes(db, "abc")
    job_events.since(db, "abc", 5)
    alive, newest, since, *searches = db.plans
    assert "USING INDEX runs_alive" in alive
    assert newest == "SCAN runs", "as they lie there, from the end on: nothing is sorted"
    assert "USING INDEX runs_by_time" in since
    assert len(searches) == 5
    for plan in searches:
        assert plan.startswith("SEARCH")
    db.close()


@pytest.mark.parametrize("state", RunState)
def test_alive_is_what_has_not_ended(db: Database, state: RunState) -> None:
    accept(db, state)
    assert bool(runs.live(db)) is (state not in TERMINAL)
    assert runs.request(db, "run1", "cancel", "enough") is (state not in TERMINAL)


def test_step_of_a_run_that_is_not_there(db: Database) -> None:
    with pytest.raises(NotFound, match="no run with the id 'nobody'"):
        runs.save(db, "nobody", {"state": "FAILED"}, [], [("run", {})], 1.0)
    assert events.since(db, "nobody") == []


def test_edit_of_a_job_that_is_not_there(db: Database) -> None:
    accept(db)
    job = replace(jobs.find(db, "train"), id="nobody")
    with pytest.raises(NotFound, match="no job with the id 'nobody'"):
        jobs.update(db, job, job, by="ann", changes={})
    with pytest.raises(NotFound, match="no job with the id 'nobody'"):
        jobs.delete(db, "nobody", by="ann", now=1.0)


def test_of_two_edits_at_once_one_is_refused(db: Database) -> None:
    accept(db)
    job = jobs.find(db, "train")
    jobs.update(db, job, replace(job, description="mine", updated_at=2.0), by="ann", changes={})
    with pytest.raises(InvalidInput, match="train@1 was edited by somebody else a moment ago"):
        jobs.update(db, job, replace(job, description="his", updated_at=3.0), by="bob", changes={})
    assert jobs.find(db, "train").description == "mine"


def test_run_of_a_job_that_was_edited_since_it_was_looked_up(db: Database) -> None:
    """The run is the Job's, whatever it holds by now; there is no second Job of that id."""
    accept(db)
    job = jobs.find(db, "train")
    jobs.update(db, job, replace(job, spec={"nodes": 2}, updated_at=2.0), by="", changes={})
    assert accept(db).job_id == "jobid"
    assert [job.spec for job in jobs.listing(db)] == [{"nodes": 2}]


def test_what_happens_to_a_job_is_recorded(db: Database) -> None:
    accept(db, "FAILED")
    job = jobs.find(db, "train")
    changes = {"description": {"from": None, "to": "x"}}
    edited = replace(job, description="x", updated_at=3.0)
    jobs.update(db, job, edited, by="ann", changes=changes)
    assert jobs.delete(db, "jobid", by="bob", now=2.0)  # by a clock that is behind
    assert not jobs.delete(db, "jobid", by="bob", now=4.0)
    told = [
        (event.seq, event.time, event.kind, event.by, event.data)
        for event in job_events.since(db, "jobid")
    ]
    assert told == [
        (1, 1.0, "created", "", {}),
        (2, 3.0, "edited", "ann", {"changes": changes}),
        (3, 3.0, "deleted", "bob", {}),
    ]
    assert [event.kind for event in job_events.since(db, "jobid", 2)] == ["deleted"]


def test_an_event_that_cannot_be_read_is_named(db: Database) -> None:
    accept(db)
    with db.transaction() as connection:
        connection.execute("UPDATE job_events SET data = '{'")
    with pytest.raises(CorruptRecord, match=r"event 1 of the job jobid in .* --after 1` shows"):
        job_events.since(db, "jobid")


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
def test_by_tag(db: Database, tags: dict[str, str | None], found: list[str]) -> None:
    said = {"a": {"team": "ml"}, "b": {"team": "web", 'te"am$': "x"}, "c": {}}
    for run_id, own in said.items():
        job = JobRecord(run_id, run_id, 0, run_id, {}, None, None, "", own, 1.0, 1.0)

        def build(kept: JobRecord, n: int, name: str) -> tuple[RunRecord, list[NodeRecord]]:
            rest: list[Any] = ["", "local", 0, 1.0, None, None, None, 0, {}, {}, {}, {}, {}, []]
            run = RunRecord(kept.id, name, n, kept.id, kept.name, "FAILED", *rest, None, None)
            return replace(run, tags=kept.tags), []

        runs.insert(db, job, build)
    assert [run.id for run in runs.listing(db, tags=tags)] == found
    assert [job.id for job in jobs.listing(db, tags=tags)] == found
    with db.transaction() as connection:
        connection.execute("UPDATE runs SET tags = '{' WHERE id = 'c'")
    shown = [run for run in runs.listing(db, tags=tags) if "corrupt: tags" not in run.details]
    assert [run.id for run in shown] == [run_id for run_id in found if run_id != "c"]


def test_no_states_are_no_runs(db: Database) -> None:
    accept(db)
    assert runs.listing(db, states=[]) == []


def test_text_of_any_kind_comes_back(db: Database) -> None:
    run = accept(db)
    strange = "naïve \u2028 🎺 'quoted\" \x1b[31m"
    runs.save(db, run.id, {"details": strange, "notes": [strange]}, [], [(strange, {})], 1.0)
    kept = runs.get(db, run.id)
    assert (kept.details, kept.notes) == (strange, [strange])
    assert events.since(db, run.id, 1)[0].kind == strange
