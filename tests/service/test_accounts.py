"""`AccountsAPI` in this process: who may do what, and what is recorded of it."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from muster.api.accounts import AccountsAPI, UserChange
from muster.caller import Caller, Role
from muster.client.contexts import Address
from muster.client.http.accounts import HttpAccounts
from muster.errors import Forbidden, InvalidInput, NotFound
from muster.iam.authenticate import Authenticator
from muster.iam.current_policies import CurrentPolicies
from muster.permissions import Right
from muster.service.accounts import EmbeddedAccounts
from muster.service.audit import Origin, ReadLog
from muster.service.backend import Backend
from muster.storage.home import Home
from muster.store.account_records import (
    AuditEntry,
    AuditFilter,
    PublicKeyRecord,
    UserKind,
    UserRecord,
)
from support.keys import public_pem
from support.server_thread import running_server, users_of

#: Users besides the administrator `root`; the role of each in the project `vision`. `other` is an
#: admin of another project.
ROLES = {
    "viewer": Role.VIEWER,
    "submitter": Role.SUBMITTER,
    "maintainer": Role.MAINTAINER,
    "manager": Role.ADMIN,
}
EVERYBODY = ("root", "manager", "maintainer", "submitter", "viewer", "other")


class World:
    """A server's records, with users and a project. url: of a server that has them; "" if the API
    is in this process."""

    def __init__(self, backend: Backend, url: str) -> None:
        self.backend, self.url = backend, url
        self.address = "127.0.0.1" if url else "192.0.2.7"
        self.opened: list[HttpAccounts] = []
        self.store = self.backend.store
        self.local = EmbeddedAccounts(self.backend)
        self.local.create_user(person("root", admin=True))
        self.local.create_project("vision")
        self.local.create_project("sound")
        for name in (*ROLES, "other", "newcomer"):
            self.local.create_user(person(name))
        self.local.create_user(UserRecord("robot", UserKind.SERVICE, 0.0))
        for name, role in ROLES.items():
            self.local.set_member("vision", name, role)
        self.local.set_member("vision", "robot", Role.SUBMITTER)
        self.local.set_member("sound", "other", Role.ADMIN)
        self.ids = {
            name: self.local.create_token("t", user=name).record.id
            for name in (*ROLES, "root", "other")
        }
        self.robots = self.local.create_token("t", user="robot", project="vision").record.id
        self.local.set_secret("key", "value")

    def caller(self, token: str, project: str | None = None) -> Caller:
        policies = CurrentPolicies(lambda: self.store)
        return Authenticator(self.store.accounts, policies).authenticate(
            token, time.time(), project
        )

    def of(self, name: str, **limits: Any) -> AccountsAPI:
        """The API for a user, with a new token."""
        text = self.local.create_token("t", user=name, **limits).text
        project = "vision" if name == "root" else None
        if self.url:
            self.opened.append(HttpAccounts(Address(self.url, text, project)))
            return self.opened[-1]
        origin = Origin("192.0.2.7", "request-1")
        return EmbeddedAccounts(self.backend, self.caller(text, project), origin)


def person(name: str, **more: Any) -> UserRecord:
    return UserRecord(name, UserKind.PERSON, 0.0, **more)


@pytest.fixture(params=["embedded", "http"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    backend = Backend(Home(tmp_path / "home"))
    with ExitStack() as stack:
        stack.callback(backend.close)
        url = ""
        if request.param == "http":
            server = stack.enter_context(running_server(backend, users_of(backend)))
            url = server.address().url
        made = World(backend, url)
        yield made
        for api in made.opened:
            api.close()


Act = Callable[[AccountsAPI, World], object]


def _add_and_delete_key(api: AccountsAPI, world: World) -> None:
    key = PublicKeyRecord("20:3b:97", "viewer", "", "PEM", 1.0)
    world.store.keys.insert(key)
    api.delete_key(key.fingerprint)


def _set_and_delete(api: AccountsAPI, world: World) -> None:
    project = api.whoami().project
    world.store.secrets.set(project, "gone", "x", by="root", now=1.0)
    api.delete_secret("gone")


#: Method -> who may do what with it, as (what, who). Everybody else is refused. Each method of the
#: interface is here.
TABLE: dict[str, list[tuple[Act, str]]] = {
    "whoami": [(lambda api, w: api.whoami(), "*")],
    "users": [(lambda api, w: api.users(), "root")],
    "user": [
        (lambda api, w: api.user("newcomer"), "root"),
        (lambda api, w: api.user("VIEWER"), "root viewer"),
    ],
    "create_user": [(lambda api, w: api.create_user(person("x")), "root")],
    "change_user": [
        (lambda api, w: api.change_user("viewer", UserChange(disabled=True)), "root"),
        (lambda api, w: api.change_user("manager", UserChange(admin=True)), "root"),
    ],
    "projects": [(lambda api, w: api.projects(), "*")],
    "create_project": [(lambda api, w: api.create_project("x"), "root")],
    "change_project": [(lambda api, w: api.change_project("vision", "x"), "root manager")],
    "delete_project": [(lambda api, w: api.delete_project("sound"), "root")],
    "members": [
        (lambda api, w: api.members("Vision"), "root manager maintainer submitter viewer"),
        (lambda api, w: api.members("sound"), "root other"),
    ],
    "set_member": [
        (lambda api, w: api.set_member("vision", "newcomer", Role.VIEWER), "root manager"),
        (lambda api, w: api.set_member("vision", "viewer", Role.ADMIN), "root manager"),
        (lambda api, w: api.set_member("sound", "viewer", Role.VIEWER), "root other"),
    ],
    "remove_member": [
        (lambda api, w: api.remove_member("vision", "viewer"), "root manager viewer"),
        (lambda api, w: api.remove_member("vision", "manager"), "root manager"),
        (lambda api, w: api.remove_member("sound", "other"), "root other"),
    ],
    "tokens": [
        (lambda api, w: api.tokens(), "*"),
        (lambda api, w: api.tokens(user="viewer"), "root viewer"),
        (lambda api, w: api.tokens(project="vision"), "root manager"),
        (lambda api, w: api.tokens(user="viewer", project="vision"), "root manager"),
    ],
    "create_token": [
        (lambda api, w: api.create_token("t"), "*"),
        (lambda api, w: api.create_token("t", user="viewer"), "root viewer"),
        (lambda api, w: api.create_token("t", user="viewer", project="vision"), "root viewer"),
        (lambda api, w: api.create_token("t", user="robot", project="vision"), "root manager"),
        (lambda api, w: api.create_token("t", user="robot"), "root"),
    ],
    "revoke_token": [
        (lambda api, w: api.revoke_token(w.ids["viewer"]), "root viewer"),
        (lambda api, w: api.revoke_token(w.ids["root"]), "root"),
        (lambda api, w: api.revoke_token(w.robots), "root manager"),
    ],
    "oci": [(lambda api, w: api.oci(), "*")],
    "keys": [
        (lambda api, w: api.keys("viewer"), "root viewer"),
        (lambda api, w: api.keys("manager"), "root manager"),
    ],
    "add_key": [(lambda api, w: api.add_key("viewer", public_pem()), "root viewer")],
    "create_session": [(lambda api, w: api.create_session(public_pem()), "*")],
    "delete_key": [(_add_and_delete_key, "root viewer")],
    "secrets": [(lambda api, w: api.secrets(), "*")],
    "set_secret": [(lambda api, w: api.set_secret("x", "y"), "root manager maintainer other")],
    "delete_secret": [(_set_and_delete, "root manager maintainer other")],
    "audit": [(lambda api, w: api.audit(AuditFilter()), "root manager other")],
    "prune_audit": [(lambda api, w: api.prune_audit(1.0), "root")],
}
ROWS = [(name, number) for name, rows in TABLE.items() for number in range(len(rows))]


def test_every_method_is_in_the_table() -> None:
    methods = {name for name, _ in inspect.getmembers(AccountsAPI, inspect.isfunction)}
    assert {name for name in methods if not name.startswith("_")} == {*TABLE, "close"}


@pytest.mark.parametrize("who", EVERYBODY)
def test_who_may_do_what(world: World, who: str) -> None:
    api = world.of(who)  # a token takes longer than most rows
    for name, number in ROWS:
        act, allowed = TABLE[name][number]
        may = allowed == "*" or who in allowed.split()
        (newest,) = world.local.audit(AuditFilter(limit=1))
        try:
            act(api, world)
            done = True
        except Forbidden:
            done = False
        assert done == may, (who, name, number)
        found = world.local.audit(AuditFilter(limit=100))  # all would be thousands in the end
        mine = [e for e in found[: found.index(newest)] if e.request_id]
        if not done and mine:
            (entry,) = mine
            assert (entry.user, entry.allowed, entry.address) == (who, False, world.address)
        if done:
            _restore(world)


def _restore(world: World) -> None:
    """Undo what a row of the table has done."""
    accounts = world.store.accounts
    for name, role in ROLES.items():
        accounts.change_user(name, {"disabled": False, "admin": False})
        world.local.set_member("vision", name, role)
    for key in world.store.keys.listing("viewer"):
        world.store.keys.delete(key.fingerprint)
    known = {one.name for one in accounts.projects()}
    if "sound" not in known:
        world.local.create_project("sound")
    if "x" in known:
        accounts.delete_project("x")
    world.local.set_member("sound", "other", Role.ADMIN)
    for name in ("viewer", "newcomer"):
        accounts.remove_member("sound", name)
    accounts.remove_member("vision", "newcomer")
    if any(one.name == "x" for one in accounts.users()):
        world.store.database.write(lambda c: c.execute("DELETE FROM users WHERE name = 'x'"))


def test_a_method_that_changes_records_is_audited(world: World) -> None:
    """With whoever asks and from where, also if it fails."""
    api = world.of("root")
    before = world.local.audit(AuditFilter())[0].seq
    api.create_user(person("bo"))
    with pytest.raises(InvalidInput):
        api.create_user(person("bo"))
    with pytest.raises(Forbidden):
        world.of("viewer").set_secret("x", "hush")
    entries = [e for e in world.local.audit(AuditFilter()) if e.seq > before and e.address]
    assert [(e.user, e.action, e.object, e.allowed, bool(e.why)) for e in reversed(entries)] == [
        ("root", "users.create", "bo", True, False),
        ("root", "users.create", "bo", True, False),
        ("root", "users.create", "bo", True, True),
        ("viewer", "secrets.set", "x", False, True),
    ]
    assert {e.address for e in entries} == {world.address}
    assert all(e.request_id for e in entries)
    assert entries[0].token_id and entries[0].project == "vision"
    assert "hush" not in str(entries)


def test_nothing_is_done_that_cannot_be_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(world.store.audit, "append", fail)
    with pytest.raises(OSError, match="no space"):
        world.local.create_user(person("bo"))
    with pytest.raises(NotFound):
        world.local.user("bo")


def test_a_read_that_was_not_recorded_is_due_again() -> None:
    reads, entry = ReadLog(), AuditEntry(1.0, "ana", "api.read", statement="p#1")
    assert reads.is_due(entry)
    assert reads.is_due(entry)
    reads.recorded(entry)
    assert not reads.is_due(entry)


def test_a_bug_is_recorded_without_its_text(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("with a detail")

    monkeypatch.setattr(world.store.accounts, "create_user", fail)
    with pytest.raises(RuntimeError):
        world.local.create_user(person("bo"))
    assert world.local.audit(AuditFilter(limit=1))[0].why == "internal error"


def test_an_admin_of_a_project_reads_its_entries_only(world: World) -> None:
    world.of("maintainer").set_secret("x", "y")
    found = world.of("manager").audit(AuditFilter())
    assert {entry.project for entry in found} == {"vision"}
    assert world.of("other").audit(AuditFilter(action="secrets")) == []
    with pytest.raises(Forbidden):
        world.of("other").audit(AuditFilter(project="vision"))
    assert {"vision", "sound"} <= {e.project for e in world.of("root").audit(AuditFilter())}


# --- limits of tokens

FEW = frozenset({Right.READ, Right.SUBMIT})


@pytest.mark.parametrize(
    ("who", "limits", "wanted", "refused"),
    [
        ("viewer", {"scopes": FEW}, {}, "limited to the scopes read, submit"),
        ("viewer", {"scopes": FEW}, {"scopes": FEW | {Right.ENTER}}, "limited to the scopes"),
        ("viewer", {"scopes": FEW}, {"scopes": {Right.READ}}, ""),
        ("viewer", {"project": "vision"}, {}, "limited to project vision"),
        ("viewer", {"project": "vision"}, {"project": "sound"}, "limited to project vision"),
        ("viewer", {"project": "vision"}, {"project": "vision"}, ""),
        ("viewer", {}, {"project": "sound"}, ""),
        ("root", {"scopes": {Right.ADMINISTER}}, {"user": "viewer"}, "caller lacks: delete, "),
        ("root", {"project": "vision"}, {"user": "viewer"}, "only administrators"),
        ("root", {"project": "vision"}, {"user": "robot", "project": "vision"}, ""),
        ("root", {"project": "vision"}, {"user": "robot", "project": "sound"}, "in project sound"),
        ("manager", {"scopes": {Right.MANAGE}}, {"user": "robot", "project": "vision"}, "lacks"),
        (
            "manager",
            {"scopes": {Right.MANAGE, Right.READ}},
            {"user": "robot", "project": "vision", "scopes": {Right.READ}},
            "",
        ),
        ("manager", {}, {"user": "nobody", "project": "vision"}, "may not create a token of nobo"),
    ],
)
def test_no_token_creates_a_token_that_may_do_more(
    world: World, who: str, limits: dict[str, Any], wanted: dict[str, Any], refused: str
) -> None:
    api = world.of(who, **limits)
    if refused:
        with pytest.raises(Forbidden, match=refused):
            api.create_token("more", **wanted)
    else:
        made = api.create_token("more", **wanted)
        assert made.record.created_by == who


def test_who_may_not_create_a_token_does_not_learn_who_has_an_account(world: World) -> None:
    texts = []
    for name in ("viewer", "nobody"):
        with pytest.raises(Forbidden) as caught:
            world.of("manager").create_token("t", user=name, project="vision")
        texts.append(str(caught.value).replace(name, "X"))
    assert texts[0] == texts[1]


def test_a_role_cannot_be_given_with_a_token_that_lacks_its_rights(world: World) -> None:
    api = world.of("manager", scopes=FEW | {Right.MANAGE})
    with pytest.raises(Forbidden, match="do not include delete, enter, operate, set-secrets"):
        api.set_member("vision", "newcomer", Role.MAINTAINER)
    with pytest.raises(Forbidden, match="may not give or take the role admin"):
        api.set_member("vision", "newcomer", Role.ADMIN)
    api.set_member("vision", "newcomer", Role.VIEWER)
    with pytest.raises(Forbidden, match="may not give or take the role maintainer"):
        api.remove_member("vision", "maintainer")


# --- input


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda api: api.create_user(person("a b")), "'a b' is not a valid name of a user"),
        (lambda api: api.create_user(person("x", issuer="https://id")), "belong together"),
        (
            lambda api: api.create_user(
                UserRecord("x", UserKind.SERVICE, 0.0, issuer="https://id", subject="1")
            ),
            "x is a service account, and cannot log in",
        ),
        (lambda api: api.create_user(person("x", display_name="a\nb")), r"a\\nb"),
        (lambda api: api.change_user("viewer", UserChange(subject="1")), "belong together"),
        (lambda api: api.create_project("a/b"), "'a/b' is not a valid name of a project"),
        (lambda api: api.set_secret("a b", "x"), "'a b' is not a valid name of a secret"),
        (lambda api: api.set_secret("a", ""), "the value of the secret a is empty"),
        (lambda api: api.set_secret("a", "x" * 65537), "has 65,537 bytes, 65,536 are allowed"),
        (lambda api: api.set_secret("a", "x\0y"), "has a NUL character"),
        (lambda api: api.set_secret("a", "\udc80"), "is not text"),
        (lambda api: api.delete_secret("missing"), "no secret 'missing' in project default"),
        (lambda api: api.create_token("t", user="root", expires_at=5.0), "expired already"),
        (lambda api: api.create_token("a\nb", user="root"), "cannot be printed"),
        (lambda api: api.revoke_token("missing"), "no token with the id 'missing'"),
    ],
)
def test_wrong_input_is_refused_in_words(world: World, act: Any, error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        act(world.local)


def test_secrets_are_stored_encrypted_and_never_returned(world: World) -> None:
    world.local.set_secret("hf-token", "hush-hush")
    assert "hush-hush" not in str(world.local.secrets())
    assert world.local.secrets()[0].version == 1
    database = b"".join(
        path.read_bytes() for path in world.backend.home.root.rglob("*") if path.is_file()
    )
    assert b"hush-hush" not in database
    assert b"muster-sealed:1:" in database


def test_a_new_token_is_only_in_the_answer(world: World) -> None:
    made = world.local.create_token("laptop", user="viewer")
    secret = made.text.split("_")[2]
    database = b"".join(
        path.read_bytes() for path in world.backend.home.root.rglob("*") if path.is_file()
    )
    assert secret[:43].encode() not in database
    assert world.caller(made.text).user == "viewer"


def test_a_disabled_user_gets_no_token(world: World) -> None:
    world.local.change_user("viewer", UserChange(disabled=True))
    with pytest.raises(InvalidInput, match="user viewer is disabled"):
        world.local.create_token("t", user="viewer")


def test_a_project_with_a_name_that_no_statement_can_have(world: World) -> None:
    with pytest.raises(NotFound):
        world.of("root").set_member("\x02'\"", "viewer", Role.VIEWER)
