"""What every database promises of events for listeners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.identity import new_id
from muster.notify.retries import LONGEST, MOST_ATTEMPTS, Answer, next_attempt
from muster.store.base import Store
from muster.store.object_records import BucketRecord, ObjectRecord, PieceRecord
from muster.store.outbox_records import (
    ListenerKind,
    NewEvent,
    Pending,
    matching_types,
)
from muster.store.records import LeaseLost, RunStep
from muster.store.resource_records import JOB, JOB_RUN, ResourceRecord
from muster.store.sql.outbox import consume, remove_listener, set_listener
from muster.store.sql.reports import report
from muster.store.sql.store import SqlStore
from support.store_records import DATABASES, PROJECT, accept, accept_and_drive, job

pytestmark = pytest.mark.parametrize("store", DATABASES, indirect=True)


def listen(
    store: Store,
    listener: str = "rule",
    patterns: Iterable[str] = ("*",),
    project: str = PROJECT,
    kind: ListenerKind = ListenerKind.TRIGGER,
) -> None:
    assert isinstance(store, SqlStore)
    types = matching_types(patterns)
    store.database.write(lambda c: set_listener(c, listener, kind, project, types))


def pending(store: Store, kind: ListenerKind = ListenerKind.TRIGGER) -> list[Pending]:
    return store.outbox.pending(kind, limit=100)


def types(store: Store) -> list[str]:
    return [one.entry.type for one in pending(store)]


def rows(store: Store, table: str) -> int:
    assert isinstance(store, SqlStore)
    return int(store.database.read(f"SELECT count(*) FROM {table}")[0][0])


def end(store: Store, state: str = "FAILED", **more: Any) -> str:
    """A run of a new Job, which ends in a state. Returns its id."""
    run, lease = accept_and_drive(store, job(tags={"job": "tag"}), **more)
    store.runs.save(RunStep(lease, {"state": "IN_PROGRESS", "started_at": 2.0}, [], [], 2.0))
    store.runs.save(RunStep(lease, {"attempt": 1}, [], [], 3.0))
    cause = {"rank": 1, "group": "g", "reason": "exit", "exit_code": 3, "signal": 0, "at": 3.0}
    changes = {
        "state": state,
        "details": "node 1 failed",
        "exit_code": 3,
        "finished_at": 4.0,
        "lifecycle": {"failure": {**cause, "message": "boom"}},
    }
    store.runs.save(RunStep(lease, changes, [], [], 4.0))
    return run.id


def test_nothing_is_recorded_where_nobody_listens(store: Store) -> None:
    listen(store, project="vision")
    listen(store, "other", ["run.succeeded", "job.deleted"])
    store.runs.delete(end(store))
    assert (rows(store, "outbox"), rows(store, "deliveries")) == (0, 0)


def test_each_state_of_a_run_is_an_event_of_its_transaction(store: Store) -> None:
    listen(store)
    run_id = end(store, tags={"team": "ml"}, created_by="ana")
    store.runs.delete(run_id)
    found = [one.entry for one in pending(store)]
    assert [one.type for one in found] == [
        *("job.created", "run.accepted", "run.in_progress", "run.failed", "run.deleted"),
    ]
    assert {one.subject for one in found[1:]} == {f"runs/{run_id}"}
    assert [one.time for one in found[:4]] == [1.0, 1.0, 2.0, 4.0]
    assert len({one.id for one in found}) == len(found)
    assert [one.seq for one in found] == sorted(one.seq for one in found)
    failed = found[3].data
    assert failed == {
        "id": run_id,
        "name": "train-1",
        "display_name": None,
        "job_id": found[0].data["id"],
        "job_name": "train",
        "state": "FAILED",
        "details": "node 1 failed",
        "engine": "local",
        "attempt": 1,
        "node_count": 2,
        "exit_code": 3,
        "created_by": "ana",
        "created_at": 1.0,
        "started_at": 2.0,
        "finished_at": 4.0,
        "tags": {"team": "ml"},
        "first_cause": {
            **{"rank": 1, "group": "g", "reason": "exit", "exit_code": 3, "signal": 0},
            "message": "boom",
        },
    }


def test_a_run_that_starts_and_ends_in_one_step_has_both_states(store: Store) -> None:
    listen(store, patterns=["run.*"])
    _, lease = accept_and_drive(store, job())
    entries = [
        ("run", {"state": "IN_PROGRESS", "details": "starts"}),
        ("nodes", {"state": "FAILED", "ranks": "0"}),
        ("run", {"state": "FAILED", "details": "has failed"}),
    ]
    changes = {"state": "FAILED", "details": "has failed", "exit_code": 1, "finished_at": 3.0}
    store.runs.save(RunStep(lease, changes, [], entries, 3.0))
    data = [one.entry.data for one in pending(store)]
    assert [
        (one["state"], one["details"], one["exit_code"], one["finished_at"]) for one in data
    ] == [
        ("ACCEPTED", "", None, None),
        ("IN_PROGRESS", "starts", None, None),
        ("FAILED", "has failed", 1, 3.0),
    ]


def test_a_step_that_is_refused_reports_nothing(store: Store) -> None:
    run, lease = accept_and_drive(store, job())
    listen(store)
    lost = replace(lease, token=7)
    with pytest.raises(LeaseLost):
        store.runs.save(RunStep(lost, {"state": "FAILED"}, [], [], 2.0))
    assert rows(store, "outbox") == 0
    store.runs.save(RunStep(lease, {"state": "ACCEPTED"}, [], [], 2.0))  # no other state
    assert rows(store, "outbox") == 0
    store.runs.end_corrupt(lease, "its record is corrupt", 3.0)
    assert types(store) == ["run.failed"]
    assert pending(store)[0].entry.data["id"] == run.id


def test_a_run_that_starts_suspended_is_accepted_first(store: Store) -> None:
    listen(store)
    accept(store, job(), state="SUSPENDED")
    assert types(store) == ["job.created", "run.accepted", "run.suspended"]


def test_what_becomes_of_jobs_is_reported_once(store: Store) -> None:
    listen(store)
    made = store.jobs.insert(job(created_by="ana", tags={"team": "ml"}))
    assert store.jobs.insert(made) == made
    edited = replace(made, description="better", updated_at=5.0)
    changes = {"description": ["", "better"], "env.TOKEN": ["hidden", "other"]}
    store.jobs.update(made, edited, by="bob", changes=changes)
    store.jobs.delete(made.id, by="bob", now=6.0)
    store.jobs.delete(made.id, by="bob", now=7.0)
    created, updated, deleted = [one.entry for one in pending(store)]
    assert (created.type, updated.type, deleted.type) == (
        *("job.created", "job.updated", "job.deleted"),
    )
    assert (created.data["by"], created.data["tags"]) == ("ana", {"team": "ml"})
    assert (updated.data["by"], updated.data["description"], updated.data["changes"]) == (
        *("bob", "better", ["description", "env.TOKEN"]),
    )
    assert (deleted.data["state"], deleted.time) == ("DELETED", 6.0)


def test_each_listener_has_its_own(store: Store) -> None:
    listen(store, "one", ["run.failed"])
    listen(store, "two", ["run.*"])
    listen(store, "three", kind=ListenerKind.NOTIFICATION)
    end(store)
    given = [(one.listener, one.entry.type) for one in pending(store)]
    assert sorted(given) == [
        ("one", "run.failed"),
        ("two", "run.accepted"),
        ("two", "run.failed"),
        ("two", "run.in_progress"),
    ]
    assert len(store.outbox.pending(ListenerKind.NOTIFICATION, limit=3)) == 3


def test_one_of_many_handles_an_entry(store: Store) -> None:
    assert isinstance(store, SqlStore)
    database = store.database
    listen(store, "one", ["run.failed"])
    listen(store, "two", ["run.failed"])
    end(store)
    seq = pending(store)[0].entry.seq

    def handle(_: int) -> bool:
        return database.write(lambda c: consume(c, "one", seq))

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(handle, range(8))) == [False] * 7 + [True]
    assert [one.listener for one in pending(store)] == ["two"]
    assert database.write(lambda c: consume(c, "two", seq))
    assert (rows(store, "outbox"), rows(store, "deliveries")) == (0, 0)


def test_who_listens_no_more_leaves_nothing(store: Store) -> None:
    assert isinstance(store, SqlStore)
    listen(store, "one")
    listen(store, "two", ["run.failed"])
    end(store)
    store.database.write(lambda c: remove_listener(c, "one"))
    assert [one.listener for one in pending(store)] == ["two"]
    store.outbox.forget(1e9)
    assert (rows(store, "outbox"), rows(store, "deliveries")) == (1, 1)
    # as if it was removed while another server reported an event to it
    store.database.write(lambda c: c.execute("DELETE FROM listeners"))
    store.outbox.forget(1e9)
    assert (rows(store, "outbox"), rows(store, "deliveries")) == (0, 0)


def test_other_events_are_recorded_in_the_transaction_of_a_caller(store: Store) -> None:
    assert isinstance(store, SqlStore)
    listen(store, patterns=["object.created"])
    event = NewEvent(PROJECT, "object.created", "objects/data/a.csv", 5.0, {"bucket": "data"})
    store.database.write(lambda c: report(c, event))
    (found,) = pending(store)
    assert (found.entry.subject, found.entry.data) == ("objects/data/a.csv", {"bucket": "data"})
    with pytest.raises(ZeroDivisionError), store.database.transaction() as connection:
        report(connection, event)
        raise ZeroDivisionError(new_id())
    assert len(pending(store)) == 1


def test_changes_of_objects_are_reported(store: Store) -> None:
    bucket = BucketRecord(new_id(), "models", PROJECT, "ana", 1.0, 1.0, {})
    assert store.buckets.insert(bucket)

    def put(name: str) -> ObjectRecord:
        content = new_id()
        record = ObjectRecord(bucket.id, name, new_id(), content, 3, "md5", 1.5, 2.5, {}, {})
        store.objects.put(record, [PieceRecord(content, 1, new_id(), 3, new_id(), "md5")])
        return record

    put("unheard")
    listen(store, patterns=["object.*"])
    put("a/b")
    last = put("a/b")
    store.objects.delete(bucket.id, "a/b", 9.0)
    assert types(store) == ["object.created", "object.replaced", "object.deleted"]
    entry = pending(store)[1].entry
    assert (entry.subject, entry.time) == ("objects/models/a/b", 2.5)
    assert entry.data == {
        "bucket": "models",
        "name": "a/b",
        "size": 3,
        "etag": last.etag,
        "md5": "md5",
        "content_type": "",
        "created_at": 1.5,
        "modified_at": 2.5,
    }


def test_jobs_and_job_runs_of_the_oci_api(store: Store) -> None:
    listen(store)
    data = {"freeformTags": {"team": "ml"}, "definedTags": {"costs": {"center": "7"}}}
    made = ResourceRecord(*(JOB, "j1", PROJECT, "train", "ACTIVE", "ana", 1.0, 1.0, data))
    store.resources.insert(made)
    store.resources.insert(made)  # repeated: nothing is new
    store.resources.insert(replace(made, kind="log"))
    made = store.resources.update(made, replace(made, name="other", updated_at=2.0))
    run = replace(made, kind=JOB_RUN, id="runrunrunr", name="night", parent="j1")
    store.resources.insert(run)
    accept(store, job(), id=run.id)
    store.resources.update(made, replace(made, state="DELETED", updated_at=3.0))
    entries = [one.entry for one in pending(store)]
    # the run's Job is that of its content, of which clients of the OCI API know nothing
    assert [(one.type, one.subject) for one in entries] == [
        ("job.created", "jobs/j1"),
        ("job.updated", "jobs/j1"),
        ("run.accepted", "runs/runrunrunr"),
        ("job.deleted", "jobs/j1"),
    ]
    shown = [(one.data["name"], one.data["version"]) for one in entries if one.type[0] == "j"]
    assert shown == [("train", 1), ("other", 2), ("other", 3)]
    defined = data["definedTags"]
    assert entries[0].data["oci"] == {"name": "train", "defined_tags": defined}
    assert entries[0].data["tags"] == {"team": "ml"}
    assert entries[2].data["oci"] == {
        "name": "night",
        "defined_tags": defined,
        "job": "ocid1.datasciencejob.muster.local..j1",
    }


def test_a_postponed_event_comes_again_after_the_others(store: Store) -> None:
    listen(store, patterns=["job.*"])
    first, second = (store.jobs.insert(job(name)).id for name in ("one", "two"))

    def found(now: float) -> list[str]:
        given = store.outbox.pending(ListenerKind.TRIGGER, limit=9, now=now)
        return [one.entry.data["id"] for one in given]

    failed = pending(store)[0]
    assert store.outbox.postpone(failed, "why", 10.0, 20.0)
    assert not store.outbox.postpone(failed, "another server has done it", 10.0, 20.0)
    assert (found(19.0), found(20.0)) == ([second], [second, first])
    failed = pending(store)[1]
    assert (failed.attempts, failed.first_at) == (1, 10.0)
    assert store.outbox.postpone(failed, "why", 20.0, None)
    assert found(1e9) == [second]
    store.outbox.forget(19.0)
    assert rows(store, "deliveries") == 2
    store.outbox.forget(20.0)
    assert rows(store, "deliveries") == rows(store, "outbox") == 1


def test_an_event_that_was_handled_is_not_postponed(store: Store) -> None:
    listen(store, patterns=["job.*"])
    store.jobs.insert(job())
    (found,) = pending(store)
    assert isinstance(store, SqlStore)
    store.database.write(lambda c: consume(c, found.listener, found.entry.seq))
    assert not store.outbox.postpone(found, "why", 10.0, None)


def test_a_damaged_event_holds_up_no_other(store: Store) -> None:
    listen(store, patterns=["job.*"])
    store.jobs.insert(job("one"))
    two = store.jobs.insert(job("two"))
    assert isinstance(store, SqlStore)
    damage = "UPDATE outbox SET data = '{' WHERE seq = (SELECT min(seq) FROM outbox)"
    store.database.write(lambda c: c.execute(damage))
    assert [one.entry.data["id"] for one in pending(store)] == [two.id]
    (state, answer) = store.database.read("SELECT state, answer FROM deliveries ORDER BY seq")[0]
    assert state == "failed"
    assert "is corrupt" in answer


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=15
)
@given(fails=st.lists(st.booleans(), max_size=10), limit=st.integers(1, 3), seed=st.integers())
def test_events_that_fail_hold_up_no_others(
    store: Store, fails: list[bool], limit: int, seed: int
) -> None:
    """Each event that can be handled is, as soon as if no other one failed; each other one is tried
    again and given up, within its bounds."""
    assert isinstance(store, SqlStore)
    store.database.write(lambda c: c.execute("DELETE FROM deliveries"))
    listen(store, patterns=["job.*"])
    bad = {store.jobs.insert(job(f"j{number}")).id: failing for number, failing in enumerate(fails)}
    rng, now, looks, attempts = Random(seed), 0.0, 0, Counter[str]()
    while found := pending(store):
        waiting = store.outbox.pending(ListenerKind.TRIGGER, limit=limit, now=now)
        if not waiting:  # nothing is due: go to when something is
            now += 1.0 if looks < len(fails) else 600.0
            assert now <= LONGEST + 7200.0, found
        for one in waiting:
            subject = one.entry.data["id"]
            attempts[subject] += 1
            if not bad[subject]:
                store.database.write(lambda c, one=one: consume(c, one.listener, one.entry.seq))
                # those before it were tried once each
                assert looks <= len(fails) // limit
                continue
            given_up = (Answer(False, "x"), one.attempts + 1, one.first_at or now, now, rng)
            assert store.outbox.postpone(one, "x", now, next_attempt(*given_up))
        looks += 1
    for subject, failing in bad.items():
        assert (1 <= attempts[subject] <= MOST_ATTEMPTS) if failing else attempts[subject] == 1
