"""What every database promises of policies, groups and the tree of compartments."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from muster.caller import Role
from muster.errors import AlreadyExists, Conflict, InvalidInput, NotFound
from muster.store import default_policy
from muster.store.account_records import MemberRecord, ProjectRecord, UserKind, UserRecord
from muster.store.base import Store
from muster.store.policy_records import (
    DynamicGroupRecord,
    GroupMember,
    GroupRecord,
    PolicyRecord,
    PolicyRevision,
)
from support.store_records import DATABASES

databases = pytest.mark.parametrize("store", DATABASES, indirect=True)
ALLOW = "Allow group trainers to manage data-science-family in compartment vision"


def policy(name: str = "trainers", **more: Any) -> PolicyRecord:
    made = PolicyRecord(f"id-{name}", name, "default", "", (ALLOW,), 1, 1.5, "ana", 1.5, "ana")
    return replace(made, **more)


def group(name: str = "trainers", **more: Any) -> GroupRecord:
    return replace(GroupRecord(f"id-{name}", name, "", 1, 1.5, "ana", 1.5, "ana"), **more)


def dynamic_group(name: str = "robots", **more: Any) -> DynamicGroupRecord:
    rule = "resource.type = 'datasciencejobrun'"
    made = DynamicGroupRecord(f"id-{name}", name, "", rule, 1, 1.5, "ana", 1.5, "ana")
    return replace(made, **more)


def add_users(store: Store, *names: str) -> None:
    for name in names:
        store.accounts.create_user(UserRecord(name, UserKind.PERSON, 1.0))


# --- policies


@databases
def test_what_runs_may_do_is_a_policy_from_the_start(store: Store) -> None:
    (made,) = store.policies.policies()
    assert (made.name, made.compartment, made.version) == ("job-runs", "default", 1)
    assert made.id == default_policy.ID
    assert (made.description, made.statements) == (
        default_policy.DESCRIPTION,
        default_policy.STATEMENTS,
    )
    assert made.created_at == made.updated_at > 1_600_000_000
    (revision,) = store.policies.revisions(made.id)
    assert (revision.version, revision.statements) == (1, made.statements)
    assert store.policies.policy_named("Default", "JOB-runs") == made


@databases
def test_policies_are_kept_as_they_are(store: Store) -> None:
    store.accounts.create_project(ProjectRecord("vision", 1.0))
    odd = policy("a.b_c-1", statements=("x\ny 'z' \u2028\"", ""), description="Ünï")
    below = policy("Trainers", id="below", compartment="VISION")
    for one in (policy(), odd, below):
        store.policies.create_policy(one)
    below = replace(below, compartment="vision")
    assert store.policies.policies("Vision") == [below]
    (_, *others) = store.policies.policies()[::-1]
    assert store.policies.policy("id-trainers") == policy()
    assert store.policies.policy_named("vision", "TRAINERS") == below
    assert [one.name for one in store.policies.policies()] == [
        *("a.b_c-1", "job-runs"),
        *("Trainers", "trainers"),
    ]
    assert odd in others
    store.accounts.delete_project("vision")
    with pytest.raises(NotFound):
        store.policies.policy("below")


@databases
def test_names_of_policies_are_unique_in_their_compartment(store: Store) -> None:
    store.policies.create_policy(policy())
    with pytest.raises(AlreadyExists, match="compartment default has a policy 'TRAINERS' already"):
        store.policies.create_policy(policy("TRAINERS"))
    with pytest.raises(AlreadyExists, match="a policy with the id 'id-trainers'"):
        store.policies.create_policy(policy("other", id="id-trainers"))
    with pytest.raises(NotFound, match="no project named 'visoin'"):
        store.policies.create_policy(policy("x", compartment="visoin"))
    with pytest.raises(NotFound, match=r"no policy named 'trainer' \(did you mean trainers\?\)"):
        store.policies.policy_named("default", "trainer")


@databases
def test_each_version_of_a_policy_is_kept(store: Store) -> None:
    first = policy()
    store.policies.create_policy(first)
    changed = replace(
        first, description="Train", statements=(ALLOW, ALLOW), updated_at=2.5, updated_by="bo"
    )
    second = store.policies.change_policy(first, changed)
    assert second == replace(changed, version=2)
    third = store.policies.change_policy(second, replace(second, statements=(), updated_at=3.5))
    assert store.policies.policy(first.id) == third
    assert store.policies.revisions(first.id) == [
        PolicyRevision(first.id, 3, "Train", (), 3.5, "bo"),
        PolicyRevision(first.id, 2, "Train", (ALLOW, ALLOW), 2.5, "bo"),
        PolicyRevision(first.id, 1, "", (ALLOW,), 1.5, "ana"),
    ]
    for stale in (first, second):
        with pytest.raises(Conflict, match=r"policy trainers was changed .* version 3 now, .* to"):
            store.policies.change_policy(stale, stale)
        with pytest.raises(Conflict):
            store.policies.delete_policy(stale)
    store.policies.delete_policy(third)
    for act in (
        lambda: store.policies.policy(first.id),
        lambda: store.policies.revisions(first.id),
        lambda: store.policies.delete_policy(third),
        lambda: store.policies.change_policy(third, third),
    ):
        with pytest.raises(NotFound, match="no policy with the id 'id-trainers'"):
            act()


@databases
def test_neither_the_name_nor_the_compartment_of_a_policy_changes(store: Store) -> None:
    first = policy()
    store.policies.create_policy(first)
    other = replace(first, name="x", compartment="y", created_by="z", version=9, updated_at=2.0)
    assert store.policies.change_policy(first, other) == replace(first, version=2, updated_at=2.0)
    assert store.policies.policy(first.id) == replace(first, version=2, updated_at=2.0)


@databases
def test_of_changes_at_once_one_is_made(store: Store) -> None:
    first = policy()
    store.policies.create_policy(first)

    def change(number: int) -> bool:
        try:
            store.policies.change_policy(first, replace(first, description=str(number)))
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(change, range(4))) == [False, False, False, True]
    assert len(store.policies.revisions(first.id)) == 2


# --- groups


@databases
def test_groups(store: Store) -> None:
    add_users(store, "ana", "bo")
    for one in (group(), group("admins")):
        store.policies.create_group(one)
    assert store.policies.groups() == [group("admins"), group()]
    assert store.policies.group_named("TRAINERS") == group()
    member = GroupMember("id-trainers", "Ana", 2.5, "bo")
    assert store.policies.add_user(member)
    assert not store.policies.add_user(replace(member, user="ANA", added_at=9.0))
    assert store.policies.add_user(replace(member, group="id-admins", user="bo"))
    ana = replace(member, user="ana")
    assert store.policies.group_members(group="id-trainers") == [ana]
    assert store.policies.group_members(user="ANA") == [ana]
    assert store.policies.group_members(group="id-admins", user="ana") == []
    assert store.policies.groups_of("BO") == [group("admins")]
    for wrong in (replace(member, user="nobody"), replace(member, group="none")):
        with pytest.raises(NotFound):
            store.policies.add_user(wrong)
    changed = store.policies.change_group(group(), group(description="Train", updated_at=3.0))
    assert changed == group(description="Train", updated_at=3.0, version=2)
    with pytest.raises(Conflict):
        store.policies.delete_group(group())
    with pytest.raises(InvalidInput, match="group trainers has users, and cannot be deleted: ana"):
        store.policies.delete_group(changed)
    assert store.policies.remove_user("id-trainers", "Ana")
    assert not store.policies.remove_user("id-trainers", "ana")
    store.policies.delete_group(changed)
    with pytest.raises(NotFound, match="no group with the id 'id-trainers'"):
        store.policies.group("id-trainers")
    assert store.policies.groups() == [group("admins")]


@databases
def test_dynamic_groups(store: Store) -> None:
    first = dynamic_group()
    store.policies.create_dynamic_group(first)
    assert store.policies.dynamic_group_named("Robots") == first
    second = store.policies.change_dynamic_group(first, replace(first, rule="x", updated_at=2.0))
    assert second == replace(first, rule="x", updated_at=2.0, version=2)
    assert store.policies.dynamic_groups() == [second]
    assert store.policies.dynamic_group(first.id) == second
    with pytest.raises(Conflict):
        store.policies.delete_dynamic_group(first)
    store.policies.delete_dynamic_group(second)
    with pytest.raises(NotFound, match="no dynamic group named 'robots'"):
        store.policies.dynamic_group_named("robots")


@databases
def test_all_kinds_of_groups_have_different_names(store: Store) -> None:
    store.accounts.create_project(ProjectRecord("vision", 1.0))
    store.policies.create_group(group())
    store.policies.create_dynamic_group(dynamic_group())
    for name, why in (
        ("Trainers", "there is a group 'Trainers' already"),
        ("ROBOTS", "there is a dynamic group 'ROBOTS' already"),
        ("administrators", "the group Administrators is there already"),
        ("Vision-Admin", "is the group of the members of project vision with the role Admin"),
        ("default-viewer", "of project default with the role viewer"),
    ):
        with pytest.raises(InvalidInput, match=why):
            store.policies.create_group(group(name, id="other"))
        with pytest.raises(InvalidInput, match=why):
            store.policies.create_dynamic_group(dynamic_group(name, id="other"))
    for name in ("vision-owner", "sound-Admin", "admin", "-viewer"):
        store.policies.create_group(group(name))
    with pytest.raises(InvalidInput, match="there is a group 'sound-Admin', as the members of a"):
        store.accounts.create_project(ProjectRecord("Sound", 1.0))
    assert [one.name for one in store.accounts.projects()] == ["default", "vision"]


# --- generation

#: What changes what decisions need, each after those before it.
CHANGES: list[tuple[str, Callable[[Store], object]]] = [
    ("a user", lambda store: add_users(store, "ana")),
    ("an administrator", lambda store: store.accounts.change_user("ana", {"admin": True})),
    ("another user", lambda store: add_users(store, "bo")),
    ("a disabled user", lambda store: store.accounts.change_user("bo", {"disabled": True})),
    ("a project", lambda store: store.accounts.create_project(ProjectRecord("a", 1.0))),
    ("a second one", lambda store: store.accounts.create_project(ProjectRecord("b", 1.0))),
    ("its parent", lambda store: store.accounts.move_project("b", "a")),
    ("a member", lambda store: store.accounts.set_member(MemberRecord("a", "bo", Role.VIEWER))),
    ("its role", lambda store: store.accounts.set_member(MemberRecord("a", "bo", Role.ADMIN))),
    ("no member", lambda store: store.accounts.remove_member("a", "bo")),
    ("a login", lambda store: store.accounts.set_group_roles("bo", {"a": Role.VIEWER})),
    ("a logout", lambda store: store.accounts.set_group_roles("bo", {})),
    ("a policy", lambda store: store.policies.create_policy(policy(compartment="b"))),
    ("its text", lambda store: store.policies.change_policy(policy(), policy(description="x"))),
    ("one less", lambda store: store.policies.delete_policy(policy(version=2))),
    ("a group", lambda store: store.policies.create_group(group())),
    ("its text", lambda store: store.policies.change_group(group(), group(description="x"))),
    ("its user", lambda store: store.policies.add_user(GroupMember("id-trainers", "bo", 1, ""))),
    ("no user", lambda store: store.policies.remove_user("id-trainers", "bo")),
    ("no group", lambda store: store.policies.delete_group(group(version=2))),
    ("a rule", lambda store: store.policies.create_dynamic_group(dynamic_group())),
    (
        "its text",
        lambda store: store.policies.change_dynamic_group(dynamic_group(), dynamic_group(rule="y")),
    ),
    ("no rule", lambda store: store.policies.delete_dynamic_group(dynamic_group(version=2))),
    ("no project", lambda store: store.accounts.delete_project("b")),
]


@databases
def test_each_change_increases_the_generation(store: Store) -> None:
    for what, change in CHANGES:
        before = store.policies.load()
        assert store.policies.generation() == before.generation
        change(store)
        after = store.policies.load()
        assert after.generation > before.generation, what
        if what not in ("a user", "another user", "a disabled user"):
            assert replace(after, generation=before.generation) != before, what


@databases
def test_other_changes_leave_the_generation(store: Store) -> None:
    add_users(store, "ana")
    before = store.policies.generation()
    store.accounts.change_user("ana", {"display_name": "Ana"})
    store.accounts.change_project("default", "All")
    store.secrets.set("default", "key", "x", by="ana", now=1.0)
    with pytest.raises(AlreadyExists):
        store.policies.create_policy(policy("job-runs", id="other"))
    assert store.policies.generation() == before


@databases
def test_a_load_is_of_one_moment(store: Store) -> None:
    """A writer makes a group and puts a user in it: whoever sees the user sees the group."""
    add_users(store, "ana")
    ends = count()

    def write() -> None:
        for number in range(20):
            made = group(f"g{number}")
            store.policies.create_group(made)
            store.policies.add_user(GroupMember(made.id, "ana", 1.0, ""))
            store.policies.remove_user(made.id, "ana")
            store.policies.delete_group(made)
        next(ends)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        seen = 0
        while not writing.done() or not seen:
            state = store.policies.load()
            assert {one.group for one in state.group_members} <= {one.id for one in state.groups}
            seen += 1
        writing.result()


@databases
def test_who_is_an_administrator_is_loaded(store: Store) -> None:
    for name, admin, disabled in (("a", True, False), ("b", True, True), ("c", False, False)):
        made = UserRecord(name, UserKind.PERSON, 1.0, admin=admin, disabled=disabled)
        store.accounts.create_user(made)
    store.accounts.create_project(ProjectRecord("vision", 1.0))
    store.accounts.create_project(ProjectRecord("cameras", 1.0, parent="vision"))
    store.accounts.set_member(MemberRecord("vision", "c", Role.VIEWER))
    state = store.policies.load()
    assert state.administrators == {"a"}
    assert {one.name: one.parent for one in state.projects} == {
        **{"cameras": "vision", "default": ""},
        "vision": "",
    }
    assert state.members == (MemberRecord("vision", "c", Role.VIEWER),)
    assert [one.name for one in state.policies] == ["job-runs"]


# --- any order of changes

NAMES = st.sampled_from(["a", "B", "b", "c-admin", "C", "default"])
USERS = st.sampled_from(["ana", "bo"])


class Changes(RuleBasedStateMachine):
    """Groups, policies and projects, and a model of them that knows only names."""

    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.numbers = count()
        self.groups: dict[str, set[str]] = {}
        self.parents: dict[str, str] = {"default": ""}
        self.policies: dict[tuple[str, str], int] = {("default", "job-runs"): 1}

    @initialize()
    def start(self) -> None:
        add_users(self.store, "ana", "bo")

    def teardown(self) -> None:
        self.store.close()

    def reserved(self, name: str) -> bool:
        project, _, role = name.lower().rpartition("-")
        return role == "admin" and project in self.parents

    @rule(name=NAMES)
    def create_group(self, name: str) -> None:
        made = group(name, id=f"g{next(self.numbers)}")
        if name.lower() in self.groups or self.reserved(name):
            with pytest.raises(InvalidInput):
                self.store.policies.create_group(made)
        else:
            self.store.policies.create_group(made)
            self.groups[name.lower()] = set()

    @rule(name=NAMES, user=USERS, adds=st.booleans())
    def change_users(self, name: str, user: str, adds: bool) -> None:
        if name.lower() not in self.groups:
            with pytest.raises(NotFound):
                self.store.policies.group_named(name)
            return
        made, users = self.store.policies.group_named(name), self.groups[name.lower()]
        if adds:
            member = GroupMember(made.id, user, 1.0, "")
            assert self.store.policies.add_user(member) == (user not in users)
            users.add(user)
        else:
            assert self.store.policies.remove_user(made.id, user) == (user in users)
            users.discard(user)

    @rule(name=NAMES)
    def delete_group(self, name: str) -> None:
        if name.lower() not in self.groups:
            return
        made = self.store.policies.group_named(name)
        if self.groups[name.lower()]:
            with pytest.raises(InvalidInput):
                self.store.policies.delete_group(made)
        else:
            self.store.policies.delete_group(made)
            del self.groups[name.lower()]

    @rule(name=NAMES, parent=NAMES)
    def create_project(self, name: str, parent: str) -> None:
        taken = name.lower() in self.parents or f"{name.lower()}-admin" in self.groups
        made = ProjectRecord(name.lower(), 1.0, parent=parent)
        if taken or parent.lower() not in self.parents:
            with pytest.raises(InvalidInput):  # also NotFound
                self.store.accounts.create_project(made)
        else:
            self.store.accounts.create_project(made)
            self.parents[name.lower()] = "" if parent == "default" else parent.lower()

    def above(self, name: str) -> list[str]:
        found = [name]
        while parent := self.parents.get(found[-1]):
            found.append(parent)
        return found

    @rule(name=NAMES, parent=NAMES)
    def move_project(self, name: str, parent: str) -> None:
        name, parent = name.lower(), parent.lower()
        known = name in self.parents and parent in self.parents
        if not known or name == "default" or name in self.above(parent):
            with pytest.raises(InvalidInput):
                self.store.accounts.move_project(name, parent)
        else:
            self.store.accounts.move_project(name, parent)
            self.parents[name] = "" if parent == "default" else parent

    @rule(name=NAMES)
    def delete_project(self, name: str) -> None:
        name = name.lower()
        if name not in self.parents or name == "default" or name in self.parents.values():
            with pytest.raises(InvalidInput):
                self.store.accounts.delete_project(name)
        else:
            self.store.accounts.delete_project(name)
            del self.parents[name]
            self.policies = {key: one for key, one in self.policies.items() if key[0] != name}

    @rule(compartment=NAMES, name=NAMES)
    def create_policy(self, compartment: str, name: str) -> None:
        key = (compartment.lower(), name.lower())
        made = policy(name, id=f"p{next(self.numbers)}", compartment=compartment)
        if key in self.policies or key[0] not in self.parents:
            with pytest.raises(InvalidInput):
                self.store.policies.create_policy(made)
        else:
            self.store.policies.create_policy(made)
            self.policies[key] = 1

    @rule(compartment=NAMES, name=NAMES, deletes=st.booleans())
    def change_policy(self, compartment: str, name: str, deletes: bool) -> None:
        key = (compartment.lower(), name.lower())
        if key not in self.policies:
            with pytest.raises(NotFound):
                self.store.policies.policy_named(*key)
            return
        before = self.store.policies.policy_named(*key)
        if deletes:
            self.store.policies.delete_policy(before)
            del self.policies[key]
        else:
            self.store.policies.change_policy(before, replace(before, description="x"))
            self.policies[key] += 1
            assert len(self.store.policies.revisions(before.id)) == self.policies[key]

    @invariant()
    def all_is_as_in_the_model(self) -> None:
        state = self.store.policies.load()
        groups = {one.id: one.name.lower() for one in state.groups}
        found: dict[str, set[str]] = {name: set() for name in groups.values()}
        for member in state.group_members:
            found[groups[member.group]].add(member.user)
        assert found == self.groups
        assert {one.name: one.parent for one in state.projects} == self.parents
        assert {
            (one.compartment, one.name.lower()): one.version for one in state.policies
        } == self.policies


def test_changes_in_any_order(tmp_path_factory: pytest.TempPathFactory) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    from muster.store.sqlite.store import SqliteStore

    def start() -> Changes:
        made = Changes()
        made.store = SqliteStore.open(tmp_path_factory.mktemp("store") / "m.db")
        return made

    run_state_machine_as_test(start, settings=settings(max_examples=30, stateful_step_count=30))


def test_changes_in_any_order_in_postgresql() -> None:
    from contextlib import ExitStack

    from hypothesis.stateful import run_state_machine_as_test

    from muster.store.postgres.store import PostgresStore
    from support.postgres import shared_server

    with ExitStack() as stack:

        def start() -> Changes:
            made = Changes()
            url = stack.enter_context(shared_server().database())
            made.store = PostgresStore.open(url)
            return made

        run_state_machine_as_test(start, settings=settings(max_examples=5, stateful_step_count=30))
