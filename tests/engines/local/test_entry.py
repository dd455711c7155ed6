"""Enter nodes from processes in which libraries start threads when they fork."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

from muster.api.node_access import NodeCommand, Stdio
from muster.client.client import Client
from muster.client.run import JobRun
from support.embedded import embedded
from support.runs import start_spec, until_ready

#: Seconds for which a thread lasts that is started in each child; 0: none is started.
lasting = 0.0


def start_thread() -> None:
    if lasting:
        Thread(target=time.sleep, args=(lasting,), daemon=True).start()


os.register_at_fork(after_in_child=start_thread)


@pytest.fixture
def run(client: Client, tmp_path: Path) -> JobRun:
    started = start_spec(client, {"command": ["sleep", "600"]}, tmp_path)
    until_ready(started)
    return started


@pytest.mark.parametrize(
    ("seconds", "code", "text"),
    [
        (0.05, 0, "hello\n"),
        (60.0, 126, "muster: cannot enter the node: a library has started threads in the process"),
    ],
)
def test_threads_that_are_started_in_children(
    client: Client,
    run: JobRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    code: int,
    text: str,
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "lasting", seconds)
    with open(os.devnull, "rb") as nothing, (tmp_path / "output").open("w+b") as output:
        stdio, command = Stdio(nothing, output, output), NodeCommand(("echo", "hello"))
        process = embedded(client).node_access.execute(run.id, 0, command, stdio)
        assert process.wait() == code
        output.seek(0)
        assert output.read().decode().startswith(text)
