"""Cancels, kills and errors at the worst moments."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import muster
from muster.client.client import Client, overrides_from
from muster.client.run import JobRun
from muster.control import force, run_lock
from muster.control.force import end_supervisor
from muster.errors import EngineError, NotAnswering
from muster.node.processes import children
from muster.storage import wakeup
from support.embedded import embedded
from support.runs import supervisor_pid, until_any_ready, until_ready, until_state


def start(client: Client, *command: str, **overrides: Any) -> JobRun:
    job, new = client.job(None, command=list(command))
    return client.start(client.prepare_run(job, overrides_from(overrides), new_job=new))


def test_cancel_while_a_mount_is_being_copied_in(client: Client) -> None:
    """The server accepts the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ftp://127.0.0.1:{silent.getsockname()[1]}/x"
        run = start(client, "true", mounts=[{"source": url}])
        with silent.accept()[0]:
            assert run.refresh().state == "ACCEPTED"
            run.cancel("enough").wait(60)
    assert (run.state, run.details) == ("CANCELED", "enough")
    states = [e.data["state"] for e in embedded(client).events(run.id) if e.kind == "run"]
    assert states[-1] == "CANCELED", "nothing follows a final state"


@pytest.mark.parametrize("isolation", ["namespaces", pytest.param("plain", marks=pytest.mark.slow)])
def test_programs_can_make_sockets_if_the_path_of_the_home_is_long(
    tmp_path: Path, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's multiprocessing creates sockets in TMPDIR; a socket's path has at most 107 bytes."""
    monkeypatch.setenv("MUSTER_ISOLATION", isolation)
    program = (
        "import multiprocessing as m, os, tempfile as t; m.set_start_method('forkserver');"
        "p = m.Process(target=print, args=('served', t.gettempdir() == os.environ['TMPDIR']));"
        "p.start(); p.join(); open(os.environ['TMPDIR'] + '/kept', 'w')"
    )
    client = Client(tmp_path / ("far-down-" * 10))
    try:
        run = start(client, sys.executable, "-c", program).wait(60)
        assert run.state == "SUCCEEDED", run.details
        assert [record.message for record in run.logs(streams=["stdout", "stderr"])] == [
            "served True"
        ]
        temporary = embedded(client).home.run_dir(run.id).node(0) / "tmp"
        assert not temporary.is_symlink()
    finally:
        embedded(client).close()


@pytest.mark.shows("distributed-jobs/capability-cancel")
@pytest.mark.parametrize("isolation", ["namespaces", pytest.param("plain", marks=pytest.mark.slow)])
def test_no_program_starts_after_a_cancel(
    client: Client, tmp_path: Path, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if the cancel arrives while the code is being unpacked."""
    monkeypatch.setenv("MUSTER_ISOLATION", isolation)
    code = tmp_path / "code"
    code.mkdir()
    for number in range(3000):
        (code / f"{number}.txt").write_text("x")
    program = "import os\nopen(os.environ['RAN'] + os.environ['MUSTER_RUN_ID'], 'w')\n"
    (code / "main.py").write_text(program)
    run, node = stopped_halfway(client, code, f"{tmp_path}/ran-")
    run.cancel()
    until_state(run, "CANCELING")
    continue_processes(node)
    assert run.wait(60).state == "CANCELED"
    assert not (tmp_path / f"ran-{run.id}").exists()


def stopped_halfway(client: Client, code: Path, ran: str) -> tuple[JobRun, list[int]]:
    """A run whose node was stopped while its code was being unpacked, and the node's processes.
    Before it, runs may have been started whose code was there already."""
    files = len(os.listdir(code))
    while True:
        job, new = client.job(code, entrypoint="main.py", env={"RAN": ran})
        run = client.start(client.prepare_run(job, new_job=new))
        work = embedded(client).home.run_dir(run.id).work(0)
        while not work.exists():
            assert not run.refresh().done
        node = [*children(supervisor_pid(client, run))]
        for pid in node:
            os.kill(pid, signal.SIGSTOP)
        if len(os.listdir(work)) < files:
            return run, node
        continue_processes(node)
        run.wait(60)


def continue_processes(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it was killed
            os.kill(pid, signal.SIGCONT)


def test_all_waiting_commands_see_the_end_of_a_killed_run(
    client: Client, alive: Callable[[str], list[str]]
) -> None:
    run = start(client, "sleep", "1000")
    until_ready(run)  # a node that had not started would be started again
    argv = [sys.executable, "-m", "muster", "runs", "wait", run.id]
    waiting = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(5)]
    os.kill(supervisor_pid(client, run), signal.SIGKILL)
    output = [process.communicate(timeout=60)[0] for process in waiting]
    assert output == [f"{run.name} FAILED\n"] * 5


def test_the_next_supervisor_carries_out_a_pending_cancel(client: Client) -> None:
    run = start(client, "sleep", "1000")
    pid = supervisor_pid(client, run)
    until_ready(run)
    os.kill(pid, signal.SIGSTOP)
    embedded(client).store.runs.request(run.id, "cancel", "enough", time.time())
    os.kill(pid, signal.SIGKILL)
    assert run.wait(60).state == "CANCELED"
    assert run.details == "enough"


@pytest.mark.embedded("the server has its own launcher")
@pytest.mark.usefixtures("own_launcher")
def test_a_killed_launcher_is_replaced(client: Client) -> None:
    start(client, "true").wait(60)
    launcher = embedded(client).context.backend._launcher
    assert launcher is not None
    os.kill(launcher._pid, signal.SIGKILL)
    with pytest.raises(muster.MusterError, match="cannot start a supervisor"):
        start(client, "true")
    assert client.run("last").state == "FAILED", "the run has failed at once"
    assert start(client, "true").wait(60).state == "SUCCEEDED"


def test_standard_streams_may_be_closed() -> None:
    shell = f"{sys.executable} -m muster run -- true <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", shell], check=False).returncode == 0
    assert muster.get_run("last").wait(60).state == "SUCCEEDED"


@pytest.mark.embedded("mounts a directory of this machine")
def test_output_that_cannot_be_written_back_fails_the_run(client: Client, tmp_path: Path) -> None:
    """Even that of a node that was stopped because it only served the others."""
    remote, go, spec = tmp_path / "remote", tmp_path / "go", tmp_path / "a.yaml"
    remote.mkdir()
    work = f"echo x > $MUSTER_MOUNT_REMOTE/x; until [ -e {go} ]; do sleep 0.01; done"
    spec.write_text(
        "node_groups:\n"
        f"  - {{name: worker, command: [sh, -c, '{work}']}}\n"
        "  - {name: server, command: sleep 1000, min_success: 0}\n"
        f"mounts: [{{source: 'file://{remote}'}}]\n"
    )
    job, new = client.job(spec)
    run = client.start(client.prepare_run(job, new_job=new))
    until_any_ready(run)
    remote.rmdir()
    remote.write_text("a file, not a folder")
    go.touch()
    assert run.wait(60).state == "FAILED"
    assert "wrote could not be copied back" in run.details


def test_isolated_without_namespaces_is_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    job, new = client.job(None, command=["true"], network="isolated")
    with pytest.raises(muster.InvalidInput, match="isolated is not possible here"):
        client.prepare_run(job, new_job=new)


@pytest.mark.parametrize("where", ["/etc", "/usr", "HOME", "PARENT"])
def test_mounts_over_required_paths_are_refused(client: Client, where: str) -> None:
    root = embedded(client).home.root
    path = {"HOME": str(root), "PARENT": str(root.parent)}.get(where, where)
    with pytest.raises(muster.InvalidInput, match="it would hide"):
        start(client, "true", mounts=[{"source": "/tmp", "path": path}])


@pytest.mark.embedded("mounts a directory of this machine")
def test_ineffective_settings_are_reported_as_notes(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    run = start(
        client,
        "true",
        env={"NODE_RANK": "7", "MINE": "1"},
        mounts=[{"source": "/tmp", "path": "x", "read_only": True}],
    )
    assert run.notes == [
        "group workers: NODE_RANK is set by Muster, not by the job",
        "/mnt/x is not read-only: without namespaces nodes see the folder itself",
    ]
    assert run.wait(60).state == "SUCCEEDED"


def test_a_shape_larger_than_the_machine_runs_with_a_note(client: Client) -> None:
    run = start(client, "true", shape="VM.GPU.A10.1").wait(60)
    assert run.state == "SUCCEEDED", run.details
    assert "shape VM.GPU.A10.1 is larger than this machine" in run.notes[0]


def test_too_little_memory_is_refused(client: Client) -> None:
    with pytest.raises(muster.InvalidInput, match=r"10 bytes are too few .*did you mean 10GiB"):
        start(client, "true", resources={"memory": 10})


def test_logs_refuse_unknown_ranks_groups_and_streams(client: Client) -> None:
    run = start(client, "true").wait(60)
    with pytest.raises(muster.InvalidInput) as caught:
        run.logs(ranks=[9], groups=["x"], streams=["y"], tail=-1)
    assert [p.path for p in caught.value.problems] == ["rank", "group", "stream", "tail"]


def test_a_text_command_is_split_like_a_command_line() -> None:
    assert [
        r.message
        for r in muster.run(command="echo 'a b'").wait(60).logs(streams=["stdout", "stderr"])
    ] == ["a b"]


@pytest.mark.shows("jobs/edit-shape")
def test_running_the_file_of_an_edited_job_runs_the_edited_job(
    client: Client, tmp_path: Path
) -> None:
    spec = tmp_path / "a.yaml"
    spec.write_text("command: true\n")
    muster.run(spec).wait(60)
    muster.get_job("a").edit("resources.cpus=1")
    again = muster.run(spec).wait(60)
    named = muster.run("a").wait(60)
    for run in (again, named):
        assert run.job_id == muster.get_job("a@1").id
        (requested,) = [s.value for s in run.settings() if s.path.endswith(".resources")]
        assert requested["cpus"] == 1
    assert len(muster.runs(job="a", state="succeeded", limit=5)) == 3


@pytest.mark.embedded("writes to a directory of this machine")
@pytest.mark.shows(
    "distributed-jobs/capability-mounts", "jobs/job-logging-options", "jobs/storage-logs"
)
def test_logs_are_written_to_the_given_folder(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = start(client, "echo", "kept", logging={"directory": "rel"}).wait(60)
    assert run.state == "SUCCEEDED", run.details
    assert run.log_folder() == tmp_path / "rel" / run.id / "0"
    assert (run.log_folder() / "workers-0.out").read_text() == "kept\n"


@pytest.mark.embedded("mounts a directory of this machine")
def test_a_read_only_url_must_exist(client: Client, tmp_path: Path) -> None:
    mount = {"source": f"file://{tmp_path}/nope", "read_only": True}
    run = start(client, "true", mounts=[mount]).wait(60)
    assert run.state == "FAILED"
    assert "could not be started" in run.details
    log = embedded(client).home.run_dir(run.id).supervisor_log
    assert "no files found" in log.read_text()


# --- a supervisor that does not answer


@pytest.fixture(params=["namespaces", pytest.param("plain", marks=pytest.mark.slow)])
def stopped(
    request: pytest.FixtureRequest, client: Client, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[JobRun, int]]:
    """A run whose supervisor was stopped with SIGSTOP, and the pid of the supervisor."""
    if request.param == "plain":
        monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    run = start(client, "sh", "-c", f"sleep 1000 & MARK={os.urandom(8).hex()} exec sleep 1000")
    until_ready(run)
    pid = supervisor_pid(client, run)
    os.kill(pid, signal.SIGSTOP)
    yield run, pid
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def test_a_cancel_warns_that_the_supervisor_does_not_answer(stopped: tuple[JobRun, int]) -> None:
    run, pid = stopped
    text = rf"supervisor of {run.name} \(process {pid}\) is stopped; `kill -CONT {pid}`"
    with pytest.raises(NotAnswering, match=text):  # a warning is an error in tests
        run.cancel().wait(60)
    os.kill(pid, signal.SIGCONT)
    assert run.wait(60).state == "CANCELED", "the supervisor continued"


@pytest.mark.parametrize(
    "words", ["runs suspend", "runs wait", "logs -f", "events -f", "runs cancel"]
)
def test_waiting_commands_warn_that_the_supervisor_does_not_answer(
    stopped: tuple[JobRun, int], words: str
) -> None:
    run, pid = stopped
    argv = [sys.executable, "-m", "muster", *words.split(), run.name]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        output = waiting.stderr.readline()
        assert output.startswith(
            f"warning: the supervisor of {run.name} (process {pid}) is stopped"
        )
        assert output.endswith(f"`muster cancel --force {run.name}` ends the run without it\n")
        forced = [
            sys.executable,
            "-m",
            "muster",
            *output.split("`muster ")[1].split("`")[0].split(),
        ]
        done = subprocess.run(forced, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, f"{run.name} is CANCELED\n"), done.stderr
        waiting.wait(60)


@pytest.mark.shows("distributed-jobs/capability-cancel", "jobs/cancel-deprovisions")
def test_a_forced_cancel_ends_every_process(
    stopped: tuple[JobRun, int], client: Client, alive: Callable[[str], list[str]]
) -> None:
    run, pid = stopped
    for agent in children(pid):  # as if its whole process group had been stopped
        os.kill(agent, signal.SIGSTOP)
    assert run.cancel(force=True).wait(60).state == "CANCELED"
    assert run.details == "canceled by user"
    assert alive(run.id) == []
    assert run.cancel(force=True).wait(60).state == "CANCELED", "a second cancel has no effect"


def test_a_supervisor_that_survives_sigkill_is_reported_and_continues(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(client, "sleep", "1000")
    until_ready(run)
    with monkeypatch.context() as patched:
        patched.setattr(force, "_KILL_TIMEOUT", 0.0)
        patched.setattr(os, "kill", lambda pid, number: None)
        with pytest.raises(EngineError, match="was killed but has not ended"):
            end_supervisor(embedded(client).home.run_dir(run.id), run.name)
    run.cancel("enough")
    assert run.wait(60).state == "CANCELED"


def test_a_forced_cancel_kills_only_the_supervisor_of_the_run(client: Client) -> None:
    """The recorded pid belongs to another process by now."""
    run = start(client, "true").wait(60)
    folder = embedded(client).home.run_dir(run.id)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        held = run_lock.acquire_or_refuse(folder, run.name)
        os.pwrite(held, b"%-9d\n" % other.pid, 0)
        assert run_lock.holder_pid(folder.lock) is None
        with pytest.raises(EngineError, match="cannot find the supervisor of"):
            end_supervisor(folder, run.name)
        os.close(held)
        end_supervisor(folder, run.name)
        assert other.poll() is None


def test_a_supervisor_drains_many_notifications(client: Client) -> None:
    run = start(client, "sleep", "1000")
    until_ready(run)
    path = embedded(client).home.run_dir(run.id).wakeup
    for _ in range(100):
        wakeup.notify(path)
    while wakeup.pending(path):
        assert not run.refresh().done
    assert not wakeup.pending(path.with_name("missing"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_cancel_while_an_export_is_being_mounted(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is unreachable, so that `mount` does not return."""
    waiting = tmp_path / "waiting"
    mount = tmp_path / "bin" / "mount"
    mount.parent.mkdir()
    mount.write_text(f"#!/bin/sh\ntouch {waiting}\nexec sleep 1000\n")
    mount.chmod(0o755)
    monkeypatch.setenv("PATH", f"{mount.parent}:{os.environ['PATH']}")
    run = start(client, "true", mounts=[{"source": "away:/export"}])
    while not waiting.exists():
        assert not run.refresh().done, run.details
    run.cancel("enough").wait(60)
    assert (run.state, run.details) == ("CANCELED", "enough")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_an_export_that_cannot_be_mounted_fails_the_run(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount = tmp_path / "mount"
    mount.write_text("#!/bin/sh\necho no such host >&2\nexit 32\n")
    mount.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    run = start(client, "true", mounts=[{"source": "away:/export"}]).wait(60)
    assert run.state == "FAILED"
    assert "cannot mount away:/export (its error is in the run's supervisor.log)" in run.details
    assert "no such host" in embedded(client).home.run_dir(run.id).supervisor_log.read_text()


# --- refused requests


def test_suspending_a_run_that_has_ended_is_refused(client: Client) -> None:
    ended = start(client, "true").wait(60)
    with pytest.raises(muster.InvalidInput, match="has ended: it is SUCCEEDED, and cannot be"):
        ended.suspend()
    canceled = start(client, "sleep", "1000")
    canceled.cancel()
    with pytest.raises(muster.InvalidInput, match="cannot be suspended"):
        canceled.suspend()
    canceled.wait(60)
    running = start(client, "sleep", "1000")
    argv = [
        sys.executable,
        "-m",
        "muster",
        "runs",
        "suspend",
        running.name,
        ended.name,
        canceled.name,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert [line.split()[1] for line in done.stderr.splitlines()] == [ended.name, canceled.name]
    assert not [e for e in running.events() if e.kind == "suspend_requested"], (
        "one refused run refuses all"
    )


def test_repeated_requests_have_no_further_effect(client: Client) -> None:
    run = start(client, "sleep", "1000")
    until_ready(run)
    for _ in range(2):
        assert run.suspend().wait(60).state == "SUSPENDED"
    for _ in range(2):
        assert run.cancel().wait(60).state == "CANCELED"
    for refused in (run.suspend, run.resume, lambda: run.scale("workers", 0)):
        with pytest.raises(muster.InvalidInput, match="is CANCELED"):
            refused()
