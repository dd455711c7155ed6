"""Who may do what in the OCI API: every route, for every kind of caller.

The cases are checked against the table of routes: a new route without a case fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
import requests

from muster.permissions import RIGHT_OF, Permission, Right
from muster.server.oci.routes import all_routes
from muster.store.account_records import AuditEntry, AuditFilter
from support.keys import private_pem
from support.oci_cases import CASES, MARK, World
from support.oci_teams import OciTeams


@pytest.fixture(scope="module")
def world(oci: OciTeams) -> Iterator[World]:
    made = World(oci)
    yield made


def test_every_route_has_a_case() -> None:
    routes = {f"{route.verb} {route.path}" for route in all_routes() if not route.public}
    assert set(CASES) == routes, "add a case for what is new"


@pytest.mark.parametrize("route", CASES)
def test_nothing_is_done_without_a_valid_signature(world: World, route: str) -> None:
    before = world.recorded()
    answers = {
        (reply.status_code, _code(reply))
        for reply in (
            world.request(route, None, world.names),
            world.request(route, "anouk", world.names, key=private_pem(300)),
            world.request(route, None, world.nothing),
        )
    }
    assert answers == {(401, "" if route.startswith("HEAD") else "NotAuthenticated")}
    assert world.recorded() == before


def _code(reply: requests.Response) -> str:
    return str(reply.json()["code"]) if reply.content else ""


@pytest.mark.parametrize("route", CASES)
@pytest.mark.parametrize("user", ["oscar", "nora"])
def test_another_project_is_not_seen(world: World, route: str, user: str) -> None:
    case, before = CASES[route], world.recorded()
    found = world.request(route, user, world.names)
    # but for the names that the request has
    assert MARK not in _without(found, world.names), found.text
    if user in case.allowed:
        assert found.status_code == case.status, found.text
    else:
        unknown = world.request(route, user, world.nothing)
        assert found.status_code == unknown.status_code == 404, (found.text, unknown.text)
        assert _without(found, world.names) == _without(unknown, world.nothing)
    assert world.recorded() == before


def is_read(entry: AuditEntry) -> bool:
    return bool(entry.permission) and RIGHT_OF[Permission(entry.permission)] is Right.READ


def _without(reply: requests.Response, names: Mapping[str, str]) -> str:
    """An answer with the same word for each name."""
    text = reply.text
    for name in sorted(names.values(), key=len, reverse=True):
        text = text.replace(name, "NAME")
    return text


@pytest.mark.parametrize("route", CASES)
def test_viewers_change_nothing(world: World, route: str) -> None:
    case, before = CASES[route], world.recorded()
    found = world.request(route, "vera", world.names)
    assert found.status_code == (case.status if "vera" in case.allowed else 404), found.text
    assert world.recorded() == before


# it changes the project, so the tests of callers with fewer rights are before it
@pytest.mark.parametrize("user", ["sam", "anouk"])
def test_who_has_the_right_does_it(world: World, user: str) -> None:
    wrong = {}
    for route, case in CASES.items():
        found = world.request(route, user, world.names)
        if found.status_code != (case.status if user in case.allowed else 404):
            wrong[route] = (found.status_code, found.text[:300])
    assert not wrong, "\n".join(f"{route}: {found}" for route, found in wrong.items())
    entries = world.oci.teams.backend.store.audit.listing(AuditFilter(project="vision"))
    users = {entry.user for entry in entries if entry.allowed and not is_read(entry)}
    assert users <= {"anouk", "sam", "root", ""}
