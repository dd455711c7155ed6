"""The relay as a process: authentication, ends of commands, forwarded signals."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.node import handshake, remote_command
from muster.node.channel import Channel
from muster.node.messages import CommandEnded, RunCommand
from support.faults import until

#: Of this pytest process only: nobody else takes a port of it that was given back.
HOST = f"127.{1 + os.getpid() % 250}.7.1"
TOKEN = "the run's own"


class Relay:
    """A relay process, with files for the output of its commands."""

    def __init__(self, folder: Path, *, grace: float = 60.0) -> None:
        with socket.create_server((HOST, 0)) as listener:
            self.where = (HOST, listener.getsockname()[1])
        self.out, self.err = folder / "relay.out", folder / "relay.err"
        words = ["serve", "--address", HOST, "--port", str(self.where[1]), "--grace", str(grace)]
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "muster.node.relay", *words],
                cwd=folder,
                env={**os.environ, handshake.TOKEN: TOKEN, "NODE": "mine"},
                stdout=out,
                stderr=err,
            )
        self.commands: list[remote_command.RemoteCommand] = []
        remote_command.await_relays([self.where], TOKEN, 60)

    def end(self) -> None:
        for command in self.commands:
            command.close()
        self.process.kill()
        self.process.wait()

    def run(self, shell: str | None, **more: Any) -> remote_command.RemoteCommand:
        self.commands.append(remote_command.RemoteCommand(self.where, TOKEN, shell=shell, **more))
        return self.commands[-1]

    def as_ssh(self, *words: str, token: str = TOKEN) -> subprocess.Popen[bytes]:
        """Start what a rank launcher starts in place of ssh; its stderr is in `ssh.err`."""
        places = {remote_command.RELAYS: f"{HOST}:{self.where[1]}", handshake.TOKEN: token}
        with self.err.with_name("ssh.err").open("w") as err:
            return subprocess.Popen(
                [sys.executable, "-m", "muster.node.relay", "run", *words],
                env={**os.environ, **places},
                stderr=err,
            )


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    made = Relay(tmp_path)
    yield made
    made.end()


@pytest.fixture
def impatient_relay(tmp_path: Path) -> Iterator[Relay]:
    """A relay without a grace period."""
    made = Relay(tmp_path, grace=0.0)
    yield made
    made.end()


def test_a_command_has_the_nodes_place_environment_and_output(relay: Relay, tmp_path: Path) -> None:
    command = relay.run('echo "$NODE $MORE $PWD"; echo oops >&2; exit 7', env={"MORE": "a b;c"})
    assert command.wait() == 7
    assert relay.out.read_text() == f"mine a b;c {tmp_path}\n"
    assert command.stderr_tail == "oops"


def test_argv_is_passed_without_a_shell_in_the_given_directory(
    relay: Relay, tmp_path: Path
) -> None:
    (tmp_path / "below").mkdir()
    words = [sys.executable, "-c", "import os, sys; print(sys.argv[1], os.getcwd())", "$HOME *"]
    command = relay.run(None, argv=words, cwd=str(tmp_path / "below"))
    assert command.wait() == 0
    assert relay.out.read_text() == f"$HOME * {tmp_path / 'below'}\n"


def test_a_missing_program_is_reported(relay: Relay) -> None:
    command = relay.run(None, argv=["no-such-program"])
    assert command.wait() == 127
    assert "no-such-program: command not found" in command.stderr_tail


def test_the_token_is_not_in_the_environment_of_commands(relay: Relay) -> None:
    assert relay.run(f"test -z ${handshake.TOKEN}").wait() == 0


def test_clients_without_the_token_are_rejected(relay: Relay, tmp_path: Path) -> None:
    with pytest.raises(remote_command.NodeUnreachable, match="does not know the run's token"):
        remote_command.RemoteCommand(relay.where, "guessed", shell="touch was-here")
    assert not (tmp_path / "was-here").exists()
    assert "does not know the run's token" in relay.err.read_text()
    assert relay.run("true").wait() == 0  # other clients are served


def test_a_relay_must_prove_that_it_knows_the_token() -> None:
    """An impostor on the relay's port gets neither the token nor the command."""
    with socket.create_server((HOST, 0)) as impostor:
        pid = os.fork()
        if pid == 0:
            sock, _ = impostor.accept()
            sock.sendall(os.urandom(32))
            sock.recv(64)
            sock.sendall(os.urandom(32))
            os._exit(0 if sock.recv(1) == b"" else 1)
        with pytest.raises(remote_command.NodeUnreachable, match="not a relay of this run"):
            remote_command.RemoteCommand(impostor.getsockname(), TOKEN, shell="echo secret")
        assert os.waitpid(pid, 0)[1] == 0


def test_an_invalid_request_is_rejected(relay: Relay) -> None:
    with socket.create_connection(relay.where) as sock:
        handshake.authenticate_as_client(sock, TOKEN, 60)
        sock.sendall(b'{"type": []}\n')
        assert sock.recv(1) == b"", "the connection is closed"
    assert relay.err.read_text() == (
        "muster relay: rejected a client: unknown message: {'type': []}\n"
    )
    assert relay.run("true").wait() == 0  # other clients are served


def test_an_invalid_message_ends_the_command(relay: Relay, tmp_path: Path) -> None:
    script = f"trap 'exit 5' TERM; touch {tmp_path}/up; while :; do sleep 0.05; done"
    with socket.create_connection(relay.where) as sock:
        handshake.authenticate_as_client(sock, TOKEN, 60)
        channel = Channel(sock)
        channel.send(RunCommand(None, script, {}, {}, None, shield=False))
        until((tmp_path / "up").exists)
        sock.sendall(b"garbage\n")
        assert channel.wait_for(CommandEnded).exit_code == 5
    error = relay.err.read_text()
    assert error.startswith("muster relay: ended a command: not JSON: ")
    assert "Traceback" not in error


def test_a_relay_that_answers_with_an_invalid_message_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(remote_command, "_connect", lambda *_: Channel(ours))
    with ours, theirs:
        command = remote_command.RemoteCommand((HOST, 1), TOKEN, shell="true")
        theirs.sendall(b'{"type": "bogus"}\n')
        text = f"the node at {HOST}:1 sent an invalid message: unknown message: {{'type': 'bogus'}}"
        with pytest.raises(remote_command.NodeUnreachable, match=f"^{re.escape(text)}$"):
            command.wait()


def test_a_silent_client_blocks_no_other(relay: Relay) -> None:
    with socket.create_connection(relay.where):
        assert relay.run("exit 3").wait() == 3


def test_a_relay_needs_a_token(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k != handshake.TOKEN}
    words = ["serve", "--address", HOST, "--port", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "muster.node.relay", *words],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"{handshake.TOKEN} is not set" in done.stderr


def test_a_relay_listens_on_its_address_only(relay: Relay) -> None:
    with pytest.raises(remote_command.NodeUnreachable, match="no relay answers"):
        remote_command.RemoteCommand(("127.0.0.2", relay.where[1]), TOKEN, shell="true")


def test_a_command_ends_with_its_client(relay: Relay, tmp_path: Path) -> None:
    """A killed client cannot cancel it; processes outside of the command's session end as well."""
    mark = f"{tmp_path}/sleeps"
    client = relay.as_ssh("node-0", f"setsid sh -c 'echo $$ >{mark}; exec sleep 1000' & sleep 1000")
    until(lambda: Path(mark).exists() and Path(mark).read_text().endswith("\n"))
    pid = int(Path(mark).read_text())
    client.kill()
    client.wait()
    until(lambda: has_ended(pid))


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace_period(
    impatient_relay: Relay, tmp_path: Path
) -> None:
    command = impatient_relay.run(
        f"trap '' TERM; touch {tmp_path}/up; while :; do sleep 1000; done"
    )
    until((tmp_path / "up").exists)
    command.cancel()
    assert command.wait() == 137


def test_a_canceled_command_can_clean_up(relay: Relay, tmp_path: Path) -> None:
    command = relay.run(f"trap 'exit 5' TERM; touch {tmp_path}/up; while :; do sleep 0.05; done")
    until((tmp_path / "up").exists)
    command.cancel()
    assert command.wait() == 5


def test_processes_left_by_a_command_end_with_it(relay: Relay, tmp_path: Path) -> None:
    """Such as the ranks of a proxy that was killed."""
    mark = tmp_path / "left"
    command = relay.run(f"setsid sh -c 'echo $$ >{mark}; exec sleep 1000' & kill -9 $$")
    assert command.wait() == 137
    assert not mark.exists() or not mark.read_text() or has_ended(int(mark.read_text()))


def test_children_end_with_the_relay(relay: Relay, tmp_path: Path) -> None:
    command = relay.run(f"echo $$ >{tmp_path}/pid; exec sleep 1000")
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    relay.process.terminate()
    assert relay.process.wait(60) == 0
    assert command.wait() == 143
    assert has_ended(int((tmp_path / "pid").read_text()))


def test_children_end_with_a_relay_that_is_killed(relay: Relay, tmp_path: Path) -> None:
    relay.run(f"echo $$ >{tmp_path}/pid; exec sleep 1000")
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    relay.process.kill()
    until(lambda: has_ended(int((tmp_path / "pid").read_text())))


def test_a_relay_exits_with_the_given_code(relay: Relay) -> None:
    remote_command.shut_down_relay(relay.where, TOKEN, 41)
    assert relay.process.wait(60) == 41


def test_signals_are_passed_on(relay: Relay, tmp_path: Path) -> None:
    text = f"trap 'exit 9' USR1; touch {tmp_path}/up; while :; do sleep 0.05; done"
    client = relay.as_ssh("-x", "-o", "BatchMode=yes", "user@node-0", text)
    until((tmp_path / "up").exists)
    client.send_signal(signal.SIGUSR1)
    assert client.wait(60) == 9


def test_a_launcher_without_ranks_ignores_signals_for_ranks(relay: Relay, tmp_path: Path) -> None:
    command = relay.run(f"touch {tmp_path}/up; exec sleep 1000", shield=True)
    until((tmp_path / "up").exists)
    command.signal(signal.SIGUSR1, ranks_only=True)
    command.cancel()
    assert command.wait() == 143


def test_large_outputs_of_several_commands_at_once(relay: Relay) -> None:
    line = "x" * 99
    commands = [relay.run(f"yes {line} | head -20000") for _ in range(3)]
    assert [command.wait() for command in commands] == [0, 0, 0]
    assert relay.out.stat().st_size == 3 * 20000 * 100


def test_in_place_of_ssh_the_exit_code_is_that_of_the_command(relay: Relay) -> None:
    client = relay.as_ssh("-p", "22", "node-0", "exit", "12")
    assert client.wait(60) == 12


def test_in_place_of_ssh_255_is_an_error_of_the_relay(relay: Relay, tmp_path: Path) -> None:
    for words, token, why in (
        (("node-0", "true"), "guessed", "does not know the run's token"),
        (("node-7", "true"), TOKEN, "no node of this run is named 'node-7'"),
        (("node-0",), TOKEN, "usage"),
    ):
        client = relay.as_ssh(*words, token=token)
        assert client.wait(60) == 255
        assert why in (tmp_path / "ssh.err").read_text()


def test_nothing_secret_is_on_a_command_line(relay: Relay, tmp_path: Path) -> None:
    command = relay.run(f"touch {tmp_path}/up; exec sleep 1000", env={"PASSWORD": "hunter-two"})
    until((tmp_path / "up").exists)
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if readable(path)]
    assert not [line for line in lines if b"hunter-two" in line or TOKEN.encode() in line]
    command.cancel()
    assert command.wait() == 143


@pytest.mark.parametrize(
    ("words", "host", "command"),
    [
        (["h", "ls", "-l"], "h", "ls -l"),
        (["-x", "h", "a 'b c'"], "h", "a 'b c'"),
        (["-o", "A=b", "-oC=d", "-p22", "-i", "key", "u@h", "-q", "x"], "h", "x"),
        (["-xp", "22", "h", "--", "x", "-y"], "h", "x -y"),
        (["-tt", "--", "h", "x"], "h", "x"),
        (["h"], "h", ""),
        (["-v"], None, ""),
    ],
)
def test_the_arguments_of_ssh(words: list[str], host: str | None, command: str) -> None:
    assert remote_command.parse_ssh_arguments(words) == (host, command)


def has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True
