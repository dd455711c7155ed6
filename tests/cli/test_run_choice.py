"""`muster cancel` and `muster rm` of several runs, by name and by filter."""

from __future__ import annotations

import pytest

from muster.client.client import Client
from support.command import MUSTER, json_of, muster, output_of
from support.terminals import Terminal


@pytest.fixture
def runs(client: Client) -> list[str]:
    """Two active runs of one job, and an ended run of another."""
    ended = muster("run", "--tag", "team=a", "--", "true", code=0)
    assert "SUCCEEDED" in ended.stderr
    for team in "ab":
        output_of("run", "-d", "--tag", f"team={team}", "--", "sleep", "1000")
    return ["true-1", "sleep-1", "sleep-2"]


def states() -> dict[str, str]:
    return {run["name"]: run["state"] for run in json_of("ps", "--json")}


def test_runs_are_chosen_by_filter(runs: list[str]) -> None:
    assert "no runs to cancel" in muster("cancel", "--tag", "team=c", code=0).stderr
    refused = muster("cancel", "--all", code=2, stdin=-3).stderr
    assert refused == ("error: cancel 2 runs: no terminal to confirm on (add --yes)\n")
    assert states() == {"true-1": "SUCCEEDED", "sleep-1": "IN_PROGRESS", "sleep-2": "IN_PROGRESS"}
    assert output_of("cancel", "--tag", "team=a", "-y") == "sleep-1 is CANCELED\n"
    assert output_of("rm", "--older-than", "1d", "--all", "--yes") == ""
    assert output_of("rm", "--job", "sleep", "--yes") == "sleep-1 is deleted\n"
    assert output_of("cancel", "--state", "running", "--older-than", "0s", "-y").startswith("sleep")
    assert output_of("rm", "--all", "--yes") == "sleep-2 is deleted\ntrue-1 is deleted\n"


def test_an_error_of_one_run_does_not_stop_the_others(runs: list[str]) -> None:
    done = muster("cancel", "sleep-1", "nosuch", "sleep-2", "sleep-1", code=2)
    assert done.stdout == "sleep-1 is CANCELED\nsleep-2 is CANCELED\n"
    assert done.stderr == "error: no run named 'nosuch' (`muster ps` lists them)\n"
    output_of("run", "-d", "--", "sleep", "1000")
    done = muster("rm", "sleep-3", "sleep-1", code=2)
    assert done.stdout == "sleep-1 is deleted\n"
    assert done.stderr.startswith("error: sleep-3 is ")
    assert "`muster cancel sleep-3` ends it" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("cancel", "no runs are given (name them, or use --all, --state, --job, --tag or"),
        ("rm --yes", "no runs are given"),
        ("cancel last --all", "runs are given both by name and by filter"),
        ("rm --state nosuch", "--state: no state named 'nosuch'"),
        ("rm --older-than soon", "--older-than: 'soon' is neither a duration nor a time"),
        ("rm --job nosuch", "no job named 'nosuch'"),
    ],
)
def test_an_unclear_choice_is_refused(own_home: object, words: str, message: str) -> None:
    assert message in muster(*words.split(), code=2).stderr


def test_a_filter_asks_first(runs: list[str]) -> None:
    with Terminal([*MUSTER, "cancel", "--all"]) as terminal:
        question = terminal.wait_for("Cancel 2 runs? [y/N]: ")
        terminal.type("n\n")
        assert terminal.end() == 3
    assert [line.split()[:2] for line in question.splitlines()[:2]] == [
        ["sleep-2", "\x1b[36mIN_PROGRESS\x1b[0m,"],
        ["sleep-1", "\x1b[36mIN_PROGRESS\x1b[0m,"],
    ]
    assert terminal.output.endswith("nothing was changed\n")
    with Terminal([*MUSTER, "cancel", "--tag", "team=b"]) as terminal:
        terminal.wait_for("Cancel 1 run? [y/N]: ")
        terminal.type("y\n")
        assert terminal.end() == 0
    assert states()["sleep-2"] == "CANCELED"
    muster("cancel", "--all", "--yes", code=0)
