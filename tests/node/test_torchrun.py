"""torchrun, as a node runs it: what it ends with, and what it says."""

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

from muster.node import error_file, rank_outputs

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")

NOTES = """printf '{"message": "out of luck"}' > "$TORCHELASTIC_ERROR_FILE"; exit 4"""


def torchrun(
    script: str, folder: Path, *, ranks: int = 1, restarts: int = 0, **env: str
) -> subprocess.Popen[str]:
    """Ranks that are a shell each; several have files of their own."""
    options = ["--nproc-per-node", str(ranks), "--max-restarts", str(restarts)]
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", "1"]
    own = ["--no-python", "sh", "-c", script]
    argv = [sys.executable, "-m", "muster.node.torchrun", *options, *meeting, *own]
    noted = {"error_file": str(folder / "error")}
    files = [{"stdout": f"{folder}/{n}.out", "stderr": f"{folder}/{n}.err"} for n in range(ranks)]
    launch = {"processes": [noted], "ranks": files if ranks > 1 else []}
    told = {error_file.VARIABLE: noted["error_file"], **rank_outputs.announce(launch)}
    env = {**os.environ, "TMPDIR": str(folder), **told, **env}
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, env=env, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize(
    ("script", "code", "says", "noted"),
    [
        ("exit 3", 3, "rank 0 failed with exit code 3, and no restart is left", None),
        ("kill -9 $$", 1, "rank 0 failed with SIGKILL, and no restart is left", None),
        (NOTES, 4, "rank 0 failed with exit code 4, and no restart is left", "out of luck"),
    ],
)
def test_it_ends_as_its_rank_did(
    tmp_path: Path, script: str, code: int, says: str, noted: str | None
) -> None:
    process = torchrun(script, tmp_path)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == code
    assert errors.splitlines()[-1] == f"muster: {says}"
    assert "Traceback" not in errors
    found = error_file.read(str(tmp_path / "error"))
    assert (found.message if found else None) == noted


@pytest.mark.parametrize("own_error_file", [False, True])
def test_ranks_write_to_files_of_their_own(tmp_path: Path, own_error_file: bool) -> None:
    """To which they append when they are started again, whatever torchrun is told of the rest."""
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
    ("one", "noted"),
    [
        (f"printf '{RAISES}' >&2", "Traceback (most recent call last):\nValueError: bad luck"),
        (RECORDS, "out of luck"),
        (":", ""),
    ],
)
def test_the_rank_at_fault_is_named_with_what_it_wrote(
    tmp_path: Path, one: str, noted: str
) -> None:
    """Also if one that only lost its peer is found first, and the job has its own use for the
    variable that says where torchrun notes errors."""
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
    assert found.message == (f"{head}:\n{noted}" if noted else head)


def test_what_a_rank_wrote_before_it_was_started_again_is_not_why_it_failed(tmp_path: Path) -> None:
    raises = f"printf '{RAISES}' >&2"
    script = f"test $TORCHELASTIC_RESTART_COUNT = 1 || {raises}; exit 3"
    process = torchrun(script, tmp_path, ranks=2, restarts=1)
    process.communicate(timeout=240)
    found = error_file.read(str(tmp_path / "error"))
    assert found is not None
    assert found.message.endswith(" failed with exit code 3, and no restart is left")


def test_told_to_end_it_says_so_by_its_exit_code(tmp_path: Path) -> None:
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
def test_who_hosts_or_has_no_time_does_not_wait_for_the_host(conf: str) -> None:
    await_host(SimpleNamespace(rdzv_conf=conf, rdzv_endpoint="127.0.0.1:1"))


def test_the_others_wait_until_the_host_answers() -> None:
    with socket.socket() as host:
        host.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{host.getsockname()[1]}"
        asked = SimpleNamespace(rdzv_conf="is_host=false,read_timeout=600", rdzv_endpoint=endpoint)
        waiting = threading.Thread(target=await_host, args=[asked], daemon=True)
        waiting.start()
        host.listen()
        host.accept()[0].close()  # it has asked
        waiting.join(60)
        assert not waiting.is_alive()


def await_host(asked: object) -> None:
    from muster.node import torchrun  # where PyTorch is

    torchrun._await_host(asked)
