"""A node server that is kept running, as the first program of a pod or of a job run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.node import messages
from muster.node.serve import SETTINGS
from support.faults import until
from support.node_servers import Supervisor, server_pid, server_pid_if_any

KEEP = """
import json, sys
from muster.node.kept_server import keep_serving
sys.exit(keep_serving(sys.argv[1], json.loads(sys.argv[2]), "0"))
"""
TIMEOUT = 60.0
Keep = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "node"


@pytest.fixture
def keep(folder: Path) -> Iterator[Keep]:
    started: list[subprocess.Popen[str]] = []

    def start(**settings: object) -> subprocess.Popen[str]:
        told = {SETTINGS: json.dumps({"run_id": "r1", "rank": 0, **settings})}
        argv = [sys.executable, "-c", KEEP, str(folder), json.dumps(told)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        until((folder / "socket").exists, "it serves", TIMEOUT)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            if (pid := server_pid_if_any(folder)) is not None:
                os.kill(pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_a_signal_has_ended_is_neither_done_nor_failed(
    folder: Path, keep: Keep, number: signal.Signals
) -> None:
    process = keep()
    process.send_signal(number)
    assert process.wait(TIMEOUT) == 128 + number
    assert not folder.exists()


def test_a_server_that_has_left_has_ended_well(folder: Path, keep: Keep) -> None:
    process = keep()
    supervisor = Supervisor(folder).greet()
    supervisor.send(messages.Leave())
    assert process.wait(TIMEOUT) == 0
    supervisor.disconnect()


def test_a_server_that_was_killed_is_started_again(folder: Path, keep: Keep) -> None:
    process = keep()
    first = server_pid(folder)
    os.kill(first, signal.SIGKILL)
    until(lambda: server_pid_if_any(folder) not in (None, first), "another one serves", TIMEOUT)
    process.terminate()
    assert process.wait(TIMEOUT) == 143


def test_a_signal_between_two_servers_ends_it(folder: Path, keep: Keep) -> None:
    process = keep()
    first = server_pid(folder)
    os.kill(first, signal.SIGKILL)
    assert process.stderr is not None
    assert "the node server was ended by signal 9" in process.stderr.readline()
    process.terminate()
    assert process.wait(TIMEOUT) == 143
    assert not folder.exists()


# --- what programs write


def run(folder: Path, *argv: str, incarnation: int = 0, **more: object) -> Supervisor:
    supervisor = Supervisor(folder).greet()
    supervisor.expect(messages.HostFacts)
    supervisor.start(incarnation, *argv, **more)
    supervisor.expect(messages.Started)
    return supervisor


def end(process: subprocess.Popen[str], supervisor: Supervisor) -> tuple[list[str], list[str]]:
    """The lines that a server has written at its end."""
    supervisor.send(messages.Leave())
    out, err = process.communicate(timeout=TIMEOUT)
    supervisor.disconnect()
    return out.splitlines(), err.splitlines()


def test_output_of_programs_is_that_of_the_server(folder: Path, keep: Keep) -> None:
    process = keep(copy_log=True)
    supervisor = run(folder, "sh", "-c", "echo result; echo warning >&2; printf end")
    supervisor.expect(messages.Ready)
    supervisor.expect(messages.Ended)
    assert end(process, supervisor) == (["result", "end"], ["warning"])


def test_it_is_not_unless_that_is_set(folder: Path, keep: Keep) -> None:
    process = keep()
    supervisor = run(folder, "sh", "-c", "echo result; echo warning >&2")
    supervisor.expect(messages.Ready)
    supervisor.expect(messages.Ended)
    assert end(process, supervisor) == ([], [])


def test_it_is_while_nobody_is_connected(folder: Path, keep: Keep) -> None:
    process = keep(copy_log=True)
    supervisor = run(folder, "sh", "-c", "read go < $PIPE; echo alone; sleep 1000", **piped(folder))
    supervisor.disconnect()
    with open(folder / "pipe", "w") as pipe:
        pipe.write("go\n")
    assert process.stdout is not None
    assert process.stdout.readline() == "alone\n"


def piped(folder: Path) -> dict[str, object]:
    os.mkfifo(folder / "pipe")
    return {"env": {"PIPE": str(folder / "pipe")}}


def test_a_command_that_does_not_exist_is_said_there(folder: Path, keep: Keep) -> None:
    process = keep(copy_log=True)
    supervisor = Supervisor(folder).greet()
    supervisor.expect(messages.HostFacts)
    supervisor.start(0, "no-such-program")
    supervisor.expect(messages.Ended)
    _, (line,) = end(process, supervisor)
    assert "no-such-program: command not found" in line


def test_a_restart_in_place_continues(folder: Path, keep: Keep) -> None:
    process = keep(copy_log=True)
    supervisor = run(folder, "sh", "-c", "echo up $INCARNATION; exit 3", keep=True)
    supervisor.expect(messages.Ready)
    supervisor.expect(messages.Ended)
    logs = folder / "logs-of-1"
    logs.mkdir()
    launch = supervisor.launch(1, keep=True)
    processes = [
        one._replace(stdout=f"{logs}/out", stderr=f"{logs}/err") for one in launch.launch.processes
    ]
    again = launch._replace(launch=launch.launch._replace(processes=processes))
    supervisor.send(again)
    supervisor.expect(messages.Launched)
    supervisor.expect(messages.Started)
    supervisor.expect(messages.Ready)
    supervisor.expect(messages.Ended)
    assert end(process, supervisor)[0] == ["up 0", "up 1"]


def test_another_server_copies_the_rest(folder: Path, keep: Keep) -> None:
    """Nothing is written twice, and the last line of the program is there."""
    process = keep(copy_log=True)
    supervisor = run(folder, "sh", "-c", "echo one; printf two; exec sleep 1000")
    supervisor.disconnect()
    assert process.stdout is not None
    assert process.stdout.readline() == "one\n"
    log = folder / "logs/0.out"
    until(lambda: log.read_text() == "one\ntwo", "the program has written all", TIMEOUT)
    first = server_pid(folder)
    os.kill(first, signal.SIGKILL)
    assert process.stdout.readline() == "two\n"
    process.terminate()
    assert process.communicate(timeout=TIMEOUT)[0] == ""


def test_a_reader_that_has_stopped_does_not_keep_it_from_ending(folder: Path, keep: Keep) -> None:
    process = keep(copy_log=True)
    supervisor = run(folder, "sh", "-c", "yes | head -n 1000000; exec sleep 1000")
    supervisor.expect(messages.Ready)
    supervisor.send(messages.Kill(0))  # it hears of that, though nobody reads
    supervisor.expect(messages.Ended)
    supervisor.send(messages.Leave())
    assert process.wait(TIMEOUT) == 0
    assert not folder.exists()
    supervisor.disconnect()


def test_a_server_that_fails_says_why_last(folder: Path, keep: Keep) -> None:
    process = keep()
    process.send_signal(signal.SIGSTOP)  # so that no other server starts before
    os.kill(server_pid(folder), signal.SIGKILL)
    (folder / "journal").unlink(missing_ok=True)
    (folder / "journal").mkdir()
    process.send_signal(signal.SIGCONT)
    assert process.wait(TIMEOUT) == 1
    assert process.stderr is not None
    assert process.stderr.read().splitlines()[-1].startswith("muster-node: ")


def test_a_server_that_fails_with_an_error_of_its_own_says_which(folder: Path) -> None:
    """The last line of its log is read as the cause."""
    fails = KEEP.replace("sys.exit", "kept_server.serve_command = lambda *_: [][0]\nsys.exit")
    program = f"from muster.node import kept_server{fails}"
    argv = [sys.executable, "-c", program, str(folder), "{}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last == "muster: the node server has failed: IndexError('list index out of range')"
