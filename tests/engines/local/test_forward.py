"""Forwarding by a child process. What every engine does is tested in `tests/engines`."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from muster.engines.base import RunningNode
from muster.engines.local import entry
from muster.engines.local.forward import forward
from muster.errors import EngineError
from muster.storage.home import RunDir


def test_the_reason_why_a_node_cannot_be_entered_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_entry: entry.Entry) -> None:
        raise PermissionError("no right to enter it")

    way = entry.Entry(os.getpid(), None, (), os.getuid(), os.getgid(), ())
    monkeypatch.setattr(entry, "find", lambda node, kinds: way)
    monkeypatch.setattr(entry, "enter", refuse)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        node = RunningNode(RunDir(tmp_path), 3, os.getpid(), "local")
        forwarded = forward(node, ["127.0.0.1"], 80, listener)
    for _ in range(2):
        with pytest.raises(EngineError, match=r"^cannot forward to node-3: no right to enter it$"):
            forwarded.wait()
    forwarded.close()
