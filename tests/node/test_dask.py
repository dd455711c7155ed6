"""A Dask worker that waits for its scheduler."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
from importlib.util import find_spec

import pytest

from muster.node.dask import await_scheduler


class Late(io.StringIO):
    """Starts to listen once a message was printed."""

    def __init__(self, listener: socket.socket) -> None:
        super().__init__()
        self._listener = listener

    def write(self, text: str) -> int:
        self._listener.listen()
        return super().write(text)


def test_a_worker_waits_until_the_scheduler_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"tls://127.0.0.1:{listener.getsockname()[1]}"
        late = Late(listener)
        monkeypatch.setattr(sys, "stderr", late)
        await_scheduler(address, message_after=0.0)
        assert late.getvalue() == (
            f"muster: no answer yet from Dask's scheduler, {address}: Connection refused\n"
        )


@pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is not installed")
def test_a_worker_becomes_the_command_of_dask() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        words = ["-m", "muster.node.dask", "worker", address, "--bogus"]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Usage: dask worker" in done.stderr
    assert "No such option" in done.stderr
