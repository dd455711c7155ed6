"""Nobody gets more than they were given: by writing policies, by tokens, or by changing users."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from muster.api.accounts import UserChange
from muster.caller import Caller, Role
from muster.errors import Forbidden, NotFound
from muster.iam.authenticate import Authenticator
from muster.iam.policies.vocabulary import TENANCY_ONLY, TYPE_OF
from muster.permissions import RIGHT_OF, Permission, Right
from muster.service.accounts import EmbeddedAccounts
from muster.service.backend import Backend
from muster.service.policies import EmbeddedPolicies
from muster.storage.home import Home
from muster.store.account_records import UserKind, UserRecord
from support.keys import public_pem

EVERYTHING = "Allow any-user to manage all-resources in {}"


class World:
    """A server with a project, whose administrator is `manager`."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.accounts, self.policies = EmbeddedAccounts(backend), EmbeddedPolicies(backend)
        self.accounts.create_user(UserRecord("root", UserKind.PERSON, 0.0, admin=True))
        self.accounts.create_project("vision")
        for name in ("manager", "eve", "ana"):
            self.accounts.create_user(UserRecord(name, UserKind.PERSON, 0.0))
        self.accounts.create_user(UserRecord("robot", UserKind.SERVICE, 0.0))
        self.accounts.set_member("vision", "manager", Role.ADMIN)
        self.accounts.set_member("default", "manager", Role.ADMIN)

    def caller(
        self,
        user: str,
        project: str | None = "vision",
        *,
        limit: str | None = None,
        scopes: frozenset[Right] | None = None,
    ) -> Caller:
        """A user with a new token."""
        text = self.accounts.create_token("t", user=user, project=limit, scopes=scopes).text
        authenticator = Authenticator(self.backend.store.accounts, self.backend.policies)
        return authenticator.authenticate(text, time.time(), project)

    def give(self, user: str, what: str, where: str = "") -> None:
        """Give a user something in the tenancy."""
        self.policies.create_group(f"of-{user}")
        self.policies.add_to_group(f"of-{user}", user)
        statement = f"Allow group of-{user} to {what} in tenancy{where}"
        self.policies.create_policy(f"of-{user}", [statement], "default")

    def accounts_of(self, user: str) -> EmbeddedAccounts:
        return EmbeddedAccounts(self.backend, self.caller(user))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(Backend(Home(tmp_path / "home"))) as backend:
        yield World(backend)


def test_a_policy_of_a_project_gives_nothing_of_the_tenancy(world: World) -> None:
    manager = world.caller("manager")
    statement = EVERYTHING.format("compartment vision")
    EmbeddedPolicies(world.backend, manager).create_policy("all", [statement], "vision")
    eve = world.caller("eve")
    refused = {one for one in Permission if not eve.allows(one)}
    assert refused == {one for one in Permission if TYPE_OF[one].name in TENANCY_ONLY}
    assert not any(eve.allows(one, project="default") for one in Permission)


@pytest.mark.parametrize("name", ["default", "DEFAULT"])
def test_who_manages_the_root_project_writes_no_policies_there(world: World, name: str) -> None:
    policies = EmbeddedPolicies(world.backend, world.caller("manager", "default"))
    with pytest.raises(Forbidden, match="which the administrators of the server have"):
        policies.create_policy("all", [EVERYTHING.format("tenancy")], name)


@pytest.mark.parametrize(
    "limits",
    [
        {"limit": "default"},
        {"limit": "vision"},
        *({"scopes": frozenset(Right) - {one}} for one in (Right.ADMINISTER,)),
        *({"scopes": frozenset({one})} for one in Right if one is not Right.ADMINISTER),
    ],
)
@pytest.mark.parametrize("name", ["default", "Default"])
def test_a_limited_token_of_an_administrator_writes_no_policies_of_the_tenancy(
    world: World, limits: dict[str, str], name: str
) -> None:
    caller = world.caller("root", None, **limits)  # type: ignore[arg-type]
    policies = EmbeddedPolicies(world.backend, caller)
    for act in (
        lambda: policies.create_policy("all", [EVERYTHING.format("tenancy")], name),
        lambda: policies.change_policy("job-runs", 1, statements=[EVERYTHING.format("tenancy")]),
        lambda: policies.create_group("new"),
        lambda: EmbeddedAccounts(world.backend, caller).change_user("eve", UserChange(admin=True)),
    ):
        with pytest.raises((Forbidden, NotFound)):
            act()
    assert len(world.policies.policies()) == 1
    assert not world.accounts.user("eve").admin


def test_who_may_change_users_makes_no_administrators(world: World) -> None:
    world.give("eve", "manage users")
    accounts = world.accounts_of("eve")
    accounts.create_user(UserRecord("new", UserKind.PERSON, 0.0))
    accounts.change_user("ana", UserChange(display_name="Ana"))
    accounts.add_key("ana", public_pem(3))
    for act in (
        lambda: accounts.create_user(UserRecord("boss", UserKind.PERSON, 0.0, admin=True)),
        lambda: accounts.change_user("eve", UserChange(admin=True)),
        lambda: accounts.change_user("root", UserChange(disabled=True)),
        lambda: accounts.add_key("root", public_pem(4)),
        lambda: accounts.add_key("manager", public_pem(5)),
        lambda: accounts.change_user("manager", UserChange(issuer="https://i", subject="eve")),
        lambda: accounts.create_token("t", user="root"),
        lambda: accounts.create_token("t", user="root", project="vision"),
        lambda: accounts.create_token("t", user="manager"),
    ):
        with pytest.raises(Forbidden):
            act()


def test_a_token_gives_no_more_than_the_one_who_creates_it_has_with_some_resources(
    world: World,
) -> None:
    world.give("robot", "read secret-bundles", " where target.secret.name = 'prod'")
    world.give("eve", "manage project-tokens")
    accounts = world.accounts_of("eve")
    with pytest.raises(Forbidden, match="caller lacks: read, submit"):
        accounts.create_token("t", user="robot", project="vision")
    scopes = frozenset({Right.ENTER})
    assert accounts.create_token("t", user="robot", project="vision", scopes=scopes).text


def test_each_permission_is_of_a_right() -> None:
    assert set(RIGHT_OF) == set(Permission)


def test_a_project_is_called_as_it_is_written(world: World) -> None:
    world.give("eve", "manage data-science-jobs")
    assert world.caller("eve", "VISION").project == "vision"
    with pytest.raises(Forbidden, match="no project named 'none'"):
        world.caller("eve", "none")
