"""Runs that a program starts soon after one another share a supervisor, and nothing else."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.control import run_lock, shared_supervisor
from muster.control.recover import SUPERVISOR_KILLED
from muster.control.shared_supervisor import SharedSupervisor, supervise_handed
from muster.engines.local.namespaces import probe
from muster.engines.registry import local_engine
from muster.node.processes import state_of
from muster.storage.liveness import wait_for_process
from support.embedded import embedded
from support.faults import until
from support.runs import output, output_of_success, until_ready

pytestmark = [
    pytest.mark.usefixtures("own_launcher"),
    pytest.mark.skipif(bool(probe()), reason="needs namespaces"),
]


@pytest.fixture
def patient_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher that keeps a supervisor for the next run, however late the test starts that."""
    real = os.posix_spawn
    keep = "from muster.control.launcher import _SharedSupervisors as s; s.LINGER = 3600.0"

    def posix_spawn(path: str, argv: list[str], *more: Any, **options: Any) -> int:
        *words, code = argv
        if "serve_on(" in code:
            code = code.replace("; serve_on(", f"; {keep}; serve_on(")
        return real(path, [*words, code], *more, **options)

    monkeypatch.setattr(os, "posix_spawn", posix_spawn)


def start(client: Client, *command: str, **fields: Any) -> JobRun:
    job, new = client.job(None, command=list(command), **fields)
    return client.start(client.prepare_run(job, new_job=new))


def supervisor(client: Client, run: JobRun) -> int:
    pid = run_lock.holder_pid(embedded(client).home.run_dir(run.id).lock)
    assert pid is not None
    return pid


def sleeping(client: Client, *fields: dict[str, Any]) -> list[JobRun]:
    """Runs in progress with one supervisor; the fields of each."""
    runs = [start(client, "sleep", "1000", **given) for given in fields]
    for run in runs:
        until_ready(run)
    assert len({supervisor(client, run) for run in runs}) == 1
    return runs


def until_output(run: JobRun, text: str) -> None:
    assert text in (line.message for line in run.logs(follow=True))


@pytest.mark.usefixtures("patient_launcher")
def test_each_run_has_its_own_end(client: Client) -> None:
    first, *others = sleeping(client, *[{}] * 3)
    pid = supervisor(client, first)
    failing = start(client, "sh", "-c", "echo why >&2; exit 3")
    assert failing.wait(60).exit_code == 3
    assert "why" in failing.details
    first.cancel("enough")
    assert first.wait(60).state == "CANCELED"
    lock = embedded(client).home.run_dir(first.id).lock
    until(lambda: not run_lock.is_held(lock), "its lock is free", pause=0.005)
    others[0].suspend()
    assert others[0].wait(60).state == "SUSPENDED"
    assert others[1].refresh().state == "IN_PROGRESS"
    assert supervisor(client, others[1]) == pid
    others[0].resume()
    until_ready(others[0])
    assert supervisor(client, others[0]) != pid


def test_the_supervisor_ends_with_its_last_run(client: Client) -> None:
    """Also while the program that started them continues: it is kept for a moment only."""
    runs = [start(client, "sleep", "1000") for _ in range(2)]
    for run in runs:
        until_ready(run)
    pids = {supervisor(client, run) for run in runs}  # two, if the second was started late
    for run in runs:
        run.cancel("enough")
        run.wait(60)
    for pid in pids:
        wait_for_process(pid, 60)
        assert state_of(pid) in ("", "Z")


@pytest.mark.usefixtures("patient_launcher")
def test_runs_continue_when_the_program_ends(client: Client) -> None:
    run, _ = sleeping(client, *[{}] * 2)
    embedded(client).close()  # with the launcher
    other = Client(embedded(client).home.root)
    assert run_lock.is_held(embedded(other).home.run_dir(run.id).lock)
    assert other.run(run.id).state == "IN_PROGRESS"


@pytest.mark.usefixtures("patient_launcher")
def test_a_killed_supervisor_loses_no_run(client: Client) -> None:
    """Each is recovered by its own policy, and nothing of it is left."""
    restarting: dict[str, Any] = {"failure": {"max_restarts": 3}}
    runs = sleeping(client, restarting, {}, restarting, {})
    restarted, failed = runs[::2], runs[1::2]
    pid = supervisor(client, failed[0])
    done = start(client, "true").wait(60)
    os.kill(pid, signal.SIGKILL)
    for run in failed:
        assert run.wait(60).state == "FAILED"
        assert SUPERVISOR_KILLED in run.details
    for run in restarted:
        assert "supervisor_lost" in (event.kind for event in run.events(follow=True))
        until_ready(run)
        assert supervisor(client, run) != pid
        assert run.refresh().attempt == 1
    assert done.refresh().state == "SUCCEEDED"


@pytest.mark.usefixtures("patient_launcher")
def test_a_hanging_supervisor_is_killed_for_one_run_and_the_others_are_recovered(
    client: Client,
) -> None:
    hanging, other = sleeping(client, {}, {"failure": {"max_restarts": 1}})
    pid = supervisor(client, hanging)
    os.kill(pid, signal.SIGSTOP)
    assert hanging.cancel("it hangs", force=True).wait(60).state == "CANCELED"
    assert "supervisor_lost" in (event.kind for event in other.events(follow=True))
    until_ready(other)
    assert supervisor(client, other) != pid


@pytest.mark.usefixtures("patient_launcher")
def test_a_terminated_supervisor_hands_over_each_run(client: Client) -> None:
    saving = ["sh", "-c", "trap 'echo saved; exit 0' TERM; echo up; sleep 1000 & wait"]
    runs = [start(client, *saving, failure={"max_restarts": 1}) for _ in range(3)]
    for run in runs:
        until_output(run, "up")
    pid = supervisor(client, runs[0])
    assert {supervisor(client, run) for run in runs} == {pid}
    os.kill(pid, signal.SIGTERM)
    wait_for_process(pid, 60)
    for run in runs:
        kinds = [event.kind for event in run.events()]
        assert kinds.count("handed_over") == 1
        # the next command continues all of them: the second attempt may have begun
        assert "saved" in (line.message for line in run.logs(attempt=0))
        until_ready(run)
    later = start(client, "true")
    assert later.wait(60).state == "SUCCEEDED"


@pytest.mark.usefixtures("patient_launcher")
def test_a_broken_run_does_not_end_the_others(client: Client) -> None:
    broken, other = sleeping(client, *[{}] * 2)
    pid = supervisor(client, other)
    folder = embedded(client).home.run_dir(broken.id).path
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
    assert broken.wait(60).state == "FAILED"
    assert "was deleted" in broken.details
    assert other.refresh().state == "IN_PROGRESS"
    assert supervisor(client, other) == pid


def test_a_run_that_cannot_begin_does_not_end_the_others(client: Client) -> None:
    """Its nodes' file cannot be written."""
    (other,) = sleeping(client, {})
    job, new = client.job(None, command=["true"])
    prepared = client.prepare_run(job, new_job=new)
    folder = embedded(client).home.run_dir(prepared.plan.run_id)
    (folder.path / "hosts").mkdir(parents=True)
    broken = client.start(prepared).wait(60)
    assert broken.state == "FAILED"
    assert str(folder.path / "hosts") in broken.details
    assert "Traceback" in folder.supervisor_log.read_text()
    assert other.refresh().state == "IN_PROGRESS"
    assert start(client, "true").wait(60).state == "SUCCEEDED"


@pytest.mark.parametrize(
    "fields", [{"nodes": 5}, {"network": "isolated"}, {"resources": {"memory": "64 MiB"}}]
)
def test_some_runs_have_a_supervisor_for_themselves(client: Client, fields: dict[str, Any]) -> None:
    (shared,) = sleeping(client, {})
    own = start(client, "sleep", "1000", **fields)
    until_ready(own)
    assert supervisor(client, own) != supervisor(client, shared)


def test_nodes_of_different_runs_do_not_see_each_other(client: Client) -> None:
    marked = ["sh", "-c", "touch /dev/shm/mark && echo up && exec sleep 1000"]
    first = start(client, *marked)
    until_output(first, "up")
    script = "ls /dev/shm /home/datascience; echo $$ $(ls -d /proc/[0-9]* | wc -l)"
    second = start(client, "sh", "-c", script).wait(60)
    lines = output(second)
    assert "mark" not in lines
    assert int(lines[-1].split()[1]) < 6  # processes
    for run in (first, second):
        assert run.refresh().exit_code in (None, 0)


@pytest.mark.skipif(os.path.lexists("/home/datascience"), reason="this machine has the folder")
def test_each_run_has_its_metadata_file(client: Client) -> None:
    script = "cat $CLUSTER_NODES_METADATA_FILE; echo; echo $CLUSTER_NODES_METADATA_FILE"
    runs = [start(client, "sh", "-c", script) for _ in range(2)]
    for run in runs:
        lines = output_of_success(run)
        assert any(run.id in line for line in lines)
        assert lines[-1] == "/home/datascience/job_run_cluster_metadata.json"


def test_plain_processes_are_not_shared(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing there tells the children of one run from those of another."""
    monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    runs = [start(client, "sleep", "1000") for _ in range(2)]
    for run in runs:
        until_ready(run)
    assert len({supervisor(client, run) for run in runs}) == 2


def test_an_engine_knows_whether_its_process_was_prepared() -> None:
    assert not local_engine().may_share()


@pytest.mark.usefixtures("patient_launcher")
def test_a_run_opens_no_more_files_than_were_reckoned_with(client: Client) -> None:
    """With the most nodes that a run in a shared supervisor has."""

    def files(runs: int) -> int:
        for _ in range(runs):
            until_ready(start(client, "sleep", "1000", nodes=4))
        (pid,) = {supervisor(client, run) for run in client.runs()}
        return len(os.listdir(f"/proc/{pid}/fd"))

    with_one = files(1)
    with_three = files(2)
    assert (with_three - with_one) / 2 <= shared_supervisor._FILES_OF_RUN
    assert with_one <= shared_supervisor._FILES_OF_RUN + shared_supervisor._OTHER_FILES


class Ended:
    """A run whose outcome may fail to be recorded."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.calls: list[str] = []

    def fail(self, error: Exception) -> None:
        self.calls.append(f"fail: {error}")

    def conclude(self) -> None:
        self.calls.append("conclude")
        if self.fault:
            raise OSError(self.fault)

    def release(self) -> None:
        self.calls.append("release")


def test_a_fault_of_the_loop_ends_each_run(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those after one that cannot be concluded."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    before = signal.getsignal(signal.SIGTERM)
    handed = shared_supervisor._HandedRuns(embedded(client).home, local_engine(), theirs)
    signal.signal(signal.SIGTERM, before)
    runs = [Ended("the disk is full"), Ended("")]
    handed._runs = [*runs]  # type: ignore[list-item]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError, match="of the loop"):
        patch.setattr(handed._loop, "run_once", raise_error)
        handed.drive()
    assert [run.calls for run in runs] == [["fail: of the loop", "conclude", "release"]] * 2
    assert "the disk is full" in capsys.readouterr().err
    handed._loop.close()
    handed._store.close()
    for end in (ours, theirs):
        end.close()


def raise_error() -> None:
    raise RuntimeError("of the loop")


# --- the launcher's end


@pytest.fixture
def ends() -> Iterator[tuple[SharedSupervisor, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    shared = SharedSupervisor(("home", "local"), 1, ours)
    with theirs:
        yield shared, theirs
        shared.close()


def test_a_busy_supervisor_is_handed_no_more(ends: tuple[SharedSupervisor, socket.socket]) -> None:
    shared, theirs = ends
    waiting = 0
    while shared.hand(b"run", [0, 1]):
        waiting += 1
        assert waiting < 100
    theirs.send(b"b")  # it begins one
    assert shared.hand(b"run", [0, 1])
    assert not shared.hand(b"run", [0, 1])


def handed(shared: SharedSupervisor, theirs: socket.socket, *answers: bytes) -> int:
    """How many runs a supervisor is handed that answers each so."""
    taken = 0
    while shared.hand(b"run", [0, 1]):
        taken += 1
        for answer in answers:
            theirs.send(answer)
        data, held, _, _ = socket.recv_fds(theirs, 100, 2)
        for descriptor in held:
            os.close(descriptor)
        assert (data, len(held)) == (b"run", 2)
    return taken


def test_a_supervisor_has_few_runs_at_a_time(ends: tuple[SharedSupervisor, socket.socket]) -> None:
    shared, theirs = ends
    assert 10 < handed(shared, theirs, b"b") <= 64
    theirs.send(b"e")  # one ends
    assert handed(shared, theirs, b"b") == 1


def test_a_supervisor_has_a_share_of_the_runs(ends: tuple[SharedSupervisor, socket.socket]) -> None:
    assert handed(*ends, b"b", b"e") == 1000


def test_a_supervisor_that_has_ended_is_handed_nothing(
    ends: tuple[SharedSupervisor, socket.socket],
) -> None:
    shared, theirs = ends
    theirs.close()
    assert not shared.hand(b"run", [0, 1])


def test_a_run_whose_descriptors_do_not_arrive_is_left_to_recovery(client: Client) -> None:
    """They are lost at the limit of open files."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    before = signal.getsignal(signal.SIGTERM)
    reading, writing = os.pipe()
    socket.send_fds(ours, [b"{}"], [writing])
    os.close(writing)
    ours.close()
    try:
        supervise_handed(embedded(client).home, local_engine(), theirs)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert os.read(reading, 1) == b"", "nothing holds what did arrive"
    os.close(reading)


def test_a_large_request_is_not_handed(ends: tuple[SharedSupervisor, socket.socket]) -> None:
    shared, _ = ends
    assert not shared.hand(b"x" * (1 << 20), [0, 1])


def test_a_run_with_a_large_environment_starts(client: Client) -> None:
    """It has a supervisor for itself."""
    job, new = client.job(None, command=[sys.executable, "-c", "import os; print(len(os.environ))"])
    environ = {**os.environ, **{f"LARGE_{n}": "x" * 50_000 for n in range(10)}}
    run = client.start(client.prepare_run(job, new_job=new), environ)
    assert run.wait(60).state == "SUCCEEDED"


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1200, reason="few files")
def test_a_program_with_many_open_files_starts_runs(client: Client) -> None:
    """select() refuses descriptors from 1024 on."""
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        for _ in range(2):
            job, new = client.job(command=["true"])
            run = client.start(client.prepare_run(job, new_job=new))
            assert run.wait(60).state == "SUCCEEDED"
    finally:
        for descriptor in held:
            os.close(descriptor)
