"""What every database promises of schedules."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from muster.errors import Conflict, InvalidInput, NotFound
from muster.identity import new_id
from muster.lifecycle.schedule import Overlap, Running, Timing
from muster.lifecycle.trigger import AfterRun, Event, Webhook
from muster.store.base import Store
from muster.store.outbox_records import ListenerKind
from muster.store.records import JobRecord, RunStep
from muster.store.schedule_records import (
    KEPT_FIRINGS,
    KNOWN_DELIVERIES,
    FiringRecord,
    Outcome,
    ScheduleRecord,
    WebhookRecord,
)
from support.store_records import DATABASES, OWNER, PROJECT, accept, accept_and_drive, job

pytestmark = pytest.mark.parametrize("store", DATABASES, indirect=True)


def schedule(of: JobRecord, name: str = "nightly", **more: Any) -> ScheduleRecord:
    record = ScheduleRecord(
        id=new_id(),
        name=name,
        project=PROJECT,
        job_id=of.id,
        job="",
        timing=Timing(cron="0 3 * * *", time_zone="Europe/Rome", overlap=Overlap.ALLOW),
        overrides={"env": {"A": "1"}},
        environ={"LANG": "C"},
        notes=["a note"],
        created_by="ana",
        created_at=1.000001,
        updated_at=2.0,
        next_at=100.0,
    )
    return replace(record, **more)


def add(store: Store, name: str = "nightly", **more: Any) -> ScheduleRecord:
    of = job()
    return store.schedules.insert(schedule(of, name, **more), of)


def firing(of: ScheduleRecord, time: float, **more: Any) -> FiringRecord:
    record = FiringRecord(of.id, time, Outcome.STARTING, time + 1, run_id=new_id())
    return replace(record, **more)


def test_a_schedule_is_kept_as_it_is_with_its_job(store: Store) -> None:
    of = job()
    given = schedule(of, local=True)
    made = store.schedules.insert(given, of)
    assert made == replace(given, job="train@1")
    assert store.schedules.get(made.id) == made
    for text in ("nightly", made.id):
        assert store.schedules.find(PROJECT, text) == made
    assert store.jobs.find(PROJECT, "train").id == of.id
    with pytest.raises(NotFound, match="did you mean nightly"):
        store.schedules.find(PROJECT, "nightl")
    with pytest.raises(NotFound):
        store.schedules.find("vision", "nightly")
    with pytest.raises(NotFound):
        store.schedules.get(new_id())


def test_the_job_with_the_same_content_is_used(store: Store) -> None:
    known = store.jobs.insert(job(content_hash="same"))
    other = job(content_hash="same")
    assert store.schedules.insert(schedule(other), other).job_id == known.id


def test_names_are_taken_once_in_a_project(store: Store) -> None:
    add(store)
    with pytest.raises(InvalidInput, match="there is a schedule named 'nightly' already"):
        add(store)
    of = job(project="vision")
    store.schedules.insert(schedule(of, project="vision"), of)
    assert [one.job for one in store.schedules.listing("vision")] == ["train@1"]


def test_lists_have_pages(store: Store) -> None:
    for name in ("c", "a", "b"):
        add(store, name)
    listing = store.schedules.listing
    assert [one.name for one in listing(PROJECT)] == ["a", "b", "c"]
    assert [one.name for one in listing(PROJECT, limit=2)] == ["a", "b"]
    assert [one.name for one in listing(PROJECT, limit=2, after="b")] == ["c"]


def test_a_change_is_of_what_was_read(store: Store) -> None:
    before = add(store)
    other = store.jobs.insert(job("other"))
    after = replace(before, job_id=other.id, timing=Timing(every=60.0), next_at=None, paused=True)
    changed = store.schedules.update(before, after)
    assert (changed.job, changed.timing.every, changed.next_at) == ("other@1", 60.0, None)
    assert (changed.version, changed.paused) == (before.version + 1, True)
    with pytest.raises(Conflict, match="was changed by another user"):
        store.schedules.update(before, replace(before, next_at=5.0))
    store.schedules.delete(before.id)
    with pytest.raises(NotFound):
        store.schedules.update(changed, changed)
    assert not store.schedules.delete(before.id)


def test_a_job_with_a_schedule_is_not_deleted(store: Store) -> None:
    made = add(store)
    store.jobs.delete_unused(made.job_id)
    hint = "schedule nightly starts runs of it.*muster schedules edit nightly --job"
    with pytest.raises(InvalidInput, match=hint):
        store.jobs.delete(made.job_id, by="ana", now=5.0)
    with pytest.raises(InvalidInput, match=hint):
        store.jobs.check_ended([made.job_id])
    deleted = store.jobs.insert(job("other"))
    store.jobs.delete(deleted.id, by="ana", now=5.0)
    with pytest.raises(InvalidInput, match="is deleted"):
        store.schedules.update(made, replace(made, job_id=deleted.id))
    with pytest.raises(InvalidInput, match="is deleted"):
        store.schedules.insert(schedule(deleted, "other"), deleted)
    store.schedules.delete(made.id)
    assert store.jobs.delete(made.job_id, by="ana", now=5.0)


def test_what_is_due_is_found_earliest_first(store: Store) -> None:
    assert store.schedules.next_at() is None
    for name, at in (("late", 30.0), ("early", 10.0), ("paused", None), ("later", 30.000001)):
        add(store, name, next_at=at)
    assert store.schedules.next_at() == 10.0
    assert [one.name for one in store.schedules.due(30.0)] == ["early", "late"]
    assert store.schedules.due(9.999999) == []


def test_a_time_is_decided_once(store: Store) -> None:
    made = add(store)
    firings = [firing(made, 100.0, decided_at=200.0 + n) for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        decided = list(pool.map(lambda one: store.schedules.decide(made, 300.0, one), firings))
    assert sorted(decided) == [False] * 7 + [True]
    (kept,) = store.schedules.firings(made.id)
    assert kept == firings[decided.index(True)]
    now = store.schedules.get(made.id)
    assert (now.next_at, now.version) == (300.0, made.version)
    assert not store.schedules.decide(made, 300.0, firing(made, 200.0))
    # one that was set back by hand does not do again what was done
    back = store.schedules.update(now, replace(now, next_at=100.0))
    assert not store.schedules.decide(back, 300.0, firing(made, 100.0))
    assert len(store.schedules.firings(made.id)) == 1


def test_a_change_of_something_else_keeps_the_next_time(store: Store) -> None:
    made = add(store)
    store.schedules.decide(made, 300.0, firing(made, 100.0))
    changed = store.schedules.update(made, replace(made, timing=Timing(cron="0 4 * * *")))
    assert changed.next_at == 300.0


def test_nothing_is_decided_about_what_has_changed(store: Store) -> None:
    made = add(store)
    store.schedules.update(made, replace(made, next_at=None))
    assert not store.schedules.decide(made, 300.0, firing(made, 100.0))
    store.schedules.delete(made.id)
    assert not store.schedules.decide(made, 300.0, firing(made, 100.0))
    store.schedules.note(firing(made, 100.0))
    assert store.schedules.unsettled(1000.0) == []


def test_what_was_decided_is_settled_once(store: Store) -> None:
    made = add(store)
    one = firing(made, 100.0)
    store.schedules.decide(made, 300.0, one)
    assert store.schedules.unsettled(100.9) == []
    assert store.schedules.unsettled(101.0) == [one]
    refused = replace(one, outcome=Outcome.REFUSED, why="no")
    assert store.schedules.settle(refused)
    assert not store.schedules.settle(replace(one, outcome=Outcome.STARTED))
    assert store.schedules.unsettled(1000.0) == []
    assert store.schedules.firings(made.id) == [refused]


def test_runs_in_progress_are_known(store: Store) -> None:
    made = add(store)
    run = accept(store, job())
    note = firing(made, 100.0, outcome=Outcome.STARTED, run_id=run.id, by="ana")
    store.schedules.note(note)
    starting = firing(made, 200.0)
    store.schedules.decide(made, 300.0, starting)
    assert starting.run_id is not None
    assert store.schedules.running(made.id) == [
        Running(starting.run_id, "", "STARTING"),
        Running(run.id, run.name, "ACCEPTED"),
    ]
    lease = store.leases.take(run.id, OWNER, 5.0)
    store.runs.save(RunStep(lease, {"state": "SUCCEEDED"}, [], [], 9.0))
    store.schedules.settle(replace(starting, outcome=Outcome.REFUSED))
    assert store.schedules.running(made.id) == []
    newest, oldest = store.schedules.firings(made.id)
    assert (oldest.run_name, oldest.run_state, oldest.by) == (run.name, "SUCCEEDED", "ana")
    assert (newest.run_name, newest.run_state) == ("", "")
    store.runs.delete(run.id)
    assert store.schedules.firings(made.id)[1].run_name == ""


def test_the_last_times_are_kept_and_runs_in_progress(store: Store) -> None:
    made = add(store)
    run = accept(store, job())
    live = firing(made, 1.0, outcome=Outcome.STARTED, run_id=run.id)
    ended = firing(made, 2.0, outcome=Outcome.STARTED)
    for one in (live, ended, firing(made, 3.0)):
        store.schedules.note(one)
    for number in range(KEPT_FIRINGS):
        store.schedules.note(firing(made, 10.0 + number, outcome=Outcome.SKIPPED, run_id=None))
    found = [one.time for one in store.schedules.firings(made.id)]
    assert found == [*(109.0 - n for n in range(KEPT_FIRINGS)), 3.0, 1.0]
    page = store.schedules.firings(made.id, limit=2, before=109.0)
    assert [one.time for one in page] == [108.0, 107.0]


# --- events


def event(id: str = "e1", **more: Any) -> Event:
    return replace(Event(id, "webhook", "from 127.0.0.1", {"body": "eA=="}), **more)


def add_webhook(store: Store, **more: Any) -> ScheduleRecord:
    return add(store, timing=Timing(overlap=Overlap.ALLOW), next_at=None, trigger=Webhook(), **more)


def again(store: Store, of: ScheduleRecord) -> ScheduleRecord:
    return store.schedules.get(of.id)


def test_a_request_is_decided_once(store: Store) -> None:
    made = add_webhook(store)
    firings = [firing(made, 100.0 + n, event=event()) for n in range(8)]
    decide = store.schedules.decide_event
    with ThreadPoolExecutor(8) as pool:
        decided = list(pool.map(lambda one: decide(made, one), firings))
    assert sorted(decided) == [False] * 7 + [True]
    (kept,) = store.schedules.firings(made.id)
    assert kept.event == event()
    assert store.schedules.delivered(made.id, "e1") == (True, kept.run_id)
    assert store.schedules.delivered(made.id, "e2") == (False, None)
    # whoever has read the schedule meanwhile
    assert not decide(again(store, made), firing(made, 200.0, event=event()))
    assert not decide(made, firing(made, 200.0, event=event("e2")))
    assert decide(again(store, made), firing(made, 200.0, event=event("e2")))


def test_events_of_one_moment_have_different_times(store: Store) -> None:
    made = add_webhook(store)
    for number in range(3):
        one = firing(made, 100.0, event=event(f"e{number}"))
        assert store.schedules.decide_event(again(store, made), one)
    found = store.schedules.firings(made.id)
    assert [one.time for one in found] == [100.000002, 100.000001, 100.0]
    assert [one.event and one.event.id for one in found] == ["e2", "e1", "e0"]
    for one in found:  # as decided, wherever it was recorded
        settled = replace(one, time=100.0, outcome=Outcome.STARTED)
        assert store.schedules.settle(settled)
    after = store.schedules.firings(made.id)
    assert [one.outcome for one in after] == [Outcome.STARTED] * 3
    assert [one.event for one in after] == [event(f"e{n}", data={}) for n in (2, 1, 0)]


def test_requests_are_forgotten_after_a_month(store: Store) -> None:
    made = add_webhook(store)
    for at, name in ((100.0, "old"), (100.0 + KNOWN_DELIVERIES + 2, "new")):
        one = firing(made, at, event=event(name))
        assert store.schedules.decide_event(again(store, made), one)
    assert store.schedules.delivered(made.id, "old") == (False, None)
    assert store.schedules.delivered(made.id, "new")[0]


def test_a_webhook_has_one_secret(store: Store) -> None:
    made = add_webhook(store)
    assert store.schedules.webhook(made.id) is None
    for secret in ("sealed-1", "sealed-2"):
        store.schedules.set_webhook(WebhookRecord(made.id, secret, 5.000001))
        assert store.schedules.webhook(made.id) == WebhookRecord(made.id, secret, 5.000001)
    store.schedules.delete(made.id)
    assert store.schedules.webhook(made.id) is None
    with pytest.raises(NotFound):
        store.schedules.set_webhook(WebhookRecord(made.id, "x", 5.0))


def end_run(store: Store, name: str = "before") -> None:
    """A run of a Job with this name succeeds."""
    _, lease = accept_and_drive(store, job(name))
    store.runs.save(RunStep(lease, {"state": "SUCCEEDED"}, [], [], 2.0))


def heard(store: Store) -> list[tuple[str, int]]:
    found = store.outbox.pending(ListenerKind.TRIGGER, limit=10)
    return [(one.listener, one.entry.seq) for one in found]


def test_an_entry_of_the_outbox_is_decided_once(store: Store) -> None:
    made = add(store, timing=Timing(), next_at=None, trigger=AfterRun("before"))
    end_run(store)
    ((listener, seq),) = heard(store)
    assert listener == made.id
    decide = store.schedules.decide_event
    firings = [firing(made, 100.0 + n, event=event(), decided_at=n) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        decided = list(pool.map(lambda one: decide(made, one, seq=seq), firings))
    assert sorted(decided) == [False] * 3 + [True]
    assert heard(store) == []
    assert not decide(again(store, made), firing(made, 200.0, event=event()), seq=seq)
    end_run(store)
    ((_, second),) = heard(store)
    store.schedules.pass_over(made.id, second)
    assert heard(store) == []
    assert len(store.schedules.firings(made.id)) == 1


def test_a_paused_or_deleted_schedule_hears_nothing(store: Store) -> None:
    made = add(store, timing=Timing(), next_at=None, trigger=AfterRun("before"))
    paused = store.schedules.update(made, replace(made, paused=True))
    assert paused.paused
    end_run(store)
    assert heard(store) == []
    store.schedules.update(paused, replace(paused, paused=False))
    end_run(store)
    assert [listener for listener, _ in heard(store)] == [made.id]
    store.schedules.delete(made.id)
    end_run(store)
    assert heard(store) == []


def test_other_schedules_hear_nothing(store: Store) -> None:
    add(store)
    add_webhook(store, name="hook")
    end_run(store)
    assert heard(store) == []


def test_schedules_that_start_each_other_are_refused(store: Store) -> None:
    def after(name: str, before: str) -> ScheduleRecord:
        given = {"timing": Timing(), "next_at": None, "trigger": AfterRun(before)}
        of = job(name)
        return store.schedules.insert(schedule(of, name, **given), of)

    made = after("b", "a")
    with pytest.raises(InvalidInput, match="without end: b -> a -> b"):
        after("a", "b")
    assert store.jobs.by_content(PROJECT, job("a").content_hash) is None  # nothing is left of it
    other = store.jobs.insert(job("a"))
    with pytest.raises(InvalidInput, match="without end: a -> a"):
        store.schedules.update(made, replace(made, job_id=other.id))
    store.schedules.delete(made.id)
    after("a", "b")


def test_of_two_at_once_one_is_refused(store: Store) -> None:
    def attempt(pair: tuple[str, str]) -> bool:
        name, before = pair
        of = job(name)
        given = {"timing": Timing(), "next_at": None, "trigger": AfterRun(before)}
        try:
            store.schedules.insert(schedule(of, name, **given), of)
        except InvalidInput as error:
            assert "without end" in str(error)
            return False
        return True

    for number in range(5):
        one, two = f"one-{number}", f"two-{number}"
        with ThreadPoolExecutor(2) as threads:
            assert sorted(threads.map(attempt, [(one, two), (two, one)])) == [False, True]
