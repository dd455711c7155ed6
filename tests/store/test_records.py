"""Jobs, runs and events: names, numbers, prefixes, filters, requests."""

from __future__ import annotations

from typing import Any

import pytest

from muster.errors import InvalidInput, NotFound
from muster.lifecycle.states import RunState
from muster.store.base import Store
from muster.store.records import JobRecord, PendingRequests, RunFilter, RunRecord, RunStep, Scale
from support.store_records import PROJECT, accept, accept_and_drive, job, node


def add(store: Store, of: JobRecord, **more: Any) -> RunRecord:
    return accept(store, of, [node(0), node(1)], **more)


def test_versions_count_within_a_name(store: Store) -> None:
    first, second, other = (store.jobs.insert(job(name)) for name in ("a", "a", "b"))
    assert [j.version for j in (first, second, other)] == [1, 2, 1]
    assert store.jobs.find(PROJECT, "a").id == second.id
    assert store.jobs.find(PROJECT, "a@1").id == first.id
    assert store.jobs.find(PROJECT, first.id[:6]).id == first.id


def test_same_content_is_the_same_job(store: Store) -> None:
    first = store.jobs.insert(job("a", content_hash="c"))
    assert store.jobs.insert(job("a", content_hash="c")).id == first.id
    assert store.jobs.by_content(PROJECT, "c") == first


def test_a_run_is_read_as_it_was_stored(store: Store) -> None:
    run = add(store, job())
    assert store.runs.get(run.id) == run
    assert store.runs.nodes(run.id) == [node(0), node(1)]


def test_runs_are_numbered_within_the_name_of_the_job(store: Store) -> None:
    a = job("a")
    names = [add(store, of).name for of in (a, a, job("b"), job("a"))]
    assert names == ["a-1", "a-2", "b-1", "a-3"]


def test_run_names_are_unique_for_any_job_names(store: Store) -> None:
    names = ["a", "a-1", "a", "a-1-1", "a-1", "a", "b", "a-1-1"]
    made = [add(store, job(name)) for name in names]
    assert len({run.name for run in made}) == len(made)
    for run in made:
        assert store.runs.find(PROJECT, run.name).id == run.id


def test_runs_are_found_by_name_prefix_and_ocid(store: Store) -> None:
    first = add(store, job(), id="abc1000000", created_at=1.0)
    second = add(store, job(), id="abc1200000", created_at=2.0)
    assert store.runs.find(PROJECT, "last").id == second.id
    assert store.runs.find(PROJECT, "abc10").id == first.id
    assert (
        store.runs.find(PROJECT, f"ocid1.datasciencejobrun.muster.local..{first.id}").id == first.id
    )
    with pytest.raises(InvalidInput, match=r"several runs .* 'abc1': abc1000000 \(train-1\)"):
        store.runs.find(PROJECT, "abc1")
    with pytest.raises(NotFound, match=r"no run named 'train-9' \(did you mean train-"):
        store.runs.find(PROJECT, "train-9")
    with pytest.raises(NotFound):
        store.runs.find(PROJECT, "")


def test_a_short_prefix_names_nothing(store: Store) -> None:
    made = add(store, job(id="def4000000"), id="abc1000000", created_at=1.0)
    assert store.runs.find(PROJECT, "abc1").id == made.id
    assert store.jobs.find(PROJECT, "def4").id == "def4000000"
    for text in ("a", "abc", "ocid1.datasciencejobrun.muster.local..abc"):
        with pytest.raises(NotFound, match="no run named"):
            store.runs.find_id(PROJECT, text)
    with pytest.raises(NotFound, match="no job named"):
        store.jobs.find(PROJECT, "def")


def test_last_is_not_found_without_runs(store: Store) -> None:
    with pytest.raises(NotFound, match="no runs yet"):
        store.runs.find(PROJECT, "last")


def test_runs_are_filtered(store: Store) -> None:
    a, b = job("a"), job("b")
    add(store, a, state="FAILED", created_at=1.0)
    add(store, a, state="SUCCEEDED", created_at=2.0)
    add(store, b, state="IN_PROGRESS", created_at=3.0)

    def names(**filters: Any) -> list[str]:
        return [run.name for run in store.runs.listing(PROJECT, RunFilter(**filters))]

    assert names() == ["b-1", "a-2", "a-1"]
    assert names(states=[RunState.FAILED, RunState.SUCCEEDED]) == ["a-2", "a-1"]
    assert names(job="a", since=1.5) == ["a-2"]
    assert names(job=store.jobs.find(PROJECT, "b").id) == ["b-1"]
    assert names(limit=1) == ["b-1"]
    assert [run.name for run in store.runs.live()] == ["b-1"]


def test_a_step_is_recorded_atomically(store: Store) -> None:
    run, lease = accept_and_drive(store, job())
    changes = {"state": "IN_PROGRESS", "started_at": 5.0, "lifecycle": {"a": [1]}}
    store.runs.save(RunStep(lease, changes, [node(1, "RUNNING")], [("node", {"rank": 1})], 5.0))
    again = store.runs.get(run.id)
    assert (again.state, again.started_at, again.lifecycle) == ("IN_PROGRESS", 5.0, {"a": [1]})
    assert [n.state for n in store.runs.nodes(run.id)] == ["PENDING", "RUNNING"]
    assert [(e.seq, e.kind, e.time) for e in store.events.since(run.id)] == [
        (1, "run", 1.0),
        (2, "node", 5.0),
    ]
    assert [e.seq for e in store.events.since(run.id, 1)] == [2]


def test_cancel_is_requested_once_and_not_of_an_ended_run(store: Store) -> None:
    run = add(store, job())
    assert store.runs.pending_requests(run.id) == PendingRequests()
    assert store.runs.request(run.id, "cancel", "enough", 2.0)
    assert not store.runs.request(run.id, "cancel", "again", 2.0)
    assert store.runs.request(run.id, "suspend", "a pause", 2.0)
    assert store.runs.pending_requests(run.id) == PendingRequests("enough", "a pause")
    ended = add(store, job(), state="FAILED")
    assert not store.runs.request(ended.id, "cancel", "late", 2.0)


def test_the_last_scale_request_of_a_group_is_pending(store: Store) -> None:
    run = add(store, job())
    assert store.runs.request_scale(run.id, "a", 3, "busy", 2.0)
    assert not store.runs.request_scale(run.id, "a", 3, "very busy", 2.0)
    assert store.runs.request_scale(run.id, "b", 1, "idle", 2.0)
    assert store.runs.request_scale(run.id, "a", 2, "not that busy", 2.0)
    expected = {"a": Scale(replicas=2, why="not that busy"), "b": Scale(replicas=1, why="idle")}
    assert store.runs.pending_requests(run.id) == PendingRequests(scale=expected)
    assert store.runs.get(run.id).scale_requested == expected
    logged = [e.data for e in store.events.since(run.id) if e.kind == "scale_requested"]
    assert [(t["group"], t["replicas"], t["why"]) for t in logged] == [
        ("a", 3, "busy"),
        ("b", 1, "idle"),
        ("a", 2, "not that busy"),
    ]
    ended = add(store, job(), state="FAILED")
    assert not store.runs.request_scale(ended.id, "a", 3, "late", 2.0)
    assert store.runs.pending_requests("missing") == PendingRequests()
