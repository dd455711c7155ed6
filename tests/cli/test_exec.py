"""`muster exec` and `muster shell`."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Iterator

import pytest

from muster.client.client import Client, overrides_from
from muster.client.run import JobRun
from support.command import MUSTER, muster, output_of
from support.faults import until
from support.runs import until_ready
from support.terminals import Terminal


def start(client: Client, engine: str, nodes: int, **fields: object) -> JobRun:
    job, new = client.job(None, command=["sleep", "1000"], name="demo", **fields)
    run = client.start(
        client.prepare_run(job, overrides_from({"nodes": nodes, "engine": engine}), new_job=new)
    )
    until_ready(run)
    return run


@pytest.fixture
def run(client: Client, engine: str) -> Iterator[JobRun]:
    """A run of two nodes that sleep."""
    yield start(client, engine, 2)


def processes_in(run: JobRun) -> str:
    """The command lines of the processes that node 0 sees."""
    return output_of("exec", run.name, "--rank", "0", "--", "ps", "-eo", "args")


@pytest.mark.parametrize(
    "words",
    [
        ("RUN", "--rank", "1", "--", "sh", "-c", "echo $NODE_RANK"),
        ("--rank=1", "RUN", "sh", "-c", "echo $NODE_RANK"),
        ("--rank", "1", "-i", "RUN", "--", "sh", "-c", "echo $NODE_RANK"),
        ("--rank", "1", "--", "RUN", "sh", "-c", "echo $NODE_RANK"),
    ],
)
def test_options_may_come_before_and_after_the_run(run: JobRun, words: tuple[str, ...]) -> None:
    assert output_of("exec", *(run.name if word == "RUN" else word for word in words)) == "1\n"


def test_standard_input_secrets_and_the_exit_code_are_passed_on(
    client: Client, engine: str
) -> None:
    run = start(client, engine, 1, env={"API_TOKEN": "not-to-be-hidden"})
    script = "read x; echo $x $API_TOKEN; exit 9"
    done = muster("exec", run.id, "--", "sh", "-c", script, input="word\n")
    assert (done.stdout, done.stderr, done.returncode) == ("word not-to-be-hidden\n", "", 9)
    assert muster("shell", run.id, input="exit $((40 + 2))").returncode == 42


def test_a_node_has_to_be_chosen_and_to_run(client: Client, run: JobRun) -> None:
    missing = muster("exec", run.name, "--", "true", code=2).stderr
    assert missing == (
        f"error: --rank: {run.name} has 2 nodes; name one (its nodes: 0 (workers), 1 (workers))\n"
    )
    assert "has no rank 7 (its nodes:" in muster("shell", run.name, "--rank", "7", code=2).stderr
    run.cancel().wait(60)
    ended = muster("exec", run.name, "--rank", "0", "--", "true", code=2).stderr
    hint = f"`muster logs {run.name}` shows its output"
    assert ended == f"error: {run.name} has no processes: it is CANCELED ({hint})\n"


def test_a_terminal_needs_one(run: JobRun) -> None:
    refused = muster("exec", "-t", run.name, "--rank", "0", "true", code=2, input="").stderr
    assert refused.startswith("error: -t: standard input is not a terminal (leave it out")


def test_a_command_has_a_terminal_of_this_size_and_its_keys(run: JobRun) -> None:
    script = "trap 'stty size; exit 6' INT; stty size; while :; do sleep 0.02; done"
    words = [*MUSTER, "exec", "-it", run.name, "--rank", "0", "sh", "-c", script]
    with Terminal(words, rows=0, columns=0) as terminal:
        terminal.wait_for("0 0\n")
        terminal.resize(31, 101)
        terminal.type("\x03")
        terminal.wait_for("31 101\n")
        assert terminal.end() == 6


def test_a_command_is_terminated_with_muster_exec(run: JobRun) -> None:
    script = "trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done"
    words = [*MUSTER, "exec", run.name, "--rank", "0", "--", "sh", "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 5


def test_a_command_without_a_terminal_of_its_own_ends_with_that_of_muster_exec(run: JobRun) -> None:
    """The kernel signals only the leader of the session of a terminal that is closed."""
    words = [*MUSTER, "exec", run.name, "--rank", "0", "--", "sh", "-c", "echo up; exec sleep 1234"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(words[0], words)
    assert b"up" in os.read(terminal, 100)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 129
    until(lambda: "sleep 1234" not in processes_in(run), "it has ended")


def test_a_shell_greets_when_it_has_started(run: JobRun) -> None:
    with Terminal([*MUSTER, "shell", run.name, "--rank", "0"]) as terminal:
        terminal.wait_for(f"node-0 of {run.name}; `exit` or Ctrl-D leaves it\n")
        terminal.type("exit 3\r")
        assert terminal.end() == 3
        assert b"leaves it\r\n" in terminal.raw
    run.cancel().wait(60)
    with Terminal([*MUSTER, "shell", run.name, "--rank", "0"]) as terminal:
        assert terminal.end() == 2
    assert "leaves it" not in terminal.output


#: What no other test has run: nodes that share a machine see the processes of others, too.
LONG = f"sleep 1{os.getpid()}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_shell_ends_with_muster_shell(run: JobRun, number: signal.Signals) -> None:
    with Terminal([*MUSTER, "shell", run.name, "--rank", "0"]) as terminal:
        # before the shell has started: keys that were typed early are not lost
        terminal.type(f"trap '' TERM; echo up-$((6 * 7)); {LONG}1\n")
        terminal.wait_for("up-42")
        terminal.process.send_signal(number)
        assert terminal.end() in (129, 137)
    until(lambda: f"{LONG}1" not in processes_in(run), "it has ended")
    assert "sleep 1000" in processes_in(run), "that of the node"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("shell", ["bash", pytest.param("dash", marks=pytest.mark.slow)])
def test_jobs_of_a_shell_end_with_muster_exec(
    run: JobRun, shell: str, number: signal.Signals
) -> None:
    """Those in the background do, too, as with ssh; those that ignore SIGHUP stay."""
    words = [*MUSTER, "exec", "-it", run.name, "--rank", "0", "--", shell, "-i"]
    with Terminal(words) as terminal:
        terminal.type(f"{LONG}2 & nohup {LONG}3 >/dev/null & echo up-$((6 * 7))\n")
        terminal.wait_for("up-42")
        both = {f"{LONG}2", f"{LONG}3"}  # the second one is `nohup ...` before it ignores SIGHUP
        until(lambda: both <= {*processes_in(run).splitlines()}, "both run")
        terminal.process.send_signal(number)
        terminal.end()
    until(lambda: f"{LONG}2" not in processes_in(run), "it has ended")
    assert f"{LONG}3" in processes_in(run)


def test_a_command_with_a_terminal_that_ignores_signals_is_killed(run: JobRun) -> None:
    script = "trap '' TERM HUP; echo up-$((6 * 7)); while :; do sleep 0.1; done"
    words = [*MUSTER, "exec", "-t", run.name, "--rank", "0", "--", "sh", "-c", script]
    with Terminal(words) as terminal:
        terminal.wait_for("up-42")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 137
