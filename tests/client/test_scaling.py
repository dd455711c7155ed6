"""Scaling groups of real runs."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.engines.local.namespaces import unavailable_reason
from muster.errors import InvalidInput
from muster.lifecycle.ranks import parse_ranks
from support.command import muster
from support.runs import start_spec

SLEEP = "sh -c 'echo up $MUSTER_RESTART of $INITIAL_CLUSTER_SIZE; exec sleep 1000'"
#: Workers connect to the head, which counts them and ends after the last.
HEAD = """
import os, select, socket
server = socket.create_server((os.environ["MUSTER_NODE_ADDRESS"], 29711))
peers, seen = {}, 0
while peers or seen < 4:
    for ready in select.select([server, *peers], [], [])[0]:
        if ready is server:
            peer = server.accept()[0]
            name = peer.recv(100).decode()
            if not name:
                continue  # the connection of the startup probe
            peers[peer] = name
            seen += 1
            print("hello", peers[peer], len(peers), flush=True)
        else:
            assert ready.recv(1) == b""
            print("bye", peers.pop(ready), len(peers), flush=True)
"""
WORKER = """
import json, os, socket
members = json.load(open(os.environ["CLUSTER_NODES_METADATA_FILE"]))
me = os.environ["NODE_RANK"]
assert me in [member["Rank"] for member in members]
peer = socket.create_connection((members[0]["IPAddress"], 29711))
peer.sendall(me.encode())
peer.recv(1)
"""


def start(client: Client, folder: Path, **spec: Any) -> JobRun:
    return start_spec(client, {"name": "job", **spec}, folder)


def workers(replicas: int, maximum: int, **more: Any) -> dict[str, Any]:
    return {"name": "workers", "replicas": replicas, "max_replicas": maximum, **more}


def until(run: JobRun, ranks: str, state: str, restart: int = 0, after: int = 0) -> int:
    """Wait until the event log has the state for all the ranks; return the number of the entry."""
    left = set(parse_ranks(ranks))
    for entry in run.events(after=after, follow=True):
        reported = (entry.data.get("state"), entry.data.get("restart", 0))
        if entry.kind == "nodes" and reported == (state, restart):
            left -= set(parse_ranks(entry.data["ranks"]))
        if not left:
            return entry.seq
    raise AssertionError(run.refresh().why())


def until_up(run: JobRun, count: int) -> None:
    """Wait until so many programs have begun; one of a node that is ready need not have."""
    lines = run.logs(follow=True, streams=["stdout", "stderr"])
    assert len([*itertools.islice(lines, count)]) == count


def states_of(run: JobRun) -> dict[int, str]:
    return {node.rank: node.state for node in run.nodes}


@pytest.mark.parametrize("isolation", ["namespaces", "plain"])
def test_scaling_up_down_and_up_again(
    client: Client, tmp_path: Path, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isolation == "plain":
        monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    groups = [{"name": "head"}, workers(2, 4, min_success=0)]
    run = start(client, tmp_path, command=SLEEP, node_groups=groups)
    until(run, "0-2", "READY")
    assert run.refresh().to_dict()["replicas"] == {"head": 1, "workers": 2}
    assert client.summaries()[0].node_count == 3
    run.scale("workers", 4)
    seen = until(run, "3-4", "READY")
    assert states_of(run) == dict.fromkeys(range(5), "READY")
    assert client.summaries()[0].node_count == 5
    assert "group workers has 4 of at most 4 replicas" in run.why()
    until_up(run, 5)
    run.scale("workers", 0, "nothing to do")
    seen = until(run, "1-4", "SCALED_DOWN", 1, seen)
    assert states_of(run) == {0: "READY"}
    run.scale("workers", 1)
    until(run, "1", "READY", 1, seen)
    assert states_of(run.refresh()) == {0: "READY", 1: "READY"}
    assert (run.state, run.cause, run.to_dict()["restarts"]) == ("IN_PROGRESS", None, 0)
    until_up(run, 6)
    run.cancel().wait(60)
    assert (run.state, states_of(run)) == ("CANCELED", {0: "STOPPED", 1: "STOPPED"})
    entries = [entry.data for entry in run.events() if entry.kind == "scaled"]
    assert [(data["from"], data["to"], data["why"]) for data in entries] == [
        (2, 4, "by user"),
        (4, 0, "nothing to do"),
        (0, 1, "by user"),
    ]
    messages = sorted((line.rank, line.message) for line in run.logs(streams=["stdout", "stderr"]))
    first = [(rank, "up 0 of 3") for rank in range(5)]
    assert messages == sorted([*first, (1, "up 1 of 3")])


@pytest.mark.shows("distributed-jobs/metadata-updates")
@pytest.mark.parametrize("network", ["shared", "isolated"])
def test_added_replicas_find_the_others(client: Client, tmp_path: Path, network: str) -> None:
    if network == "isolated" and unavailable_reason():
        pytest.skip("needs namespaces")
    (tmp_path / "head.py").write_text(HEAD)
    (tmp_path / "worker.py").write_text(WORKER)
    python = sys.executable
    head = {
        "name": "head",
        "command": [python, f"{tmp_path}/head.py"],
        "startup_probe": {"tcp": 29711, "period": "50ms", "threshold": 1000},
    }
    group = workers(1, 3, command=[python, f"{tmp_path}/worker.py"], depends_on=[{"group": "head"}])
    success = {"groups": ["head"]}
    run = start(client, tmp_path, node_groups=[head, group], success=success, network=network)
    requests = [("hello 1", 3), ("hello 3", 1), ("bye 1", 2), ("hello 2", 0)]
    for line in run.logs(follow=True, ranks=[0]):
        word, _, count = line.message.split()
        if requests and f"{word} {count}" == requests[0][0]:
            run.scale("workers", requests.pop(0)[1])
    run.wait(60)
    assert run.state == "SUCCEEDED", run.details
    messages = [line.message.split() for line in run.logs(ranks=[0])]
    assert [word for word, _, _ in messages] == [
        *["hello"] * 3,
        *["bye"] * 2,
        "hello",
        "bye",
        "bye",
    ]
    assert [rank for _, rank, _ in messages[5:6]] == ["2"]


def test_a_suspended_run_is_scaled_when_it_is_resumed(client: Client, tmp_path: Path) -> None:
    run = start(client, tmp_path, command=SLEEP, node_groups=[workers(1, 3)], suspend=True)
    run.scale("workers", 3)
    assert (run.state, states_of(run)) == ("SUSPENDED", dict.fromkeys(range(3), "PENDING"))
    assert client.summaries()[0].node_count == 3
    run.scale("workers", 2).resume()
    seen = until(run, "0-1", "READY")
    run.suspend().wait(60)
    run.scale("workers", 1).resume()
    until(run, "0", "READY", 1, seen)
    assert [*states_of(run)] == [0]


def test_an_array_is_not_scaled(client: Client, tmp_path: Path) -> None:
    run = start(client, tmp_path, command=SLEEP, array={"a": "1..4"}, parallelism=1, suspend=True)
    with pytest.raises(InvalidInput, match="is an array, which cannot be scaled"):
        run.scale("workers", 2)
    assert len(run.table(include_not_started=True)) == 4


def test_impossible_sizes_are_refused(client: Client, tmp_path: Path) -> None:
    groups = [
        {"name": "head", "nodes": 2},
        workers(3, 5, min_success=2),
        {"name": "helpers", "min_success": 0},
    ]
    run = start(client, tmp_path, command=SLEEP, node_groups=groups, suspend=True)
    for group, replicas, text in (
        ("workers", 6, "workers: cannot have 6 replicas, the maximum is 5"),
        ("workers", 1, "workers: cannot have 1 replicas: 2 must succeed"),
        ("workers", -1, "workers: cannot have -1 replicas"),
        ("head", 0, "head: cannot have 0 replicas: the run's success depends on the group"),
        ("head", 2, "its 2 nodes are one replica"),
        ("helpers", 2, "helpers: cannot have 2 replicas, the maximum is 1"),
        ("worker", 2, 'worker: job-1 has no such group (did you mean "workers"?)'),
    ):
        with pytest.raises(InvalidInput) as caught:
            run.scale(group, replicas)
        assert text in str(caught.value)
    run.scale("helpers", 0)
    assert states_of(run)[2] == "PENDING"
    assert 7 not in states_of(run)
    before = len([*run.events()])
    run.scale("helpers", 0)
    assert len([*run.events()]) == before, "the group has that size already"
    run.cancel()
    with pytest.raises(InvalidInput, match="job-1 has ended: it is CANCELED"):
        run.scale("workers", 2)


def test_scaling_a_run_that_is_ending_is_refused(client: Client, tmp_path: Path) -> None:
    release = tmp_path / "release"
    stubborn = f"sh -c 'trap true TERM; echo up; until test -e {release}; do sleep 0.1; done'"
    run = start(client, tmp_path, command=stubborn, node_groups=[workers(1, 2)])
    for line in run.logs(follow=True, streams=["stdout", "stderr"]):
        assert line.message == "up"
        run.cancel()
        break
    for entry in run.events(follow=True):
        if entry.kind == "stopping":
            break
    with pytest.raises(InvalidInput, match="job-1 is ending"):
        run.scale("workers", 2)
    release.touch()


def test_the_scale_command(client: Client, tmp_path: Path) -> None:
    run = start(client, tmp_path, command=SLEEP, node_groups=[workers(1, 3)])
    until(run, "0", "READY")
    assert (
        muster("runs", "scale", "last", "workers=3").stdout
        == "job-1: group workers scales from 1 to 3 replicas\n"
    )
    until(run, "1-2", "READY")
    assert (
        muster("runs", "scale", "last", "3").stdout
        == "job-1: group workers has 3 replicas already\n"
    )
    output = json.loads(muster("runs", "scale", "last", "workers=2", "--json").stdout)
    assert output["replicas"] == {"workers": 2}
    until(run, "2", "SCALED_DOWN", 1)
    lines = muster("events", "last").stdout.splitlines()
    assert [" ".join(line.split()[2:]) for line in lines if "scale" in line.split()[2]] == [
        "scale_requested scaling of workers to 3 requested by user",
        "scaled workers scaled from 1 to 3 by user",
        "scale_requested scaling of workers to 2 requested by user",
        "scaled workers scaled from 3 to 2 by user",
    ]
    table = muster("runs", "show", "last").stdout
    assert "workers  node-1" in table
    assert "node-2" not in table
    run.suspend().wait(60)
    done = muster("runs", "scale", "last", "workers=1")
    assert done.stdout == "job-1: group workers scales from 2 to 1 replica when it is resumed\n"
    for wrong in ("workers=", "workers", "workers=two", "=3"):
        done = muster("runs", "scale", "last", wrong)
        assert done.returncode == 2
        assert "write workers=8" in done.stderr
    done = muster("runs", "scale", "last", "workers=4")
    assert done.returncode == 2
    assert done.stderr.startswith("error: workers: cannot have 4 replicas, the maximum is 3")
