"""What every store promises beyond names and queries: projects, numbers, pages, whole steps."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.errors import InvalidInput, NotFound
from muster.identity import Owner
from muster.lifecycle.states import TERMINAL, RunState
from muster.store.base import Store
from muster.store.records import (
    JobRecord,
    Lease,
    LeaseLost,
    NodeChange,
    NodeRecord,
    RunFilter,
    RunRecord,
    RunStep,
    RunSummary,
)
from muster.store.times import micros, optional_micros, seconds
from support.memory_store import ContractBroken, MemoryStore
from support.store_records import OWNER, PROJECT, accept, accept_and_drive, job, node, run

OTHER = Owner("otherone", "host-b", "boot-b")

# --- times


#: The end of the century, in epoch seconds.
END = 4102444800


@given(st.integers(0, END * 10**6))
def test_whole_microseconds_are_read_as_they_were_written(whole: int) -> None:
    assert micros(seconds(whole)) == whole
    assert seconds(micros(seconds(whole))) == seconds(whole)


@given(st.floats(0, 253402300799.0))
def test_other_times_are_kept_to_the_microsecond(time: float) -> None:
    assert abs(seconds(micros(time)) - time) <= 0.5e-6 + math.ulp(time)


def test_what_is_no_time_stays_as_it_is() -> None:
    assert [seconds(value) for value in (None, "x", 1.5, True)] == [None, "x", 1.5, True]
    assert (optional_micros(None), optional_micros(1.5)) == (None, 1_500_000)


def test_times_are_rounded_to_microseconds(store: Store) -> None:
    at = 1_700_000_000.1234567
    made, lease = accept_and_drive(store, job(created_at=at, updated_at=at), created_at=at)
    changes = dict.fromkeys(("started_at", "finished_at", "expires_at"), at)
    changed = [node(1, "FAILED", started_at=at, finished_at=at)]
    store.runs.save(RunStep(lease, changes, changed, [("step", {})], at))
    store.runs.request(made.id, "cancel", "enough", at)
    kept, job_kept = store.runs.get(made.id), store.jobs.find(PROJECT, "train")
    taken = store.leases.take(made.id, OWNER, at, expires_at=at, force=True)
    lease_kept = store.leases.get(made.id)
    assert lease_kept is not None
    times = [kept.created_at, kept.started_at, kept.finished_at, kept.expires_at]
    times += [kept.cancel_requested_at, job_kept.created_at, job_kept.updated_at]
    times += [store.runs.nodes(made.id)[1].started_at, store.runs.nodes(made.id)[1].finished_at]
    times += [entry.time for entry in store.events.since(made.id)]
    times += [entry.time for entry in store.jobs.events(job_kept.id)]
    assert {*times, lease_kept.expires_at} == {1_700_000_000.123457}
    store.leases.release(taken)


def test_times_of_a_run_are_kept(store: Store) -> None:
    at = 1_700_000_000.000001
    made, lease = accept_and_drive(store, job(created_at=at, updated_at=at), created_at=at)
    changes = dict.fromkeys(("started_at", "finished_at", "expires_at"), at + 1)
    entry = ("run", {"state": "FAILED"})
    changed = [node(1, "FAILED", started_at=at, finished_at=at + 1)]
    store.runs.save(RunStep(lease, {"state": "FAILED", **changes}, changed, [entry], at + 1))
    kept = store.runs.get(made.id)
    assert (kept.created_at, kept.started_at, kept.finished_at) == (at, at + 1, at + 1)
    assert kept.expires_at == at + 1
    assert store.runs.nodes(made.id)[1] == changed[0]
    summary = store.runs.summary(made.id)
    assert (summary.created_at, summary.started_at) == (at, at + 1)
    assert store.events.last_time(made.id) == at + 1
    assert store.events.last(made.id) == len(store.events.since(made.id))
    assert store.events.last("missing") == 0
    found = store.jobs.find(PROJECT, "train")
    assert (found.created_at, found.updated_at) == (at, at)
    assert store.runs.expired(at + 0.999999) == []
    assert store.runs.expired(at + 1) == [made.id]


# --- records


def test_a_summary_shows_how_long_a_run_has_run(store: Store) -> None:
    made, lease = accept_and_drive(store, job(), display_name="Mine", tags={"a": "b"})
    lifecycle = {"ran": 3.5, "going_since": 7.0}
    store.runs.save(RunStep(lease, {"started_at": 2.0, "lifecycle": lifecycle}, [], [], 7.0))
    summary = store.runs.summary(made.id)
    assert (summary.ran_before, summary.running_since) == (3.5, 7.0)
    assert summary.seconds(9.0) == 5.5
    assert (summary.display_name, summary.tags, summary.name) == ("Mine", {"a": "b"}, "train-1")
    assert store.runs.listing(PROJECT, RunFilter()) == [summary]


def test_records_that_were_read_are_copies(store: Store) -> None:
    made, lease = accept_and_drive(store, job())
    data: dict[str, Any] = {"list": [1]}
    store.runs.save(RunStep(lease, {"lifecycle": data}, [], [("step", data)], 2.0))
    data["list"].append(2)
    read = store.runs.get(made.id)
    read.notes.append("changed")
    store.events.since(made.id)[-1].data["list"].append(3)
    assert store.runs.get(made.id).notes == ["a"]
    assert store.runs.get(made.id).lifecycle == {"list": [1]}
    assert store.events.since(made.id)[-1].data == {"list": [1]}


def test_what_does_not_exist_is_not_found(store: Store) -> None:
    lease = Lease.first("missing", OWNER)
    calls = (
        lambda: store.runs.get("missing"),
        lambda: store.runs.summary("missing"),
        lambda: store.runs.end_corrupt(lease, "why", 1.0),
        lambda: store.runs.save(RunStep(lease, {}, [], [], 1.0)),
        lambda: store.leases.take("missing", OWNER, 1.0),
    )
    for call in calls:
        with pytest.raises(NotFound, match="no run with the id 'missing'"):
            call()
    assert store.runs.nodes("missing") == []
    assert store.events.since("missing") == []
    assert store.events.last_time("missing") == 0
    assert store.events.count("missing", "run") == 0
    assert store.leases.get("missing") is None
    assert not store.runs.request("missing", "cancel", "", 1.0)
    assert not store.runs.request_scale("missing", "g", 1, "", 1.0)
    store.leases.release(lease)
    store.runs.delete("missing")
    store.runs.check_writable("missing")
    store.jobs.delete_unused("missing")
    store.jobs.check_ended(["missing"])


# --- projects


def test_projects_are_separate(store: Store) -> None:
    mine = accept(store, job("train", content_hash="same", project="a"), display_name="Mine")
    theirs = [
        accept(store, job("train", content_hash="same", project="b"), display_name="Mine")
        for _ in range(2)
    ]
    assert [made.name for made in (mine, *theirs)] == ["train-1", "train-1", "train-2"]
    ours = store.jobs.find("a", "train")
    other = store.jobs.by_content("b", "same")
    assert other is not None
    assert ours.id != other.id and (ours.version, other.version) == (1, 1)
    assert (store.runs.find("a", "last").id, store.runs.find("b", "last").id) == (
        mine.id,
        theirs[1].id,
    )
    assert store.runs.find("a", "Mine").id == mine.id, "another project's do not count"
    for text in (theirs[0].id, theirs[0].id[:8], "train-2"):
        with pytest.raises(NotFound):
            store.runs.find_id("a", text)
        assert store.runs.find_id("b", text) in {each.id for each in theirs}
    for text in (other.id, other.id[:8]):
        with pytest.raises(NotFound):
            store.jobs.find("a", text)
    assert [each.id for each in store.jobs.listing("a")] == [ours.id]
    assert [each.id for each in store.runs.listing("a", RunFilter())] == [mine.id]
    assert [each.id for each in store.runs.records("a", RunFilter())] == [mine.id]
    assert len(store.runs.listing(None, RunFilter())) == 3
    assert len(store.runs.live()) == len(store.runs.needing_supervisor()) == 3
    assert store.runs.state_counts() == {"ACCEPTED": 3}
    with pytest.raises(NotFound, match="no runs yet"):
        store.runs.find("c", "last")
    assert store.jobs.by_content("c", "same") is None


def test_the_id_of_another_projects_job_is_not_found(store: Store) -> None:
    theirs = store.jobs.insert(job(project="b"))
    mine = replace(theirs, project="a")
    with pytest.raises(NotFound, match=f"no job with the id '{theirs.id}'"):
        store.jobs.insert(mine)
    with pytest.raises(NotFound, match=f"no job with the id '{theirs.id}'"):
        accept(store, mine)
    assert store.jobs.listing("a", deleted=True) == store.runs.listing(None, RunFilter()) == []
    assert store.jobs.listing("b") == [theirs]


def test_the_first_owner_is_that_of_the_oldest_run(store: Store) -> None:
    assert store.runs.first_owner() is None
    for user in ("ann", "bob"):
        accept(store, job(), created_by=user)
    assert store.runs.first_owner() == "ann"


def test_artifacts_of_all_projects_are_in_use(store: Store) -> None:
    for project, artifact in (("a", "1"), ("b", "2"), ("b", None)):
        store.jobs.insert(
            job(id=f"job{project}{artifact}", project=project, artifact_sha256=artifact)
        )
    assert store.jobs.artifacts_in_use() == {"1", "2"}
    assert store.jobs.artifact_in_use("2")
    assert store.jobs.has_artifact("b", "2")
    assert not store.jobs.has_artifact("a", "2")
    assert store.jobs.delete("jobb2", by="ann", now=2.0)
    assert not store.jobs.artifact_in_use("2")
    assert not store.jobs.has_artifact("b", "2")
    assert store.jobs.artifacts_in_use() == {"1"}


# --- Jobs


def test_the_newest_of_the_jobs_with_a_content_is_used(store: Store) -> None:
    store.jobs.insert(job("a", id="a1"))
    store.jobs.insert(job("a", id="a2", content_hash="one"))
    store.jobs.insert(job("b", id="b1", content_hash="two"))
    assert store.jobs.insert(job("c", id="c1", content_hash="one")).id == "a2"
    store.jobs.delete("a2", by="", now=2.0)
    assert store.jobs.by_content(PROJECT, "one") is None
    again = store.jobs.insert(job("c", id="c1", content_hash="one"))
    assert (again.id, again.version) == ("c1", 1)


def test_an_unused_job_is_removed_with_its_events(store: Store) -> None:
    used, unused = store.jobs.insert(job("used")), store.jobs.insert(job("unused"))
    accept(store, used, state="FAILED")
    for each in (used, unused):
        store.jobs.delete_unused(each.id)
    assert [each.id for each in store.jobs.listing(PROJECT, deleted=True)] == [used.id]
    assert store.jobs.events(unused.id) == []
    assert len(store.jobs.events(used.id)) == 1
    assert store.jobs.insert(job("unused")).version == 2, "no version is given twice"


def test_a_job_with_a_run_that_has_not_ended_is_not_deleted(store: Store) -> None:
    first, second = store.jobs.insert(job("a")), store.jobs.insert(job("b"))
    for of in (first, second):
        accept(store, of)
    with pytest.raises(InvalidInput, match="a-1 is ACCEPTED") as one:
        store.jobs.delete(first.id, by="", now=2.0)
    assert len(one.value.problems) == 1
    with pytest.raises(InvalidInput, match="b-1 is ACCEPTED") as both:
        store.jobs.check_ended([first.id, second.id])
    assert len(both.value.problems) == 2
    assert store.jobs.find(PROJECT, "a").state == "ACTIVE"


# --- numbers and pages


def test_no_number_is_given_twice(store: Store) -> None:
    of = job("a")
    for expected in ("a-1", "a-2", "a-3"):
        made = accept(store, of, state="FAILED")
        assert made.name == expected
        store.runs.delete(made.id)
    with pytest.raises(NotFound):
        store.runs.find(PROJECT, "last")
    last = accept(store, of)
    assert (last.name, last.number) == ("a-4", 4)


def test_a_run_is_deleted_with_all_its_rows(store: Store) -> None:
    made, lease = accept_and_drive(store, job())
    kept, _ = accept_and_drive(store, job())
    store.runs.check_writable(made.id)
    store.runs.delete(made.id)
    assert store.runs.nodes(made.id) == store.events.since(made.id) == []
    assert store.leases.get(made.id) is None
    with pytest.raises(NotFound):
        store.runs.save(RunStep(lease, {}, [], [], 2.0))
    assert store.runs.get(kept.id) == kept
    assert len(store.runs.nodes(kept.id)) == 2


def test_pages_hold_each_run_once_while_others_are_added_and_deleted(
    store: Store, rng: random.Random
) -> None:
    """Every run that was there all the time is shown once, and the order is that of recording."""
    of = store.jobs.insert(job())
    stay = [accept(store, of, created_at=float(rng.randint(1, 9))).id for _ in range(20)]
    go = [accept(store, of).id for _ in range(5)]
    shown: list[RunSummary] = []
    before = None
    while page := store.runs.listing(PROJECT, RunFilter(limit=4, before=before)):
        shown += page
        before = page[-1].position
        accept(store, of)
        if go:
            store.runs.delete(go.pop(rng.randrange(len(go))))
    ids = [each.id for each in shown]
    assert len(set(ids)) == len(ids)
    assert [each for each in ids if each in stay] == stay[::-1]
    positions = [each.position for each in shown]
    assert positions == sorted(positions, reverse=True)


def test_the_position_of_a_deleted_run_is_not_used_again(store: Store) -> None:
    of = job()
    first = accept(store, of)
    position = store.runs.summary(first.id).position
    store.runs.delete(first.id)
    assert store.runs.summary(accept(store, of).id).position > position


def test_filters_are_combined(store: Store) -> None:
    of = store.jobs.insert(job("a"))
    old = accept(store, of, created_at=1.0, state="FAILED", tags={"x": "1"})
    new = accept(store, of, created_at=5.0, state="FAILED", tags={"x": "2"})
    accept(store, job("b"), created_at=9.0, state="FAILED", tags={"x": "2"})
    accept(store, of, created_at=9.0, tags={"x": "2"})
    chosen = RunFilter(
        states=[RunState.FAILED], job="a", since=2.0, tags={"x": None}, limit=5, before=99
    )
    for found in (store.runs.listing(PROJECT, chosen), store.runs.records(PROJECT, chosen)):
        assert [each.id for each in found] == [new.id]
    assert store.runs.listing(PROJECT, RunFilter(limit=0)) == []
    assert [r.id for r in store.runs.listing(PROJECT, RunFilter(tags={"x": "1"}))] == [old.id]


@pytest.mark.parametrize("state", RunState)
@pytest.mark.parametrize("canceled", [False, True])
def test_which_runs_need_a_supervisor(store: Store, state: RunState, canceled: bool) -> None:
    made = accept(store, job())
    if canceled:
        store.runs.request(made.id, "cancel", "enough", 2.0)
    lease = store.leases.take(made.id, OWNER, 2.0)
    store.runs.save(RunStep(lease, {"state": state}, [], [], 3.0))
    needs = state not in TERMINAL and (canceled or state is not RunState.SUSPENDED)
    assert store.runs.needing_supervisor() == ([made.id] if needs else [])


# --- steps


def test_a_run_keeps_the_settings_that_it_was_accepted_with(store: Store) -> None:
    given: dict[str, Any] = {
        "spec": {"node_groups": [{"name": "workers", "nodes": 2}]},
        "origins": {"nodes": "override"},
        "overrides": {"nodes": 2},
        "plan": {"nodes": [{"rank": 0}]},
    }
    made, lease = accept_and_drive(store, job(), **given)
    other = accept(store, job())
    store.runs.save(RunStep(lease, {"details": "changed"}, [], [], 2.0))
    kept = replace(made, details="changed")
    assert store.runs.get(made.id) == kept
    assert store.runs.records(PROJECT, RunFilter()) == [other, kept]


def test_a_resume_changes_what_its_overrides_change(store: Store) -> None:
    made, lease = accept_and_drive(store, job())
    changes = {
        "spec": {"nodes": 2},
        "origins": {"nodes": "run"},
        "plan": {"nodes": [3]},
        "notes": ["b"],
        "tags": {"team": "blue"},
        "display_name": "Mine",
    }
    store.runs.save(RunStep(lease, changes, [], [], 2.0))
    assert store.runs.get(made.id) == replace(made, **changes)
    assert store.runs.find(PROJECT, "Mine").id == made.id


def test_nodes_of_a_step_replace_those_of_their_rank(store: Store) -> None:
    made, lease = accept_and_drive(store, job())
    more = {"incarnation": 2, "intent": '{"killed": true}', "exit_code": 3, "signal": 9}
    changed = [node(0, "READY", **more), node(2, "SCALED_DOWN")]
    store.runs.save(RunStep(lease, {}, changed, [], 2.0))
    assert store.runs.nodes(made.id) == [changed[0], node(1), changed[1]]


def test_changes_of_a_step_apply_to_their_ranks(store: Store) -> None:
    made, lease = accept_and_drive(store, job())
    rows = [node(rank, metrics="{}", incarnation=1) for rank in range(6)]
    store.runs.save(RunStep(lease, {}, rows, [], 2.0))
    intent = '{"killed": true}'
    ended = NodeChange([range(1), range(2, 4)], "FAILED", 3, 1.5, 2.5, 9, 1, intent, "")
    again = NodeChange([range(4, 5)], "PENDING", None, None, None, 0, 2, "", "")
    left = NodeChange([range(5, 6)], "SUCCEEDED", 0, 1.5, 2.5, 0, 1, "", '{"a": 1}')
    changes = [ended, again, left]
    store.runs.save(RunStep(lease, {}, [], [], 3.0, changes))
    expected = [each.applied_to(rows[r]) for each in changes for part in each.ranks for r in part]
    expected.append(rows[1])
    assert store.runs.nodes(made.id) == sorted(expected, key=lambda one: one.rank)
    kept = [(one.state, one.incarnation, one.metrics) for one in store.runs.nodes(made.id)]
    assert kept == [
        ("FAILED", 1, "{}"),
        ("PENDING", 1, "{}"),
        ("FAILED", 1, "{}"),
        ("FAILED", 1, "{}"),
        ("PENDING", 2, ""),
        ("SUCCEEDED", 1, '{"a": 1}'),
    ]


def test_steps_of_several_runs_are_recorded_together_or_not_at_all(store: Store) -> None:
    one, own = accept_and_drive(store, job())
    other, lost = accept_and_drive(store, job())
    steps = [
        RunStep(lease, {"details": "changed"}, [node(0, "READY")], [("step", {})], 2.0)
        for lease in (own, lost)
    ]
    taken = store.leases.take(other.id, OWNER, 2.0, force=True)
    with pytest.raises(LeaseLost):
        store.runs.save(*steps)
    assert store.runs.get(one.id).details == one.details
    assert [entry.kind for entry in store.events.since(one.id)] == ["run"]
    store.runs.save(steps[0], replace(steps[1], lease=taken))
    for made in (one, other):
        assert store.runs.get(made.id).details == "changed"
        assert store.runs.nodes(made.id)[0].state == "READY"
        assert [entry.kind for entry in store.events.since(made.id)] == ["run", "step"]


def test_entries_of_nodes_that_are_not_desired_are_recorded_at_the_start(store: Store) -> None:
    made = accept(store, job(), [node(0), *(node(rank, "SCALED_DOWN") for rank in (1, 2, 4))])
    assert [(entry.kind, entry.data) for entry in store.events.since(made.id)] == [
        ("run", {"state": "ACCEPTED", "details": ""}),
        ("nodes", {"ranks": "1-2,4", "state": "SCALED_DOWN"}),
    ]


def test_times_of_events_never_decrease(store: Store) -> None:
    made, lease = accept_and_drive(store, job(), created_at=50.0)
    store.runs.save(RunStep(lease, {}, [], [("a", {}), ("b", {})], 20.0))
    store.runs.request(made.id, "cancel", "enough", 10.0)
    store.runs.save(RunStep(lease, {}, [], [("c", {})], 60.0))
    log = store.events.since(made.id)
    assert [entry.seq for entry in log] == [1, 2, 3, 4, 5]
    assert [entry.time for entry in log] == [50.0, 50.0, 50.0, 50.0, 60.0]
    assert (store.events.last_time(made.id), store.events.last_time(made.id, "a")) == (60.0, 50.0)
    assert [entry.kind for entry in store.events.since(made.id, 3)] == ["cancel_requested", "c"]
    assert store.events.since(made.id, 9) == []


def test_entries_are_counted(store: Store) -> None:
    made, lease = accept_and_drive(store, job())
    kinds = ("lost", "nodes", "lost", "other", "lost")
    store.runs.save(RunStep(lease, {}, [], [(kind, {}) for kind in kinds], 2.0))
    assert store.events.count(made.id, "lost") == 3
    assert store.events.count_since_last_node_entry(made.id, "lost") == 2
    assert store.events.count_since_last_node_entry(made.id, "none") == 0
    store.runs.save(RunStep(lease, {}, [], [("lost", {})], 7.0))
    counted = [
        store.events.count_since_last_node_entry(made.id, "lost", after)
        for after in (0.0, 2.0, 7.0)
    ]
    assert counted == [3, 1, 0]


def everything(store: Store, run_id: str) -> tuple[Any, ...]:
    """What a store knows of a run."""
    read = (store.runs.get(run_id), store.runs.nodes(run_id), store.events.since(run_id))
    return *read, store.leases.get(run_id)


@pytest.mark.parametrize(
    ("changes", "entries", "now"),
    [
        ({"no_such_column": 1}, [], 2.0),
        ({"project": "another"}, [], 2.0),
        ({"id": "another"}, [], 2.0),
        ({"cancel_reason": None}, [], 2.0),
        ({"attempt": -1}, [], 2.0),
        ({"state": "HAPPY"}, [], 2.0),
        ({"details": object()}, [], 2.0),
        ({"lifecycle": {"a": object()}}, [], 2.0),
        ({}, [("ok", {}), ("bad", {"a": object()})], 2.0),
        ({}, [("ok", {})], math.nan),
        ({"started_at": math.inf}, [("ok", {})], 2.0),
    ],
)
def test_a_step_that_cannot_be_recorded_changes_nothing(
    store: Store, changes: dict[str, Any], entries: Sequence[tuple[str, Any]], now: float
) -> None:
    made, lease = accept_and_drive(store, job())
    before = everything(store, made.id)
    step = {"state": "FAILED", **changes}
    with pytest.raises(Exception) as caught:  # a bug of the caller
        store.runs.save(RunStep(lease, step, [node(0, "FAILED")], entries, now))
    assert not isinstance(caught.value, (InvalidInput, LeaseLost))
    assert everything(store, made.id) == before


def test_a_run_that_cannot_be_built_changes_nothing(store: Store) -> None:
    def fail(kept: JobRecord, number: int, name: str) -> tuple[RunRecord, list[NodeRecord]]:
        raise ZeroDivisionError

    def build_half(kept: JobRecord, number: int, name: str) -> tuple[RunRecord, list[Any]]:
        return run(kept, number, name), [node(0), None]

    for build in (fail, build_half):
        with pytest.raises((ZeroDivisionError, TypeError, AttributeError)):
            store.runs.insert(job("a"), build, OWNER)
    assert store.jobs.listing(PROJECT, deleted=True) == []
    assert store.runs.listing(None, RunFilter()) == []
    assert accept(store, job("a")).name == "a-1"


def test_a_run_of_a_deleted_job_is_refused(store: Store) -> None:
    of = store.jobs.insert(job())
    store.jobs.delete(of.id, by="ann", now=2.0)
    with pytest.raises(InvalidInput, match="train@1 is deleted"):
        accept(store, of)
    assert store.runs.listing(PROJECT, RunFilter()) == []


def test_a_corrupt_run_is_ended_once(store: Store) -> None:
    made, lease = accept_and_drive(store, job())
    canceled, other = accept_and_drive(store, job())
    store.runs.request(canceled.id, "cancel", "enough", 2.0)
    for _ in range(2):
        store.runs.end_corrupt(lease, "no plan", 3.0)
        store.runs.end_corrupt(other, "no plan", 3.0)
    for run_id, state in ((made.id, "FAILED"), (canceled.id, "CANCELED")):
        kept = store.runs.get(run_id)
        assert (kept.state, kept.details, kept.finished_at) == (state, "no plan", 3.0)
        last = store.events.since(run_id)[-1]
        assert (last.kind, last.data) == ("run", {"state": state, "details": "no plan"})
        assert store.events.count(run_id, "run") == 2


def test_a_request_is_pending_until_a_step_serves_it(store: Store) -> None:
    made, lease = accept_and_drive(store, job())
    assert store.runs.request(made.id, "suspend", "later", 2.0)
    assert store.runs.pending_requests(made.id).suspend == "later"
    assert store.runs.get(made.id).suspend_requested_at == 2.0
    served = {"suspend_requested_at": None, "suspend_reason": None, "state": "SUSPENDED"}
    store.runs.save(RunStep(lease, served, [], [], 3.0))
    assert store.runs.pending_requests(made.id).suspend == ""
    assert store.runs.request(made.id, "suspend", "again", 4.0)


# --- many writers


def test_threads_get_different_numbers(store: Store) -> None:
    def work(number: int) -> list[RunRecord]:
        of = job(f"job{number % 2}", content_hash=str(number % 2))
        return [accept(store, of) for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        made = [each for part in pool.map(work, range(4)) for each in part]
    assert len({each.job_id for each in made}) == 2
    assert sorted(each.name for each in made) == sorted(
        f"job{of}-{number}" for of in (0, 1) for number in range(1, 21)
    )
    positions = [each.position for each in store.runs.listing(PROJECT, RunFilter())]
    assert all(before > after for before, after in pairwise(positions))


def test_threads_write_one_log_without_gaps(store: Store) -> None:
    """One drives the run, others request something of it."""
    made, lease = accept_and_drive(store, job())

    def work(number: int) -> None:
        for count in range(10):
            if number:
                store.runs.request_scale(made.id, f"g{number}", count, "", float(count))
            else:
                store.runs.save(
                    RunStep(lease, {"attempt": count}, [], [("step", {})], float(count))
                )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    log = store.events.since(made.id)
    assert [entry.seq for entry in log] == list(range(1, 42))
    assert all(one.time <= two.time for one, two in pairwise(log))
    kept = store.runs.get(made.id)
    assert kept.attempt == 9
    assert {kept.scale_requested[f"g{number}"]["replicas"] for number in (1, 2, 3)} == {9}


# --- the strict store itself


@pytest.mark.parametrize(
    ("changes", "data"),
    [
        ({}, {1: "a key that is no text"}),
        ({}, {"a": math.inf}),
        ({"lifecycle": {"a": math.nan}}, {}),
    ],
)
def test_the_strict_store_refuses_what_breaks_the_contract(
    rng: random.Random, changes: dict[str, Any], data: Any
) -> None:
    store = MemoryStore(rng)
    made, lease = accept_and_drive(store, job())
    before = everything(store, made.id)
    with pytest.raises((ContractBroken, ValueError)):
        store.runs.save(RunStep(lease, changes, [], [("step", data)], 2.0))
    assert everything(store, made.id) == before


def test_the_strict_store_notices_lost_entries_and_numbers(rng: random.Random) -> None:
    store = MemoryStore(rng)
    made, _ = accept_and_drive(store, job())
    with pytest.raises(ContractBroken, match="entries"), store.write() as state:
        state.events[made.id].pop()
    with pytest.raises(ContractBroken, match="given twice"), store.write() as state:
        state.numbers.clear()
    with pytest.raises(ContractBroken, match="token"), store.write() as state:
        state.leases[made.id]["token"] = 0
    with pytest.raises(ContractBroken, match="two owners"), store.write() as state:
        state.leases[made.id]["owner"] = OTHER.id


def test_runs_with_pending_requests_are_found(store: Store) -> None:
    of = store.jobs.insert(job())
    canceled, suspended, scaled, none = (accept(store, of).id for _ in range(4))
    every = [canceled, suspended, scaled, none, "missing"]
    assert store.runs.with_requests(every) == []
    store.runs.request(canceled, "cancel", "enough", 2.0)
    store.runs.request(suspended, "suspend", "later", 2.0)
    store.runs.request_scale(scaled, "g", 3, "more", 2.0)
    assert {*store.runs.with_requests(every)} == {canceled, suspended, scaled}
    assert store.runs.with_requests([none, canceled]) == [canceled]
    assert store.runs.with_requests([]) == []
