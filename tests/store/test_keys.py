"""What every database promises of public keys."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from muster.errors import AlreadyExists, NotFound
from muster.store.account_records import PublicKeyRecord, UserKind, UserRecord
from muster.store.base import Store
from support.store_records import DATABASES

pytestmark = pytest.mark.parametrize("store", DATABASES, indirect=True)

KEY = PublicKeyRecord("20:3b:97", "ana", "laptop", "PEM", 1.000001, "root")


def add_users(store: Store) -> None:
    for name in ("ana", "ben"):
        store.accounts.create_user(UserRecord(name, UserKind.PERSON, 1.0))


def test_a_key_is_kept_as_it_is(store: Store) -> None:
    add_users(store)
    store.keys.insert(replace(KEY, user="Ana"))
    assert store.keys.get("20:3b:97") == KEY
    assert store.keys.listing("ANA") == [KEY]
    assert store.keys.listing("ben") == []


def test_a_key_is_of_one_user(store: Store) -> None:
    add_users(store)
    store.keys.insert(KEY)
    with pytest.raises(AlreadyExists, match="is here already"):
        store.keys.insert(replace(KEY, user="ben"))
    assert store.keys.get(KEY.fingerprint).user == "ana"


def test_the_oldest_key_is_first(store: Store) -> None:
    add_users(store)
    for number in (3, 1, 2):
        store.keys.insert(replace(KEY, fingerprint=str(number), created_at=float(number)))
    assert [key.fingerprint for key in store.keys.listing("ana")] == ["1", "2", "3"]


def test_a_key_that_was_deleted_is_gone(store: Store) -> None:
    add_users(store)
    store.keys.insert(KEY)
    assert store.keys.delete(KEY.fingerprint)
    assert not store.keys.delete(KEY.fingerprint)
    with pytest.raises(NotFound, match="no key with the fingerprint '20:3b:97'"):
        store.keys.get(KEY.fingerprint)
    store.keys.insert(replace(KEY, user="ben"))


def test_a_key_needs_a_user(store: Store) -> None:
    with pytest.raises(NotFound, match="no user named 'ana'"):
        store.keys.insert(KEY)
