"""The first user, and people who log in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from muster.caller import Role
from muster.errors import Forbidden, InvalidInput, NotAuthenticated
from muster.iam.authenticate import Authenticator
from muster.iam.current_policies import CurrentPolicies
from muster.iam.oidc.settings import GroupRole, OidcSettings
from muster.identity import user_name
from muster.service.audit import Origin
from muster.service.logins import create_first_admin, log_in
from muster.store.account_records import AuditFilter, ProjectRecord, UserKind, UserRecord
from muster.store.sqlite.store import SqliteStore

CLAIMS = {"sub": "7", "preferred_username": "ana", "name": "Ana", "groups": ["ml"]}
SETTINGS = OidcSettings(
    "https://id", "muster", create_users=True, roles=(GroupRole("ml", "vision", Role.SUBMITTER),)
)
ORIGIN = Origin("192.0.2.7", "r-1")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore.open(tmp_path / "m.db")
    store.accounts.create_project(ProjectRecord("vision", 1.0))
    yield store
    store.close()


def last_entry(store: SqliteStore) -> Any:
    return store.audit.listing(AuditFilter(limit=1))[0]


def test_the_first_start_makes_an_administrator_once(store: SqliteStore) -> None:
    made = create_first_admin(store)
    assert made is not None
    authenticator = Authenticator(store.accounts, CurrentPolicies(lambda: store))
    caller = authenticator.authenticate(made.text, time.time())
    assert (caller.user, caller.project) == (user_name(), "default")
    assert store.accounts.user(user_name()).admin
    assert made.record.expires_at == pytest.approx(time.time() + 90 * 86400, abs=60)
    assert last_entry(store).object == f"{user_name()} (first)"
    assert create_first_admin(store) is None
    assert len(store.accounts.users()) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [(r"LAB\ana", "LAB-ana"), ("1000", "1000"), ("añá", "a--"), ("é", "admin")],
)
def test_names_of_the_machine_that_are_none_here(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, name: str, expected: str
) -> None:
    monkeypatch.setattr("muster.service.logins.user_name", lambda: name)
    create_first_admin(store)
    assert [user.name for user in store.accounts.users()] == [expected]


def test_a_person_logs_in_for_the_first_time_and_again(store: SqliteStore) -> None:
    made = log_in(store, SETTINGS, CLAIMS, ORIGIN, token_name="laptop")
    assert made.record.name == "laptop"
    assert made.record.expires_at == pytest.approx(time.time() + 7 * 86400, abs=60)
    authenticator = Authenticator(store.accounts, CurrentPolicies(lambda: store))
    caller = authenticator.authenticate(made.text, time.time())
    assert (caller.user, caller.project) == ("ana", "vision")
    entry = last_entry(store)
    assert (entry.user, entry.action, entry.object) == ("ana", "users.login", "7")
    assert (entry.address, entry.token_id, entry.allowed) == ("192.0.2.7", made.record.id, True)
    again = {**CLAIMS, "name": "Ana L", "preferred_username": "renamed", "groups": []}
    assert log_in(store, SETTINGS, again, ORIGIN).record.user == "ana"
    assert store.accounts.user("ana").display_name == "Ana L"
    assert store.accounts.members(user="ana") == []


@pytest.mark.parametrize(
    ("claims", "settings", "error"),
    [
        ({}, {"create_users": False}, r"ana is no user .* users add ana --issuer https://id --sub"),
        ({"sub": "a; b"}, {"create_users": False}, "--subject 'a; b'`"),
        ({"preferred_username": "BO"}, {}, "there is a user BO already, .* users change BO --iss"),
        ({"sub": "gone"}, {}, "the user gone is disabled"),
        ({"preferred_username": "?"}, {}, "'?' is not a valid name"),
    ],
)
def test_who_may_not_log_in(
    store: SqliteStore, claims: dict[str, Any], settings: dict[str, Any], error: str
) -> None:
    store.accounts.create_user(UserRecord("bo", UserKind.PERSON, 1.0, admin=True))
    gone = UserRecord("gone", UserKind.PERSON, 1.0, issuer="https://id", subject="gone")
    store.accounts.create_user(replace(gone, disabled=True))
    with pytest.raises((Forbidden, NotAuthenticated), match=error):
        log_in(store, replace(SETTINGS, **settings), {**CLAIMS, **claims}, ORIGIN)
    assert [user.name for user in store.accounts.users()] == ["bo", "gone"]
    assert store.accounts.tokens() == []
    entry = last_entry(store)
    assert (entry.action, entry.allowed, entry.address) == ("users.login", False, "192.0.2.7")


def test_an_administrator_links_a_login_to_a_user(store: SqliteStore) -> None:
    store.accounts.create_user(UserRecord("ana", UserKind.PERSON, 1.0))
    store.accounts.change_user("ana", {"issuer": "https://id", "subject": "7"})
    assert log_in(store, SETTINGS, CLAIMS, ORIGIN).record.user == "ana"
    with pytest.raises(InvalidInput):
        store.accounts.create_user(
            UserRecord("other", UserKind.PERSON, 1.0, issuer="https://id", subject="7")
        )
