"""A run always has a supervisor, or is recovered, until it has ended."""

from __future__ import annotations

import itertools
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.control import run_lock
from muster.control.launcher import Launcher, LauncherClosed
from muster.control.recover import recover
from muster.errors import EXIT_PLATFORM, EngineError, NotRecovered
from muster.identity import new_owner
from muster.service.embedded import EmbeddedAPI
from muster.storage import wakeup
from muster.storage.home import RunDir
from muster.storage.liveness import wait_for_process, watch_liveness
from muster.store.records import Lease, RunStep
from muster.store.run_columns import lifecycle_of
from muster.submission import of_this_process
from support.command import muster
from support.embedded import embedded
from support.runs import supervisor_pid, until_ready, until_state

pytestmark = pytest.mark.usefixtures("own_launcher")


def test_notifications_wake_once(tmp_path: Path) -> None:
    path = tmp_path / "wakeup"
    wakeup.create(path)
    wakeup.notify(path)  # nothing reads the FIFO: no error
    fd = wakeup.open(path)
    assert select.select([fd], [], [], 0)[0] == []
    wakeup.notify(path)
    wakeup.notify(path)
    assert select.select([fd], [], [], 30)[0] == [fd]
    wakeup.drain(fd)
    assert select.select([fd], [], [], 0)[0] == []
    wakeup.drain(fd)
    os.close(fd)


def until_output(run: JobRun, text: str, times: int) -> None:
    """Wait until the nodes together have written a line this many times."""
    found = (line for line in run.logs(follow=True) if line.message == text)
    assert len([*itertools.islice(found, times)]) == times


def start(client: Client, *command: str, **fields: Any) -> str:
    job, new = client.job(None, command=list(command), **fields)
    return client.start(client.prepare_run(job, new_job=new)).id


def test_the_liveness_pipe_closes_when_the_outcome_is_recorded(client: Client) -> None:
    run_id = start(client, "sh", "-c", "while [ ! -e go ]; do sleep 0.005; done")
    service = embedded(client)
    pipe = watch_liveness(service.home, run_id)
    assert pipe is not None
    until_ready(client.run(run_id))  # its folder is created again at its start
    assert select.select([pipe], [], [], 0)[0] == []
    (service.home.run_dir(run_id).work(0) / "go").touch()
    assert select.select([pipe], [], [], 60)[0] == [pipe]
    assert service.store.runs.get(run_id).state == "SUCCEEDED", "the outcome is recorded first"
    os.close(pipe)
    assert watch_liveness(service.home, run_id) is None


def test_a_run_without_a_supervisor_is_recovered_once(client: Client) -> None:
    run_id = start(client, "sleep", "1000")
    service = embedded(client)
    assert recovered(service) == [], "it has a supervisor"
    until_ready(client.run(run_id))  # a node that never started would be started again
    pid = run_lock.last_holder(service.home.run_dir(run_id).lock)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    client.run(run_id).wait(60)
    assert client.run(run_id).state == "FAILED"
    assert recovered(service) == []
    kinds = [(e.kind, e.data.get("state")) for e in service.events(run_id)]
    assert kinds.count(("run", "FAILED")) == 1


def test_a_canceled_run_whose_supervisor_is_killed_is_canceled(client: Client) -> None:
    run_id = start(client, "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.01; done")
    run = client.run(run_id)
    assert next(run.logs(follow=True, streams=["stdout", "stderr"])).message == "up"
    run.cancel("enough")
    until_state(run, "CANCELING")
    pid = run_lock.last_holder(embedded(client).home.run_dir(run_id).lock)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert run.wait(60).state == "CANCELED"
    assert run.details == "enough"


def recovered(service: EmbeddedAPI) -> list[str]:
    """The runs that were recovered."""
    launch = service.context.backend.start_supervisor
    return recover(service.store, service.home, launch)


def without_supervisor(client: Client, **fields: Any) -> tuple[str, RunDir]:
    """A run whose supervisor was killed and which was not recovered yet; and its folder."""
    run_id = start(client, "sleep", "1000", **fields)
    folder = embedded(client).home.run_dir(run_id)
    pid = run_lock.last_holder(folder.lock)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.001)
    return run_id, folder


def test_recovery_reports_a_deleted_folder(client: Client) -> None:
    run_id, folder = without_supervisor(client)
    shutil.rmtree(folder.path)
    service = embedded(client)
    assert recovered(service) == [run_id]
    assert "was deleted while the run was in progress" in client.run(run_id).details


@pytest.mark.parametrize("missing", [True, False])
def test_without_a_liveness_pipe_no_supervisor_is_started(client: Client, missing: bool) -> None:
    """Processes that wait for the run's end could not see it."""
    run_id, folder = without_supervisor(client, failure={"max_restarts": 1})
    if missing:
        folder.liveness_pipe.unlink()
    service = embedded(client)
    launched: list[str] = []

    def launch(own: Lease, engine: str, held: tuple[int, int], environ: object) -> None:
        assert engine == "local"
        launched.append(own.run_id)

    assert recover(service.store, service.home, launch) == [run_id]
    assert launched == ([] if missing else [run_id])


@pytest.mark.parametrize("name", ["life", "lease"])
def test_a_file_of_a_run_replaced_by_a_folder_fails_the_run(client: Client, name: str) -> None:
    run_id, folder = without_supervisor(client)
    path = folder.path / name
    path.unlink()
    path.mkdir()
    run = client.run(run_id).wait(60)
    assert run.state == "FAILED"
    assert f"{name} was replaced by something else" in run.details


@pytest.mark.parametrize("name", ["life", "lease"])
def test_a_file_replaced_while_the_supervisor_runs_is_no_error(client: Client, name: str) -> None:
    run_id = start(client, "sleep", "1000")
    service = embedded(client)
    path = service.home.run_dir(run_id).path / name
    path.rename(path.with_name("kept"))
    path.mkdir()
    assert recovered(service) == []
    path.rmdir()
    path.with_name("kept").rename(path)


def test_a_run_that_cannot_be_prepared_keeps_no_lease(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(wakeup, "create", refuse)
    job, new = client.job(None, command=["true"])
    with pytest.raises(OSError, match="No space left"):
        client.start(client.prepare_run(job, new_job=new))
    (path,) = (embedded(client).home.root / "runs").glob("*/lease")
    assert not run_lock.is_held(path)


def test_an_empty_environment_is_used_as_given(client: Client) -> None:
    os.environ["MUSTER_TEST_OURS"] = "x"
    try:
        job, new = client.job(None, command=["/bin/sh", "-c", "echo ${MUSTER_TEST_OURS-nothing}"])
        prepared = client.prepare_run(job, new_job=new)
        run = client.run(embedded(client).start(prepared, {}).id).wait(60)
    finally:
        del os.environ["MUSTER_TEST_OURS"]
    assert [line.message for line in run.logs(streams=["stdout", "stderr"])] == ["nothing"]


def test_a_run_accepted_by_a_killed_submitter_is_recovered(own_home: Path) -> None:
    """Killed after the record, before the supervisor starts: the next command recovers the run."""
    code = (
        "import os, signal\n"
        "from muster.client.client import Client\n"
        "from muster.control.launcher import Launcher\n"
        "Launcher.start = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "client = Client()\n"
        "job, new = client.job(None, command=['true'])\n"
        "client.start(client.prepare_run(job, new_job=new))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    client = Client(own_home)
    run = client.run("last").wait(60)
    assert run.state == "SUCCEEDED"
    assert (own_home / "runs" / run.id / "nodes" / "0" / "begun").read_text().split() == ["0", "0"]
    embedded(client).close()


TERMINATED = "the run's supervisor received SIGTERM, stopped all nodes and exited"


def terminate_supervisor(
    client: Client, run_id: str, then: Callable[[], None] = lambda: None
) -> None:
    """Send SIGTERM to the supervisor of a run, and wait until it has ended. Nothing may recover the
    run meanwhile. then: is called when the signal was sent."""
    pid = run_lock.last_holder(embedded(client).home.run_dir(run_id).lock)
    assert pid is not None
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGTERM)
    then()
    assert select.select([process], [], [], 60)[0] == [process]
    os.close(process)


def test_a_supervisor_that_is_terminated_leaves_its_run_to_the_next_command(
    client: Client, tmp_path: Path
) -> None:
    program = tmp_path / "program.sh"
    program.write_text(
        "trap 'echo saved; exit 0' TERM\n"
        "if [ $MUSTER_RESTART = 1 ]; then exit 0; fi\n"
        "echo up; while true; do sleep 0.01; done\n"
    )
    policy = {"max_restarts": 1}
    run = client.run(start(client, "sh", str(program), nodes=2, failure=policy))
    until_output(run, "up", 2)
    terminate_supervisor(client, run.id)
    service = embedded(client)
    left = service.store.runs.get(run.id)
    assert left.state == "IN_PROGRESS"
    assert service.store.leases.get(run.id) is not None, "other hosts have to adopt it"
    assert service.store.events.since(run.id)[-1].kind == "handed_over"
    assert run.wait(60).state == "SUCCEEDED"
    lost = [entry for entry in run.events() if entry.kind == "supervisor_lost"]
    assert [entry.data["why"] for entry in lost] == [TERMINATED]
    assert [line.message for line in run.logs(attempt="all")].count("saved") == 2
    assert lifecycle_of(service.store.runs.get(run.id)).handed_over == ""


def test_a_run_without_restarts_fails_when_its_supervisor_was_terminated(client: Client) -> None:
    run = client.run(start(client, "sleep", "1000"))
    until_ready(run)
    terminate_supervisor(client, run.id)
    assert run.wait(60).state == "FAILED"
    assert run.details == f"node-0 (group workers, rank 0) was lost:\n{TERMINATED}"
    assert run.hint == (
        "failure.max_restarts (`--max-restarts 3`) lets the run restart after a shutdown"
    )
    assert sum(TERMINATED in entry.text for entry in run.events()) == 2, "the loss and the end"


def test_a_run_that_is_ending_is_not_handed_over(client: Client, tmp_path: Path) -> None:
    go = tmp_path / "go"
    program = f"trap '' TERM; echo up; until [ -e {go} ]; do sleep 0.01; done"
    run = client.run(start(client, "sh", "-c", program, grace_period=60))
    until_output(run, "up", 1)
    run.cancel()
    until_state(run, "CANCELING")
    terminate_supervisor(client, run.id, then=go.touch)
    assert embedded(client).store.runs.get(run.id).state == "CANCELED"


def test_a_launcher_that_has_ended_starts_no_supervisor(tmp_path: Path) -> None:
    launcher, lease = Launcher.spawn(), Lease.first("x", new_owner())
    os.kill(launcher._pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="cannot start a supervisor: the process that starts"):
        launcher.start(tmp_path, lease, "local", (0, 0), of_this_process())
    assert launcher.closed
    with pytest.raises(LauncherClosed):
        launcher.start(tmp_path, lease, "local", (0, 0), of_this_process())


def test_another_launcher_takes_the_place_of_a_closed_one(client: Client) -> None:
    run = client.run(start(client, "true"))
    assert run.wait(60).state == "SUCCEEDED"
    backend = embedded(client).context.backend
    backend._use_launcher().close()  # as after an error in another thread
    assert client.run(start(client, "true")).wait(60).state == "SUCCEEDED"


def test_a_copy_of_the_home_starts_no_run_a_second_time(client: Client, tmp_path: Path) -> None:
    run = client.run(start(client, "sleep", "1000", failure={"max_restarts": 1}))
    until_ready(run)
    copy = tmp_path / "copy"
    shutil.copytree(
        embedded(client).home.root,
        copy,
        ignore=lambda folder, names: [
            name
            for name in names
            if not (Path(folder) / name).is_file() and not (Path(folder) / name).is_dir()
        ],
    )
    with Client(copy) as other, pytest.warns(NotRecovered, match="drives it in a copy of"):
        assert other.run(run.id).state == "IN_PROGRESS"


def test_a_pid_of_another_process_is_not_waited_for(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = client.run(start(client, "sleep", "1000", failure={"max_restarts": 3}))
    until_ready(run)
    lock = embedded(client).home.run_dir(run.id).lock
    pid = run_lock.last_holder(lock)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for_process(pid, 60)
    waited: list[int] = []
    monkeypatch.setattr(
        "muster.control.recover.wait_for_process", lambda one, _: waited.append(one)
    )
    with subprocess.Popen(["sleep", "1000"]) as another:
        for reused in (os.getpid(), another.pid):
            lock.write_text(f"{reused}\n")
            assert recovered(embedded(client)) == [run.id]
            until_ready(run)
            os.kill(supervisor_pid(client, run), signal.SIGKILL)
            wait_for_process(supervisor_pid(client, run), 60)
        another.kill()
    assert waited == []


def test_an_empty_reason_is_a_reason(client: Client) -> None:
    run = client.run(start(client, "sleep", "1000"))
    until_ready(run)
    run.cancel("")
    assert (run.wait(60).state, run.details) == ("CANCELED", "canceled by user")


def test_a_queued_or_starting_run_is_recovered_with_its_own_environment(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHOSE", "the submitter's")
    with monkeypatch.context() as patch:
        patch.setattr(
            type(embedded(client).context.backend), "start_supervisor", lambda *_, **__: None
        )
        run = client.run(start(client, "sh", "-c", "echo $WHOSE"))
    monkeypatch.setenv("WHOSE", "the next command's")
    assert run.wait(60).state == "SUCCEEDED"
    output = run.logs(streams=["stdout"])
    assert [line.message for line in output] == ["the submitter's"]


def test_the_supervisor_inherits_no_descriptors(client: Client) -> None:
    """A pipe held open by the supervisor would keep its reader waiting forever."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    run_id = start(client, "sleep", "1000")
    os.close(writing)
    assert select.select([reading], [], [], 30)[0] == [reading]
    assert os.read(reading, 1) == b"", "no writer is left"
    os.close(reading)
    until_ready(client.run(run_id))  # it opens more files until then
    pid = run_lock.last_holder(embedded(client).home.run_dir(run_id).lock)
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:  # closed meanwhile, so it was the supervisor's
            continue
        known = ("/dev/null", str(embedded(client).home.root), "anon_inode", "socket", "/proc")
        assert target.startswith(known), target


def test_a_run_of_another_version_does_not_disturb_others(client: Client) -> None:
    run_id = start(client, "sleep", "1000")
    service = embedded(client)
    until_ready(client.run(run_id))
    own = service.store.leases.get(run_id)
    assert own is not None
    service.store.runs.save(RunStep(own, {"plan": {"policy": "of tomorrow"}}, (), (), time.time()))
    assert recovered(service) == []
    assert service.store.runs.get(run_id).state == "IN_PROGRESS", "its supervisor has the plan"
    pid = run_lock.last_holder(service.home.run_dir(run_id).lock)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.001)
    assert recovered(service) == [run_id]
    found = service.store.runs.get(run_id)
    assert found.state == "FAILED"
    assert "is corrupt, or of another version of Muster: plan: " in found.details


@pytest.mark.parametrize("isolation", ["namespaces", "plain"])
@pytest.mark.parametrize("what", ["home deleted", "home moved", "database deleted"])
def test_a_run_ends_when_its_home_is_deleted(
    own_home: Path,
    alive: Callable[[str], list[str]],
    isolation: str,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Followers of the run are notified; no process of the run is left."""
    monkeypatch.setenv("MUSTER_ISOLATION", isolation) if isolation == "plain" else None
    mark = f"of-a-lost-home-{os.urandom(8).hex()}"
    argv = [sys.executable, "-m", "muster", "run", "--nodes", "2", "-e", f"MARK={mark}", "--"]
    program = "echo up; trap '' TERM; setsid sleep 1000 & exec sleep 1000"
    with subprocess.Popen([*argv, "sh", "-c", program], stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline()[-5:] for _ in range(2)] == ["| up\n"] * 2
        assert alive(mark)
        moved = own_home.with_name(f"{own_home.name}-moved")
        if what == "home deleted":
            while own_home.exists():  # files created meanwhile make rmtree fail
                shutil.rmtree(own_home, ignore_errors=True)
        elif what == "home moved":
            own_home.rename(moved)
        else:
            (own_home / "muster.db").unlink()
        errors = process.communicate(timeout=60)[1]
    assert process.returncode == 4
    *notes, starts, last = errors.splitlines(keepends=True)
    assert starts == "sh-1 starts 2 nodes\n"
    assert all(note.startswith("note: the metadata file") for note in notes)
    assert last == (
        f"error: {own_home} was deleted or moved away while sh-1 was running: Muster ended its "
        "processes and records nothing more of it\n"
    )
    assert alive(mark) == []


def test_a_run_fails_when_its_folder_is_deleted(client: Client) -> None:
    run_id = start(client, "sleep", "1000")
    run = client.run(run_id)
    while run.refresh().nodes[0].state != "READY":
        assert not run.done
    folder = embedded(client).home.run_dir(run_id).path
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
    while not run.refresh().done:
        assert client.run(run_id).id == run_id
    assert run.state == "FAILED"
    assert "was deleted or moved away while the run was running" in run.details
    assert muster("wait", run_id).returncode == EXIT_PLATFORM
