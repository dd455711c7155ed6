"""From being accepted to having ended, a run is always in somebody's hands."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.control import bell, lease
from muster.control.launcher import Launcher
from muster.control.recover import recover
from muster.control.watch import end_of_life
from muster.errors import EngineError
from muster.storage.home import RunDir
from muster.store import runs


def test_a_lease_has_one_holder(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    held = lease.acquire(path)
    assert held is not None
    assert lease.acquire(path) is None
    assert lease.held(path)
    os.close(held)
    assert not lease.held(path)


def test_a_lease_passes_without_ever_being_free(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    held = lease.acquire(path)
    assert held is not None
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(ours, 1)
        os._exit(0)
    os.close(held)
    assert lease.held(path), "the child has it"
    os.write(theirs, b"x")
    os.waitpid(pid, 0)
    assert not lease.held(path)
    os.close(ours)
    os.close(theirs)


def test_holder(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    assert lease.holder(path) is None
    path.write_text("")
    assert lease.holder(path) is None
    path.write_text("42\n")
    assert lease.holder(path) == 42


def test_a_pid_is_noted_over_a_longer_one(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    held = lease.acquire(path)
    assert held is not None
    for pid in (1234567, 2345):
        lease.note(held, pid)
        assert lease.holder(path) == pid
    os.pwrite(held, b"1" * 100, 0)  # a program of the run may write there
    lease.note(held, 7)
    assert lease.holder(path) == 7
    os.close(held)


def test_bell(tmp_path: Path) -> None:
    path = tmp_path / "bell"
    bell.install(path)
    bell.ring(path)  # nobody attends: nothing happens
    attention = bell.attend(path)
    assert select.select([attention], [], [], 0)[0] == []
    bell.ring(path)
    bell.ring(path)
    assert select.select([attention], [], [], 30)[0] == [attention]
    bell.silence(attention)
    assert select.select([attention], [], [], 0)[0] == []
    bell.silence(attention)
    os.close(attention)


def start(client: Client, *command: str) -> str:
    job, new = client.job(None, command=list(command))
    return client.start(client.draft(job, new_job=new)).id


def test_life_ends_with_the_outcome(client: Client) -> None:
    run_id = start(client, "sh", "-c", "while [ ! -e go ]; do sleep 0.005; done")
    service = client.service
    life = end_of_life(service.home, run_id)
    assert life is not None
    while client.run(run_id).nodes[0].state != "READY":  # its folder is made anew at its start
        assert select.select([life], [], [], 0)[0] == []
    (service.home.run_dir(run_id).work(0) / "go").touch()
    assert select.select([life], [], [], 60)[0] == [life]
    assert runs.get(service.db, run_id).state == "SUCCEEDED", "recorded first, told then"
    os.close(life)
    assert end_of_life(service.home, run_id) is None


def test_a_run_that_nobody_drives_is_settled_once(client: Client) -> None:
    run_id = start(client, "sleep", "1000")
    service = client.service
    assert recover(service.db, service.home, service._hand_over) == [], "somebody drives it"
    while client.run(run_id).nodes[0].state != "READY":  # what never began would be begun anew
        pass
    pid = lease.holder(service.home.run_dir(run_id).lease)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    client.run(run_id).wait(60)
    assert client.run(run_id).state == "FAILED"
    assert recover(service.db, service.home, service._hand_over) == []
    kinds = [(e.kind, e.data.get("state")) for e in service.events(run_id)]
    assert kinds.count(("run", "FAILED")) == 1


def test_a_canceled_run_whose_supervisor_is_killed_is_canceled(client: Client) -> None:
    run_id = start(client, "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.01; done")
    run = client.run(run_id)
    assert next(run.logs(follow=True, streams=["stdout", "stderr"])).message == "up"
    run.cancel("enough")
    while run.refresh().state != "CANCELING":
        pass
    pid = lease.holder(client.service.home.run_dir(run_id).lease)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert run.wait(60).state == "CANCELED"
    assert run.details == "enough"


def without_supervisor(client: Client) -> tuple[str, RunDir]:
    """A run whose supervisor was killed, which nobody has noticed yet; and its folder."""
    run_id = start(client, "sleep", "1000")
    folder = client.service.home.run_dir(run_id)
    pid = lease.holder(folder.lease)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.001)
    return run_id, folder


def test_a_run_whose_folder_was_deleted(client: Client) -> None:
    run_id, folder = without_supervisor(client)
    shutil.rmtree(folder.path)
    service = client.service
    assert recover(service.db, service.home, service._hand_over) == [run_id]
    assert "was deleted while the run was going" in client.run(run_id).details


@pytest.mark.parametrize("name", ["life", "lease"])
def test_a_run_in_whose_folder_something_was_replaced_by_a_folder(
    client: Client, name: str
) -> None:
    run_id, folder = without_supervisor(client)
    getattr(folder, name).unlink()
    getattr(folder, name).mkdir()
    run = client.run(run_id).wait(60)
    assert run.state == "FAILED"
    assert f"{name} was replaced by something else" in run.details


@pytest.mark.parametrize("name", ["life", "lease"])
def test_one_of_them_was_replaced_while_the_run_is_driven(client: Client, name: str) -> None:
    run_id = start(client, "sleep", "1000")
    service = client.service
    path = service.home.run_dir(run_id).path / name
    path.rename(path.with_name("kept"))
    path.mkdir()
    assert recover(service.db, service.home, service._hand_over) == []
    path.rmdir()
    path.with_name("kept").rename(path)


def test_a_run_that_cannot_be_prepared_keeps_no_lease(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(bell, "install", refuse)
    job, new = client.job(None, command=["true"])
    with pytest.raises(OSError, match="No space left"):
        client.start(client.draft(job, new_job=new))
    (left,) = (client.service.home.root / "runs").glob("*/lease")
    assert not lease.held(left)


def test_an_empty_environment_is_one(client: Client) -> None:
    os.environ["MUSTER_TEST_OURS"] = "x"
    try:
        job, new = client.job(None, command=["/bin/sh", "-c", "echo ${MUSTER_TEST_OURS-nothing}"])
        draft = client.draft(job, new_job=new)
        run = client.run(client.service.start(draft, {}).id).wait(60)
    finally:
        del os.environ["MUSTER_TEST_OURS"]
    assert [line.message for line in run.logs(streams=["stdout", "stderr"])] == ["nothing"]


def test_killed_right_after_it_was_accepted(own_home: Path) -> None:
    """Between the record and the supervisor: the next command finds the run and has it go on."""
    code = (
        "import os, signal\n"
        "from muster.client.client import Client\n"
        "from muster.control.launcher import Launcher\n"
        "Launcher.start = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "client = Client()\n"
        "job, new = client.job(None, command=['true'])\n"
        "client.start(client.draft(job, new_job=new))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    client = Client(own_home)
    run = client.run("last").wait(60)
    assert run.state == "SUCCEEDED"
    assert (own_home / "runs" / run.id / "nodes" / "0" / "begun").read_text().strip() == "0"
    client.service.close()


def test_sigterm_to_the_supervisor_cancels(client: Client) -> None:
    run_id = start(client, "sleep", "1000")
    run = client.run(run_id)
    while run.refresh().state != "IN_PROGRESS":
        pass
    pid = lease.holder(client.service.home.run_dir(run_id).lease)
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    assert run.wait(60).state == "CANCELED"
    assert run.details == "the run's supervisor was told to end (signal 15)"


def test_a_launcher_that_has_gone(tmp_path: Path) -> None:
    launcher = Launcher.spawn()
    launcher.close()
    with pytest.raises(EngineError, match="cannot start a supervisor"):
        launcher.start(tmp_path, "x", (0, 0), {})


def test_the_supervisor_keeps_nothing_of_its_submitter(client: Client) -> None:
    """No descriptor but its own: a pipe held open would keep its reader waiting for ever."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    run_id = start(client, "sleep", "1000")
    os.close(writing)
    assert select.select([reading], [], [], 30)[0] == [reading]
    assert os.read(reading, 1) == b"", "the last writer has gone"
    os.close(reading)
    while client.run(run_id).nodes[0].state != "READY":  # until then it opens and closes more
        pass
    pid = lease.holder(client.service.home.run_dir(run_id).lease)
    for name in os.listdir(f"/proc/{pid}/fd"):
        target = os.readlink(f"/proc/{pid}/fd/{name}")
        known = ("/dev/null", str(client.service.home.root), "anon_inode", "socket", "/proc")
        assert target.startswith(known), target


def test_a_run_of_another_version_is_in_nobody_s_way(client: Client) -> None:
    run_id = start(client, "sleep", "1000")
    service = client.service
    while client.run(run_id).nodes[0].state != "READY":
        pass
    runs.save(service.db, run_id, {"plan": {"policy": "of tomorrow"}}, (), (), time.time())
    assert recover(service.db, service.home, service._hand_over) == []
    assert runs.get(service.db, run_id).state == "IN_PROGRESS", "who drives it knows what it is"
    pid = lease.holder(service.home.run_dir(run_id).lease)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.001)
    assert recover(service.db, service.home, service._hand_over) == [run_id]
    found = runs.get(service.db, run_id)
    assert found.state == "FAILED"
    assert "is corrupt, or of another version of Muster: plan: " in found.details


@pytest.mark.parametrize("isolation", ["namespaces", "plain"])
@pytest.mark.parametrize("what", ["home deleted", "home moved", "database deleted"])
def test_a_home_that_goes_away(
    own_home: Path,
    alive: Callable[[str], list[str]],
    isolation: str,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever follows the run hears of it; nothing of the run is left."""
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
            while own_home.exists():  # what is made meanwhile is in the way
                shutil.rmtree(own_home, ignore_errors=True)
        elif what == "home moved":
            own_home.rename(moved)
        else:
            (own_home / "muster.db").unlink()
        told = process.communicate(timeout=60)[1]
    assert process.returncode == 4
    *notes, last = told.splitlines(keepends=True)
    assert all(note.startswith("note: the metadata file") for note in notes)
    assert last == (
        f"error: {own_home} was deleted or moved away while sh-1 was running: its processes are "
        "ended, and nothing more of it is recorded\n"
    )
    assert alive(mark) == []


def test_the_folder_of_a_run_that_is_deleted_meanwhile(client: Client) -> None:
    run_id = start(client, "sleep", "1000")
    run = client.run(run_id)
    while run.refresh().nodes[0].state != "READY":
        assert not run.done
    folder = client.service.home.run_dir(run_id).path
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
    while not run.refresh().done:
        assert client.run(run_id).id == run_id
    assert run.state == "FAILED"
    assert "was deleted or moved away while the run was running" in run.details
