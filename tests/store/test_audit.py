"""What every database promises of the audit log."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from muster.store.account_records import AuditEntry, AuditFilter
from muster.store.base import Store
from support.store_records import DATABASES

pytestmark = pytest.mark.parametrize("store", DATABASES, indirect=True)


def entry(action: str = "runs.start", **more: Any) -> AuditEntry:
    return replace(AuditEntry(1.5, "ana", action, "train-1", "default"), **more)


def listed(store: Store, **chosen: Any) -> list[AuditEntry]:
    return [replace(one, seq=0) for one in store.audit.listing(AuditFilter(**chosen))]


HOSTILE = "a\nb\r\x1b[2J\u2028'; DROP TABLE audit; --%_\\"


def test_entries_are_kept_as_they_are(store: Store) -> None:
    refused = entry(
        allowed=False, why="no", token_id="abc", address="::1", request_id="r", time=2.0
    )
    hostile = entry(
        HOSTILE,
        user=HOSTILE,
        object=HOSTILE,
        project=HOSTILE,
        why=HOSTILE,
        attributes={HOSTILE: HOSTILE},
    )
    decided = entry(
        permission="OBJECT_READ",
        statement="job-runs#5",
        attributes={"target.bucket.name": "data"},
        run="run1run1ru",
    )
    store.audit.append(refused)
    store.audit.append(hostile, entry())
    store.audit.append(decided)
    assert listed(store) == [decided, entry(), hostile, refused]
    numbers = [one.seq for one in store.audit.listing(AuditFilter())]
    assert numbers == sorted(numbers, reverse=True)
    assert listed(store, user=HOSTILE, object=HOSTILE, project=HOSTILE) == [hostile]


def test_filters(store: Store) -> None:
    entries = [
        entry("runs.start", time=1.0),
        entry("runs.cancel", time=2.0, user="bo", allowed=False),
        entry("runsx.start", time=3.0, project="vision"),
        entry("runs", time=4.0, object="x"),
        entry("run%.start", time=5.0, permission="OBJECT_READ"),
    ]
    store.audit.append(*entries)
    start, cancel, other, bare, percent = entries
    for chosen, found in (
        ({}, [percent, bare, other, cancel, start]),
        ({"limit": 2}, [percent, bare]),
        ({"action": "runs"}, [cancel, start]),
        ({"action": "run_"}, []),
        ({"action": "run%"}, [percent]),
        ({"action": "runs.start"}, [start]),
        ({"user": "bo"}, [cancel]),
        ({"allowed": False}, [cancel]),
        ({"allowed": True, "object": "train-1"}, [percent, other, start]),
        ({"project": "vision"}, [other]),
        ({"permission": "OBJECT_READ"}, [percent]),
        ({"permission": "OBJECT_"}, []),
        ({"since": 2.0, "until": 4.0}, [other, cancel]),
        ({"user": "ana", "action": "runs", "since": 1.5}, []),
    ):
        assert listed(store, **chosen) == found, chosen


def test_pages(store: Store) -> None:
    store.audit.append(*(entry(object=str(number)) for number in range(7)))
    found: list[str] = []
    before = None
    while page := store.audit.listing(AuditFilter(limit=3, before=before)):
        found += [one.object for one in page]
        before = page[-1].seq
    assert found == [*"6543210"]
    found, after = [], 0
    while page := store.audit.listing(AuditFilter(limit=3, after=after)):
        found += [one.object for one in page]
        after = page[-1].seq
    assert found == [*"0123456"]


def test_entries_of_many_writers_are_all_there(store: Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: store.audit.append(entry(object=str(n))), range(40)))
    found = store.audit.listing(AuditFilter())
    assert sorted(int(one.object) for one in found) == [*range(40)]
    assert len({one.seq for one in found}) == 40


def test_old_entries_are_deleted_and_numbers_are_not_given_again(store: Store) -> None:
    store.audit.append(entry(time=1.0), entry(time=2.0), entry(time=3.0))
    last = store.audit.listing(AuditFilter())[0].seq
    assert store.audit.delete_before(3.0) == 2
    assert listed(store) == [entry(time=3.0)]
    assert store.audit.delete_before(99.0) == 1
    store.audit.append(entry())
    assert store.audit.listing(AuditFilter())[0].seq > last


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE audit SET why = 'x'",
        "UPDATE audit SET time = 0",
        "DELETE FROM audit",
        "DELETE FROM audit WHERE time < 0 OR seq > 0",
    ],
)
def test_the_database_refuses_changes(store: Store, sql: str) -> None:
    store.audit.append(entry(time=1.0), entry(time=2.0))
    store.audit.delete_before(1.5)
    database: Any = store.database  # type: ignore[attr-defined]
    with pytest.raises(Exception, match=r"entries of the audit log are (never changed|kept)"):
        database.write(lambda connection: connection.execute(sql))
    assert listed(store) == [entry(time=2.0)]
