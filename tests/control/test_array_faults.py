"""Faults and requests in the middle of an array. Afterwards every replica has one recorded end, and
each incarnation that ran to its end has written its line once."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.client.events import Event
from muster.client.run import JobRun
from muster.errors import NotRecovered
from muster.lifecycle.ranks import parse_ranks
from muster.storage.liveness import wait_for_process
from support.embedded import embedded
from support.runs import supervisor_pid

pytestmark = pytest.mark.usefixtures("own_launcher")

REPLICAS, AT_ONCE = 200, 6
#: Replicas that wait.
LAST = 20
#: Every line is that of one incarnation; some have no end, some go to stderr. The last replicas
#: wait until the file `GO` is there: the run is not over before it was interrupted.
PROGRAM = """
line=$MUSTER_REPLICA.$MUSTER_RESTART
case $MUSTER_REPLICA in *3) printf $line >&2 ;; *4) printf $line ;; *) echo $line ;; esac
test $MUSTER_REPLICA -lt $FREE || until test -e $GO; do sleep 0.02; done
"""


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """Lets the last replicas end."""
    return tmp_path / "go"


def start(client: Client, go: Path, replicas: int = REPLICAS) -> JobRun:
    job, new = client.job(
        None,
        command=["sh", "-c", PROGRAM],
        env={"GO": str(go), "FREE": str(replicas - LAST)},
        array={"n": f"0..{replicas - 1}"},
        parallelism=AT_ONCE,
        retries=9,
        failure={"max_restarts": 50, "backoff": {"initial": 0}},
    )
    return client.start(client.prepare_run(job, new_job=new))


def ranks_succeeded(event: Event) -> Sequence[int]:
    if event.kind != "nodes" or event.data["state"] != "SUCCEEDED":
        return ()
    return parse_ranks(event.data["ranks"])


def until_succeeded(run: JobRun, count: int) -> None:
    """Wait until this many replicas have."""
    found = 0
    for event in run.events(follow=True):
        found += len(ranks_succeeded(event))
        if found >= count:
            return
    raise AssertionError(run.refresh().why())


def succeeded(client: Client, run: JobRun) -> set[int]:
    """The replicas that have: checked against the table, the event
    log and the output of all attempts."""
    records = embedded(client).nodes(run.refresh().id)
    nodes = {node.rank: node.incarnation for node in records if node.state == "SUCCEEDED"}
    ends = Counter(rank for event in run.events() for rank in ranks_succeeded(event))
    assert ends == dict.fromkeys(nodes, 1), "one end for each"
    rows = {row["replica"] for row in run.table(states=["SUCCEEDED"]).rows}
    assert rows == set(nodes)
    lines = Counter[str]()
    for record in run.logs(streams=["stdout", "stderr"]):
        replica, _, _ = record.message.partition(".")
        assert record.rank == int(replica), f"rank {record.rank} has the line of another replica"
        lines[record.message] += 1
    assert set(lines.values()) <= {1}, "no line is doubled"
    assert {f"{rank}.{incarnation}" for rank, incarnation in nodes.items()} <= set(lines)
    return set(nodes)


def kill(client: Client, run: JobRun) -> None:
    pid = supervisor_pid(client, run)
    os.kill(pid, signal.SIGKILL)
    wait_for_process(pid, 60)


def terminate(client: Client, run: JobRun) -> None:
    pid = supervisor_pid(client, run)
    os.kill(pid, signal.SIGTERM)
    wait_for_process(pid, 60)


def suspend(client: Client, run: JobRun) -> None:
    assert run.suspend().wait(60).state == "SUSPENDED"
    run.resume()


Interrupt = Callable[[Client, JobRun], None]


@pytest.mark.parametrize("interrupt", [kill, terminate, suspend])
def test_every_replica_succeeds_once_however_the_run_is_interrupted(
    client: Client, rng: random.Random, go: Path, interrupt: Interrupt
) -> None:
    run = start(client, go)
    until_succeeded(run, rng.randrange(1, REPLICAS - LAST))
    interrupt(client, run)
    go.touch()
    assert run.wait(120).state == "SUCCEEDED", run.details
    assert sorted(succeeded(client, run)) == list(range(REPLICAS))


def test_a_run_is_not_recovered_with_too_few_open_files(
    client: Client, monkeypatch: pytest.MonkeyPatch, go: Path
) -> None:
    """Its replicas would fail, one after another."""
    run = start(client, go)
    until_succeeded(run, 3)
    kill(client, run)
    go.touch()
    with monkeypatch.context() as patch:
        patch.setattr("resource.getrlimit", lambda _: (25, 25))
        warned = pytest.warns(NotRecovered, match=r"Too many open files: .* \(allow more: `ulimit")
        with Client(embedded(client).home.root) as other, warned:
            other.runs()
    assert run.wait(120).state == "SUCCEEDED", run.details
    assert sorted(succeeded(client, run)) == list(range(REPLICAS))
    failures = [event.data for event in run.events() if event.kind == "failure"]
    # none if no replica ran when the supervisor was killed
    assert {failure["reason"] for failure in failures} <= {"node_lost"}


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["", "plain"])
def test_every_replica_of_a_large_array_succeeds_once(
    client: Client,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    go: Path,
    isolation: str,
) -> None:
    """With interruptions of any kind, also of what the one before has started."""
    if isolation:
        monkeypatch.setenv("MUSTER_ISOLATION", isolation)
    run = start(client, go, replicas=2000)
    done = 0
    for _ in range(12):
        done += rng.randrange(1, 150)
        until_succeeded(run, done)
        rng.choice((kill, terminate, suspend))(client, run)
        assert run.refresh().state not in ("FAILED", "CANCELED"), run.details
    go.touch()
    assert run.wait(240).state == "SUCCEEDED", run.details
    assert sorted(succeeded(client, run)) == list(range(2000))


def test_what_a_canceled_array_has_not_done_can_be_run_afterwards(
    client: Client, rng: random.Random, go: Path
) -> None:
    run = start(client, go)
    until_succeeded(run, rng.randrange(1, REPLICAS // 2))
    assert run.cancel("enough").wait(60).state == "CANCELED"
    first = succeeded(client, run)
    assert 0 < len(first) < REPLICAS
    go.touch()
    again = run.retry(unfinished=True)
    assert again.wait(120).state == "SUCCEEDED", again.details
    second = succeeded(client, again)
    assert not first & second
    assert sorted([*first, *second]) == list(range(REPLICAS))
