"""Lives of real runs: causes, restarts, suspension, time to live, events."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import muster
from muster.client.client import Client
from muster.client.run import JobRun
from muster.engines.local.isolation import impossible
from muster.store import runs

COMING_DOWN = """
import os, socket, sys, time, traceback
where = ("node-2", 29611)
if os.environ["NODE_RANK"] == "2":
    server = socket.create_server((os.environ["MUSTER_NODE_ADDRESS"], 29611))
    peers = [server.accept()[0] for _ in range(3)]
    try:
        raise ValueError("bad batch")
    except ValueError:
        traceback.print_exc()
    for peer in peers:
        peer.close()
    time.sleep(1000)
while True:
    try:
        peer = socket.create_connection((os.environ["CAUSE"], 29611))
        break
    except OSError:
        time.sleep(0.005)
if not peer.recv(1):
    raise ConnectionResetError("Connection closed by peer")
"""


def start(client: Client, spec: dict[str, Any], folder: Path) -> JobRun:
    path = folder / "job.json"
    path.write_text(json.dumps(spec))
    job, new = client.job(str(path))
    return client.start(client.draft(job, new_job=new))


def script(folder: Path, text: str, name: str = "program.py") -> str:
    (folder / name).write_text(text)
    return name


def wait_until(run: JobRun, state: str) -> None:
    while run.refresh().state != state:
        assert not run.done, run.details


@pytest.mark.shows("jobs/monitor-errors")
def test_the_first_cause_is_named_although_it_ends_last(client: Client, tmp_path: Path) -> None:
    """Node 2 fails, its connections break, the others fail of that and end before it does."""
    text = COMING_DOWN.replace(
        'os.environ["CAUSE"]',
        '[n for n in __import__("json").load(open(os.environ["CLUSTER_NODES_METADATA_FILE"]))'
        ' if n["Rank"] == "2"][0]["IpAddress"]',
    ).replace("except OSError", "except (OSError, IndexError)")
    spec = {"artifact": script(tmp_path, text), "nodes": 4}
    run = start(client, spec, tmp_path).wait(60)
    assert run.state == "FAILED"
    assert run.cause is not None
    assert run.cause["rank"] == 2
    assert run.details.splitlines()[-1] == "ValueError: bad batch"
    assert {failure["rank"] for failure in run.consequences} <= {0, 1, 3}
    assert run.consequences
    told = run.why()
    assert "ValueError: bad batch" in told[0]
    assert "of a broken connection" in told[2]


def test_a_note_of_when_the_error_was_raised_is_believed(client: Client, tmp_path: Path) -> None:
    """torchelastic's error files: rank 1 saw its error long before rank 0 did."""
    text = (
        "import json, os, sys, time\n"
        "rank = int(os.environ['NODE_RANK'])\n"
        "note = {'message': {'message': f'ValueError: of rank {rank}', 'extraInfo': "
        "{'py_callstack': 'Traceback ...', 'timestamp': str(1700000000 - 100 * rank)}}}\n"
        "json.dump(note, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))\n"
        "while rank and not os.path.exists('/never'):\n"
        "    import signal\n"
        "    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))\n"
        "    open(os.environ['READY'], 'w').close()\n"
        "    time.sleep(1000)\n"
        "while not os.path.exists(os.environ['READY']):\n"
        "    time.sleep(0.005)\n"
        "sys.exit(1)\n"
    )
    ready = str(tmp_path / "ready")
    spec = {"artifact": script(tmp_path, text), "nodes": 2, "env": {"READY": ready}}
    run = start(client, spec, tmp_path).wait(60)
    assert run.cause is not None
    assert run.cause["rank"] == 1
    assert run.cause["raised_at"] == "2023-11-14T22:11:40.000000Z"


@pytest.mark.shows("distributed-jobs/benefit-fault-tolerance")
def test_rules_and_budgets_with_real_processes(client: Client, tmp_path: Path) -> None:
    text = "exit $((NODE_RANK == 1 ? 7 : 0))\n"
    spec = {
        "artifact": script(tmp_path, text, "program.sh"),
        "node_groups": [{"name": "a"}, {"name": "b"}],
        "failure": {
            "max_restarts": 5,
            "backoff": {"initial": 0},
            "rules": [
                {"action": "restart_group", "groups": ["b"], "exit_codes": [7], "max_restarts": 2}
            ],
        },
    }
    run = start(client, spec, tmp_path).wait(60)
    assert run.state == "FAILED"
    assert run.details.splitlines()[-1] == (
        "all 2 restarts are used up (max_restarts of rule rule-1)"
    )
    restarts = [entry.data for entry in run.events() if entry.kind == "restart"]
    assert [data["what"] for data in restarts] == ["group b", "group b"]
    assert run.attempt == 0, "the run as a whole was started once"


@pytest.mark.shows("jobs/run-lifecycle")
def test_suspend_lets_programs_save_and_resume_goes_on(client: Client, tmp_path: Path) -> None:
    text = (
        "save() { echo $NODE_RANK >> $MUSTER_MOUNT_KEPT/saved; exit 0; }\n"
        "trap save USR1\n"
        "echo up $MUSTER_ATTEMPT $SIZE\n"
        "while [ ! -e $MUSTER_MOUNT_KEPT/saved ]; do sleep 0.01; done\n"
        "[ $MUSTER_ATTEMPT = 1 ] && exit 0\n"
        "while :; do sleep 0.01; done\n"
    )
    spec = {
        "artifact": script(tmp_path, text, "program.sh"),
        "nodes": 2,
        "env": {"SIZE": "small"},
        "mounts": [{"source": "scratch:run/kept"}],
        "checkpoint": {"signal": "USR1", "grace": "60s"},
    }
    run = start(client, spec, tmp_path)
    up = [next(run.logs(follow=True, ranks=[rank])).message for rank in (0, 1)]
    assert up == ["up 0 small"] * 2
    run.suspend("lunch").wait(60)
    assert (run.state, run.details) == ("SUSPENDED", "lunch")
    assert [node.state for node in run.nodes] == ["PENDING", "PENDING"]
    run.resume(env={"SIZE": "large"}).wait(60)
    assert run.state == "SUCCEEDED"
    assert run.attempt == 1
    told = {record.message for record in run.logs(attempt=1, streams=["stdout", "stderr"])}
    assert told == {"up 1 large"}
    assert [r.message for r in run.logs(attempt=0, ranks=[0])] == ["up 0 small"]


def test_a_suspended_run_is_a_record_and_nothing_else(client: Client, tmp_path: Path) -> None:
    run = start(client, {"command": ["true"], "nodes": 2, "suspend": True}, tmp_path)
    assert run.state == "SUSPENDED"
    assert not client.service.home.run_dir(run.id).path.exists()
    assert run.wait(5).state == "SUSPENDED"
    assert run.resume().wait(60).state == "SUCCEEDED"
    assert run.attempt == 0, "it had never run before"


def test_a_suspended_run_can_be_canceled(client: Client, tmp_path: Path) -> None:
    run = start(client, {"command": ["true"], "suspend": True}, tmp_path)
    assert run.cancel("never mind").state == "CANCELED"
    assert run.details == "never mind"
    with pytest.raises(muster.InvalidInput, match="is CANCELED, not SUSPENDED"):
        run.resume()


def test_only_what_has_not_succeeded_runs_again_after_a_pause(
    client: Client, tmp_path: Path
) -> None:
    spec = {
        "node_groups": [
            {"name": "first", "command": ["true"]},
            {
                "name": "second",
                "command": ["sh", "-c", "echo up; test $MUSTER_ATTEMPT = 1 || sleep 1000"],
                "depends_on": [{"group": "first", "status": "complete"}],
            },
        ]
    }
    run = start(client, spec, tmp_path)
    assert next(run.logs(follow=True, streams=["stdout", "stderr"])).message == "up"
    run.suspend().wait(60)
    assert [node.state for node in run.nodes] == ["SUCCEEDED", "PENDING"]
    assert run.resume().wait(60).state == "SUCCEEDED"
    assert len([e for e in run.events() if "0 SUCC" in f"{e.data.get('ranks')} {e.data}"]) <= 1


def test_resume_refuses_what_cannot_change(client: Client, tmp_path: Path) -> None:
    run = start(client, {"command": ["true"], "nodes": 2, "suspend": True}, tmp_path)
    with pytest.raises(muster.InvalidInput, match="nodes of a replica cannot change"):
        run.resume(nodes=3)
    assert run.refresh().state == "SUSPENDED"


def test_what_has_ended_is_forgotten_after_its_time(client: Client, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    kept = start(client, {"command": ["true"], "ttl_after_finished": "1h"}, tmp_path).wait(60)
    gone = start(
        client,
        {"command": ["true"], "ttl_after_finished": 0, "logging": {"directory": "logs"}},
        tmp_path,
    ).wait(60)
    assert runs.get(client.service.db, gone.id).expires_at is not None
    folder = client.service.home.run_dir(gone.id).path
    client.service.close()
    other = Client(client.service.home.root)
    assert [run.id for run in other.runs()] == [kept.id], "the next to look deletes it"
    assert not folder.exists()
    assert os.listdir(tmp_path / "logs") == []
    other.service.close()


def test_output_of_old_attempts_is_dropped(client: Client, tmp_path: Path) -> None:
    spec = {
        "artifact": script(tmp_path, "echo $MUSTER_ATTEMPT; test $MUSTER_ATTEMPT = 3\n", "p.sh"),
        "keep_attempts": 2,
        "failure": {"max_restarts": 5, "backoff": {"initial": 0}},
    }
    run = start(client, spec, tmp_path).wait(60)
    assert run.state == "SUCCEEDED"
    assert [r.message for r in run.logs(attempt="all", streams=["stdout", "stderr"])] == ["2", "3"]
    with pytest.raises(muster.InvalidInput, match="no output of attempt 0"):
        run.logs(attempt=0)


def test_delete_forgets_what_has_ended_and_nothing_else(client: Client, tmp_path: Path) -> None:
    run = start(client, {"command": ["sleep", "1000"]}, tmp_path)
    with pytest.raises(muster.InvalidInput, match="muster runs cancel"):
        run.delete()
    run.cancel().wait(60)
    run.delete()
    assert client.runs() == []
    assert not client.service.home.run_dir(run.id).path.exists()


@pytest.mark.shows("jobs/lifecycle-events")
def test_events_are_followed_to_the_end_and_from_anywhere(client: Client, tmp_path: Path) -> None:
    go = tmp_path / "go"
    spec = {"command": ["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.01; done"], "nodes": 2}
    run = start(client, spec, tmp_path)
    seen: list[int] = []

    def follow() -> None:
        own = Client(client.service.home.root)
        for entry in own.run(run.id).events(follow=True):
            seen.append(entry.seq)
            if entry.data.get("state") == "IN_PROGRESS":
                go.touch()
        own.service.close()

    follower = threading.Thread(target=follow)
    follower.start()
    follower.join(60)
    assert not follower.is_alive()
    entries = list(run.events())
    assert seen == [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert entries[-1].data["state"] == "SUCCEEDED"
    assert [e.seq for e in run.events(after=3)] == seen[3:]


def test_a_hang_is_a_failure(client: Client, tmp_path: Path) -> None:
    text = "echo up\ntest $MUSTER_RESTART = 1 || sleep 1000\n"
    spec = {
        "artifact": script(tmp_path, text, "p.sh"),
        "hang_timeout": 0.3,
        "failure": {"max_restarts": 1, "rules": [{"action": "restart_run", "reasons": ["hang"]}]},
    }
    run = start(client, spec, tmp_path).wait(60)
    assert run.state == "SUCCEEDED"
    assert run.cause is not None
    assert run.cause["reason"] == "hang"


def test_a_group_that_is_not_ready_in_time(client: Client, tmp_path: Path) -> None:
    spec = {
        "command": ["sleep", "1000"],
        "nodes": 2,
        "ready_timeout": 0.3,
        "startup_probe": {"file": "/never", "threshold": 1000},
    }
    run = start(client, spec, tmp_path).wait(60)
    assert run.state == "FAILED"
    assert "not ready after 0.3 s: rank 0-1" in run.details


@pytest.mark.shows("distributed-jobs/benefit-fault-tolerance")
def test_a_killed_supervisor_is_a_lost_node(
    client: Client, tmp_path: Path, alive: Callable[[str], list[str]]
) -> None:
    """The run goes on with the environment it was started with, whoever takes it up."""
    text = "echo up $COLOUR\ntest $MUSTER_ATTEMPT = 1 || sleep 1000\n"
    spec = {"artifact": script(tmp_path, text, "p.sh"), "failure": {"max_restarts": 1}}
    path = tmp_path / "job.json"
    path.write_text(json.dumps(spec))
    job, new = client.job(str(path))
    run = client.start(client.draft(job, new_job=new), {**os.environ, "COLOUR": "green"})
    assert next(run.logs(follow=True, streams=["stdout", "stderr"])).message == "up green"
    folder = client.service.home.run_dir(run.id)
    assert folder.environ.stat().st_mode & 0o777 == 0o600
    os.kill(int(folder.lease.read_text()), 9)
    assert run.wait(60).state == "SUCCEEDED"
    assert [r.message for r in run.logs(attempt="all", streams=["stdout", "stderr"])] == [
        "up green",
        "up green",
    ]
    assert not folder.environ.exists(), "nobody needs it any more"
    assert run.cause is not None
    assert run.cause["reason"] == "node_lost"
    assert alive("COLOUR=green") == []


@pytest.mark.skipif(bool(impossible()), reason="needs a mount namespace")
def test_a_mount_may_be_at_a_place_that_does_not_exist(client: Client, tmp_path: Path) -> None:
    """Even in the root directory, which stays as it is for everybody else."""
    where = Path("/no-such-place-of-muster")
    spec = {
        "command": ["sh", "-c", f"echo $NODE_RANK > {where}/deep/in/$NODE_RANK; ls -A / | wc -l"],
        "nodes": 2,
        "mounts": [{"source": "scratch:run/x", "path": f"{where}/deep/in"}],
    }
    run = start(client, spec, tmp_path).wait(60)
    assert run.state == "SUCCEEDED", run.details
    scratch = client.service.home.run_dir(run.id).scratch("x")
    assert {file.name: file.read_text() for file in scratch.iterdir()} == {"0": "0\n", "1": "1\n"}
    assert {r.message for r in run.logs(streams=["stdout", "stderr"])} == {
        str(len(os.listdir("/")) + 1)
    }
    assert not where.exists()
