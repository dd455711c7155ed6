"""Whole runs on machines that a real sshd is, as a person starts them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from muster.control import run_lock
from muster.node.reservation import Owner, Queue
from support.command import MUSTER, muster, output_of
from support.faults import until
from support.node_servers import kill, server_pid
from support.ssh_hosts import add_engine, needs_sshd, shared_sshd

pytestmark = needs_sshd


def run(*words: str) -> str:
    """Run a job to its end. Returns its output."""
    return output_of("run", "--engine", "hosts", *words)


def start(*words: str) -> str:
    """Start a run. Returns its id."""
    return output_of("run", "--engine", "hosts", "--detach", *words).strip()


def status(run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output_of("status", run_id, "--json"))
    return found


def occupy(home: Path, job: Path) -> str:
    """Start a run that has the only GPU of the machine. Returns its id."""
    add_engine(home, shared_sshd(), gpus=1)
    first = start(str(job))
    until(lambda: status(first)["state"] == "IN_PROGRESS")
    return first


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job of which a node needs a GPU."""
    path = tmp_path / "gpu.yaml"
    path.write_text(
        "name: gpu\nresources: {gpus: 1}\n"
        "command: [sh, -c, 'echo $CUDA_VISIBLE_DEVICES; until [ -e flag ]; do sleep 0.02; done']\n"
        f"working_dir: {tmp_path}\n"
    )
    return path


def test_gpus_of_a_machine_are_divided_among_runs(own_home: Path, job: Path) -> None:
    add_engine(own_home, shared_sshd(), gpus=2)
    first, second = start(str(job)), start(str(job))
    for one in (first, second):
        until(lambda one=one: status(one)["state"] == "IN_PROGRESS")
    third = start(str(job))
    until(lambda: status(third)["nodes"][0]["state"] == "QUEUED")
    (node,) = status(third)["nodes"]
    assert node["waits_for"].startswith("127.0.0.1 is not free: ")
    assert "run gpu-1 has used it since" in node["waits_for"]
    listed = {line.split()[0]: line for line in output_of("ps").splitlines()}
    assert "127.0.0.1 is not free: " in listed["gpu-3"]
    assert "not free" not in listed["gpu-1"]
    (job.parent / "flag").touch()
    for one in (first, second, third):
        muster("wait", one)
    logs = (own_home / "runs" / one / "logs/0/workers-0.out" for one in (first, second, third))
    given = [log.read_text().strip() for log in logs]
    assert sorted(given[:2]) == ["0", "1"]
    assert given[2] in ("0", "1")


def test_an_engine_that_runs_use_is_not_removed(own_home: Path, job: Path) -> None:
    file = add_engine(own_home, shared_sshd(), gpus=1)
    run_id = start(str(job))
    until(lambda: status(run_id)["state"] == "IN_PROGRESS")
    done = muster("engines", "remove", "hosts")
    assert done.returncode == 2
    assert "gpu-1 uses engine hosts" in done.stderr
    assert file.exists()
    (job.parent / "flag").touch()
    assert muster("wait", run_id).returncode == 0
    output_of("engines", "remove", "hosts")
    assert not file.exists()


def test_a_run_that_waits_can_be_canceled(own_home: Path, job: Path) -> None:
    add_engine(own_home, shared_sshd(), gpus=1)
    first, second = start(str(job)), start(str(job))
    until(lambda: status(second)["nodes"][0]["state"] == "QUEUED")
    output_of("cancel", second)
    assert status(second)["state"] == "CANCELED"
    third = start(str(job))
    until(lambda: status(third)["nodes"][0]["state"] == "QUEUED")
    (job.parent / "flag").touch()
    for one in (first, third):
        assert muster("wait", one).returncode == 0


def test_who_follows_a_run_learns_that_it_waits(own_home: Path, job: Path) -> None:
    occupy(own_home, job)
    argv = [*MUSTER, "run", "--engine", "hosts", str(job)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        until(lambda: status("last")["nodes"][0]["state"] == "QUEUED")
        (job.parent / "flag").touch()
        _, err = run.communicate(timeout=120)
    assert run.returncode == 0
    assert re.search(r"-- node 0 is waiting: 127.0.0.1 is not free: .* run gpu-1 has used", err)
    assert "-- node 0 (group workers) was scheduled on 127.0.0.1 after" in err


def test_variables_and_files_are_those_of_the_machine(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONLY_HERE", "x")
    add_engine(own_home, shared_sshd())
    (tmp_path / "main.py").write_text(
        "import os, pathlib\n"
        "print(os.environ.get('ONLY_HERE'), os.environ['GIVEN'], os.getcwd())\n"
        "pathlib.Path(os.environ['MUSTER_OUTPUTS'], 'result').write_text('42')\n"
    )
    text = run("-e", "GIVEN=y", str(tmp_path / "main.py"))
    words = text.split("|")[1].split()
    assert words[:2] == ["None", "y"]
    assert words[2].startswith(str(own_home / "hosts"))
    assert output_of("outputs", "last").split()[-1].endswith("result")
    until(lambda: list((own_home / "hosts").iterdir()) == [], "nothing is left on the machine")


def test_a_directory_that_the_machine_lacks(own_home: Path, tmp_path: Path) -> None:
    add_engine(own_home, shared_sshd())
    path = tmp_path / "job.yaml"
    path.write_text(f"command: ['true']\nworking_dir: {tmp_path}/nothing\n")
    done = muster("run", "--engine", "hosts", str(path))
    assert done.returncode == 1
    assert f"{tmp_path}/nothing" in done.stderr


def test_a_machine_on_which_nodes_can_have_no_folder(own_home: Path) -> None:
    add_engine(own_home, shared_sshd(), folder="/proc/nothing")
    done = muster("run", "--engine", "hosts", "--", "true")
    assert done.returncode == 1
    assert "no folder can be made in /proc/nothing: No such file or directory" in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--framework", "horovod", "main.py"), "no Horovod for"),
        (("--", "no-such-program"), "no-such-program: command not found"),
    ],
)
def test_programs_and_packages_are_looked_for_on_the_machine(
    own_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    why: str,
) -> None:
    """They need not be installed here."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.py").touch()
    add_engine(own_home, shared_sshd())
    done = muster("run", "--engine", "hosts", *words)
    assert done.returncode == 1, "the run was started"
    assert why in done.stderr


def test_a_check_asks_the_machines_for_packages(own_home: Path, tmp_path: Path) -> None:
    """It leaves no run if nothing is wrong: machines do not know the nodes by names."""
    add_engine(own_home, shared_sshd(), slots=2)
    job = tmp_path / "job.yaml"
    argv = ("check", "--engine", "hosts", str(job), "--json")
    job.write_text("command: [python, -c, '']\nnodes: 2\n")
    done = muster(*argv)
    assert done.returncode == 0, done.stdout + done.stderr
    (names,) = (line for line in json.loads(done.stdout)["lines"] if line["what"] == "names")
    assert names["texts"] == ["machines do not know the nodes by names: programs use addresses"]
    assert json.loads(output_of("runs", "list", "--json")) == []
    for framework, module in (("pytorch", "torch"), ("deepspeed", "deepspeed")):
        job.write_text(f"command: [python, -c, '']\nframework: {framework}\n")
        lines = json.loads(muster(*argv).stdout)["lines"]
        (one,) = (line for line in lines if line["what"] == "framework")
        assert one["ok"] is (find_spec(module) is not None)
        assert f"for {sys.executable}" in one["texts"][0]


def test_a_check_says_what_its_nodes_wait_for(own_home: Path, job: Path) -> None:
    occupy(own_home, job)
    argv = [*MUSTER, "check", "--engine", "hosts", str(job)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        said = run.stderr.readline()
        (job.parent / "flag").touch()
        out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    assert re.match(r"waiting: 127.0.0.1 is not free: .* run gpu-1 has used it since", said)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_check_that_is_ended_while_it_waits_leaves_no_run_in_progress(
    number: signal.Signals, own_home: Path, job: Path
) -> None:
    first = occupy(own_home, job)
    argv = [*MUSTER, "check", "--engine", "hosts", str(job)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        assert run.stderr.readline().startswith("waiting: 127.0.0.1 is not free")
        run.send_signal(number)
        run.communicate(timeout=120)
    assert run.returncode == 128 + number
    (check,) = [
        one for one in json.loads(output_of("runs", "list", "--json")) if one["id"] != first
    ]
    muster("wait", check["id"])
    assert status(check["id"])["state"] == "CANCELED"
    assert status(check["id"])["details"] == "the check was interrupted"
    (job.parent / "flag").touch()
    muster("wait", first)


def test_what_an_earlier_supervisor_has_left_is_ended(own_home: Path, tmp_path: Path) -> None:
    """A node has ended when the supervisor is replaced: its machine is free after the run."""
    add_engine(own_home, shared_sshd(), slots=2)
    job = tmp_path / "two.yaml"
    wait = "if [ $NODE_RANK = 0 ]; then until [ -e flag ]; do sleep 0.02; done; fi"
    job.write_text(f"name: two\nnodes: 2\nworking_dir: {tmp_path}\ncommand: [sh, -c, '{wait}']\n")
    run_id = start(str(job))
    folder = own_home / "runs" / run_id
    until(lambda: [one["state"] for one in status(run_id)["nodes"]] == ["READY", "SUCCEEDED"])
    pid = run_lock.last_holder(folder / "lease")
    assert pid is not None
    kill(pid)
    status(run_id)  # starts another supervisor
    (tmp_path / "flag").touch()
    assert muster("wait", run_id).returncode == 0
    assert list((own_home / "hosts").glob("*")) == [], "no server is left, and no file"


@pytest.mark.parametrize("name", ["logs/0", "hosts.json"])
def test_nodes_go_on_when_a_file_of_their_run_cannot_be_read(
    own_home: Path, tmp_path: Path, name: str
) -> None:
    """Supervisors that take over cannot continue. When it is there again, the next one does."""
    add_engine(own_home, shared_sshd())
    job = tmp_path / "job.yaml"
    job.write_text(
        f"working_dir: {tmp_path}\n"
        "command: [sh, -c, 'echo $$ > pid; until [ -e flag ]; do sleep 0.02; done']\n"
    )
    run_id = start(str(job))
    until(lambda: status(run_id)["nodes"][0]["state"] == "READY")
    folder = own_home / "runs" / run_id
    kept = tmp_path / "kept"
    (folder / name).rename(kept)
    (folder / name).write_text("{")
    pid = run_lock.last_holder(folder / "lease")
    assert pid is not None
    kill(pid)
    for _ in range(2):
        pid = run_lock.last_holder(folder / "lease")
        status(run_id)  # starts another supervisor
        until(lambda pid=pid: run_lock.last_holder(folder / "lease") != pid)
        until(lambda: not run_lock.is_held(folder / "lease"), "it has given up")
    os.kill(int((tmp_path / "pid").read_text()), 0)
    (folder / name).unlink()
    kept.rename(folder / name)
    status(run_id)
    (tmp_path / "flag").touch()
    assert muster("wait", run_id).returncode == 0


def test_a_machine_that_others_have_taken_when_a_node_server_was_killed(
    own_home: Path, tmp_path: Path
) -> None:
    """The node is lost at once, and the next attempt waits until it is its turn."""
    add_engine(own_home, shared_sshd())
    job = tmp_path / "job.yaml"
    wait = "[ $MUSTER_ATTEMPT = 1 ] || sleep 1000"
    job.write_text(f"command: [sh, -c, '{wait}']\nfailure: {{max_restarts: 1}}\n")
    run_id = start(str(job))
    until(lambda: status(run_id)["nodes"][0]["state"] == "READY")
    queue = Queue(["slot0"], str(own_home / "queue"))
    other = queue.draw(Owner("bob@b", "x", "x-1", 0), 1)
    kill(server_pid(own_home / "hosts" / f"{run_id}-0"))
    until(lambda: queue.advance(other) and other.ticket.units, "the machine is somebody else's")
    until(lambda: status(run_id)["nodes"][0]["state"] == "QUEUED")
    assert status(run_id)["nodes"][0]["waits_for"].startswith(
        "127.0.0.1 is not free: bob@b's run x-1"
    )
    other.leave()
    assert muster("wait", run_id).returncode == 0
    events = output_of("events", run_id)
    assert "its node server was killed, or 127.0.0.1 was restarted, and others use it now" in events
    assert list((own_home / "hosts").glob("*")) == [], "no server is left, and no file"


def test_a_port_of_a_node_is_opened(own_home: Path, tmp_path: Path) -> None:
    """It is reached at the machine's address, or else through the supervisor."""
    add_engine(own_home, shared_sshd())
    (tmp_path / "main.py").write_text(
        "import socket\n"
        "with socket.create_server(('', 0)) as server, socket.create_server(('', 0)) as other:\n"
        "    numbers = [server.getsockname()[1], other.getsockname()[1]]\n"
        "    other.close()\n"
        "    print('ports', *numbers, flush=True)\n"
        "    while True:\n"
        "        server.accept()[0].sendall(b'hello')\n"
    )
    run_id = start(str(tmp_path / "main.py"))
    log = own_home / "runs" / run_id / "logs/0/workers-0.out"
    until(lambda: log.exists() and re.match(r"ports \d+ \d+\n", log.read_text()))
    answering, closed = log.read_text().split()[1:]
    (node,) = status(run_id)["nodes"]
    url = output_of("open", run_id, "--port", answering, "--no-browser").strip()
    assert url == f"http://{node['address']}:{answering}/"
    argv = [*MUSTER, "open", run_id, "--port", closed, "--no-browser"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as done:
        assert done.stderr is not None
        assert "forwarding to port" in done.stderr.readline()
        done.send_signal(signal.SIGINT)
        done.communicate(timeout=60)
    output_of("cancel", run_id)
