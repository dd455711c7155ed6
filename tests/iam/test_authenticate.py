"""Who shows a token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from muster.caller import ALL_RIGHTS, Caller, Role
from muster.errors import Forbidden, InvalidInput, NotAuthenticated, NotFound, StoreFull
from muster.iam.authenticate import REMEMBERED, Authenticator, caller_of
from muster.iam.current_policies import CurrentPolicies
from muster.iam.tokens import TokenText, new_token
from muster.permissions import Permission, Right
from muster.store.account_records import (
    Credential,
    MemberRecord,
    ProjectRecord,
    TokenRecord,
    UserKind,
    UserRecord,
)
from muster.store.sqlite.store import SqliteStore
from support.authorities import RIGHTS, Rights

NOW = 1_000_000.0


def credential(roles: dict[str, Role], user: Any = (), **token: Any) -> Credential:
    return Credential(
        token=replace(TokenRecord("0123456789", "laptop", "ana", 1.0), **token),
        digest=b"",
        user=replace(UserRecord("ana", UserKind.PERSON, 1.0), **dict(user)),
        roles=roles,
    )


def found(shown: Credential, project: str | None = None) -> Caller:
    """The caller who shows a credential, with the rights of its roles."""
    own = {name: RIGHTS[role] for name, role in shown.roles.items()}
    if shown.user.admin:
        own |= dict.fromkeys((*own, "default", "vision", "any"), ALL_RIGHTS)
    return caller_of(shown, Rights("ana", own), NOW, project)


def authenticator_of(store: SqliteStore, *clock: Clock) -> Authenticator:
    return Authenticator(store.accounts, CurrentPolicies(lambda: store, *clock), *clock)


@pytest.mark.parametrize(
    ("roles", "asked", "limit", "chosen"),
    [
        ("default vision", None, None, "default"),
        ("vision", None, None, "vision"),
        ("", None, None, "default"),
        ("vision", "vision", None, "vision"),
        ("vision", "Vision", None, "vision"),
        ("default vision", "VISION", "vision", "vision"),
        ("default vision", None, "vision", "vision"),
        ("default vision", "vision", "vision", "vision"),
        ("sound vision", None, None, "choose one: --project NAME"),
        ("default", "vision", None, r"is a member of no project named 'vision' .*: default\)"),
        ("default vision", "default", "vision", "can be used in project vision only"),
    ],
)
def test_the_project_of_a_request(
    roles: str, asked: str | None, limit: str | None, chosen: str
) -> None:
    shown = credential(dict.fromkeys(roles.split(), Role.VIEWER), project=limit)
    if " " not in chosen:
        assert found(shown, asked).project == chosen
    else:
        with pytest.raises((Forbidden, InvalidInput), match=chosen):
            found(shown, asked)


def test_the_rights_of_a_request() -> None:
    roles = {"default": Role.SUBMITTER, "vision": Role.ADMIN}
    shown = credential(roles)
    caller = found(shown)
    assert (caller.user, caller.project, caller.token_id) == ("ana", "default", "0123456789")
    assert caller.rights == RIGHTS[Role.SUBMITTER]
    assert found(shown, "vision").rights == RIGHTS[Role.ADMIN]
    scoped = credential(roles, scopes=frozenset({Right.READ, Right.MANAGE}))
    assert found(scoped).rights == {Right.READ}
    assert found(credential({})).rights == frozenset()


def test_a_refusal_says_whether_the_token_or_the_user_lacks_the_right() -> None:
    roles = {"default": Role.SUBMITTER}
    caller = found(credential(roles, scopes=frozenset({Right.READ})))
    with pytest.raises(Forbidden, match="the token 0123456789 does not have the scope submit; use"):
        caller.require(Permission.JOB_RUN_CREATE, "start runs")
    with pytest.raises(
        Forbidden, match="this takes DATA_SCIENCE_JOB_RUN_DELETE; ask an admin of the project for"
    ):
        caller.require(Permission.JOB_RUN_DELETE, "delete runs")


def test_an_administrator_may_everything_everywhere_but_not_with_a_token_of_a_project() -> None:
    admin = {"admin": True}
    assert found(credential({}, admin), "any").rights == ALL_RIGHTS
    limited = credential({}, admin, project="vision")
    assert found(limited).rights == ALL_RIGHTS - {Right.ADMINISTER}


@pytest.mark.parametrize(
    ("user", "token", "why"),
    [
        ({}, {"revoked_at": 5.0}, "the token 0123456789 was revoked"),
        ({}, {"expires_at": NOW}, r"the token 0123456789 expired at 1970-01-12T13:46:40.000000Z"),
        ({}, {"expires_at": NOW + 0.1}, ""),
        ({"disabled": True}, {}, "the user ana is disabled"),
        ({"disabled": True, "admin": True}, {}, "the user ana is disabled"),
    ],
)
def test_a_credential_that_cannot_be_used_any_more(
    user: dict[str, Any], token: dict[str, Any], why: str
) -> None:
    shown = credential({}, user, **token)
    if why:
        with pytest.raises(NotAuthenticated, match=why):
            found(shown)
    else:
        assert found(shown).user == "ana"


class Clock:
    """A clock that moves when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Any:
    store = SqliteStore.open(tmp_path / "m.db")
    store.accounts.create_user(UserRecord("ana", UserKind.PERSON, 1.0))
    store.accounts.create_project(ProjectRecord("vision", 1.0))
    store.accounts.set_member(MemberRecord("vision", "ana", Role.SUBMITTER))
    yield store
    store.close()


def added(store: SqliteStore, **more: Any) -> str:
    text = new_token()
    record = replace(TokenRecord(text.id, "laptop", "ana", 1.0), **more)
    store.accounts.create_token(record, text.digest())
    return str(text)


def test_the_caller_of_a_token(store: SqliteStore) -> None:
    text = added(store)
    caller = authenticator_of(store).authenticate(text, NOW)
    assert (caller.user, caller.project) == ("ana", "vision")
    assert caller.token_id == text.split("_")[1]
    assert store.accounts.token(caller.token_id).last_used_at == NOW


def test_a_wrong_secret_and_an_unknown_id_have_the_same_answer(store: SqliteStore) -> None:
    known = added(store).split("_")[1]
    answers = set()
    for forged in (TokenText(known, new_token().secret), new_token()):
        with pytest.raises(NotAuthenticated) as caught:
            authenticator_of(store).authenticate(str(forged), NOW)
        answers.add(str(caught.value))
    assert len(answers) == 1
    assert store.accounts.token(known).last_used_at is None


@pytest.mark.parametrize("change", ["revoked", "disabled", "role"])
def test_changes_are_noticed_in_time(store: SqliteStore, change: str) -> None:
    clock = Clock()
    authenticator = authenticator_of(store, clock)
    text = added(store)
    before = authenticator.authenticate(text, NOW)
    if change == "revoked":
        store.accounts.revoke_token(before.token_id, NOW)
    elif change == "disabled":
        store.accounts.change_user("ana", {"disabled": True})
    else:
        store.accounts.set_member(MemberRecord("vision", "ana", Role.VIEWER))
    clock.now = REMEMBERED - 0.1
    assert authenticator.authenticate(text, NOW) is before
    clock.now = REMEMBERED
    if change == "role":
        assert authenticator.authenticate(text, NOW).rights == {Right.READ}
    else:
        with pytest.raises(NotAuthenticated):
            authenticator.authenticate(text, NOW)


def test_a_token_expires_to_the_moment(store: SqliteStore) -> None:
    authenticator = authenticator_of(store, Clock())
    text = added(store, expires_at=NOW + 1)
    authenticator.authenticate(text, NOW + 0.9)
    with pytest.raises(NotAuthenticated, match="expired"):
        authenticator.authenticate(text, NOW + 1)


def test_an_administrator_works_in_projects_that_exist(store: SqliteStore) -> None:
    authenticator = authenticator_of(store, Clock())
    store.accounts.change_user("ana", {"admin": True})
    text = added(store)
    assert authenticator.authenticate(text, NOW, "DEFAULT").project == "default"
    with pytest.raises(NotFound, match="no project named 'visio'"):
        authenticator.authenticate(text, NOW, "visio")


def test_the_answer_for_one_project_is_not_given_for_another(store: SqliteStore) -> None:
    authenticator = authenticator_of(store, Clock())
    text = added(store)
    authenticator.authenticate(text, NOW, "vision")
    with pytest.raises(Forbidden):
        authenticator.authenticate(text, NOW, "default")


def test_the_last_use_is_noted_once_a_minute(store: SqliteStore) -> None:
    clock = Clock()
    authenticator = authenticator_of(store, clock)
    text = added(store)
    noted = []
    for now in (0, 3, 59, 64, 70, 123, 124, 130):
        clock.now = now
        token = authenticator.authenticate(text, NOW + now).token_id
        last = store.accounts.token(token).last_used_at
        assert last is not None
        noted.append(last - NOW)
    assert noted == [0, 0, 0, 64, 64, 64, 64, 130]


def test_a_full_disk_keeps_nobody_out(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreFull("no space")

    monkeypatch.setattr(store.accounts, "use_token", full)
    assert authenticator_of(store).authenticate(added(store), NOW).user == "ana"


def test_the_memory_is_bounded(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.iam.authenticate._MOST_ANSWERS", 3)
    authenticator = authenticator_of(store, Clock())
    for _ in range(9):
        authenticator.authenticate(added(store), NOW)
        with pytest.raises(NotAuthenticated):
            authenticator.authenticate(str(new_token()), NOW)
    assert len(authenticator._answers) == 3
