"""torchrun, as a node runs it: its exit code and its message."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from muster.node import error_file, incarnation_files
from muster.node.launch_message import OutputFiles

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")

NOTES = """printf '{"message": "out of luck"}' > "$TORCHELASTIC_ERROR_FILE"; exit 4"""


def torchrun(
    script: str, folder: Path, *, ranks: int = 1, restarts: int = 0, **env: str
) -> subprocess.Popen[str]:
    """Ranks that run a shell script; several ranks have their own files."""
    options = ["--nproc-per-node", str(ranks), "--max-restarts", str(restarts)]
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", "1"]
    own = ["--no-python", "sh", "-c", script]
    argv = [sys.executable, "-m", "muster.node.torchrun", *options, *rendezvous, *own]
    error_path = str(folder / "error")
    files = [OutputFiles(f"{folder}/{n}.out", f"{folder}/{n}.err") for n in range(ranks)]
    outputs = incarnation_files.rank_outputs_variable(files if ranks > 1 else [], error_path)
    env = {
        **os.environ,
        "TMPDIR": str(folder),
        error_file.VARIABLE: error_path,
        **outputs,
        **env,
    }
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, env=env, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize(
    ("script", "code", "message", "recorded"),
    [
        ("exit 3", 3, "rank 0 failed with exit code 3, and no restart is left", None),
        ("kill -9 $$", 1, "rank 0 failed with SIGKILL, and no restart is left", None),
        (NOTES, 4, "rank 0 failed with exit code 4, and no restart is left", "out of luck"),
    ],
)
def test_torchrun_ends_like_its_rank(
    tmp_path: Path, script: str, code: int, message: str, recorded: str | None
) -> None:
    process = torchrun(script, tmp_path)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == code
    assert errors.splitlines()[-1] == f"muster: {message}"
    assert "Traceback" not in errors
    found = error_file.read(str(tmp_path / "error"))
    assert (found.message if found else None) == recorded


@pytest.mark.parametrize("own_error_file", [False, True])
def test_ranks_write_to_their_own_files(tmp_path: Path, own_error_file: bool) -> None:
    """Ranks append to their files after a restart, also if the job sets the error file."""
    for name in ("0.out", "1.out"):
        (tmp_path / name).write_text("before\n")
    script = (
        "echo $RANK.$TORCHELASTIC_RESTART_COUNT; echo $RANK >&2; env | grep -c MUSTER_RANK; "
        'test $RANK.$TORCHELASTIC_RESTART_COUNT != 1.0 || exit 3; until test -e "$DONE"; do '
        'sleep 0.1; test $RANK.$TORCHELASTIC_RESTART_COUNT != 1.1 || : > "$DONE"; done'
    )
    more = {error_file.VARIABLE: str(tmp_path / "theirs")} if own_error_file else {}
    process = torchrun(script, tmp_path, ranks=2, restarts=1, DONE=str(tmp_path / "done"), **more)
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert (tmp_path / "0.out").read_text() == "before\n0.0\n0\n0.1\n0\n"
    assert (tmp_path / "1.out").read_text() == "before\n1.0\n0\n1.1\n0\n"
    assert (tmp_path / "0.err").read_text() == "0\n0\n"
    assert (tmp_path / "1.err").read_text() == "1\n1\n"
    assert out == ""
    assert "failed (exitcode: 3) local_rank: 1" in errors  # torchrun's own


RAISES = "Traceback (most recent call last):\\nValueError: bad luck"
FOLLOWS = "Traceback (most recent call last):\\nRuntimeError: Connection closed by peer"
RECORDS = """printf '{"message": "out of luck"}' > "$TORCHELASTIC_ERROR_FILE\""""


@pytest.mark.parametrize(
    ("one", "recorded"),
    [
        (f"printf '{RAISES}' >&2", "Traceback (most recent call last):\nValueError: bad luck"),
        (RECORDS, "out of luck"),
        (":", ""),
    ],
)
def test_the_failed_rank_is_named_with_its_error(tmp_path: Path, one: str, recorded: str) -> None:
    """Also if a rank that only lost its peer is found first, and if the job sets the variable of
    torchrun's error file."""
    follows = f"until test -e $FAILED; do sleep 0.1; done; printf '{FOLLOWS}' >&2; exit 1"
    fails = f"trap 'exit 4' TERM; {one}; : > $FAILED; sleep 1000 & wait"
    script = f"if test $RANK = 0; then {follows}; else {fails}; fi"
    theirs = {error_file.VARIABLE: str(tmp_path / "theirs"), "FAILED": str(tmp_path / "failed")}
    process = torchrun(script, tmp_path, ranks=2, **theirs)
    _, errors = process.communicate(timeout=240)
    head = "rank 1 failed with exit code 4, and no restart is left"
    assert process.returncode == 4, errors
    assert errors.splitlines()[-1] == f"muster: {head}"
    found = error_file.read(str(tmp_path / "error"))
    assert found is not None
    assert found.message == (f"{head}:\n{recorded}" if recorded else head)


def test_output_before_a_restart_does_not_explain_the_failure(tmp_path: Path) -> None:
    raises = f"printf '{RAISES}' >&2"
    script = f"test $TORCHELASTIC_RESTART_COUNT = 1 || {raises}; exit 3"
    process = torchrun(script, tmp_path, ranks=2, restarts=1)
    process.communicate(timeout=240)
    found = error_file.read(str(tmp_path / "error"))
    assert found is not None
    assert found.message.endswith(" failed with exit code 3, and no restart is left")


def test_sigterm_sets_the_exit_code(tmp_path: Path) -> None:
    process = torchrun("echo up; sleep 1000", tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "conf", ["", "is_host=true,read_timeout=600", "is_host=false,read_timeout=0"]
)
def test_the_host_does_not_wait_for_itself_or_without_a_timeout(conf: str) -> None:
    await_host(SimpleNamespace(rdzv_conf=conf, rdzv_endpoint="127.0.0.1:1"))


def test_the_others_wait_until_the_host_answers() -> None:
    with socket.socket() as host:
        host.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{host.getsockname()[1]}"
        settings = SimpleNamespace(
            rdzv_conf="is_host=false,read_timeout=600", rdzv_endpoint=endpoint
        )
        waiting = threading.Thread(target=await_host, args=[settings], daemon=True)
        waiting.start()
        host.listen()
        host.accept()[0].close()  # it has connected
        waiting.join(60)
        assert not waiting.is_alive()


def await_host(settings: object) -> None:
    from muster.node import torchrun  # where PyTorch is

    torchrun._await_host(settings)
