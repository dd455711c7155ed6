"""Clusters that bootstrap over a shared folder, with one process per node."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import fsspec
import pytest

from support.bootstrap import NET, Nodes, NodesOf, ended, until
from support.object_store import ObjectStore


@pytest.mark.shows(
    "cluster-design/example-ephemeral",
    "cluster-design/example-worker-count",
    "cluster-design/parameter-mode",
    "cluster-design/run-mode-main",
    "cluster-design/run-mode-worker",
    "cluster-design/teardown-ephemeral",
)
def test_a_cluster_starts_and_ends_with_its_program(nodes: Nodes) -> None:
    others = [nodes.start("WORKER", WORKER_COUNT="2") for _ in range(2)]
    main = nodes.start("MAIN", WORKER_COUNT="2", ARGS="a 'b c'")
    code, out, err = ended(main)
    assert code == 0, err
    assert out.splitlines() == ["rank 0 of 3 a b c", "job job1"]
    found = [ended(other) for other in others]
    assert [code for code, _, _ in found] == [0, 0], found
    assert sorted(out.splitlines()[0][:11] for _, out, _ in found) == ["rank 1 of 3", "rank 2 of 3"]
    left = sorted(path.name for path in Path(nodes.work_dir, "job1").iterdir())
    ends = [name for name in left if name.endswith("_end.json")]
    assert len(ends) == 2
    assert sorted({*left} - {*ends}) == ["MAIN_config.json", "beat.json", "cluster.json", "stop"]


PRINT_VARIABLES = """
import os
names = ("OCI__MODE", "OCI__WORKER_COUNT", "OCI__CLUSTER_TYPE", "OCI__MAIN_IP", "RANK", "tmpdir")
print(*(os.environ.get(name) for name in names), os.path.isdir(os.environ["OCI__SYNC_DIR"]))
"""


def test_programs_get_the_variables_of_ads(nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "variables.py").write_text(PRINT_VARIABLES)
    entry = str(tmp_path / "variables.py")
    worker, main = (nodes.start(mode, ENTRY_POINT=entry) for mode in ("WORKER", "MAIN"))
    for rank, (process, mode) in enumerate(((main, "MAIN"), (worker, "WORKER"))):
        code, out, err = ended(process)
        tmpdir = f"{nodes.work_dir}/job1"
        assert (code, out.strip()) == (0, f"{mode} 1 GENERIC {NET}.2 {rank} {tmpdir} True"), err


@pytest.mark.shows("cluster-design/parameter-worker-count")
def test_the_main_node_waits_for_a_late_worker(nodes: Nodes) -> None:
    main = nodes.start("MAIN")
    until(main, "no worker of 1 has joined")
    worker = nodes.start("WORKER")
    assert ended(worker)[0] == 0
    assert ended(main)[0] == 0


@pytest.mark.slow
@pytest.mark.shows("cluster-design/old-configuration")
def test_the_next_cluster_of_a_job_ignores_files_of_the_last_one(nodes: Nodes) -> None:
    for _ in range(2):
        worker, main = nodes.start("WORKER"), nodes.start("MAIN")
        assert [ended(worker)[0], ended(main)[0]] == [0, 0]
    folder = Path(nodes.work_dir, "job1")
    (folder / "stop").unlink()
    (folder / "WORKER_old_config.json").write_text(
        json.dumps({"muster": {"run": "old", "mode": "WORKER", "address": "x", "hostname": "x"}})
    )
    main = nodes.start("MAIN")
    until(main, "waiting for 1 more")
    until(main, "no worker of 1 has joined")
    worker = nodes.start("WORKER")
    assert [ended(worker)[0], ended(main)[0]] == [0, 0]


@pytest.mark.shows("cluster-design/cluster-is-a-job", "cluster-design/work-dir-reused")
def test_two_clusters_in_one_work_dir_never_mix(nodes: Nodes) -> None:
    started = {
        job: [nodes.start(mode, job) for mode in ("WORKER", "MAIN")] for job in ("red", "blue")
    }
    for job, processes in started.items():
        for process in processes:
            code, out, err = ended(process)
            assert code == 0, err
            assert out.splitlines()[1] == f"job {job}"


@pytest.mark.shows("cluster-design/mode-decides")
def test_a_second_main_node_is_refused(nodes: Nodes) -> None:
    first = nodes.start("MAIN")
    until(first, "no worker of 1 has joined")
    code, _, err = ended(nodes.start("MAIN"))
    assert code == 4
    assert "another main node uses" in err and "JOB_OCID" in err
    worker = nodes.start("WORKER")
    assert [ended(worker)[0], ended(first)[0]] == [0, 0]


# --- how clusters end


def test_a_failed_program_ends_the_cluster_as_failed(nodes: Nodes) -> None:
    worker, main = nodes.start("WORKER"), nodes.start("MAIN", EXIT_0="7")
    code, _, err = ended(main)
    assert code == 7, err
    assert "exit code 7" in err
    assert ended(worker)[0] in (0, 1)


@pytest.mark.shows("cluster-design/parameter-entry-point")
def test_a_missing_program_is_reported_before_waiting(nodes: Nodes) -> None:
    code, _, err = ended(nodes.start("WORKER", ENTRY_POINT="/nowhere/a.py"))
    assert code == 2
    assert "ENTRY_POINT: /nowhere/a.py not found (CODE_DIR is " in err
    worker = nodes.start("WORKER")
    until(worker, "waiting for the main node")
    code, _, err = ended(nodes.start("MAIN", ENTRY_POINT="/nowhere/a.py"))
    assert (code, "/nowhere/a.py not found" in err) == (2, True), err
    code, _, err = ended(worker)
    assert (code, "/nowhere/a.py not found" in err) == (1, True), (
        "it does not wait until its timeout"
    )
    code, _, err = ended(
        nodes.start("WORKER", ENTRY_POINT="/nowhere/a.py", CLUSTER_TYPE="DASK", TIMEOUT="0.5")
    )
    assert (code, "no main node has written it" in err) == (4, True), "it does not need the program"


def test_a_failed_required_worker_ends_the_cluster(nodes: Nodes) -> None:
    worker = nodes.start("WORKER", EXIT_1="9")
    main = nodes.start("MAIN", EPHEMERAL="0")
    code, _, err = ended(worker)
    assert code == 9, err
    code, _, err = ended(main)
    assert code == 1
    assert f"node-1 ({NET}.1): the node failed: exit code 9" in err


def test_a_worker_that_fails_after_the_main_program_fails_the_run(nodes: Nodes) -> None:
    worker, main = nodes.start("WORKER", EXIT_1="9"), nodes.start("MAIN")
    code, _, err = ended(main)
    assert (code, "exit code 9" in err) == (1, True), err
    code, _, err = ended(worker)
    assert code in (1, 9), err


def test_a_worker_that_never_became_ready_reports_its_own_failure(nodes: Nodes) -> None:
    worker = nodes.start("WORKER", PROFILE="1", PROFILE_CMD="no-such-program")
    main = nodes.start("MAIN", EPHEMERAL="0")
    code, _, err = ended(worker)
    assert (code, "no-such-program: command not found" in err) == (127, True), err
    assert ended(main)[0] == 1


@pytest.mark.slow
def test_a_dask_worker_that_fails_before_the_program_starts_ends_the_cluster(nodes: Nodes) -> None:
    given = {"CLUSTER_TYPE": "DASK"}
    worker = nodes.start("WORKER", START_ARGS="--no-such-option", **given)
    main = nodes.start("MAIN", **given)
    code, _, err = ended(main)
    assert code == 1
    assert "worker ended by itself (exit code 2); the program cannot start without it" in err
    assert ended(worker)[0] == 1


SLEEPS = """
import os, signal, time
print(os.getpid(), flush=True)
time.sleep(600)
"""


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signals_of_a_terminal_end_the_program(nodes: Nodes, tmp_path: Path, number: int) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    entry = str(tmp_path / "sleeps.py")
    main = nodes.start("MAIN", WORKER_COUNT="0", ENTRY_POINT=entry)
    assert main.stdout is not None
    program = int(main.stdout.readline())
    os.killpg(main.pid, number)
    main.communicate(timeout=200)  # returns when no process holds the output open
    assert main.returncode != 0
    assert has_ended(program)


def test_a_main_node_that_waits_for_others_can_be_terminated(nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    worker = nodes.start("WORKER", ENTRY_POINT=str(tmp_path / "sleeps.py"))
    main = nodes.start("MAIN")
    until(main, "the main program has succeeded; waiting for 1 other node")
    main.send_signal(signal.SIGTERM)
    code, _, err = ended(main)
    assert (code, "terminated by a signal" in err) == (143, True), err
    assert ended(worker)[0] == 1


@pytest.mark.parametrize(("number", "codes"), [(signal.SIGTERM, {143}), (signal.SIGINT, {1, 130})])
def test_a_terminated_required_worker_ends_the_cluster(
    nodes: Nodes, tmp_path: Path, number: int, codes: set[int]
) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    worker = nodes.start("WORKER", ENTRY_POINT=str(tmp_path / "sleeps.py"))
    main = nodes.start("MAIN", EPHEMERAL="0")
    assert worker.stdout is not None
    program = int(worker.stdout.readline())
    worker.send_signal(number)
    assert ended(worker)[0] in codes
    assert has_ended(program)
    code, _, err = ended(main)
    assert (code, "WORKER" in err, "terminated by a signal" in err) == (1, True, True), err


@pytest.mark.slow
def test_a_killed_worker_is_detected(nodes: Nodes) -> None:
    worker = nodes.start("WORKER", EPHEMERAL="0")
    main = nodes.start("MAIN", EPHEMERAL="0")
    until(worker, "joined as node 1 of 2")
    worker.kill()
    code, _, err = ended(main)
    assert (code, f"node-1 ({NET}.1) stopped sending heartbeats" in err) == (1, True), err


# --- the first cause

#: Like a rank of torch.distributed, it fails when a peer has ended.
NEEDS_PEERS = """
import os, socket, sys, time
port, rank = int(os.environ["MASTER_PORT"]), int(os.environ["RANK"])
if rank == 0:
    server = socket.create_server((os.environ["MASTER_ADDR"], port))
    peers = [server.accept()[0] for _ in range(int(os.environ["WORLD_SIZE"]) - 1)]
    print("up", flush=True)
    for peer in peers:
        peer.recv(1)
    sys.exit("connection closed by peer")
for _ in range(1200):
    try:
        peer = socket.create_connection((os.environ["MASTER_ADDR"], port))
        break
    except OSError:
        time.sleep(0.05)
print(os.getpid(), flush=True)
peer.recv(1)
sys.exit("connection closed by peer")
"""


def _ranks(nodes: Nodes, tmp_path: Path) -> list[subprocess.Popen[str]]:
    """Three nodes that have joined, the main node first."""
    (tmp_path / "ranks.py").write_text(NEEDS_PEERS)
    given = {
        "ENTRY_POINT": str(tmp_path / "ranks.py"),
        "CLUSTER_TYPE": "PYTORCH",
        "WORKER_COUNT": "2",
    }
    started = [nodes.start("MAIN", **given)]
    started += [nodes.start("WORKER", RANK=str(rank), **given) for rank in (1, 2)]
    for process in started:
        until(process, "all 3 nodes have joined" if process is started[0] else "joined as node")
    return started


def test_the_node_whose_rank_was_killed_is_named(nodes: Nodes, tmp_path: Path) -> None:
    main, one, other = _ranks(nodes, tmp_path)
    assert one.stdout is not None
    os.kill(int(one.stdout.readline()), signal.SIGKILL)
    code, _, err = ended(main)
    assert (code, f"node-1 ({NET}.2): the node failed: exit code 137" in err) == (1, True), err
    assert ended(one)[0] == 137, "its own exit code"
    code, _, err = ended(other)
    assert (code, f"node-1 ({NET}.2): the node failed: exit code 137" in err) == (1, True), err


@pytest.mark.slow
def test_the_lost_node_is_named_and_not_its_peers(nodes: Nodes, tmp_path: Path) -> None:
    main, one, other = _ranks(nodes, tmp_path)
    one.kill()
    code, _, err = ended(main)
    assert (code, f"node-1 ({NET}.2) stopped sending heartbeats" in err) == (1, True), err
    code, _, err = ended(other)
    assert (code, f"node-1 ({NET}.2) stopped sending heartbeats" in err) == (1, True), err


@pytest.mark.slow
def test_workers_report_a_lost_main_node(nodes: Nodes, tmp_path: Path) -> None:
    main, *others = _ranks(nodes, tmp_path)
    main.kill()
    for process in others:
        code, _, err = ended(process)
        assert (code, "the main node stopped sending heartbeats" in err) == (1, True), err
    assert not Path(nodes.work_dir, "job1", "stop").exists(), "no node is blamed"


@pytest.mark.slow
def test_dask_workers_do_not_succeed_without_the_main_node(nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    given = {"ENTRY_POINT": str(tmp_path / "sleeps.py"), "CLUSTER_TYPE": "DASK"}
    worker, main = nodes.start("WORKER", **given), nodes.start("MAIN", **given)
    assert main.stdout is not None
    assert main.stdout.readline(), "its program runs"
    main.kill()
    code, _, err = ended(worker)
    assert (code, "the main node stopped sending heartbeats" in err) == (1, True), err
    assert "the program has ended" not in err


# --- names and membership


def test_nodes_with_the_same_name_are_distinct(nodes: Nodes) -> None:
    named = {"WORKER_COUNT": "2", "JOB_RUN_OCID": "ocid1.run"}
    others = [nodes.start("WORKER", **named) for _ in range(2)]
    main = nodes.start("MAIN", **named)
    found = [ended(process) for process in (main, *others)]
    assert [code for code, _, _ in found] == [0, 0, 0], found
    output = sorted(out.splitlines()[0] for _, out, _ in found)
    assert output == [f"rank {rank} of 3" for rank in range(3)]


def test_a_node_that_is_killed_while_it_waits_does_not_join(nodes: Nodes) -> None:
    main = nodes.start("MAIN", WORKER_COUNT="2")
    until(main, "no worker of 2 has joined")
    killed = nodes.start("WORKER", WORKER_COUNT="2", RANK="0")  # the first by its rank
    until(main, "1 of 2 workers have joined")
    killed.kill()
    killed.wait()
    others = [nodes.start("WORKER", WORKER_COUNT="2") for _ in range(2)]
    for process in (main, *others):
        code, out, err = ended(process)
        assert (code, " of 3" in out) == (0, True), err


@pytest.mark.shows("cluster-design/old-configuration")
@pytest.mark.slow
def test_nodes_of_an_earlier_cluster_do_not_join_the_next(nodes: Nodes) -> None:
    persistent = {"EPHEMERAL": "0"}
    old, killed = nodes.start("WORKER", **persistent), nodes.start("MAIN", **persistent)
    until(old, "joined as node 1 of 2")
    killed.kill()
    new, main = nodes.start("WORKER", **persistent), nodes.start("MAIN", **persistent)
    until(new, "joined as node 1 of 2")
    code, _, err = ended(old)  # the heartbeats of the new cluster must not count
    assert (code, "the main node stopped sending heartbeats" in err) == (1, True), err
    Path(nodes.work_dir, "job1", "stop").touch()
    assert [ended(main)[0], ended(new)[0]] == [0, 0]


@pytest.mark.slow
def test_a_failure_in_an_earlier_cluster_does_not_end_the_next(
    nodes: Nodes, tmp_path: Path
) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    old = nodes.start("WORKER", ENTRY_POINT=str(tmp_path / "sleeps.py"))
    killed = nodes.start("MAIN", EPHEMERAL="0")
    assert old.stdout is not None
    program = int(old.stdout.readline())
    killed.kill()
    new, main = nodes.start("WORKER", EPHEMERAL="0"), nodes.start("MAIN", EPHEMERAL="0")
    until(new, "joined as node 1 of 2")
    # the worker may have noticed the end of its main node, and stopped the program itself
    with suppress(ProcessLookupError):
        os.kill(program, signal.SIGKILL)
    assert ended(old)[0] in (137, 1)
    stop = Path(nodes.work_dir, "job1", "stop")
    assert not stop.exists()
    stop.write_text("enough for today")
    for process in (main, new):
        code, _, err = ended(process)
        assert (code, "enough for today" in err) == (0, True), err


# --- output


def test_output_can_go_to_a_socket(nodes: Nodes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        main = nodes.start("MAIN", WORKER_COUNT="0", output=theirs)
        assert main.wait(200) == 0
        theirs.close()
        assert b"rank 0 of 1" in ours.makefile("rb").read()


def test_a_file_gets_all_output(nodes: Nodes, tmp_path: Path) -> None:
    with open(tmp_path / "output", "w") as file:
        main = nodes.start("MAIN", WORKER_COUNT="0", output=file)
        assert main.wait(200) == 0
    output = (tmp_path / "output").read_text().splitlines()
    # another program on this machine may use the default port
    address, joined, *printed, end = [line for line in output if "is in use here" not in line]
    assert "main node at" in address
    assert joined.endswith("all 1 nodes have joined")
    assert printed == ["rank 0 of 1", "job job1"]
    assert end.endswith("the program has ended: exit code 0")


def test_the_secret_is_private(nodes: Nodes) -> None:
    assert ended(nodes.start("MAIN", WORKER_COUNT="0"))[0] == 0
    folder = Path(nodes.work_dir, "job1")
    assert "token" in json.loads((folder / "cluster.json").read_text())
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.shows("cluster-design/parameter-work-dir")
def test_a_work_dir_with_an_unknown_protocol_is_refused(nodes_at: NodesOf) -> None:
    code, _, err = ended(nodes_at("foo://there").start("MAIN"))
    assert code == 2
    assert "WORK_DIR" in err and "foo" in err and "Traceback" not in err


# --- stop files


@pytest.mark.shows("cluster-design/teardown-stop-file")
def test_a_stop_file_ends_a_cluster_at_once(nodes: Nodes) -> None:
    worker = nodes.start("WORKER", EPHEMERAL="0")
    main = nodes.start("MAIN", EPHEMERAL="0")
    until(main, "all 2 nodes have joined")
    why = Path(nodes.work_dir, "job1", "why")
    why.write_text("enough for today")
    why.rename(why.with_name("stop"))  # as a whole: an empty stop file stops the cluster, too
    code, _, err = ended(main)
    assert (code, "enough for today" in err) == (0, True), err
    code, _, err = ended(worker)
    assert (code, "enough for today" in err) == (0, True), err


@pytest.mark.shows("cluster-design/teardown-stop-file")
def test_a_stop_file_ends_nodes_that_wait(nodes: Nodes) -> None:
    main = nodes.start("MAIN")
    until(main, "no worker of 1 has joined")
    Path(nodes.work_dir, "job1", "stop").touch()
    code, _, err = ended(main)
    assert code == 0
    assert "a stop file was found" in err


@pytest.mark.shows("cluster-design/parameter-ephemeral", "cluster-design/teardown-ttl")
def test_the_time_to_live_ends_a_persistent_cluster(nodes: Nodes) -> None:
    worker = nodes.start("WORKER", EPHEMERAL="0")
    main = nodes.start("MAIN", EPHEMERAL="0", TTL="1s")
    code, _, err = ended(main)
    assert (code, "its time to live of 1 s is over" in err) == (0, True), err
    code, _, err = ended(worker)
    assert (code, "time to live" in err) == (0, True), err


@pytest.mark.shows("cluster-design/teardown-worker-timeout")
def test_a_worker_waits_for_a_main_node_until_its_timeout(nodes: Nodes) -> None:
    code, _, err = ended(nodes.start("WORKER", TIMEOUT="0.5"))
    assert code == 4
    assert "waited 0.5 s" in err and "no main node has written it" in err


@pytest.mark.shows("cluster-design/teardown-not-ready")
def test_all_nodes_report_how_many_workers_are_missing(nodes: Nodes) -> None:
    worker = nodes.start("WORKER", WORKER_COUNT="2")
    until(worker, "waiting for the main node")
    main = nodes.start("MAIN", WORKER_COUNT="2", TIMEOUT="1", FIRST="WORKER_*_config.json")
    code, _, err = ended(main)
    assert code == 4
    assert "not ready after 1 s: 1 of 2 workers have joined" in err
    code, _, err = ended(worker)
    assert code == 1
    assert "1 of 2 workers have joined" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_terminated_main_node_ends_waiting_workers(nodes: Nodes, number: int) -> None:
    worker = nodes.start("WORKER", EPHEMERAL="0", WORKER_COUNT="2")
    main = nodes.start("MAIN", WORKER_COUNT="2", EPHEMERAL="0")
    until(main, "1 of 2 workers have joined")
    main.send_signal(number)
    assert ended(main)[0] != 0
    assert ended(worker)[0] == 1


@pytest.mark.slow
def test_a_killed_main_node_is_detected(nodes: Nodes) -> None:
    worker = nodes.start("WORKER", EPHEMERAL="0")
    main = nodes.start("MAIN", EPHEMERAL="0")
    until(worker, "joined as node 1 of 2")
    main.kill()
    code, _, err = ended(worker)
    assert (code, "the main node stopped sending heartbeats" in err) == (1, True), err


# --- on an object store


class Bucket:
    """A new bucket in a new store, for the nodes of one test."""

    def __init__(self, late: float) -> None:
        self.store = ObjectStore(late)
        where = self.store.environ["FSSPEC_S3_ENDPOINT_URL"]
        self.fs = fsspec.filesystem("s3", key="test", secret="test", endpoint_url=where)
        # the store keeps its buckets until this process ends
        self.name = f"bucket-{secrets.token_hex(4)}"
        self.fs.mkdir(self.name)
        self.folder = f"{self.name}/clusters/job1"


@pytest.fixture
def bucket(request: pytest.FixtureRequest) -> Iterator[Bucket]:
    made = Bucket(getattr(request, "param", 0.0))
    yield made
    made.store.close()


@pytest.mark.shows("cluster-design/example-work-dir", "cluster-design/parameter-work-dir")
@pytest.mark.parametrize("bucket", [0.0, pytest.param(3.0, marks=pytest.mark.slow)], indirect=True)
def test_a_cluster_over_an_object_store(nodes_at: NodesOf, bucket: Bucket) -> None:
    """The parameter is the number of seconds until a new object is listed."""
    nodes = nodes_at(f"s3://{bucket.name}/clusters", bucket.store.environ)
    others = [nodes.start("WORKER", WORKER_COUNT="2") for _ in range(2)]
    main = nodes.start("MAIN", WORKER_COUNT="2")
    code, out, err = ended(main)
    assert (code, out.splitlines()[0]) == (0, "rank 0 of 3"), err
    assert [ended(other)[0] for other in others] == [0, 0]
    assert json.loads(bucket.fs.cat_file(f"{bucket.folder}/stop"))["failed"] is False


@pytest.mark.slow
@pytest.mark.shows("cluster-design/teardown-stop-file")
def test_an_empty_object_as_stop_file_ends_a_cluster(nodes_at: NodesOf, bucket: Bucket) -> None:
    nodes = nodes_at(f"s3://{bucket.name}/clusters", bucket.store.environ)
    worker, main = nodes.start("WORKER", EPHEMERAL="0"), nodes.start("MAIN", EPHEMERAL="0")
    until(main, "all 2 nodes have joined")
    until(worker, "joined as node 1 of 2")
    bucket.fs.touch(f"{bucket.folder}/stop")
    for process in (main, worker):
        code, _, err = ended(process)
        assert (code, "a stop file was found" in err) == (0, True), err


@pytest.mark.shows("cluster-design/teardown-ttl")
def test_the_time_to_live_ends_even_if_the_store_fails(nodes_at: NodesOf, bucket: Bucket) -> None:
    nodes = nodes_at(f"s3://{bucket.name}/clusters", bucket.store.environ)
    main = nodes.start("MAIN", WORKER_COUNT="0", EPHEMERAL="0", TTL="3s")
    until(main, "all 1 nodes have joined")
    for method in ("GET", "PUT"):
        bucket.store.refuse(method, ".json", 1000)
    bucket.store.refuse("GET", "/stop", 1000)
    until(main, "its time to live of 3 s is over")
    for method in ("GET", "PUT"):
        bucket.store.refuse(method, ".json", 0)
    bucket.store.refuse("GET", "/stop", 0)
    assert ended(main)[0] == 0


@pytest.mark.slow
def test_operations_on_the_store_are_retried(nodes_at: NodesOf, bucket: Bucket) -> None:
    """Whichever file is being read, written or deleted."""
    operations = [
        ("PUT", "/cluster.json"),
        ("DELETE", "_config.json"),
        ("PUT", "_end.json"),
        ("GET", "_end.json"),
        ("PUT", "/stop"),
    ]
    for method, ending in operations:
        bucket.store.refuse(method, ending, 1 if method == "DELETE" else 2)
    nodes = nodes_at(f"s3://{bucket.name}/clusters", bucket.store.environ)
    worker, main = nodes.start("WORKER", EXIT_1="9"), nodes.start("MAIN")
    code, _, err = ended(main)
    assert (code, "exit code 9" in err) == (1, True), err
    code, _, err = ended(worker)
    assert code in (1, 9), err
    assert bucket.store.refusing == []
    stop = json.loads(bucket.fs.cat_file(f"{bucket.folder}/stop"))
    assert stop["failed"] is True
