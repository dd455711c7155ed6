"""Ctrl-C, SIGTERM and SIGHUP, at any moment: a sentence at most, and the right exit code."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from muster.client.client import Client

#: A command that gets SIGINT at its n-th call of a function; 0: it says how many there are.
AT_CALL = """
import os, signal, sys

at, calls, leave = int(sys.argv[1]), 0, os._exit

def count(frame, event, _):
    global calls
    calls += 1
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


def test_nothing_else_is_imported_before_ctrl_c_is_seen_to() -> None:
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
    ("command", "times"),
    [
        ("run CODE --entrypoint main.py", 24),
        ("run --detach -- true", 8),
        ("check -- true", 8),
        ("logs last --follow", 6),
        ("runs wait last", 6),
        ("runs list", 6),
        ("explain CODE --entrypoint main.py", 6),
    ],
)
def test_ctrl_c_at_any_moment(client: Client, tmp_path: Path, command: str, times: int) -> None:
    code = tmp_path / "code"
    code.mkdir()
    for number in range(20):
        (code / f"{number}.txt").write_text("x" * number)
    (code / "main.py").write_text("print('up')\n")
    words = [str(code) if word == "CODE" else word for word in command.split()]
    job, new = client.job(None, command=["echo", "up"])
    client.start(client.draft(job, new_job=new)).wait(60)
    whole = at_call(0, *words)
    assert whole.returncode == 0, whole.stderr
    calls = int(whole.stderr.split()[-1])
    numbers = random.Random(20240131)
    for at in sorted(numbers.randrange(1, calls) for _ in range(times)):
        (code / "0.txt").write_text(str(at))  # an artifact that is not there yet
        done = at_call(at, *words)
        told = done.stderr.strip().splitlines()
        assert done.returncode in (0, 130), (at, done)
        for wrong in ("Traceback", "KeyboardInterrupt", "Exception ignored"):
            assert wrong not in done.stderr, (at, done.stderr)
        assert len(told) <= 1 or "SUCCEEDED" in told[-1] or "started" in told[-1], (at, told)
    for run in client.runs():
        run.wait(60)
        assert run.state == ("CANCELED" if run.job_name == "muster-check" else "SUCCEEDED")


def test_ctrl_c_is_ignored_if_whoever_starts_us_wants_that() -> None:
    """As a shell does for `muster run ... &` in a script."""
    words = ["sh", "-c", f"trap '' INT; exec {sys.executable} -m muster run -- sh -c 'kill -INT 0'"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "SUCCEEDED" in done.stderr or "FAILED" in done.stderr, done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_signal_detaches(client: Client, number: signal.Signals, more: list[str]) -> None:
    argv = [sys.executable, "-m", "muster", "run", *more, "--", "sh", "-c", "echo up; sleep 1000"]
    with subprocess.Popen(argv, stdout=-1, stderr=-1, text=True) as process:
        shown = process.stderr if more else process.stdout
        assert shown is not None
        assert shown.readline() == "workers/0 | up\n"
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert told == (
        "sh-1 continues without us; `muster logs sh-1 --follow` shows it, "
        "`muster runs cancel sh-1` ends it\n"
    )
    run = client.run("last")
    assert run.state == "IN_PROGRESS"
    assert run.cancel().wait(60).state == "CANCELED"


def test_a_signal_before_the_run_is_followed(client: Client, tmp_path: Path) -> None:
    """It is accepted and not named yet: the signal waits until it is."""
    code = (
        "import os, signal, sys\n"
        "from muster.client.client import Client\n"
        "real = Client.start\n"
        "def start(*args):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    run = real(*args)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return run\n"
        "Client.start = start\n"
        "sys.argv[1:] = ['run', '--', 'sleep', '1000']\n"
        "from muster.__main__ import main; main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 143
    assert done.stderr.startswith("sleep-1 continues without us"), done.stderr
    assert client.run("last").state in ("ACCEPTED", "IN_PROGRESS")


def test_a_hang_up_that_is_ignored(client: Client, tmp_path: Path) -> None:
    """As by nohup."""
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


def test_a_launcher_of_its_own_hears_no_ctrl_c(own_home: Path) -> None:
    """A terminal sends it to every process of the command."""
    code = (
        "import os, signal, sys\n"
        "from muster.control.launcher import Launcher\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "launcher = Launcher.spawn()\n"
        "os.killpg(0, signal.SIGINT)\n"
        "from muster.client.client import Client\n"
        "client = Client(launcher=launcher)\n"
        "job, new = client.job(None, command=['true'])\n"
        "print(client.start(client.draft(job, new_job=new)).wait(60).state)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    assert (done.stdout, done.stderr) == ("SUCCEEDED\n", "")
