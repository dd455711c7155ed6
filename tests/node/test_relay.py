"""The relay, as the process it is: who is let in, what ends when, and what is passed on."""

from __future__ import annotations

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

from muster.node import errands, trust

HOST = "127.0.0.1"
TOKEN = "the run's own"


class Relay:
    """A relay in a process of its own, with files for what its commands write."""

    def __init__(self, folder: Path, *, grace: float = 60.0) -> None:
        with socket.create_server((HOST, 0)) as listener:
            self.where = (HOST, listener.getsockname()[1])
        self.out, self.err = folder / "relay.out", folder / "relay.err"
        words = ["serve", "--address", HOST, "--port", str(self.where[1]), "--grace", str(grace)]
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "muster.node.relay", *words],
                cwd=folder,
                env={**os.environ, trust.TOKEN: TOKEN, "NODE": "mine"},
                stdout=out,
                stderr=err,
            )
        self.asked: list[errands.Errand] = []
        errands.await_relays([self.where], TOKEN, 60)

    def end(self) -> None:
        for errand in self.asked:
            errand.close()
        self.process.kill()
        self.process.wait()

    def ask(self, shell: str | None, **more: Any) -> errands.Errand:
        self.asked.append(errands.Errand(self.where, TOKEN, shell=shell, **more))
        return self.asked[-1]

    def as_ssh(self, *words: str, token: str = TOKEN) -> subprocess.Popen[bytes]:
        """What a rank launcher would start in the place of ssh; its stderr is in `ssh.err`."""
        places = {errands.RELAYS: f"{HOST}:{self.where[1]}", trust.TOKEN: token}
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
def hasty(tmp_path: Path) -> Iterator[Relay]:
    """One that gives commands no time to end."""
    made = Relay(tmp_path, grace=0.0)
    yield made
    made.end()


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def test_a_command_has_the_nodes_place_environment_and_output(relay: Relay, tmp_path: Path) -> None:
    errand = relay.ask('echo "$NODE $MORE $PWD"; echo oops >&2; exit 7', env={"MORE": "a b;c"})
    assert errand.wait() == 7
    assert relay.out.read_text() == f"mine a b;c {tmp_path}\n"
    assert errand.last_words == "oops"


def test_argv_is_no_text_for_a_shell_and_cwd_is_where_it_starts(
    relay: Relay, tmp_path: Path
) -> None:
    (tmp_path / "below").mkdir()
    words = [sys.executable, "-c", "import os, sys; print(sys.argv[1], os.getcwd())", "$HOME *"]
    errand = relay.ask(None, argv=words, cwd=str(tmp_path / "below"))
    assert errand.wait() == 0
    assert relay.out.read_text() == f"$HOME * {tmp_path / 'below'}\n"


def test_a_program_that_is_not_there(relay: Relay) -> None:
    errand = relay.ask(None, argv=["no-such-program"])
    assert errand.wait() == 127
    assert "no-such-program: command not found" in errand.last_words


def test_commands_do_not_know_the_token(relay: Relay) -> None:
    assert relay.ask(f"test -z ${trust.TOKEN}").wait() == 0


def test_nobody_is_let_in_without_the_token(relay: Relay, tmp_path: Path) -> None:
    with pytest.raises(errands.CannotAsk, match="does not know the run's token"):
        errands.Errand(relay.where, "guessed", shell="touch was-here")
    assert not (tmp_path / "was-here").exists()
    assert "does not know the run's token" in relay.err.read_text()
    assert relay.ask("true").wait() == 0  # the others are served as before


def test_who_answers_has_to_know_the_token_too() -> None:
    """An impostor on the relay's port gets neither the token nor the command."""
    with socket.create_server((HOST, 0)) as impostor:
        pid = os.fork()
        if pid == 0:
            sock, _ = impostor.accept()
            sock.sendall(os.urandom(32))
            sock.recv(64)
            sock.sendall(os.urandom(32))
            os._exit(0 if sock.recv(1) == b"" else 1)
        with pytest.raises(errands.CannotAsk, match="no relay of this run"):
            errands.Errand(impostor.getsockname(), TOKEN, shell="echo secret")
        assert os.waitpid(pid, 0)[1] == 0


def test_a_stranger_who_says_nothing_keeps_nobody_waiting(relay: Relay) -> None:
    with socket.create_connection(relay.where):
        assert relay.ask("exit 3").wait() == 3


def test_without_a_token_there_is_no_relay(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k != trust.TOKEN}
    words = ["serve", "--address", HOST, "--port", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "muster.node.relay", *words],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"{trust.TOKEN} is not set" in done.stderr


def test_it_listens_on_its_address_only(relay: Relay) -> None:
    with pytest.raises(errands.CannotAsk, match="no relay answers"):
        errands.Errand(("127.0.0.2", relay.where[1]), TOKEN, shell="true")


def test_children_end_with_whoever_asked(relay: Relay, tmp_path: Path) -> None:
    """Killed, it cannot say so; what has left the command's session ends as well."""
    mark = f"{tmp_path}/sleeps"
    asker = relay.as_ssh("node-0", f"setsid sh -c 'echo $$ >{mark}; exec sleep 1000' & sleep 1000")
    until(lambda: Path(mark).exists() and Path(mark).read_text().endswith("\n"))
    pid = int(Path(mark).read_text())
    asker.kill()
    asker.wait()
    until(lambda: gone(pid))


def test_what_ignores_sigterm_is_killed_after_the_grace_period(
    hasty: Relay, tmp_path: Path
) -> None:
    errand = hasty.ask(f"trap '' TERM; touch {tmp_path}/up; while :; do sleep 1000; done")
    until((tmp_path / "up").exists)
    errand.cancel()
    assert errand.wait() == 137


def test_a_command_can_end_in_its_own_way_when_it_is_told_to(relay: Relay, tmp_path: Path) -> None:
    errand = relay.ask(f"trap 'exit 5' TERM; touch {tmp_path}/up; while :; do sleep 0.05; done")
    until((tmp_path / "up").exists)
    errand.cancel()
    assert errand.wait() == 5


def test_what_a_command_has_left_running_ends_with_it(relay: Relay, tmp_path: Path) -> None:
    """As the ranks of a proxy that was killed alone."""
    mark = tmp_path / "left"
    errand = relay.ask(f"setsid sh -c 'echo $$ >{mark}; exec sleep 1000' & kill -9 $$")
    assert errand.wait() == 137
    assert not mark.exists() or not mark.read_text() or gone(int(mark.read_text()))


def test_children_end_with_the_relay(relay: Relay, tmp_path: Path) -> None:
    errand = relay.ask(f"echo $$ >{tmp_path}/pid; exec sleep 1000")
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    relay.process.terminate()
    assert relay.process.wait(60) == 0
    assert errand.wait() == 143
    assert gone(int((tmp_path / "pid").read_text()))


def test_children_end_with_a_relay_that_is_killed(relay: Relay, tmp_path: Path) -> None:
    relay.ask(f"echo $$ >{tmp_path}/pid; exec sleep 1000")
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    relay.process.kill()
    until(lambda: gone(int((tmp_path / "pid").read_text())))


def test_a_relay_ends_as_it_is_told(relay: Relay) -> None:
    errands.dismiss(relay.where, TOKEN, 41)
    assert relay.process.wait(60) == 41


def test_signals_are_passed_on(relay: Relay, tmp_path: Path) -> None:
    text = f"trap 'exit 9' USR1; touch {tmp_path}/up; while :; do sleep 0.05; done"
    asker = relay.as_ssh("-x", "-o", "BatchMode=yes", "somebody@node-0", text)
    until((tmp_path / "up").exists)
    asker.send_signal(signal.SIGUSR1)
    assert asker.wait(60) == 9


def test_a_launcher_without_ranks_outlives_a_signal_that_is_for_ranks(
    relay: Relay, tmp_path: Path
) -> None:
    errand = relay.ask(f"touch {tmp_path}/up; exec sleep 1000", shield=True)
    until((tmp_path / "up").exists)
    errand.signal(signal.SIGUSR1, ranks=True)
    errand.cancel()
    assert errand.wait() == 143


def test_much_output_of_several_at_once(relay: Relay) -> None:
    line = "x" * 99
    asked = [relay.ask(f"yes {line} | head -20000") for _ in range(3)]
    assert [errand.wait() for errand in asked] == [0, 0, 0]
    assert relay.out.stat().st_size == 3 * 20000 * 100


def test_in_the_place_of_ssh_it_is_the_commands_exit_code(relay: Relay) -> None:
    asker = relay.as_ssh("-p", "22", "node-0", "exit", "12")
    assert asker.wait(60) == 12


def test_in_the_place_of_ssh_255_is_our_own(relay: Relay, tmp_path: Path) -> None:
    for words, token, why in (
        (("node-0", "true"), "guessed", "does not know the run's token"),
        (("node-7", "true"), TOKEN, "no node of this run is called 'node-7'"),
        (("node-0",), TOKEN, "usage"),
    ):
        asker = relay.as_ssh(*words, token=token)
        assert asker.wait(60) == 255
        assert why in (tmp_path / "ssh.err").read_text()


def test_nothing_secret_is_on_a_command_line(relay: Relay, tmp_path: Path) -> None:
    errand = relay.ask(f"touch {tmp_path}/up; exec sleep 1000", env={"PASSWORD": "hunter-two"})
    until((tmp_path / "up").exists)
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if readable(path)]
    assert not [line for line in lines if b"hunter-two" in line or TOKEN.encode() in line]
    errand.cancel()
    assert errand.wait() == 143


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
    assert errands.ssh_words(words) == (host, command)


def gone(pid: int) -> bool:
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
