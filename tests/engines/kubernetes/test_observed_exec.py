"""`muster exec`, `shell` and `cp` of JobSets that run as they are: by exec streams of the double of
a cluster."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from support import command
from support.command import MUSTER
from support.kube import Cluster
from support.observed_runs import PATIENCE, forbid, jobset, until_state
from support.terminals import Terminal

pytestmark = pytest.mark.slow

#: Longer than any buffer on the way.
BIG = bytes(range(256)) * 2000


@pytest.fixture
def run(client: Client, cluster: Cluster) -> JobRun:
    """A JobSet with two pods, which is adopted."""
    cluster.create(jobset("sleep 600"))
    made = client.adopt("train")
    until_state(made, "RUNNING", "RUNNING")
    return made


def pod(cluster: Cluster, index: int) -> str:
    return str(cluster.pod(f"train-w-0-{index}-")["metadata"]["name"])


def words(run: JobRun, *argv: str, rank: int = 0) -> list[str]:
    return [*MUSTER, "exec", run.name, "--rank", str(rank), "--", *argv]


def ran(run: JobRun, *argv: str, rank: int = 0, given: bytes = b"") -> Any:
    return subprocess.run(
        words(run, *argv, rank=rank), input=given, capture_output=True, timeout=90, check=False
    )


def test_a_command_has_its_streams_and_its_exit_code(cluster: Cluster, run: JobRun) -> None:
    given = BIG * 40  # more than all that waits on the way, in both directions
    done = ran(run, "sh", "-c", "cat; echo $N; echo bad >&2; exit 5", rank=1, given=given)
    assert (done.returncode, done.stderr) == (5, b"bad\n")
    assert done.stdout == given + b"1\n"
    assert ran(run, "true").returncode == 0
    assert ran(run, "sh", "-c", "kill -9 $$").returncode == 137


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_does_the_same(cluster: Cluster, run: JobRun) -> None:
    script = ("sh", "-c", "pwd; echo $N; cat; echo bad >&2; exit 7")
    kubectl = ["kubectl", "--kubeconfig", str(cluster.kubeconfig)]
    kubectl += ["exec", "-i", pod(cluster, 1), "-c", "main", "--", *script]
    theirs = subprocess.run(kubectl, input=b"in", capture_output=True, timeout=60, check=False)
    ours = ran(run, *script, rank=1, given=b"in")
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)
    assert theirs.stderr.startswith(ours.stderr)  # and a line about the exit code
    assert ours.stdout.endswith(b"\n1\nin")


def test_a_program_that_cannot_run_is_as_in_a_shell(tmp_path: Path, run: JobRun) -> None:
    unknown = ran(run, "nosuch")
    assert (unknown.returncode, unknown.stdout) == (127, b"")
    assert b'exec: "nosuch": executable file not found in $PATH' in unknown.stderr
    assert ran(run, "/no/such").returncode == 127
    file = tmp_path / "file"
    file.write_text("no program")
    forbidden = ran(run, str(file))
    assert (forbidden.returncode, b"permission denied" in forbidden.stderr) == (126, True)


def test_output_that_nobody_reads_ends_the_command(run: JobRun) -> None:
    with subprocess.Popen(words(run, "yes"), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(2) == b"y\n"
        process.stdout.close()
        assert process.wait(PATIENCE) == 128 + signal.SIGPIPE


def test_a_signal_ends_it(run: JobRun) -> None:
    script = ("sh", "-c", "echo up; exec sleep 600")
    with subprocess.Popen(
        words(run, *script), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM


def test_a_lost_connection_is_no_exit_code(cluster: Cluster, run: JobRun) -> None:
    with subprocess.Popen(
        words(run, "sh", "-c", "echo up; exec sleep 600"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"up\n"
        cluster.server.drop_connections()
        assert process.wait(PATIENCE) == 4
        assert f"the connection to pod {pod(cluster, 0)} is lost" in process.stderr.read().decode()


def test_a_right_that_is_missing_is_named(cluster: Cluster, run: JobRun) -> None:
    forbid(cluster, "create", "pods/exec")
    done = ran(run, "true")
    assert done.returncode == 4
    said = " ".join(done.stderr.decode().split())
    assert (
        f"cannot run a command in pod {pod(cluster, 0)}: admin may not create pods/exec in "
        'namespace default: its Role there lacks {apiGroups: [""], resources: [pods/exec], '
        "verbs: [get, create]}"
    ) in said
    cluster.grant("token-of-admin", "admin")


def test_a_command_may_have_a_terminal(run: JobRun) -> None:
    # Kubernetes starts a command before its terminal has a size
    sized = "until stty size | grep -v '^0 0'; do :; done"
    script = f"{sized}; read line; echo got $line; tty && exit 3"
    argv = [*MUSTER, "exec", run.name, "--rank", "0", "-it", "--", "sh", "-c", script]
    with Terminal(argv, rows=31, columns=97) as terminal:
        terminal.wait_for("31 97\n")
        terminal.type("hello\r")
        terminal.wait_for("got hello\n")
        assert terminal.end() == 3


def test_keys_are_for_the_terminal_in_the_pod(run: JobRun) -> None:
    script = "trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.1; done"
    argv = [*MUSTER, "exec", run.name, "--rank", "0", "-t", "--", "sh", "-c", script]
    with Terminal(argv) as terminal:
        terminal.wait_for("ready\n")
        terminal.type("\x03")
        terminal.wait_for("interrupted\n")
        assert terminal.end() == 9


def test_a_shell_has_its_prompt_and_new_sizes(run: JobRun) -> None:
    with Terminal([*MUSTER, "shell", run.name, "--rank", "1"]) as terminal:
        terminal.wait_for(f"node-1 of {run.name};")
        terminal.type("echo $N-$((6*7))\r")
        terminal.wait_for("\n1-42\n")
        terminal.resize(20, 60)
        terminal.type("stty size\r")
        terminal.wait_for("\n20 60\n")
        terminal.type("exit 6\r")
        assert terminal.end() == 6


def test_files_are_copied(tmp_path: Path, run: JobRun) -> None:
    source, inside, back = tmp_path / "source", tmp_path / "inside", tmp_path / "back"
    source.mkdir()
    (source / "data").write_bytes(BIG)
    assert command.muster("cp", str(source), f"{run.name}:0:{inside}").returncode == 0
    assert (inside / "data").read_bytes() == BIG
    done = command.muster("cp", f"{run.name}:0:{inside}/data", str(back))
    assert done.returncode == 0, done.stderr
    assert back.read_bytes() == BIG
    missing = command.muster("cp", f"{run.name}:0:/no/such", str(back))
    assert missing.returncode == 2
    assert "/no/such" in missing.stderr
