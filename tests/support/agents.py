"""A node agent in a process of its own, driven over its channel."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from muster.node.channel import Channel

AGENT = """
import json, socket, sys
from muster.node.agent import run_agent
from muster.node.channel import Channel
run_agent(Channel(socket.socket(fileno=int(sys.argv[1]))), json.loads(sys.argv[2]))
"""

Message = dict[str, Any]


class Node:
    """One node, without namespaces. launch: what differs from the usual; copies: processes;
    error_files: whether they are told to note their errors."""

    def __init__(self, folder: Path, *argv: str, **launch: Any) -> None:
        self.folder = folder
        self._argv, self._changes = list(argv), launch
        self._socket, theirs = socket.socketpair()
        self.channel = Channel(self._socket)
        message = self.launch(0)
        for process in message["processes"]:
            process["argv"] = self._argv
        self.process = subprocess.Popen(
            [sys.executable, "-c", AGENT, str(theirs.fileno()), json.dumps(message)],
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._heard: list[Message] = []

    def launch(self, life: int, **changes: Any) -> Message:
        """The agent's message for a life, without what to run."""
        changes = {**self._changes, **changes}
        error_files = changes.pop("error_files", False)
        processes = []
        for rank in range(changes.pop("copies", 1)):
            own = {"LOCAL_RANK": str(rank), "LIFE": str(life), "TMPDIR": str(self.folder)}
            env = {**os.environ, **own}
            files = {"stdout": f"{rank}.out", "stderr": f"{rank}.err"}
            if error_files:
                files["error_file"] = f"error-{rank}.json"
            paths = {kind: str(self.folder / name) for kind, name in files.items()}
            processes.append({"env": env, **paths})
        return {
            "processes": processes,
            "ranks": [],
            "node_args": [],
            "fresh": [],
            "cwd": str(self.folder),
            "folder": str(self.folder),
            "address": "127.0.0.1",
            "incarnation": life,
            "keep": False,
            "grace_period": 0.2,
            "hang_timeout": None,
            "disk": None,
            "disk_full": None,
            "probe": None,
            "program": True,
            "launcher": [],
            "services": [],
            "gather": None,
            "absent": [],
            "ready_timeout": 600,
            "contained": False,
            **changes,
        }

    # --- what it is told

    def tell(self, op: str, life: int = 0, **more: Any) -> None:
        self.channel.send(op=op, incarnation=life, **more)

    def begin(self, life: int, *behind: str, ranks: Sequence[int] = (), **changes: Any) -> None:
        """Have it begin a life. behind: what it is told in the same breath, of these ranks."""
        launch = self.launch(life, **changes) | {"env": {"COMMON": str(life)}}
        messages = [{"op": "begin", "incarnation": life, "launch": launch}]
        messages += [{"op": op, "incarnation": life, "ranks": list(ranks)} for op in behind]
        self._socket.sendall(b"".join(json.dumps(m).encode() + b"\n" for m in messages))

    # --- what it tells

    def hear(self) -> Message:
        while not self._heard:
            assert select.select([self.channel], [], [], 30)[0], "the agent says nothing"
            self._heard += self.channel.receive()
            assert self._heard or not self.channel.closed, "the agent went away"
        return self._heard.pop(0)

    def expect(self, event: str, life: int = 0) -> Message:
        message = self.hear()
        assert (message["event"], message["incarnation"]) == (event, life)
        return message

    def ended(self, life: int = 0) -> Message:
        """The end of a life that began."""
        self.expect("started", life)
        self.expect("ready", life)
        return self.expect("ended", life)

    def output(self) -> str:
        path = self.folder / "0.out"
        return path.read_text() if path.exists() else ""

    def says(self, text: str) -> None:
        """Return when this is in its output."""
        while text not in self.output():
            assert self.process.poll() is None


def probe(**what: Any) -> dict[str, Any]:
    none = {"command": None, "port": None, "file": None}
    return {"period": 0.01, "timeout": 5, "threshold": 3000, "initial_delay": 0, **none, **what}
