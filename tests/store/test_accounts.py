"""What every database promises of users, projects, members, tokens and secrets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from muster.caller import Role
from muster.errors import InvalidInput, NotFound
from muster.iam.tokens import TokenText, new_token
from muster.permissions import Right
from muster.store.account_records import (
    MemberRecord,
    ProjectRecord,
    SecretRecord,
    TokenRecord,
    UserKind,
    UserRecord,
)
from muster.store.base import Store
from support.store_records import DATABASES, accept, job

pytestmark = pytest.mark.parametrize("store", DATABASES, indirect=True)


def user(name: str = "ana", **more: Any) -> UserRecord:
    return replace(UserRecord(name, UserKind.PERSON, 1.000001, "root"), **more)


def token(of: str = "ana", **more: Any) -> tuple[TokenRecord, TokenText]:
    text = new_token()
    record = TokenRecord(id=text.id, name="laptop", user=of, created_at=1.5, created_by="root")
    return replace(record, **more), text


def add_token(store: Store, of: str = "ana", **more: Any) -> tuple[TokenRecord, TokenText]:
    record, text = token(of, **more)
    store.accounts.create_token(record, text.digest())
    return record, text


# --- users


def test_users_are_kept_as_they_are(store: Store) -> None:
    ana = user(display_name="Ana López", issuer="https://id", subject="7", admin=True)
    robot = user("ci.bot", kind=UserKind.SERVICE, disabled=True)
    store.accounts.create_user(robot)
    store.accounts.create_user(ana)
    assert store.accounts.users() == [ana, robot]
    assert store.accounts.user("ANA") == ana
    assert store.accounts.user_of_subject("https://id", "7") == ana
    assert store.accounts.user_of_subject("https://other", "7") is None
    assert store.accounts.user_of_subject("", "") is None


def test_names_and_subjects_are_taken_once(store: Store) -> None:
    store.accounts.create_user(user(issuer="https://id", subject="7"))
    with pytest.raises(InvalidInput, match="there is a user 'Ana' already"):
        store.accounts.create_user(user("Ana"))
    with pytest.raises(InvalidInput, match="knows user 'ana' by the subject '7'"):
        store.accounts.create_user(user("bo", issuer="https://id", subject="7"))
    store.accounts.create_user(user("bo"))
    with pytest.raises(InvalidInput, match="knows user 'ana' by the subject '7'"):
        store.accounts.change_user("bo", {"issuer": "https://id", "subject": "7"})
    with pytest.raises(NotFound, match=r"no user named 'an' \(did you mean ana\?\)"):
        store.accounts.user("an")
    with pytest.raises(NotFound):
        store.accounts.change_user("nobody", {"disabled": True})


def test_the_last_administrator_stays(store: Store) -> None:
    store.accounts.create_user(user(admin=True))
    store.accounts.create_user(user("robot", kind=UserKind.SERVICE, admin=True))
    store.accounts.create_user(user("gone", admin=True, disabled=True))
    for change in ({"admin": False}, {"disabled": True}):
        with pytest.raises(InvalidInput, match="ana is the last person who administers"):
            store.accounts.change_user("ana", change)
    assert store.accounts.user("ana") == user(admin=True)
    store.accounts.change_user("gone", {"disabled": False})
    assert store.accounts.change_user("Ana", {"admin": False, "display_name": "A"}) == user(
        display_name="A"
    )
    with pytest.raises(InvalidInput, match="gone is the last person"):
        store.accounts.change_user("gone", {"admin": False})


def test_of_two_administrators_who_resign_at_once_one_stays(store: Store) -> None:
    for name in ("ana", "bo"):
        store.accounts.create_user(user(name, admin=True))

    def resign(name: str) -> bool:
        try:
            store.accounts.change_user(name, {"admin": False})
        except InvalidInput:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(resign, ("ana", "bo"))) == [False, True]


def test_the_first_user_is_made_once(store: Store) -> None:
    def create(name: str) -> bool:
        record, text = token(name)
        return store.accounts.create_first(user(name, admin=True), record, text.digest())

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(create, "abcd")) == [False, False, False, True]
    (first,) = store.accounts.users()
    assert [one.user for one in store.accounts.tokens()] == [first.name]


# --- projects and members


def test_a_default_project_is_there_from_the_start(store: Store) -> None:
    (default,) = store.accounts.projects()
    assert default.name == "default"
    assert default.created_at > 1_600_000_000
    with pytest.raises(InvalidInput, match="default cannot be deleted"):
        store.accounts.delete_project("default")


def test_projects(store: Store) -> None:
    vision = ProjectRecord("vision", 2.5, "root", "Cameras")
    store.accounts.create_project(vision)
    with pytest.raises(InvalidInput, match="there is a project 'Vision' already"):
        store.accounts.create_project(replace(vision, name="Vision"))
    assert store.accounts.project("VISION") == vision
    assert store.accounts.change_project("Vision", "Eyes") == replace(vision, description="Eyes")
    assert [one.name for one in store.accounts.projects()] == ["default", "vision"]
    with pytest.raises(NotFound, match=r"no project named 'visio' \(did you mean vision\?\)"):
        store.accounts.project("visio")


def names_below(store: Store) -> dict[str, str]:
    return {one.name: one.parent for one in store.accounts.projects()}


def test_projects_are_a_tree(store: Store) -> None:
    for name, parent in (("a", ""), ("b", "A"), ("c", "b"), ("d", "default")):
        store.accounts.create_project(ProjectRecord(name, 1.0, parent=parent))
    assert names_below(store) == {"a": "", "b": "a", "c": "b", "d": "", "default": ""}
    assert store.accounts.project("B") == ProjectRecord("b", 1.0, parent="a")
    assert store.accounts.move_project("B", "D") == ProjectRecord("b", 1.0, parent="d")
    assert names_below(store) == {"a": "", "b": "d", "c": "b", "d": "", "default": ""}
    for name, parent, why in (
        ("default", "a", "project default cannot be moved: it is the root"),
        ("d", "C", "project d cannot be moved to c, which is below it"),
        ("d", "d", "project d cannot be moved to d, which is the same"),
    ):
        with pytest.raises(InvalidInput, match=why):
            store.accounts.move_project(name, parent)
    for name, parent in (("d", "x"), ("x", "d")):
        with pytest.raises(NotFound, match="no project named 'x'"):
            store.accounts.move_project(name, parent)
    with pytest.raises(NotFound, match="no project named 'x'"):
        store.accounts.create_project(ProjectRecord("e", 1.0, parent="x"))
    with pytest.raises(InvalidInput, match=r"project d has projects below it, .*: b "):
        store.accounts.delete_project("d")
    assert store.accounts.move_project("c", "default").parent == ""
    store.accounts.delete_project("b")
    store.accounts.delete_project("d")
    assert names_below(store) == {"a": "", "c": "", "default": ""}


def test_moves_at_once_make_no_cycle(store: Store) -> None:
    for name in "ab":
        store.accounts.create_project(ProjectRecord(name, 1.0))

    def move(pair: tuple[str, str]) -> bool:
        try:
            store.accounts.move_project(*pair)
        except InvalidInput:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(move, [("a", "b"), ("b", "a")])) == [False, True]


def test_only_a_project_without_jobs_is_deleted_with_what_belongs_to_it(store: Store) -> None:
    store.accounts.create_user(user())
    for name in ("empty", "used"):
        store.accounts.create_project(ProjectRecord(name, 1.0))
        store.accounts.set_member(MemberRecord(name, "ana", Role.ADMIN))
        store.secrets.set(name, "key", "x", by="ana", now=1.0)
    record, _ = add_token(store, project="empty")
    accept(store, job(project="used"), project="used")
    with pytest.raises(InvalidInput, match="project used has jobs and runs, and cannot be deleted"):
        store.accounts.delete_project("used")
    store.accounts.delete_project("Empty")
    with pytest.raises(NotFound):
        store.accounts.delete_project("empty")
    assert [one.project for one in store.accounts.members(user="ana")] == ["used"]
    assert store.secrets.listing("empty") == []
    assert store.accounts.credential(record.id) is None


def test_members(store: Store) -> None:
    for name in ("ana", "bo"):
        store.accounts.create_user(user(name))
    store.accounts.create_project(ProjectRecord("vision", 1.0))
    store.accounts.set_member(MemberRecord("Vision", "BO", Role.VIEWER))
    store.accounts.set_member(MemberRecord("default", "bo", Role.VIEWER))
    store.accounts.set_member(MemberRecord("vision", "bo", Role.ADMIN))
    store.accounts.set_member(MemberRecord("vision", "ana", Role.SUBMITTER))
    bo = MemberRecord("vision", "bo", Role.ADMIN)
    assert store.accounts.members(project="vision") == [
        MemberRecord("vision", "ana", Role.SUBMITTER),
        bo,
    ]
    assert store.accounts.members(user="Bo") == [MemberRecord("default", "bo", Role.VIEWER), bo]
    assert store.accounts.members(project="vision", user="bo") == [bo]
    assert store.accounts.remove_member("vision", "Bo")
    assert not store.accounts.remove_member("vision", "bo")
    for wrong in (MemberRecord("none", "ana", Role.ADMIN), MemberRecord("vision", "x", Role.ADMIN)):
        with pytest.raises(NotFound):
            store.accounts.set_member(wrong)


def test_roles_of_groups_come_and_go_and_leave_others_alone(store: Store) -> None:
    store.accounts.create_user(user())
    for name in ("vision", "sound", "own"):
        store.accounts.create_project(ProjectRecord(name, 1.0))
    own = MemberRecord("own", "ana", Role.VIEWER)
    store.accounts.set_member(own)
    roles = {"vision": Role.ADMIN, "own": Role.ADMIN, "missing": Role.VIEWER}
    store.accounts.set_group_roles("ana", roles)
    vision = MemberRecord("vision", "ana", Role.ADMIN, from_groups=True)
    assert store.accounts.members(user="ana") == [own, vision]
    generation = store.policies.generation()
    store.accounts.set_group_roles("ana", roles)
    assert store.policies.generation() == generation, "nothing was written"
    store.accounts.set_group_roles("ana", {"sound": Role.ADMIN})
    store.accounts.set_group_roles("ana", {"Sound": Role.VIEWER})
    sound = MemberRecord("sound", "ana", Role.VIEWER, from_groups=True)
    assert store.accounts.members(user="ana") == [own, sound]
    store.accounts.set_member(replace(sound, from_groups=False))
    store.accounts.set_group_roles("ana", {})
    assert [one.project for one in store.accounts.members(user="ana")] == ["own", "sound"]


# --- tokens


def test_tokens_are_kept_without_their_secrets(store: Store) -> None:
    store.accounts.create_user(user(admin=True))
    store.accounts.set_member(MemberRecord("default", "ana", Role.VIEWER))
    scopes = frozenset({Right.READ, Right.SUBMIT})
    record, text = add_token(store, project="default", scopes=scopes, expires_at=99.000001)
    plain, _ = add_token(store, created_at=2.5)
    assert store.accounts.token(record.id) == record
    assert store.accounts.tokens(user="ANA") == [plain, record]
    assert store.accounts.tokens(project="default") == [record]
    assert store.accounts.tokens(user="bo") == []
    found = store.accounts.credential(record.id)
    assert found is not None
    assert (found.token, found.user) == (record, user(admin=True))
    assert found.roles == {"default": Role.VIEWER}
    assert text.matches(found.digest)
    assert store.accounts.credential("missing") is None
    with pytest.raises(NotFound):
        store.accounts.token("missing")


def test_a_token_is_of_a_user_and_a_project_that_exist(store: Store) -> None:
    store.accounts.create_user(user())
    for more in ({"of": "bo"}, {"project": "none"}):
        with pytest.raises(NotFound):
            add_token(store, **more)
    record, _ = add_token(store, "ANA", project="DEFAULT")
    kept = store.accounts.token(record.id)
    assert (kept.user, kept.project) == ("ana", "default")


def test_a_token_is_revoked_once(store: Store) -> None:
    store.accounts.create_user(user())
    record, _ = add_token(store)
    assert store.accounts.revoke_token(record.id, 5.0)
    assert not store.accounts.revoke_token(record.id, 6.0)
    assert store.accounts.token(record.id).revoked_at == 5.0
    with pytest.raises(NotFound):
        store.accounts.revoke_token("missing", 5.0)


def test_when_a_token_was_used_only_moves_on(store: Store) -> None:
    store.accounts.create_user(user())
    record, _ = add_token(store)
    for now in (7.0, 9.5, 8.0):
        store.accounts.use_token(record.id, now)
    assert store.accounts.token(record.id).last_used_at == 9.5
    store.accounts.use_token("missing", 1.0)


# --- secrets


def test_secrets(store: Store) -> None:
    store.accounts.create_project(ProjectRecord("vision", 1.0))
    first = store.secrets.set("default", "hf-token", "sealed 1", by="ana", now=1.5)
    assert first == SecretRecord("hf-token", 1, "ana", 1.5)
    second = store.secrets.set("default", "hf-token", "sealed 2", by="bo", now=2.5)
    assert second == SecretRecord("hf-token", 2, "bo", 2.5)
    store.secrets.set("default", "db", "sealed 3", by="bo", now=3.0)
    store.secrets.set("vision", "db", "other", by="bo", now=3.0)
    assert [one.name for one in store.secrets.listing("default")] == ["db", "hf-token"]
    assert store.secrets.listing("default")[1] == second
    wanted = ("db", "hf-token", "missing")
    assert store.secrets.values("default", wanted) == {"db": "sealed 3", "hf-token": "sealed 2"}
    assert store.secrets.values("vision", wanted) == {"db": "other"}
    assert store.secrets.values("vision", ()) == {}
    assert store.secrets.delete("default", "db")
    assert not store.secrets.delete("default", "db")
    assert store.secrets.values("default", ("db",)) == {}
    with pytest.raises(NotFound):
        store.secrets.set("none", "db", "x", by="ana", now=1.0)
