from __future__ import annotations

import pytest

from muster.describe.replicas import (
    left,
    progress,
    rate,
    replica_state,
    states_of_replicas,
)


@pytest.mark.parametrize(
    ("nodes", "state"),
    [
        (["SUCCEEDED"], "SUCCEEDED"),
        (["READY"], "RUNNING"),
        (["STARTING", "STARTING"], "STARTING"),
        (["STARTING", "RUNNING"], "RUNNING"),
        (["SUCCEEDED", "RUNNING"], "RUNNING"),
        (["SUCCEEDED", "PENDING"], "PENDING"),
        (["FAILED", "STOPPED"], "FAILED"),
        (["SUCCEEDED", "STOPPED"], "STOPPED"),
        (["SCALED_DOWN"], "SCALED_DOWN"),
    ],
)
def test_the_state_of_a_replica_follows_from_those_of_its_nodes(
    nodes: list[str], state: str
) -> None:
    assert replica_state(nodes) == state


def test_replicas_with_the_same_state_are_counted_together() -> None:
    counted = {"READY": 2, "RUNNING": 1, "READY,RUNNING": 4, "FAILED": 3, "SCALED_DOWN": 9}
    assert states_of_replicas(counted) == {"RUNNING": 7, "FAILED": 3}


@pytest.mark.parametrize(
    ("states", "per_second", "text"),
    [
        ({}, None, "0 of 10,000 done"),
        (
            {"SUCCEEDED": 409, "FAILED": 3, "RUNNING": 7, "STARTING": 1},
            41.0,
            "412 of 10,000 done, 3 failed, 8 running, ~4 min left, 41/s",
        ),
        ({"PENDING": 2, "RUNNING": 1}, 0.0, "0 of 10,000 done, 2 waiting for a restart, 1 running"),
        ({"SUCCEEDED": 9_000, "STOPPED": 2}, None, "9,000 of 10,000 done, 2 stopped"),
        ({"SUCCEEDED": 10_000}, 5.0, "10,000 of 10,000 done"),
    ],
)
def test_progress(states: dict[str, int], per_second: float | None, text: str) -> None:
    assert progress(states, 10_000, per_second) == text


def test_progress_at_rest_counts_those_that_never_started() -> None:
    states = {"SUCCEEDED": 3, "FAILED": 1, "STOPPED": 4, "NOT_STARTED": 22}
    assert progress(states, 30, at_rest=True) == "4 of 30 done, 1 failed, 4 stopped, 22 not started"
    states = {"SUCCEEDED": 3, "PENDING": 4}
    assert progress(states, 30, at_rest=True) == "3 of 30 done, 4 interrupted, 23 not started"


@pytest.mark.parametrize(
    ("per_second", "text"),
    [
        (1234.5, "1,234/s"),
        (41.2, "41/s"),
        (2.5, "2.5/s"),
        (1, "1/s"),
        (0.1, "6/min"),
        (12 / 3600, "12/h"),
        (0.5 / 3600, "0.5/h"),
    ],
)
def test_rates(per_second: float, text: str) -> None:
    assert rate(per_second) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (20, "20 s"), (240, "4 min"), (12000, "3h20m")]
)
def test_times_left(seconds: float, text: str) -> None:
    assert left(seconds) == text
