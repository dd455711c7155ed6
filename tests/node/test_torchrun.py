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

from muster.node import error_file

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")

NOTES = """printf '{"message": "out of luck"}' > "$TORCHELASTIC_ERROR_FILE"; exit 4"""


def torchrun(script: str, folder: Path) -> subprocess.Popen[str]:
    """One rank, which is a shell."""
    options = ["--standalone", "--nproc-per-node", "1", "--max-restarts", "0", "--no-python"]
    argv = [sys.executable, "-m", "muster.node.torchrun", *options, "sh", "-c", script]
    env = {**os.environ, "TMPDIR": str(folder), error_file.VARIABLE: str(folder / "error")}
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
