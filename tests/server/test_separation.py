"""Where runs of different owners are not kept apart, a server is for the first owner."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from support.installed_engines import install_engine
from support.owners import needs_root
from support.server_thread import ONE_USER
from support.teams import Reply, Teams, serving_teams

EVERYTHING = "read each other's files, environment, network and credentials"


def start(teams: Teams, user: str, project: str, **fields: Any) -> Reply:
    """Record a run that waits to be resumed."""
    spec = {"name": "kite", "command": ["true"], "suspend": True, **fields}
    run = {"run": {"source": {"type": "spec", "spec": spec}}}
    headers = {"Muster-Project": project}
    return teams.request("POST", "/v1/runs", teams.token(user), run, headers=headers)


@pytest.fixture(params=["hosts", "container", "slurm"])
def engine(
    request: pytest.FixtureRequest, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, Teams]]:
    """An engine whose nodes are elsewhere, and a server that keeps owners apart on engine local."""
    with serving_teams() as teams:
        install_engine(request.param, teams.backend.home.root, tmp_path, monkeypatch)
        yield request.param, teams


@needs_root
def test_a_second_owner_is_refused_on_other_engines(engine: tuple[str, Teams]) -> None:
    name, teams = engine
    assert start(teams, "sam", "vision", engine=name).status == 201
    assert start(teams, "sam", "vision", engine=name).status == 201, "the same one is not"
    refused = start(teams, "oscar", "sound", engine=name)
    assert (refused.status, refused.problem) == (422, "InvalidInput")
    text = refused.json["detail"]
    assert text.startswith(f"engine: oscar cannot start runs on engine {name} here")
    assert f"runs the programs of all as one user, who could {EVERYTHING}" in text
    assert "use engine local of a server that runs as root" in text
    assert "sam" not in text
    assert start(teams, "oscar", "sound", engine="local").status == 201


def test_a_second_owner_is_refused_without_separate_accounts() -> None:
    with serving_teams(ONE_USER) as teams:
        assert start(teams, "sam", "vision").status == 201
        refused = start(teams, "oscar", "sound")
    assert (refused.status, refused.problem) == (422, "InvalidInput")
    text = refused.json["detail"]
    assert text.startswith("engine: oscar cannot start runs here")
    assert f"could {EVERYTHING}" in text
    way_out = "set separate_owners = true" if os.geteuid() == 0 else "run `muster server` as root"
    assert way_out in text
