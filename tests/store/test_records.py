"""Jobs, runs and events: names, numbers, prefixes, filters, requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.errors import InvalidInput, NotFound
from muster.identity import new_id
from muster.lifecycle.states import RunState
from muster.store.records import JobRecord, NodeRecord, PendingRequests, RunRecord, Scale
from muster.store.sqlite.database import Database


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    database = Database.open(tmp_path / "m.db")
    yield database
    database.close()


def job(name: str = "train", content: str = "") -> JobRecord:
    return JobRecord(
        id=new_id(),
        name=name,
        version=0,
        content_hash=content or new_id(),
        spec={"command": ["x"]},
        artifact_sha256=None,
        artifact_name=None,
        description="",
        tags={},
        created_at=1.0,
        updated_at=1.0,
    )


def node(rank: int, state: str = "PENDING") -> NodeRecord:
    return NodeRecord(
        rank, "g", 0, rank, f"n-{rank}", f"node-{rank}", "127.0.0.9", state, *[None] * 3
    )


def add(db: Database, of: JobRecord, **more: Any) -> RunRecord:
    def build(kept: JobRecord, number: int, name: str) -> tuple[RunRecord, list[NodeRecord]]:
        record = RunRecord(
            id=new_id(),
            name=name,
            number=number,
            job_id=kept.id,
            job_name=kept.name,
            state="ACCEPTED",
            details="",
            engine="local",
            attempt=0,
            created_at=1.0,
            started_at=None,
            finished_at=None,
            exit_code=None,
            node_count=2,
            spec={},
            origins={},
            overrides={},
            plan={"nodes": [1, 2]},
            lifecycle={},
            notes=["a"],
            cancel_requested_at=None,
            cancel_reason=None,
        )
        return replace(record, **more), [node(0), node(1)]

    return db.runs.insert(of, build)


def test_versions_count_within_a_name(db: Database) -> None:
    first, second, other = (db.jobs.insert(job(name)) for name in ("a", "a", "b"))
    assert [j.version for j in (first, second, other)] == [1, 2, 1]
    assert db.jobs.find("a").id == second.id
    assert db.jobs.find("a@1").id == first.id
    assert db.jobs.find(first.id[:6]).id == first.id


def test_same_content_is_the_same_job(db: Database) -> None:
    first = db.jobs.insert(job("a", content="c"))
    assert db.jobs.insert(job("a", content="c")).id == first.id
    assert db.jobs.by_content("c") == first


def test_a_run_is_read_as_it_was_stored(db: Database) -> None:
    run = add(db, job())
    assert db.runs.get(run.id) == run
    assert db.runs.nodes(run.id) == [node(0), node(1)]


def test_runs_are_numbered_within_the_name_of_the_job(db: Database) -> None:
    a = job("a")
    names = [add(db, of).name for of in (a, a, job("b"), job("a"))]
    assert names == ["a-1", "a-2", "b-1", "a-3"]


@settings(max_examples=30, deadline=None)
@given(names=st.lists(st.sampled_from(["a", "a-1", "a-1-1", "b"]), max_size=12))
def test_run_names_are_unique_for_any_job_names(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    db = Database.open(tmp_path_factory.mktemp("s") / "m.db")
    made = [add(db, job(name)) for name in names]
    assert len({run.name for run in made}) == len(made)
    for run in made:
        assert db.runs.find(run.name).id == run.id
    db.close()


def test_runs_are_found_by_name_prefix_and_ocid(db: Database) -> None:
    first = add(db, job(), id="abc1000000", created_at=1.0)
    second = add(db, job(), id="abc2000000", created_at=2.0)
    assert db.runs.find("last").id == second.id
    assert db.runs.find("abc1").id == first.id
    assert db.runs.find(f"ocid1.datasciencejobrun.muster.local..{first.id}").id == first.id
    with pytest.raises(InvalidInput, match=r"several runs .* 'abc': abc1000000 \(train-1\)"):
        db.runs.find("abc")
    with pytest.raises(NotFound, match=r"no run named 'train-9' \(did you mean train-"):
        db.runs.find("train-9")
    with pytest.raises(NotFound):
        db.runs.find("")


def test_last_is_not_found_without_runs(db: Database) -> None:
    with pytest.raises(NotFound, match="no runs yet"):
        db.runs.find("last")


def test_runs_are_filtered(db: Database) -> None:
    a, b = job("a"), job("b")
    add(db, a, state="FAILED", created_at=1.0)
    add(db, a, state="SUCCEEDED", created_at=2.0)
    add(db, b, state="IN_PROGRESS", created_at=3.0)

    def names(**filters: Any) -> list[str]:
        return [run.name for run in db.runs.listing(**filters)]

    assert names() == ["b-1", "a-2", "a-1"]
    assert names(states=[RunState.FAILED, RunState.SUCCEEDED]) == ["a-2", "a-1"]
    assert names(job="a", since=1.5) == ["a-2"]
    assert names(job=db.jobs.find("b").id) == ["b-1"]
    assert names(limit=1) == ["b-1"]
    assert [run.name for run in db.runs.live()] == ["b-1"]


def test_a_step_is_recorded_atomically(db: Database) -> None:
    run = add(db, job())
    changes = {"state": "IN_PROGRESS", "started_at": 5.0, "lifecycle": {"a": [1]}}
    db.runs.save(run.id, changes, [node(1, "RUNNING")], [("node", {"rank": 1})], 5.0)
    again = db.runs.get(run.id)
    assert (again.state, again.started_at, again.lifecycle) == ("IN_PROGRESS", 5.0, {"a": [1]})
    assert [n.state for n in db.runs.nodes(run.id)] == ["PENDING", "RUNNING"]
    assert [(e.seq, e.kind, e.time) for e in db.events.since(run.id)] == [
        (1, "run", 1.0),
        (2, "node", 5.0),
    ]
    assert [e.seq for e in db.events.since(run.id, 1)] == [2]


def test_cancel_is_requested_once_and_not_of_an_ended_run(db: Database) -> None:
    run = add(db, job())
    assert db.runs.pending_requests(run.id) == PendingRequests()
    assert db.runs.request(run.id, "cancel", "enough")
    assert not db.runs.request(run.id, "cancel", "again")
    assert db.runs.request(run.id, "suspend", "a pause")
    assert db.runs.pending_requests(run.id) == PendingRequests("enough", "a pause")
    ended = add(db, job(), state="FAILED")
    assert not db.runs.request(ended.id, "cancel", "late")


def test_the_last_scale_request_of_a_group_is_pending(db: Database) -> None:
    run = add(db, job())
    assert db.runs.request_scale(run.id, "a", 3, "busy")
    assert not db.runs.request_scale(run.id, "a", 3, "very busy")
    assert db.runs.request_scale(run.id, "b", 1, "idle")
    assert db.runs.request_scale(run.id, "a", 2, "not that busy")
    expected = {"a": Scale(replicas=2, why="not that busy"), "b": Scale(replicas=1, why="idle")}
    assert db.runs.pending_requests(run.id) == PendingRequests(scale=expected)
    assert db.runs.get(run.id).scale_requested == expected
    logged = [e.data for e in db.events.since(run.id) if e.kind == "scale_requested"]
    assert [(t["group"], t["replicas"], t["why"]) for t in logged] == [
        ("a", 3, "busy"),
        ("b", 1, "idle"),
        ("a", 2, "not that busy"),
    ]
    ended = add(db, job(), state="FAILED")
    assert not db.runs.request_scale(ended.id, "a", 3, "late")
    assert db.runs.pending_requests("missing") == PendingRequests()
