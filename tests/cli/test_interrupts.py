"""Ctrl-C, SIGTERM and SIGHUP at any moment: at most one line of output, and the right exit code."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.interrupt import Delivered, Held
from support.command import MUSTER
from support.embedded import over_http
from support.terminals import Terminal

#: A command that gets SIGINT at its n-th function call; with 0, it prints the number of calls.
#: Counted are the entry of a Python function and the return of a C function, where the interpreter
#: handles signals. Before a C function it never does: an exception raised there would skip the
#: release at the end of `with lock`, also in the import system, and the command would hang.
AT_CALL = """
import os, signal, sys

at, calls, leave = int(sys.argv[1]), 0, os._exit

def count(frame, event, _):
    global calls
    calls += event in ("call", "c_return")
    if calls == at:
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)

def end(code):
    sys.setprofile(None)
    if not at:
        print(calls, file=sys.stderr)
    leave(code)

from muster.__main__ import main
sys.argv[:] = ["muster", *sys.argv[2:]]
os._exit = end
os.register_at_fork(after_in_child=lambda: sys.setprofile(None))
sys.setprofile(count)
main()
"""


def at_call(number: int, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", AT_CALL, str(number), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)


def test_the_ctrl_c_handler_is_set_before_other_imports() -> None:
    code = (
        "import os, sys\n"
        "before = set(sys.modules)\n"
        "import muster.interrupt\n"
        "muster.interrupt.leave_at_once()\n"
        "print(*sorted(set(sys.modules) - before - {'__future__'}), flush=True)\n"
        "os.kill(os.getpid(), 2)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
    assert done.stdout == "muster muster.interrupt\n"


@pytest.mark.parametrize(
    "starting",
    [
        "real(thread)",
        "real(thread); time.sleep(0.5)",  # it takes long to start a thread
        # another signal arrives while a thread is started that sends the first one again
        "os.kill(os.getpid(), signal.SIGHUP); real(thread)",
    ],
)
def test_a_signal_that_arrives_in_a_callback_detaches_after_it(starting: str) -> None:
    code = """
        import os, signal, sys, threading, time, weakref
        from muster.cli.detach import Detached, detach_on_signals
        real = threading.Thread.start
        def start(thread):
            exec(sys.argv[1])
        threading.Thread.start = start
        class Thing:
            pass
        detach_on_signals([])
        thing = Thing()
        held = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
        try:
            del thing
            time.sleep(60)
        except Detached as detached:
            print(detached.number == signal.SIGTERM)
    """
    argv = [sys.executable, "-c", textwrap.dedent(code), starting]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_a_time_to_cancel_that_is_over_in_a_callback_cancels_nothing() -> None:
    code = """
        import os, signal, time, weakref
        from types import SimpleNamespace
        from muster.cli import detach
        detach._in_foreground = lambda: True
        detach._alarm_later = lambda: None
        detach._cancel = lambda ids: print("canceled", ids, flush=True)
        class Thing:
            pass
        detach.detach_on_signals([SimpleNamespace(id="r1", name="demo")])
        thing = Thing()
        held = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGALRM))
        os.kill(os.getpid(), signal.SIGINT)
        try:
            del thing
            time.sleep(5)
        except detach.Detached as detached:
            print("exits with", detach.detach([], detached.number))
    """
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout) == (0, "exits with 130\n"), done.stderr


@pytest.mark.parametrize(
    ("command", "times"),
    [
        ("run CODE --entrypoint main.py", 12),
        ("run --detach -- true", 6),
        ("check -- true", 6),
        ("logs last --follow", 4),
        ("runs wait last", 4),
        ("runs list", 4),
        ("explain CODE --entrypoint main.py", 4),
    ],
)
def test_ctrl_c_at_any_moment(
    client: Client, tmp_path: Path, rng: random.Random, command: str, times: int
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    for number in range(20):
        (code / f"{number}.txt").write_text("x" * number)
    (code / "main.py").write_text("print('up')\n")
    words = [str(code) if word == "CODE" else word for word in command.split()]
    job, new = client.job(None, command=["echo", "up"])
    client.start(client.prepare_run(job, new_job=new)).wait(60)
    complete = at_call(0, *words)
    assert complete.returncode == 0, complete.stderr
    calls = int(complete.stderr.split()[-1])
    for at in sorted(rng.randrange(1, calls) for _ in range(times)):
        (code / "0.txt").write_text(str(at))  # an artifact that is not stored yet
        done = at_call(at, *words)
        output = done.stderr.removeprefix(ELSEWHERE).strip().splitlines()
        assert done.returncode in (0, 130), (at, done)
        for wrong in ("Traceback", "KeyboardInterrupt", "Exception ignored"):
            assert wrong not in done.stderr, (at, done.stderr)
        if output and output[0].endswith(" starts 1 node"):
            del output[0]
        assert len(output) <= 1 or "SUCCEEDED" in output[-1] or "started" in output[-1], (
            at,
            output,
        )
    for run in client.runs():
        run.wait(60)
        assert run.state == ("CANCELED" if run.job_name == "muster-check" else "SUCCEEDED")


def test_ctrl_c_stays_ignored_if_the_parent_ignores_it() -> None:
    """A shell ignores it for `muster run ... &` in a script."""
    words = ["sh", "-c", f"trap '' INT; exec {sys.executable} -m muster run -- sh -c 'kill -INT 0'"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "SUCCEEDED" in done.stderr or "FAILED" in done.stderr, done.stderr


#: Prints `up`, and `saved` when it is canceled.
SAVES = (
    "trap 'sleep 0.2; echo saved; exit 1' TERM; echo up; while :; do sleep 0.05; echo tick; done"
)
#: The note before a run of a command on a server.
ELSEWHERE = (
    "note: the command runs in an empty directory on the server; `--copy` sends this directory\n"
)
AGAIN = "Press Ctrl-C again within 5 s to cancel sh-1, or Enter to detach at once.\n"


def test_ctrl_c_on_a_terminal_detaches(client: Client) -> None:
    with Terminal([*MUSTER, "run", "--", "sh", "-c", SAVES]) as terminal:
        terminal.wait_for("up\n")
        terminal.type("typed before\n\x03")
        terminal.wait_for(AGAIN)
        terminal.wait_for("tick\n")  # its output is printed meanwhile
        terminal.type("\n")
        assert terminal.end() == 130
    assert "Detached from sh-1; still running" in terminal.output
    assert client.run("last").state == "IN_PROGRESS"


def test_ctrl_c_twice_cancels(client: Client) -> None:
    with Terminal([*MUSTER, "run", "--", "sh", "-c", SAVES]) as terminal:
        terminal.wait_for("up\n")
        terminal.type("\x03")
        terminal.wait_for(AGAIN)
        terminal.type("\x03")
        terminal.wait_for("Canceling sh-1. Press Ctrl-C again to stop waiting for its end.\n")
        terminal.wait_for("saved\n")
        assert terminal.end() == 3
    assert "canceled by Ctrl-C" in terminal.output
    assert client.run("last").state == "CANCELED"


def test_a_third_ctrl_c_stops_waiting(client: Client) -> None:
    program = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    with Terminal([*MUSTER, "run", "--", "sh", "-c", program]) as terminal:
        terminal.wait_for("up\n")
        for shown in (AGAIN, "cancel requested"):
            terminal.type("\x03")
            terminal.wait_for(shown)
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "`muster cancel --force sh-1` kills it at once" in terminal.output
    assert client.run("last").cancel(force=True).wait(60).state == "CANCELED"


@pytest.mark.slow
def test_a_single_ctrl_c_detaches_in_time(client: Client) -> None:
    with Terminal([*MUSTER, "run", "--", "sh", "-c", SAVES]) as terminal:
        terminal.wait_for("up\n")
        terminal.type("\x03")
        terminal.wait_for(AGAIN)
        started = time.monotonic()
        assert terminal.end() == 130
    assert 4 < time.monotonic() - started < 20
    assert client.run("last").state == "IN_PROGRESS"


#: Waits an hour for a second Ctrl-C.
PATIENT = """
from muster.cli import detach
from muster.__main__ import main
detach._TIME_TO_CANCEL = 3600.0
main()
"""


def test_a_run_that_ends_after_ctrl_c_is_summarized(client: Client, tmp_path: Path) -> None:
    go = tmp_path / "go"
    program = f"echo up; until [ -e {go} ]; do sleep 0.01; done; exit 3"
    argv = [sys.executable, "-c", PATIENT, "run", "--", "sh", "-c", program]
    with Terminal(argv) as terminal:
        terminal.wait_for("up\n")
        terminal.type("\x03")
        terminal.wait_for("Press Ctrl-C again within 3600 s")
        go.touch()
        assert terminal.end() == 1
    assert "Detached" not in terminal.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_signal_detaches(client: Client, number: signal.Signals, more: list[str]) -> None:
    argv = [sys.executable, "-m", "muster", "run", *more, "--", "sh", "-c", "echo up; sleep 1000"]
    with subprocess.Popen(argv, stdout=-1, stderr=-1, text=True) as process:
        shown = process.stderr if more else process.stdout
        assert shown is not None
        assert process.stderr is not None
        if over_http():
            assert process.stderr.readline() == ELSEWHERE
        assert process.stderr.readline() == "sh-1 starts 1 node\n"
        assert shown.readline() == "workers/0 | up\n"
        process.send_signal(number)
        _, output = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert output == (
        "Detached from sh-1; still running. Follow it with `muster logs sh-1 --follow`, "
        "cancel it with `muster cancel sh-1`\n"
    )
    run = client.run("last")
    assert run.state == "IN_PROGRESS"
    assert run.cancel().wait(60).state == "CANCELED"


def test_a_signal_before_the_run_is_followed(client: Client, tmp_path: Path) -> None:
    """Signals are blocked until the command has printed the name of the accepted run."""
    code = (
        "import os, signal, sys\n"
        "from muster.client.client import Client\n"
        "real = Client.start\n"
        "def start(*args, **options):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    run = real(*args, **options)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return run\n"
        "Client.start = start\n"
        "sys.argv[1:] = ['run', '--', 'sleep', '1000']\n"
        "from muster.__main__ import main; main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 143
    expected = "sleep-1 starts 1 node\nDetached from sleep-1; still running"
    assert done.stderr.removeprefix(ELSEWHERE).startswith(expected), done.stderr
    assert client.run("last").state in ("ACCEPTED", "IN_PROGRESS")


def test_sighup_stays_ignored_if_the_parent_ignores_it(client: Client, tmp_path: Path) -> None:
    """nohup ignores it."""
    go = tmp_path / "go"
    argv = ["sh", "-c", f"trap '' HUP; exec {sys.executable} -m muster run -- sh -c \"$0\""]
    program = f"echo up; while [ ! -e {go} ]; do sleep 0.01; done"
    with subprocess.Popen([*argv, program], stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "workers/0 | up\n"
        process.send_signal(signal.SIGHUP)
        go.touch()
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_spawned_launcher_ignores_ctrl_c(own_home: Path) -> None:
    """A terminal sends Ctrl-C to every process of the command."""
    code = (
        "import os, signal, sys\n"
        "from muster.control.launcher import Launcher\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "launcher = Launcher.spawn()\n"
        "os.killpg(0, signal.SIGINT)\n"
        "from muster.client.client import Client\n"
        "client = Client(launcher=launcher)\n"
        "job, new = client.job(None, command=['true'])\n"
        "print(client.start(client.prepare_run(job, new_job=new)).wait(60).state)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    assert (done.stdout, done.stderr) == ("SUCCEEDED\n", "")


def test_nested_contexts_restore_what_was_blocked_around_them() -> None:
    first, second = signal.SIGINT, signal.SIGUSR1

    def blocked() -> set[int]:
        return {*signal.pthread_sigmask(signal.SIG_BLOCK, ())} & {first, second}

    with Held(first):
        with Held(first, second):
            assert blocked() == {first, second}
        assert blocked() == {first}
        with Delivered(first, second):
            assert blocked() == set()
        assert blocked() == {first}
        with Delivered(first), Held(first):
            assert blocked() == {first}
        assert blocked() == {first}
    assert blocked() == set()
