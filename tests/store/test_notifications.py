"""What every database promises of notifications and their deliveries."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from muster.errors import Conflict, InvalidInput, NotFound
from muster.identity import new_id
from muster.store.base import Store
from muster.store.notification_records import (
    KEPT_DELIVERIES,
    ClaimedDelivery,
    DeliveryState,
    NotificationRecord,
)
from muster.store.outbox_records import NewEvent
from muster.store.sql.reports import report
from muster.store.sql.store import SqlStore
from support.store_records import DATABASES, PROJECT

pytestmark = pytest.mark.parametrize("store", DATABASES, indirect=True)

PENDING, DELIVERED, FAILED = DeliveryState.PENDING, DeliveryState.DELIVERED, DeliveryState.FAILED


def notification(name: str = "chat", **more: Any) -> NotificationRecord:
    record = NotificationRecord(
        id=new_id(),
        name=name,
        project=PROJECT,
        kind="webhook",
        target="https://chat.example/...",
        on=("run.*",),
        job="train",
        tags={"team": "ml", "any": None},
        format="cloudevents",
        condition={"eventType": "com.oraclecloud.datascience.failedjobrun"},
        created_by="ana",
        created_at=1.000001,
        updated_at=2.0,
        sealed={"target": "muster-sealed:1:x:***"},
    )
    return replace(record, **more)


def happen(store: Store, *subjects: str, kind: str = "run.failed", project: str = PROJECT) -> None:
    """Record events, one for each subject."""
    assert isinstance(store, SqlStore)
    for number, subject in enumerate(subjects):
        event = NewEvent(project, kind, f"runs/{subject}", 10.0, {"number": number})
        store.database.write(lambda c, event=event: report(c, event))


def claim(store: Store, now: float = 20.0, limit: int = 100) -> list[ClaimedDelivery]:
    return store.notifications.claim(now, now + 60, limit=limit)


def subjects(claimed: list[ClaimedDelivery]) -> list[str]:
    return [f"{one.notification.name} {one.entry.subject[5:]}" for one in claimed]


def states(store: Store) -> list[tuple[str, str]]:
    return [(one.subject[5:], one.state) for one in store.notifications.deliveries(PROJECT)]


def test_a_notification_is_kept_as_it_is(store: Store) -> None:
    given = notification(local=True)
    assert store.notifications.insert(given) == given
    for text in ("chat", given.id):
        assert store.notifications.find(PROJECT, text) == given
    with pytest.raises(NotFound, match="did you mean chat"):
        store.notifications.find(PROJECT, "chatt")
    with pytest.raises(NotFound):
        store.notifications.find("vision", "chat")
    with pytest.raises(InvalidInput, match="there is a notification named 'chat' already"):
        store.notifications.insert(notification())
    store.notifications.insert(notification(project="vision"))


def test_lists_have_pages(store: Store) -> None:
    for name in ("c", "a", "b"):
        store.notifications.insert(notification(name))
    listing = store.notifications.listing
    assert [one.name for one in listing(PROJECT)] == ["a", "b", "c"]
    assert [one.name for one in listing(PROJECT, limit=1, after="a")] == ["b"]


def test_a_change_is_of_what_was_read(store: Store) -> None:
    before = store.notifications.insert(notification())
    after = store.notifications.update(before, replace(before, on=("job.deleted",), job=""))
    assert (after.on, after.job, after.version) == (("job.deleted",), "", before.version + 1)
    with pytest.raises(Conflict, match="was changed by another user"):
        store.notifications.update(before, replace(before, job="x"))
    happen(store, "a")
    assert claim(store) == []  # other types are listened to now
    assert store.notifications.delete(before.id)
    assert not store.notifications.delete(before.id)
    with pytest.raises(NotFound):
        store.notifications.update(after, after)


def test_events_of_a_pause_are_not_kept(store: Store) -> None:
    before = store.notifications.insert(notification())
    happen(store, "a")
    paused = store.notifications.update(before, replace(before, paused=True))
    happen(store, "b")
    assert claim(store) == []
    store.notifications.update(paused, replace(paused, paused=False))
    happen(store, "c")
    assert subjects(claim(store)) == ["chat a", "chat c"]


def test_a_claim_excludes_others_until_it_expires(store: Store) -> None:
    store.notifications.insert(notification())
    happen(store, "a")
    (first,) = claim(store, now=20.0)
    assert (first.attempts, first.first_at, first.entry.data) == (0, 20.0, {"number": 0})
    assert claim(store, now=79.0) == []
    (second,) = claim(store, now=81.0)
    assert second.first_at == 20.0
    # the server that had it before is late
    assert not store.notifications.settle(first, DELIVERED, "HTTP 200", 82.0)
    assert states(store) == [("a", PENDING)]
    assert store.notifications.settle(second, DELIVERED, "HTTP 200", 83.0)
    (found,) = store.notifications.deliveries(PROJECT)
    assert (found.state, found.attempts, found.answer, found.settled_at) == (
        *(DELIVERED, 1, "HTTP 200", 83.0),
    )


def test_events_of_one_subject_wait_for_each_other(store: Store) -> None:
    for name in ("chat", "mail"):
        store.notifications.insert(notification(name))
    happen(store, "a", "b", "a")
    claimed = claim(store)
    assert sorted(subjects(claimed)) == ["chat a", "chat b", "mail a", "mail b"]
    assert claim(store) == []
    chat_a = next(one for one in claimed if subjects([one]) == ["chat a"])
    store.notifications.settle(chat_a, PENDING, "HTTP 500", 21.0, 50.0)
    assert claim(store, now=49.0) == []
    (again,) = claim(store, now=50.0)
    assert (again.entry.seq, again.attempts) == (chat_a.entry.seq, 1)
    store.notifications.settle(again, FAILED, "HTTP 500", 51.0)
    (next_one,) = claim(store, now=52.0)
    assert (subjects([next_one]), next_one.entry.data) == (["chat a"], {"number": 2})


@pytest.mark.parametrize("damage", ["notifications SET tags = 'x'", "outbox SET data = 'x'"])
def test_a_corrupt_record_holds_up_nothing_else(store: Store, damage: str) -> None:
    assert isinstance(store, SqlStore)
    store.notifications.insert(notification())
    happen(store, "a")
    store.database.write(lambda c: c.execute(f"UPDATE {damage}"))
    store.notifications.insert(notification("mail"))
    happen(store, "b")
    assert "mail b" in subjects(claim(store))
    rows = store.database.read("SELECT answer FROM deliveries WHERE state = 'failed'")
    assert rows and all("is corrupt" in row["answer"] for row in rows)


def test_what_is_not_wanted_leaves_nothing(store: Store) -> None:
    store.notifications.insert(notification())
    happen(store, "a")
    store.notifications.drop(claim(store)[0])
    assert states(store) == []


def test_what_was_given_up_is_tried_again(store: Store) -> None:
    chat = store.notifications.insert(notification())
    store.notifications.insert(notification("mail"))
    happen(store, "a")
    for one in claim(store):
        store.notifications.settle(one, FAILED, "HTTP 500", 21.0)
    failed = store.notifications.deliveries(PROJECT, state=FAILED)
    assert [one.notification for one in failed] == ["chat", "mail"]
    assert store.notifications.deliveries("vision", state=FAILED) == []
    assert store.notifications.retry("vision", 30.0) == 0
    assert store.notifications.retry(PROJECT, 30.0, notification_id=chat.id) == 1
    assert claim(store, now=29.0) == []
    (again,) = claim(store, now=30.0)
    assert (again.attempts, again.first_at, again.notification.name) == (0, 30.0, "chat")
    assert store.notifications.retry(PROJECT, 30.0) == 1


def test_what_was_given_up_is_kept_for_some_time(store: Store) -> None:
    chat = store.notifications.insert(notification())
    happen(store, "a", "b", "c")
    for now, one in zip((21.0, 31.0), claim(store), strict=False):
        store.notifications.settle(one, FAILED, "HTTP 500", now)
    store.notifications.update(chat, replace(chat, paused=True))
    store.outbox.forget(30.0)
    assert states(store) == [("c", PENDING), ("b", FAILED)]


def test_the_last_deliveries_are_kept(store: Store) -> None:
    of = store.notifications.insert(notification())
    happen(store, *map(str, range(KEPT_DELIVERIES + 5)))
    claimed = claim(store, limit=1000)
    store.notifications.settle(claimed[0], FAILED, "HTTP 500", 21.0)
    for one in claimed[1:]:
        store.notifications.settle(one, DELIVERED, "HTTP 200", 21.0)
    kept = store.notifications.deliveries(PROJECT, notification_id=of.id)
    assert len(kept) == KEPT_DELIVERIES + 1
    assert kept[-1].state == FAILED
    page = store.notifications.deliveries(PROJECT, limit=2, before=kept[1].seq)
    assert page == kept[2:4]


def test_of_several_servers_one_claims_a_delivery(store: Store) -> None:
    store.notifications.insert(notification())
    happen(store, *map(str, range(40)))

    def serve(_: int) -> list[int]:
        found: list[int] = []
        while claimed := claim(store, limit=3):
            found += [one.entry.seq for one in claimed]
        return found

    with ThreadPoolExecutor(4) as pool:
        found = [seq for part in pool.map(serve, range(4)) for seq in part]
    assert len(found) == len(set(found))
    rest = claim(store, limit=100)  # a server that skipped rows of another one may stop early
    assert len(found) + len(rest) == 40


def test_a_deleted_notification_leaves_nothing(store: Store) -> None:
    of = store.notifications.insert(notification())
    happen(store, "a", "b")
    store.notifications.delete(of.id)
    store.outbox.forget(1e9)
    assert isinstance(store, SqlStore)
    for table in ("listeners", "deliveries", "outbox"):
        assert store.database.read(f"SELECT count(*) FROM {table}")[0][0] == 0
