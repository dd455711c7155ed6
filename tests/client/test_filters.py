"""What runs are chosen by is read alike in commands and in Python."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

import muster
from muster.client.client import Client
from muster.client.filters import age_of, moment_of, numbers_in, states_named
from muster.errors import InvalidInput
from muster.lifecycle.states import RunState
from support.command import muster as command
from support.embedded import embedded


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("running", RunState.IN_PROGRESS),
        ("Pending", RunState.QUEUED),
        ("in-progress", RunState.IN_PROGRESS),
        ("FAILED", RunState.FAILED),
        ("cancelled", RunState.CANCELED),
    ],
)
def test_states_by_any_of_their_names(name: str, state: RunState) -> None:
    assert states_named("state", [name]) == [state]


def test_states_that_no_run_has_are_not_offered() -> None:
    assert states_named("state", []) is None
    for name in ("happy", "deleted", "NEEDS_ATTENTION"):
        with pytest.raises(InvalidInput, match=f"no state named '{name}'") as error:
            states_named("state", [name])
        (problem,) = error.value.problems
        assert "DELETED" not in problem.hint and "NEEDS" not in problem.hint


def test_ages_by_duration_and_by_time() -> None:
    assert age_of("older_than", "90s") == pytest.approx(90, abs=5)
    past = datetime.now(UTC) - timedelta(hours=2)
    assert age_of("older_than", past.isoformat()) == pytest.approx(7200, abs=5)
    assert moment_of("since", "1h") == pytest.approx(time.time() - 3600, abs=5)
    assert age_of("older_than", "0") == pytest.approx(0, abs=5)
    for number in ("7", "1.5", "20250101"):
        with pytest.raises(InvalidInput, match=rf"{number} has no unit \(write {number}s"):
            age_of("older_than", number)
    with pytest.raises(InvalidInput, match="is in the future"):
        age_of("older_than", "2999-01-01")
    with pytest.raises(InvalidInput, match="'soon' is neither a duration nor a time"):
        age_of("older_than", "soon")


def test_commands_and_python_accept_the_same(client: Client) -> None:
    home = embedded(client).home.root
    assert list(muster.runs(state="running", home=home)) == []
    assert muster.prune(older_than="2020-11-01", dry_run=True, home=home).runs == ()
    for words in ("prune --yes", "rm --yes", "env prune"):
        command(*words.split(), "--older-than", "2020-11-01", code=0)


def test_numbers_of_replicas() -> None:
    assert numbers_in("replicas", None) is None
    assert numbers_in("replicas", "3,5-6") == [3, 5, 6]
    assert numbers_in("replicas", [5, 3]) == [3, 5]
    assert numbers_in("replicas", 4) == [4]
    assert numbers_in("replicas", []) == []
    with pytest.raises(InvalidInput, match=r"^replicas: 'a' is not a replica number"):
        numbers_in("replicas", "a")
