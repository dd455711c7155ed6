"""Queries and changes of runs and Jobs: filters, concurrent edits, missing rows."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from muster.errors import InvalidInput, NotFound
from muster.lifecycle.states import TERMINAL, RunState
from muster.store.base import Store
from muster.store.records import Lease, NodeFilter, RunFilter, RunRecord, RunStep
from support.store_records import OWNER, PROJECT, accept, accept_and_drive, job, node


def enter(store: Store, state: str = "ACCEPTED") -> RunRecord:
    """A run of the Job `jobid`, which is stored with the first of them."""
    of = job(id="jobid", content_hash="content", spec={})
    return accept(store, of, state=state)


@pytest.mark.parametrize("state", RunState)
def test_runs_that_have_not_ended_are_live(store: Store, state: RunState) -> None:
    run = enter(store, state)
    assert bool(store.runs.live()) is (state not in TERMINAL)
    assert store.runs.request(run.id, "cancel", "enough", 2.0) is (state not in TERMINAL)


def test_step_of_a_missing_run_is_refused(store: Store) -> None:
    with pytest.raises(NotFound, match="no run with the id 'missing'"):
        store.runs.save(
            RunStep(Lease.first("missing", OWNER), {"state": "FAILED"}, [], [("run", {})], 1.0)
        )
    assert store.events.since("missing") == []


def test_edit_of_a_missing_job_is_refused(store: Store) -> None:
    enter(store)
    found = replace(store.jobs.find(PROJECT, "train"), id="missing")
    with pytest.raises(NotFound, match="no job with the id 'missing'"):
        store.jobs.update(found, found, by="ann", changes={})
    with pytest.raises(NotFound, match="no job with the id 'missing'"):
        store.jobs.delete("missing", by="ann", now=1.0)


def test_one_of_two_concurrent_edits_is_refused(store: Store) -> None:
    enter(store)
    found = store.jobs.find(PROJECT, "train")
    store.jobs.update(
        found, replace(found, description="mine", updated_at=2.0), by="ann", changes={}
    )
    with pytest.raises(InvalidInput, match="train@1 was changed by another user meanwhile"):
        store.jobs.update(
            found, replace(found, description="his", updated_at=3.0), by="bob", changes={}
        )
    assert store.jobs.find(PROJECT, "train").description == "mine"


def test_run_of_a_job_that_was_edited_after_its_lookup(store: Store) -> None:
    """The run belongs to the edited Job; no second Job with that id is stored."""
    enter(store)
    found = store.jobs.find(PROJECT, "train")
    store.jobs.update(found, replace(found, spec={"nodes": 2}, updated_at=2.0), by="", changes={})
    assert enter(store).job_id == "jobid"
    assert [job.spec for job in store.jobs.listing(PROJECT)] == [{"nodes": 2}]


def test_events_of_a_job_are_recorded(store: Store) -> None:
    enter(store, "FAILED")
    found = store.jobs.find(PROJECT, "train")
    changes = {"description": {"from": None, "to": "x"}}
    edited = replace(found, description="x", updated_at=3.0)
    store.jobs.update(found, edited, by="ann", changes=changes)
    assert store.jobs.delete("jobid", by="bob", now=2.0)  # by a clock that is behind
    assert not store.jobs.delete("jobid", by="bob", now=4.0)
    recorded = [
        (event.seq, event.time, event.kind, event.by, event.data)
        for event in store.jobs.events("jobid")
    ]
    assert recorded == [
        (1, 1.0, "created", "", {}),
        (2, 3.0, "edited", "ann", {"changes": changes}),
        (3, 3.0, "deleted", "bob", {}),
    ]
    assert [event.kind for event in store.jobs.events("jobid", 2)] == ["deleted"]


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
    store: Store, tags: dict[str, str | None], found: list[str]
) -> None:
    given = {"a": {"team": "ml"}, "b": {"team": "web", 'te"am$': "x"}, "c": {}}
    for run_id, own in given.items():
        accept(store, job(run_id, id=run_id, tags=own), id=run_id, tags=own, state="FAILED")
    assert [run.id for run in store.runs.listing(PROJECT, RunFilter(tags=tags))] == found
    assert [job.id for job in store.jobs.listing(PROJECT, tags=tags)] == found


def test_some_nodes_are_selected(store: Store) -> None:
    states = ("SUCCEEDED", "FAILED", "STOPPED", "PENDING", "RUNNING", "SCALED_DOWN")
    nodes = [node(rank, state) for rank, state in enumerate(states)]
    nodes[2] = replace(nodes[2], started_at=2.0)
    nodes += [node(6, "STOPPED"), node(7, "PENDING", incarnation=1)]
    made = accept(store, job(), nodes)

    def ranks(**chosen: Any) -> list[int]:
        return [each.rank for each in store.runs.nodes(made.id, NodeFilter(**chosen))]

    assert ranks(started=True) == [0, 1, 2, 4, 7]
    assert [each.rank for each in nodes if each.has_started] == [0, 1, 2, 4, 7]
    assert ranks(states=["FAILED", "RUNNING"]) == [1, 4]
    assert ranks(limit=2) == [0, 1]
    assert ranks(limit=2, last=True) == [6, 7]
    assert ranks(limit=2, last=True, started=True) == [4, 7]
    assert ranks(limit=0) == ranks(limit=0, last=True) == []
    assert ranks(ranks=[9, 3, 1]) == [1, 3]
    assert ranks(after=5, limit=1) == [6]
    assert ranks(before=3, limit=2, last=True) == [1, 2]
    assert ranks(ranks=range(2, 5)) == [2, 3, 4]
    assert ranks(ranks=range(3, 3)) == ranks(groups=["other"]) == []
    assert ranks(groups=[nodes[0].group, "other"]) == [*range(8)]


def test_replicas_that_have_started_are_counted_by_their_states(store: Store) -> None:
    states = (
        "SUCCEEDED",
        "SUCCEEDED",
        "STOPPED",
        "FAILED",
        "FAILED",
        "STOPPED",
        "RUNNING",
        "READY",
    )
    nodes = [
        node(rank, state, group="w", replica=rank // 2, index=rank % 2, started_at=2.0)
        for rank, state in enumerate(states)
    ]
    nodes += [node(8, "STOPPED", group="w", replica=4, index=0)]
    nodes += [node(9, "RUNNING", group="other", replica=0, index=0)]
    made = accept(store, job(), nodes)
    counted = {"SUCCEEDED": 1, "FAILED,STOPPED": 2, "READY,RUNNING": 1}
    assert store.runs.replica_states(made.id, "w", 2) == counted
    assert store.runs.replica_states(made.id, "other", 1) == {"RUNNING": 1}
    assert store.runs.replica_states("missing", "w", 1) == {}


def test_an_empty_list_of_states_selects_no_runs(store: Store) -> None:
    enter(store)
    assert store.runs.listing(PROJECT, RunFilter(states=[])) == []


def test_any_text_is_read_as_it_was_stored(store: Store) -> None:
    run, lease = accept_and_drive(store, job())
    strange = "naïve \u2028 🎺 'quoted\" \x1b[31m"
    store.runs.save(
        RunStep(lease, {"details": strange, "notes": [strange]}, [], [(strange, {})], 1.0)
    )
    kept = store.runs.get(run.id)
    assert (kept.details, kept.notes) == (strange, [strange])
    assert store.events.since(run.id, 1)[0].kind == strange
