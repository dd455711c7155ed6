"""The policies of a store, as they are now."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from muster.caller import CREATED_BY, Caller, NotPermitted, Role, always
from muster.iam.authority import authority_of_user
from muster.iam.current_policies import CompiledPolicies, CurrentPolicies
from muster.iam.policies.decisions import Policies
from muster.permissions import Permission
from muster.service.accounts import EmbeddedAccounts
from muster.service.backend import Backend
from muster.service.policies import EmbeddedPolicies
from muster.spec.ocids import user_ocid
from muster.storage.home import Home
from muster.store.account_records import UserKind, UserRecord

READ = "Allow group team to read objects in compartment vision where target.bucket.name = 'data'"


class World:
    """A store with a project and a user in a group."""

    def __init__(self, backend: Backend) -> None:
        self.backend, self.now = backend, 0.0
        self.accounts, self.policies = EmbeddedAccounts(backend), EmbeddedPolicies(backend)
        self.accounts.create_project("vision")
        self.accounts.create_user(UserRecord("ana", UserKind.PERSON, 0.0))
        self.policies.create_group("team")
        self.policies.add_to_group("team", "ana")
        self.current = CurrentPolicies(lambda: backend.store, lambda: self.now)

    def reads(self, bucket: str = "data") -> bool:
        ana = authority_of_user(self.current, "ana")
        on = {"target.bucket.name": bucket}
        return ana.decide(Permission.OBJECT_READ, "vision", on).allowed


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(Backend(Home(tmp_path / "home"))) as backend:
        yield World(backend)


def test_the_user_of_a_machine_imports_no_policies() -> None:
    code = (
        "import sys, muster.service.embedded\n"
        "wrong = ('lark', 'muster.iam.policies')\n"
        "found = [name for name in sys.modules if name.startswith(wrong)]\n"
        "sys.exit(str(found) if found else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_another_process_changes_decides_a_second_later(world: World) -> None:
    assert not world.reads()
    world.policies.create_policy("team", [READ], "vision")
    world.now = 0.99
    assert not world.reads()
    world.now = 1.0
    assert world.reads() and not world.reads("other")
    world.policies.remove_from_group("team", "ana")
    world.now = 1.99
    assert world.reads()
    world.now = 2.0
    assert not world.reads()


def test_what_this_process_changes_decides_at_once(world: World) -> None:
    assert not world.reads()
    world.policies.create_policy("team", [READ], "vision")
    world.current.changed()
    assert world.reads()


def test_what_is_missing_is_found_for_refusals_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(Policies, "missing", lambda *_: asked.append(1) or "a statement")
    ana = Caller("ana", "vision", authority_of_user(world.current, "ana"))
    assert not ana.allows(Permission.JOB_READ) and ana.rights == frozenset() and not asked
    with pytest.raises(NotPermitted, match="a statement"):
        ana.require(Permission.JOB_READ, "see jobs")
    assert len(asked) == 1


def test_nothing_is_compiled_again_without_a_change(world: World) -> None:
    first = world.current.get()
    world.now = 60.0
    world.current.changed()
    assert world.current.get() is first


def test_others_get_the_former_policies_while_a_change_is_compiled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = world.current.get()
    world.policies.create_policy("team", [READ], "vision")
    world.now = 1.0
    meanwhile = []
    make = CompiledPolicies.__init__

    def init(self: CompiledPolicies, *given: object) -> None:
        other = Thread(target=lambda: meanwhile.append(world.current.get()))
        other.start()
        other.join()
        make(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(CompiledPolicies, "__init__", init)
    assert world.current.get() is not former
    assert meanwhile == [former]


def test_a_change_during_a_look_at_the_store_is_not_missed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = world.backend.store.policies
    look = type(policies).generation

    def generation(self: object) -> int:
        found = look(self)  # type: ignore[arg-type]
        monkeypatch.undo()
        world.policies.create_policy("team", [READ], "vision")
        world.current.changed()
        return found

    world.current.get()
    world.now = 1.0
    monkeypatch.setattr(type(policies), "generation", generation)
    world.current.get()
    assert world.reads()


def test_a_list_has_what_roles_and_what_policies_give(world: World) -> None:
    own = (
        "Allow group team to use data-science-jobs in compartment vision where target.job.id = 'x'"
    )
    world.policies.create_policy("team", [own], "vision")
    world.accounts.set_member("vision", "ana", Role.SUBMITTER)
    ana = authority_of_user(world.current, "ana")
    chosen = ana.chooser(Permission.JOB_UPDATE, "vision")
    assert chosen is not None
    mine, others = {CREATED_BY: user_ocid("ana")}, {CREATED_BY: user_ocid("ben")}
    assert chosen(mine) and chosen({**others, "target.job.id": "x"}) and not chosen(others)
    assert ana.chooser(Permission.JOB_READ, "vision") is always
    assert ana.chooser(Permission.JOB_DELETE, "vision") is None


def test_a_refusal_does_not_tell_strangers_what_there_is(world: World) -> None:
    world.accounts.create_user(UserRecord("eve", UserKind.PERSON, 0.0))
    world.policies.create_compartment("hidden", parent="vision")
    for user, place, shown in (
        ("eve", "HIDDEN", "compartment HIDDEN"),
        ("eve", "NONE", "compartment NONE"),
    ):
        authority = authority_of_user(world.current, user)
        decision = authority.decide(Permission.JOB_READ, place, {})
        assert f" in {shown} where" in decision.missing


@pytest.mark.parametrize("name", ["x'\"y", "x\nAllow any-user to manage all-resources in tenancy"])
def test_no_statement_is_suggested_for_what_none_can_name(world: World, name: str) -> None:
    ana = authority_of_user(world.current, "ana")
    on = {"target.bucket.name": name}
    assert ana.decide(Permission.OBJECT_READ, "vision", on).missing == ""


@pytest.mark.parametrize(
    ("one", "other"), [("strasse", "straße"), ("k", "\u212a"), ("fi", "\ufb01")]
)
def test_only_the_case_of_ascii_letters_does_not_matter(world: World, one: str, other: str) -> None:
    statement = READ.replace("data", one)
    world.policies.create_policy("team", [statement], "vision")
    assert [world.reads(name) for name in (one, one.upper(), other)] == [True, True, False]
