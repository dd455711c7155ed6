"""A node agent in its own process, driven over its channel."""

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
from muster.node.messages import decode, encode
from support.faults import until

AGENT = """
import json, socket, sys
from muster.node.agent import run_agent
from muster.node.channel import Channel
from muster.node.messages import decode_launch
command, launch = json.loads(sys.argv[2])

def renew(launch):
    raise OSError("the slot cannot be emptied")

channel = Channel(socket.socket(fileno=int(sys.argv[1])))
run_agent(channel, command, decode_launch(launch), renew)
"""

#: A message as JSON; the exit report of an `ended` message is merged into it.
Message = dict[str, Any]


def launch_data(folder: Path, incarnation: int = 0, **changes: Any) -> Message:
    """A launch message as JSON. `copies` is the number of processes, `error_files` whether they
    record their errors; other changes replace fields."""
    error_files = changes.pop("error_files", False)
    processes = []
    for rank in range(changes.pop("copies", 1)):
        own = {"LOCAL_RANK": str(rank), "INCARNATION": str(incarnation), "TMPDIR": str(folder)}
        env = {**os.environ, **own}
        files = {"stdout": f"{rank}.out", "stderr": f"{rank}.err"}
        if error_files:
            files["error_file"] = f"error-{rank}.json"
        paths = {kind: str(folder / name) for kind, name in files.items()}
        processes.append({"env": env, **paths})
    return {
        "env": {},
        "processes": processes,
        "ranks": [],
        "node_args": [],
        "fresh": [],
        "output_folder": str(folder / "outputs"),
        "cwd": str(folder),
        "folder": str(folder),
        "address": "127.0.0.1",
        "hostname": "node-0",
        "incarnation": incarnation,
        "keep": False,
        "grace_period": 60,
        "hang_timeout": None,
        "disk": None,
        "disk_full": None,
        "probe": None,
        "liveness": None,
        "preflight": None,
        "after_start": None,
        "before_stop": None,
        "program": True,
        "launcher": [],
        "services": [],
        "gather": None,
        "absent": [],
        "services_timeout": 600,
        "contained": False,
        "rank": 0,
        "of_array": False,
        "reuses_slot": False,
        "waits": False,
        "given": [],
        **changes,
    }


class Node:
    """One node, without namespaces; `changes` to `launch_data` apply to all incarnations."""

    def __init__(self, folder: Path, *command: str, **changes: Any) -> None:
        self.folder = folder
        self._changes = changes
        self._socket, theirs = socket.socketpair()
        self.channel = Channel(self._socket)
        arguments = json.dumps([command, launch_data(folder, **changes)])
        self.process = subprocess.Popen(
            [sys.executable, "-c", AGENT, str(theirs.fileno()), arguments],
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._received: list[Message] = []

    # --- messages to the agent

    def send(self, kind: str, incarnation: int = 0, **fields: Any) -> None:
        """Send a message, by the name of its type."""
        self.channel.send(decode({"type": kind, "incarnation": incarnation, **fields}))

    def restart(
        self, incarnation: int, *behind: str, ranks: Sequence[int] = (), **changes: Any
    ) -> None:
        """Start another incarnation. `behind` has messages to send with it, `ranks` their ranks."""
        launch = launch_data(self.folder, incarnation, **{**self._changes, **changes})
        launch |= {"env": {"COMMON": str(incarnation)}}
        more = {"ranks": list(ranks)} if ranks else {}
        messages: list[Message] = [{"type": "restart", "launch": launch}]
        messages += [{"type": kind, "incarnation": incarnation, **more} for kind in behind]
        self._socket.sendall(b"".join(json.dumps(m).encode() + b"\n" for m in messages))

    def send_line(self, line: bytes) -> None:
        """Send a line that may be no message."""
        self._socket.sendall(line + b"\n")

    # --- messages from the agent

    def receive(self) -> Message:
        """The next message."""
        while not self._received:
            assert select.select([self.channel], [], [], 120)[0], "the agent sends nothing"
            self._received += map(_flat, self.channel.receive())
            assert self._received or not self.channel.closed, "the agent has ended"
        return self._received.pop(0)

    def expect(self, kind: str, incarnation: int = 0) -> Message:
        """The next message, which must be of this type."""
        message = self.receive()
        assert (message["type"], message["incarnation"]) == (kind, incarnation)
        return message

    def ended(self, incarnation: int = 0) -> Message:
        """The `ended` message of an incarnation that has started."""
        self.expect("started", incarnation)
        self.expect("ready", incarnation)
        return self.expect("ended", incarnation)

    # --- output

    def output(self) -> str:
        """The output of the node's first process so far."""
        path = self.folder / "0.out"
        return path.read_text() if path.exists() else ""

    def wait_for_output(self, text: str) -> None:
        """Return when the text is in that output."""

        def is_written() -> bool:
            assert self.process.poll() is None, "the agent has ended"
            return text in self.output()

        until(is_written, f"{text!r} in the output", pause=0.005)


def _flat(message: Any) -> Message:
    data = encode(message)
    return {**data, **data.pop("report", {})}


def probe(**fields: Any) -> dict[str, Any]:
    """A probe that tries often, as JSON."""
    return {"period": 0.01, "timeout": 5, "threshold": 3000, "initial_delay": 0, **fields}
