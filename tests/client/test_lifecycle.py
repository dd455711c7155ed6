"""Real runs: causes, restarts, suspension, time to live, events."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import muster
from muster.client.client import Client
from muster.engines.local.namespaces import unavailable_reason
from support.embedded import embedded
from support.runs import start_spec

NEEDS_PEERS = """
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


def script(folder: Path, text: str, name: str = "program.py") -> str:
    (folder / name).write_text(text)
    return name


@pytest.mark.shows("jobs/monitor-errors")
def test_the_first_cause_is_named_even_if_it_ends_last(client: Client, tmp_path: Path) -> None:
    """Node 2 fails and its connections break; the others fail because of that and end first."""
    text = NEEDS_PEERS.replace(
        'os.environ["CAUSE"]',
        '[n for n in __import__("json").load(open(os.environ["CLUSTER_NODES_METADATA_FILE"]))'
        ' if n["Rank"] == "2"][0]["IpAddress"]',
    ).replace("except OSError", "except (OSError, IndexError)")
    spec = {"artifact": script(tmp_path, text), "nodes": 4}
    run = start_spec(client, spec, tmp_path).wait(60)
    assert run.state == "FAILED"
    assert run.cause is not None
    assert run.cause["rank"] == 2
    assert run.details.splitlines()[-1] == "ValueError: bad batch"
    assert {failure["rank"] for failure in run.consequences} <= {0, 1, 3}
    assert run.consequences
    reported = run.why()
    assert "ValueError: bad batch" in reported[0]
    assert " ended within " in reported[2], "those that were being stopped have not failed"
    assert "from a broken connection" in reported[2]


def test_the_recorded_time_of_an_error_decides_the_cause(client: Client, tmp_path: Path) -> None:
    """By torchelastic's error files, rank 1 failed long before rank 0."""
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
    run = start_spec(client, spec, tmp_path).wait(60)
    assert run.cause is not None
    assert run.cause["rank"] == 1
    assert run.cause["raised_at"] == "2023-11-14T22:11:40.000000Z"


@pytest.mark.shows("distributed-jobs/benefit-fault-tolerance")
def test_a_rule_restarts_a_group_until_its_budget_is_used_up(
    client: Client, tmp_path: Path
) -> None:
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
    run = start_spec(client, spec, tmp_path).wait(60)
    assert run.state == "FAILED"
    assert run.details.splitlines()[-1] == (
        "all 2 restarts are used up (max_restarts of rule rule-1)"
    )
    restarts = [entry.data for entry in run.events() if entry.kind == "restart"]
    assert [data["what"] for data in restarts] == ["group b", "group b"]
    assert run.attempt == 0, "the run as a whole was started once"


@pytest.mark.shows("jobs/run-lifecycle")
def test_programs_save_on_suspend_and_continue_on_resume(client: Client, tmp_path: Path) -> None:
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
    run = start_spec(client, spec, tmp_path)
    up = [next(run.logs(follow=True, ranks=[rank])).message for rank in (0, 1)]
    assert up == ["up 0 small"] * 2
    run.suspend("lunch").wait(60)
    assert (run.state, run.details) == ("SUSPENDED", "lunch")
    assert [node.state for node in run.nodes] == ["PENDING", "PENDING"]
    run.resume(env={"SIZE": "large"}).wait(60)
    assert run.state == "SUCCEEDED"
    assert run.attempt == 1
    messages = {record.message for record in run.logs(attempt=1, streams=["stdout", "stderr"])}
    assert messages == {"up 1 large"}
    assert [r.message for r in run.logs(attempt=0, ranks=[0])] == ["up 0 small"]


def test_a_suspended_run_has_no_process_and_no_folder(client: Client, tmp_path: Path) -> None:
    run = start_spec(client, {"command": ["true"], "nodes": 2, "suspend": True}, tmp_path)
    assert run.state == "SUSPENDED"
    assert not embedded(client).home.run_dir(run.id).path.exists()
    assert run.wait(5).state == "SUSPENDED"
    assert run.resume().wait(60).state == "SUCCEEDED"
    assert run.attempt == 0, "there was no attempt before"


def test_a_suspended_run_can_be_canceled(client: Client, tmp_path: Path) -> None:
    run = start_spec(client, {"command": ["true"], "suspend": True}, tmp_path)
    assert run.cancel("never mind").state == "CANCELED"
    assert run.details == "never mind"
    with pytest.raises(muster.InvalidInput, match="is CANCELED, not SUSPENDED"):
        run.resume()


def test_succeeded_nodes_do_not_run_again_after_a_resume(client: Client, tmp_path: Path) -> None:
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
    run = start_spec(client, spec, tmp_path)
    assert next(run.logs(follow=True, streams=["stdout", "stderr"])).message == "up"
    run.suspend().wait(60)
    assert [node.state for node in run.nodes] == ["SUCCEEDED", "PENDING"]
    assert run.resume().wait(60).state == "SUCCEEDED"
    started = [
        entry.data["ranks"]
        for entry in run.events()
        if entry.kind == "nodes" and entry.data["state"] == "STARTING"
    ]
    assert started == ["0", "1", "1"], "only node 1 starts again"


def test_resume_refuses_settings_that_cannot_change(client: Client, tmp_path: Path) -> None:
    run = start_spec(client, {"command": ["true"], "nodes": 2, "suspend": True}, tmp_path)
    with pytest.raises(muster.InvalidInput, match="nodes of a replica cannot change"):
        run.resume(nodes=3)
    assert run.refresh().state == "SUSPENDED"
    array = {"command": ["true"], "array": {"lr": [1, 2]}, "suspend": True}
    run = start_spec(client, array, tmp_path)
    with pytest.raises(muster.InvalidInput, match="parameters of replicas cannot change"):
        run.resume(array={"lr": [1, 3]})
    with pytest.raises(muster.InvalidInput, match="the replicas that run cannot change"):
        run.resume(only=1)


@pytest.mark.embedded("writes to a directory of this machine")
def test_ended_runs_are_deleted_after_their_time_to_live(client: Client, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    kept = start_spec(client, {"command": ["true"], "ttl_after_finished": "1h"}, tmp_path).wait(60)
    ended = start_spec(
        client,
        {"command": ["true"], "ttl_after_finished": 0, "logging": {"directory": "logs"}},
        tmp_path,
    ).wait(60)
    assert ended.state == "SUCCEEDED"
    folder = embedded(client).home.run_dir(ended.id).path
    embedded(client).close()
    other = Client(embedded(client).home.root)
    assert [run.id for run in other.runs()] == [kept.id], "the next client deletes the expired run"
    assert not folder.exists()
    assert os.listdir(tmp_path / "logs") == []
    embedded(other).close()


def test_output_of_old_attempts_is_deleted(client: Client, tmp_path: Path) -> None:
    spec = {
        "artifact": script(tmp_path, "echo $MUSTER_ATTEMPT; test $MUSTER_ATTEMPT = 3\n", "p.sh"),
        "keep_attempts": 2,
        "failure": {"max_restarts": 5, "backoff": {"initial": 0}},
    }
    run = start_spec(client, spec, tmp_path).wait(60)
    assert run.state == "SUCCEEDED"
    assert [r.message for r in run.logs(attempt="all", streams=["stdout", "stderr"])] == ["2", "3"]
    with pytest.raises(muster.InvalidInput, match=r"attempt 0 of .* has no output"):
        run.logs(attempt=0)


def test_only_ended_runs_can_be_deleted(client: Client, tmp_path: Path) -> None:
    run = start_spec(client, {"command": ["sleep", "1000"]}, tmp_path)
    with pytest.raises(muster.InvalidInput, match="muster cancel"):
        run.delete()
    run.cancel().wait(60)
    run.delete()
    assert client.runs() == []
    assert not embedded(client).home.run_dir(run.id).path.exists()


@pytest.mark.shows("jobs/lifecycle-events")
def test_events_are_followed_to_the_end_from_any_number(client: Client, tmp_path: Path) -> None:
    go = tmp_path / "go"
    spec = {"command": ["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.01; done"], "nodes": 2}
    run = start_spec(client, spec, tmp_path)
    seen: list[int] = []

    def follow() -> None:
        reader = Client(embedded(client).home.root)
        for entry in reader.run(run.id).events(follow=True):
            seen.append(entry.seq)
            if entry.data.get("state") == "IN_PROGRESS":
                go.touch()
        embedded(reader).close()

    follower = threading.Thread(target=follow)
    follower.start()
    follower.join(60)
    assert not follower.is_alive()
    entries = list(run.events())
    assert seen == [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert entries[-1].data["state"] == "SUCCEEDED"
    assert [e.seq for e in run.events(after=3)] == seen[3:]


def test_a_hang_is_a_failure(client: Client, tmp_path: Path) -> None:
    spec = {
        "artifact": script(tmp_path, "echo up\nsleep 1000\n", "p.sh"),
        "hang_timeout": 0.3,
        "failure": {"max_restarts": 1, "rules": [{"action": "restart_run", "reasons": ["hang"]}]},
    }
    run = start_spec(client, spec, tmp_path).wait(60)
    assert (run.state, run.attempt) == ("FAILED", 1), "the rule has restarted it"
    assert run.cause is not None
    assert run.cause["reason"] == "hang"


def test_a_program_that_fails_its_liveness_probe_is_restarted(
    client: Client, tmp_path: Path
) -> None:
    spec = {
        "artifact": script(tmp_path, "touch ok; rm ok; sleep 1000\n", "p.sh"),
        "liveness_probe": {"exec": "test -e ok", "period": 0.05, "threshold": 2},
        "failure": {
            "max_restarts": 1,
            "rules": [{"action": "restart_run", "reasons": ["unhealthy"]}],
        },
    }
    run = start_spec(client, spec, tmp_path).wait(60)
    assert (run.state, run.attempt) == ("FAILED", 1), "the rule has restarted it"
    assert run.cause is not None
    assert run.cause["reason"] == "unhealthy"
    expected = "liveness probe failed 2 times: command `test -e ok`: it exited with 1"
    assert run.cause["message"] == expected


def test_a_group_that_is_not_ready_in_time_fails_the_run(client: Client, tmp_path: Path) -> None:
    spec = {
        "command": ["sleep", "1000"],
        "nodes": 2,
        "ready_timeout": 0.3,
        "startup_probe": {"file": "/never", "threshold": 1000},
    }
    run = start_spec(client, spec, tmp_path).wait(60)
    assert run.state == "FAILED"
    assert "not ready after 0.3 s: rank 0-1" in run.details


@pytest.mark.shows("distributed-jobs/benefit-fault-tolerance")
def test_a_killed_supervisor_counts_as_a_lost_node(
    client: Client, tmp_path: Path, alive: Callable[[str], list[str]]
) -> None:
    """A recovered run keeps the environment it was started with."""
    text = "echo up $COLOUR\ntest $MUSTER_ATTEMPT = 1 || sleep 1000\n"
    spec = {"artifact": script(tmp_path, text, "p.sh"), "failure": {"max_restarts": 1}}
    path = tmp_path / "job.json"
    path.write_text(json.dumps(spec))
    job, new = client.job(str(path))
    run = client.start(client.prepare_run(job, new_job=new), {**os.environ, "COLOUR": "green"})
    assert next(run.logs(follow=True, streams=["stdout", "stderr"])).message == "up green"
    folder = embedded(client).home.run_dir(run.id)
    assert folder.environ.stat().st_mode & 0o777 == 0o600
    os.kill(int(folder.lock.read_text()), 9)
    assert run.wait(60).state == "SUCCEEDED"
    assert [r.message for r in run.logs(attempt="all", streams=["stdout", "stderr"])] == [
        "up green",
        "up green",
    ]
    assert not folder.environ.exists(), "an ended run needs no environment"
    assert run.cause is not None
    assert run.cause["reason"] == "node_lost"
    assert alive("COLOUR=green") == []


@pytest.mark.skipif(bool(unavailable_reason()), reason="needs a mount namespace")
def test_a_mount_can_be_at_a_path_that_does_not_exist(client: Client, tmp_path: Path) -> None:
    """Even in the root directory, which looks unchanged to other processes."""
    where = Path("/no-such-place-of-muster")
    spec = {
        "command": ["sh", "-c", f"echo $NODE_RANK > {where}/deep/in/$NODE_RANK; ls -A / | wc -l"],
        "nodes": 2,
        "mounts": [{"source": "scratch:run/x", "path": f"{where}/deep/in"}],
    }
    run = start_spec(client, spec, tmp_path).wait(60)
    assert run.state == "SUCCEEDED", run.details
    scratch = embedded(client).home.run_dir(run.id).scratch("x")
    assert {file.name: file.read_text() for file in scratch.iterdir()} == {"0": "0\n", "1": "1\n"}
    assert {r.message for r in run.logs(streams=["stdout", "stderr"])} == {
        str(len(os.listdir("/")) + 1)
    }
    assert not where.exists()
