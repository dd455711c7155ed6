"""A store that the version before wrote (`store.sql`: schema 4, state PARKED), with runs that have
ended and one that is suspended."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.lifecycle.replay import replay
from muster.lifecycle.states import NodeState
from support.embedded import embedded

STORE = Path(__file__).with_name("store.sql")


@pytest.fixture(autouse=True)
def stored(own_home: Path) -> None:
    """The store, in the test's MUSTER_HOME."""
    with closing(sqlite3.connect(own_home / "muster.db")) as connection:
        connection.executescript(STORE.read_text())


def node_states(client: Client, name: str) -> list[str]:
    return [node.state for node in embedded(client).store.runs.nodes(client.run(name).id)]


def test_runs_are_listed_with_their_states(client: Client) -> None:
    assert [(run.name, run.state) for run in client.runs()] == [
        ("working-1", "SUCCEEDED"),
        ("failing-1", "FAILED"),
        ("cluster-2", "CANCELED"),
        ("cluster-1", "SUSPENDED"),
    ]
    assert client.run("failing-1").exit_code == 1


@pytest.mark.parametrize(
    ("name", "states", "shown"),
    [
        ("cluster-1", ["PENDING"] * 2 + ["SCALED_DOWN"] * 3, [0, 1]),
        ("cluster-2", ["STOPPED"] * 4 + ["SCALED_DOWN"], [0, 1, 2, 3]),
    ],
)
def test_nodes_are_shown_without_those_that_are_scaled_down(
    client: Client, name: str, states: list[str], shown: list[int]
) -> None:
    assert node_states(client, name) == states
    run = client.run(name)
    assert [node.rank for node in run.nodes] == shown
    replayed = replay((entry.kind, entry.data) for entry in run.events())
    assert (replayed.state, replayed.details) == (run.state, run.details)
    assert [replayed.nodes[rank][0] for rank in range(5)] == states


def test_events_name_the_state_as_this_version_does(own_home: Path) -> None:
    argv = [sys.executable, "-m", "muster", "events", "cluster-1", "--json"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, env=dict(os.environ))
    states = [entry.get("state") for entry in json.loads(done.stdout)]
    assert NodeState.SCALED_DOWN in states
    assert "PARKED" not in states


def test_durations_are_those_that_the_version_before_showed(client: Client) -> None:
    seconds = {run.name: round(run.seconds or 0, 3) for run in client.runs()}
    assert seconds == {
        "working-1": 0.008,
        "failing-1": 0.016,
        "cluster-2": 3.855,
        "cluster-1": 2.924,
    }


def test_the_suspended_run_is_scaled_and_resumed(client: Client) -> None:
    run = client.run("cluster-1")
    assert run.replicas == {"head": 1, "workers": 1}
    run.scale("workers", 3)
    assert node_states(client, "cluster-1") == ["PENDING"] * 4 + ["SCALED_DOWN"]
    run.resume(env={"MUSTER_TEST_WAIT": ""})
    assert run.wait(60).state == "SUCCEEDED"
    assert node_states(client, "cluster-1") == ["SUCCEEDED"] + ["STOPPED"] * 3 + ["SCALED_DOWN"]


def test_the_suspended_run_is_canceled_and_deleted(client: Client) -> None:
    run = client.run("cluster-1")
    assert run.cancel().wait(60).state == "CANCELED"
    run.delete()
    assert "cluster-1" not in [run.name for run in client.runs()]
