"""Commands that enter a node of an array, which is named by its replica."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.spec.overrides import changes_from_mapping
from support.array_runs import recorded
from support.command import muster, output_of


def start(client: Client, **settings: object) -> JobRun:
    """An array whose first replica ends at once; the next two run, and the others wait."""
    script = "echo $MUSTER_REPLICA >own; test $MUSTER_REPLICA = 0 || sleep 1000"
    given = {"array": {"seed": "0..9"}, "parallelism": 2, **settings}
    prepared = client.prepare(
        None, changes_from_mapping(given), command=["sh", "-c", script], name="sweep"
    )
    run = client.start(prepared)
    for event in run.events(follow=True):
        if event.kind == "nodes" and event.data["state"] == "READY":
            states = {row["replica"]: row["state"] for row in run.table()}
            if states.get(1) == states.get(2) == "RUNNING":
                break
    return run


@pytest.fixture
def run(client: Client) -> Iterator[JobRun]:
    yield start(client)


def test_a_replica_is_entered_by_its_number(run: JobRun, tmp_path: Path) -> None:
    words = ("--", "sh", "-c", "echo $MUSTER_REPLICA")
    assert output_of("exec", run.name, "--replica", "2", *words) == "2\n"
    assert output_of("exec", run.name, "--replica", "2", "--node", "0", *words) == "2\n"
    assert muster("shell", run.name, "--replica", "1", input="exit 7").returncode == 7
    output_of("cp", "--replica", "1", f"{run.name}:own", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_text() == "1\n"
    refused = muster("stacks", run.name, "--replica", "0", code=2).stderr
    assert refused.startswith(f"error: replica 0 of {run.name} has no processes: it is SUCCEEDED (")
    assert muster("stacks", run.name, "--replica", "1-2").returncode != 2

    ended = muster("exec", run.name, "--replica", "0", *words, code=2).stderr
    assert ended == (
        f"error: replica 0 of {run.name} has no processes: it is SUCCEEDED "
        f"(`muster logs {run.name} --replica 0` shows its output; running: 1-2)\n"
    )
    waiting = muster("exec", run.name, "--replica", "7", *words, code=2).stderr
    assert waiting == f"error: replica 7 of {run.name} has not started (running: 1-2)\n"
    several = muster("exec", run.name, *words, code=2).stderr
    text = f"{run.name} has several replicas; name one (running: 1-2)"
    assert several == f"error: --replica: {text}\n"
    missing = muster("shell", run.name, "--replica", "10", code=2).stderr
    text = f"{run.name} has no replica 10 (replicas of workers are 0 to 9)"
    assert missing == f"error: --replica: {text}\n"
    missing = muster("cp", f"{run.name}:own", ".", code=2).stderr
    assert f"name one (write {run.name}:RANK:own, or add --replica; running: 1-2)" in missing


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--replica", "1", "--rank", "1"], "--rank and --replica exclude each other"),
        (["--node", "1"], "--node is the number of a node in a replica; add --replica N"),
    ],
)
def test_options_that_do_not_go_together(words: list[str], error: str, own_home: Path) -> None:
    recorded(Client(), {}, array={"seed": "0..3"})
    assert error in muster("shell", "last", *words, code=2).stderr


def test_a_node_of_a_replica_with_several_is_named(client: Client) -> None:
    run = recorded(client, {}, array={"seed": "0..3"}, nodes=2)
    assert muster("shell", run.name, "--replica", "3", code=2).stderr == (
        f"error: --replica: replica 3 of {run.name} has 2 nodes (name one with --node)\n"
    )
    refused = muster("shell", run.name, "--replica", "3", "--node", "2", code=2).stderr
    text = f"replica 3 of {run.name} has no node 2 (its nodes are 0 to 1)"
    assert refused == f"error: --node: {text}\n"
