"""Node servers for tests, and supervisors that talk to them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from muster.node.connection import Connection, Pipes
from muster.node.greeting import (
    PROTOCOL,
    AgentHello,
    SupervisorHello,
    agent_hello,
    attach,
    check_conversation,
)
from muster.node.link import Link
from muster.node.messages import Joined, Launch, Launched, Message, Start, decode_launch
from muster.node.processes import state_of
from muster.node.streams import Stream, Streams
from support.agents import launch_data
from support.faults import until

M = TypeVar("M", bound=Message)
TIMEOUT = 60.0
#: Runs the commands of the node program.
PROGRAM = (sys.executable, "-m", "muster.node")


class Supervisor:
    """Talks to the node server of a folder, which is started if it does not run.

    turn: that of the supervisor. link: the conversation of another connection, to be continued.
    program: what runs the node program. compress: whether the server compresses
    what it sends over streams.
    """

    def __init__(
        self,
        folder: Path,
        *,
        turn: int = 1,
        link: Link | None = None,
        before: AgentHello | None = None,
        run_id: str = "r1",
        program: Sequence[str] = PROGRAM,
        compress: bool = False,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.link = link or Link(os.urandom(4).hex())
        self._received: list[Message] = []
        self._own = SupervisorHello(
            *(PROTOCOL, "0", "here", run_id, turn, self.link.session, self.link.received),
            compress,
        )
        argv = [*program, "open", str(folder)]
        pipe = subprocess.PIPE
        self.bridge = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe)
        assert self.bridge.stdin is not None and self.bridge.stdout is not None
        told = {"run_id": "r1", "rank": 0, **settings}
        self.bridge.stdin.write(json.dumps(told).encode() + b"\n")
        self.bridge.stdin.flush()
        stream = Pipes(os.dup(self.bridge.stdout.fileno()), os.dup(self.bridge.stdin.fileno()))
        self.connection = Connection(stream)
        self._before = before
        self.hello: AgentHello | None = None
        self.streams = Streams(supervisor=True)

    def greet(self) -> Supervisor:
        """Wait for the server's hello, and answer it."""
        self._until(lambda: self.connection.hello is not None)
        assert self.connection.hello is not None
        self.hello = agent_hello(self.connection.hello, self._own)
        received = check_conversation(self.link, self.hello, self._before)
        attach(self.link, self.connection, received)
        self.connection.say(self._own._asdict())
        self.connection.talk(self.link, self.streams)
        return self

    def send(self, *sent: Message) -> None:
        for message in sent:
            self.link.send(message)
        self._until(lambda: self.link.unacknowledged == 0)

    def expect(self, kind: type[M]) -> M:
        """The next message, which has to be of this kind."""
        self._until(lambda: bool(self._received))
        message = self._received.pop(0)
        assert isinstance(message, kind), message
        return message

    def refusal(self) -> str:
        """Why the server does not talk to this supervisor."""
        self._until(lambda: bool(self.connection.ended))
        return self.connection.ended

    def disconnect(self) -> None:
        self.connection.close()
        self.bridge.kill()
        self.bridge.communicate()

    @property
    def conversation(self) -> dict[str, Any]:
        """What continues the conversation over another connection."""
        return {"link": self.link, "before": self.hello}

    def launch(self, incarnation: int, *argv: str, **more: Any) -> Launch:
        """See `launch`."""
        return launch(self.folder, incarnation, *argv, **more)

    def start(self, incarnation: int, *argv: str, **more: Any) -> None:
        """Start a program on a new node."""
        self.send(self.launch(incarnation, *argv, **more))
        assert self.expect(Launched).incarnation == incarnation
        assert self.expect(Joined).incarnation == incarnation
        self.send(Start(incarnation))

    # --- streams

    def send_code(self, archive: bytes) -> dict[str, Any]:
        """Send an archive to the server when it asks for one. Returns what it has asked for."""
        asked: list[Stream] = []

        def opened() -> bool:
            asked.extend(self.streams.opened())
            return bool(asked)

        self._until(opened)
        left = archive

        def sent() -> bool:
            nonlocal left
            part, left = left[: asked[0].room], left[asked[0].room :]
            asked[0].send(part)
            return not left or bool(asked[0].canceled)

        self._until(sent)
        asked[0].finish({})
        self._until(lambda: asked[0].ended)
        return dict(asked[0].about)

    def collect(self, stream: Stream, into: list[bytes] | None = None) -> bytes:
        """All that arrives on a stream, which is not canceled."""
        found = into if into is not None else []

        def ended() -> bool:
            found.append(stream.take())
            return stream.result is not None or bool(stream.canceled)

        self._until(ended)
        assert not stream.canceled, stream.canceled
        return b"".join(found)

    def until(self, done: Callable[[], bool]) -> None:
        """Talk until this holds."""
        self._until(done)

    def _until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not done():
            assert time.monotonic() < deadline, "it takes too long"
            poll = select.poll()
            for descriptor, events in self.connection.interest().items():
                poll.register(descriptor, events)
            poll.poll(1000)
            self._received += self.connection.step()
            if self.connection.ended and not done():
                self.bridge.kill()
                _, errors = self.bridge.communicate()
                raise ConnectionError(f"{self.connection.ended} {errors.decode()}")


def launch(folder: Path, incarnation: int, *argv: str, **more: Any) -> Launch:
    """The launch of a program whose files are in the folder of its server. more: changes of the
    launch message."""
    node, logs = folder / "node", folder / "logs"
    work = node / "work"
    message = decode_launch(launch_data(work, incarnation, **more))
    processes = [
        one._replace(stdout=f"{logs}/{number}.out", stderr=f"{logs}/{number}.err")
        for number, one in enumerate(message.processes)
    ]
    outputs = str(folder / "outputs")
    message = message._replace(processes=processes, folder=str(node), output_folder=outputs)
    return Launch(message, list(argv), [str(work), str(logs)], {})


def server_pid(folder: Path) -> int:
    """The pid of the server of a folder."""
    found = server_pid_if_any(folder)
    assert found is not None, "no server runs"
    return found


def server_pid_if_any(folder: Path) -> int | None:
    """The pid of the server of a folder; None if none runs."""
    try:
        wanted = os.stat(folder / "lock")
    except FileNotFoundError:  # it is about to start
        return None
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{name}/fd") if name.isdigit() else ():
                found = os.stat(f"/proc/{name}/fd/{number}")
                if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                    return int(name)
    return None


def kill(pid: int) -> None:
    """Kill a process, and wait until it has ended."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: state_of(pid) in ("", "Z"), f"process {pid} has ended")
