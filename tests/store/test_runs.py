"""Runs: what the queries cost, and steps of a run that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.errors import NotFound
from muster.lifecycle.states import TERMINAL, RunState
from muster.store import events, jobs, lookup, runs
from muster.store.database import Database, Row
from muster.store.records import JobRecord, NodeRecord, RunRecord


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
    alive, newest, since, *searches = db.plans
    assert "USING INDEX runs_alive" in alive
    assert newest == "SCAN runs", "as they lie there, from the end on: nothing is sorted"
    assert "USING INDEX runs_by_time" in since
    assert len(searches) == 4
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
    with pytest.raises(NotFound, match="no job with the id 'nobody'"):
        jobs.update(db, "nobody", spec={}, content_hash="", description="", tags={}, now=1.0)


def test_run_of_a_job_that_was_edited_since_it_was_looked_up(db: Database) -> None:
    """The run is the Job's, whatever it holds by now; there is no second Job of that id."""
    accept(db)
    jobs.update(db, "jobid", spec={}, content_hash="other", description="", tags={}, now=2.0)
    assert accept(db).job_id == "jobid"
    assert [job.content_hash for job in jobs.listing(db)] == ["other"]


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
