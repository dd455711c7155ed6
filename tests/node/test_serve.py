"""The commands that start node servers and connect to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from muster.node.messages import HostFacts
from muster.node.processes import state_of
from support.faults import until
from support.node_servers import PROGRAM, Supervisor, kill, server_pid

SETTINGS = json.dumps({"run_id": "r1", "rank": 0}).encode() + b"\n"


def run(*argv: str, told: bytes = SETTINGS) -> tuple[int, bytes, str]:
    done = subprocess.run(
        [*PROGRAM, *argv],
        input=told,
        capture_output=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr.decode()


def test_the_server_stays_when_the_connection_is_closed(tmp_path: Path) -> None:
    code, _, errors = run("open", str(tmp_path / "n"))
    assert (code, errors) == (0, "")
    pid = server_pid(tmp_path / "n")
    assert run("open", str(tmp_path / "n"))[0] == 0
    assert server_pid(tmp_path / "n") == pid
    code, _, errors = run("serve", str(tmp_path / "n"))
    assert (code, errors) == (75, f"muster-node: a node server runs in {tmp_path}/n already\n")
    kill(pid)
    assert run("open", str(tmp_path / "n"))[0] == 0
    new = server_pid(tmp_path / "n")
    assert new != pid
    kill(new)


def test_no_link_to_its_folder_is_left(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 10)
    made = Supervisor(folder).greet()
    short = Path(made.expect(HostFacts).short)
    assert short.resolve() == folder
    os.kill(server_pid(folder), signal.SIGTERM)
    until(lambda: not short.is_symlink(), "the server has ended")
    made.disconnect()


def test_no_link_to_its_folder_is_left_when_it_is_ended(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 10)
    made = Supervisor(folder).greet()
    short = Path(made.expect(HostFacts).short)
    assert short.is_symlink()
    assert run("end", str(folder)) == (0, b"", "")
    assert not folder.exists()
    assert not short.is_symlink()
    made.disconnect()


def test_in_the_foreground(tmp_path: Path) -> None:
    argv = [*PROGRAM, "serve", str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(SETTINGS)
        process.stdin.flush()
        until((tmp_path / "socket").exists, "the server accepts connections")
        assert server_pid(tmp_path) == process.pid
        process.terminate()
        assert process.wait(60) == 0
    assert state_of(process.pid) == ""


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (b"", "no line with settings on standard input"),
        (b"{}", "no line with settings on standard input"),
        (b"x" * 70_000, "no line with settings on standard input"),
        (b"{}\n", "the settings are invalid: Settings: run_id is missing, rank is missing"),
        (b"[]\n", "the settings are invalid: Settings must be an object, not []"),
        (b"nothing\n", "the settings are invalid: Expecting value: line 1"),
        (SETTINGS[:-2] + b', "more": 1}\n', "the settings are invalid: Settings: unknown more"),
    ],
)
def test_wrong_settings(tmp_path: Path, told: bytes, message: str) -> None:
    code, out, errors = run("open", str(tmp_path / "n"), told=told)
    assert (code, out) == (1, b"")
    assert errors.startswith(f"muster-node: {message}"), errors
    assert not (tmp_path / "n").exists()


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, _, errors = run("open", f"{tmp_path}/file/n")
    assert (code, errors) == (
        1,
        f"muster-node: [Errno 20] Not a directory: '{tmp_path}/file/n'\n",
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_folder_of_another_user(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, -1)
    code, _, errors = run("open", str(tmp_path))
    assert code == 1
    assert "it belongs to another user" in errors


@pytest.mark.parametrize("name", ["socket", "server.log"])
def test_a_server_that_cannot_start_says_why(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    code, _, errors = run("open", str(tmp_path))
    assert code == 1
    assert "muster-node: the node server cannot start: " in errors
    assert "Is a directory" in errors


def test_why_a_server_has_failed_is_in_its_log(tmp_path: Path) -> None:
    """And nowhere else: another file may have the number of the descriptor by then."""
    script = """
import os, sys
from muster.node import serve
def fail(folder, settings, ready, held):
    ready()
    os.write = print
    raise OSError(5, "it has failed")
serve._serve = fail
serve._start(sys.argv[1], serve.Settings("1", "r1", 0), os.open("/dev/null", os.O_RDONLY))
"""
    argv = [sys.executable, "-c", script, str(tmp_path)]
    subprocess.run(argv, check=True, timeout=120)
    log = tmp_path / "server.log"
    until(lambda: "it has failed" in log.read_text(), "it is logged")
    assert log.read_text().startswith("Traceback")
    assert log.read_text().endswith("OSError: [Errno 5] it has failed\n")
