"""Node servers with real agents: how long until all have joined and are started by one supervisor,
and until another supervisor has heard all of them.

`python bench/node_servers.py 100`. The floor of the first is the same number of interpreters that
start a program each, 16 at a time; of the second, a connection to each server and its hello.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from common import Measure, compare

from muster.engines.loop import EventLoop, RunLoop
from muster.engines.remote.contact import Contact, SupervisorId
from muster.node.connection import Transport
from muster.node.messages import HostFacts, Joined, Message, Ready, Start
from muster.node.serve import Settings, connect
from support.node_servers import launch, server_pid

AT_ONCE = 16


class Node:
    """A contact, and how far it is. program: started when the server is reached."""

    def __init__(self, loop: RunLoop, folder: Path, turn: int, *, program: bool) -> None:
        self._folder = folder
        self._program = program
        self.greeted = self.ready = False
        self.contact = Contact(loop, self._dial, SupervisorId("r1", turn), self)

    def _dial(self) -> Transport:
        return connect(str(self._folder), Settings("0", "r1", 0))

    def reached(self, *, begins: bool) -> None:
        self.greeted = True

    def streamed(self) -> None:
        pass

    def lost(self, why: str) -> None:
        raise SystemExit(why)

    def received(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if isinstance(message, HostFacts) and self._program:
                self.contact.send(launch(self._folder, 0, "sleep", "1000"))
            elif isinstance(message, Joined) and self._program:
                self.contact.send(Start(0))
            self.ready = self.ready or isinstance(message, Ready)


def spawn(folders: Sequence[Path]) -> None:
    """Start the servers, as sshd would: each by an interpreter of its own."""
    settings = b'{"run_id": "r1", "rank": 0}\n'

    def one(folder: Path) -> None:
        argv = [sys.executable, "-I", "-S", "-c", _OPEN, *sys.path, str(folder)]
        subprocess.run(argv, input=settings, stdout=subprocess.DEVNULL, check=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, folders))


_OPEN = """
import sys
sys.path[:] = sys.argv[1:-1]
from muster.node.__main__ import main
sys.exit(main(["open", sys.argv[-1]]))
"""


def plain(count: int) -> Measure:
    def measure() -> float:
        start = os.times().elapsed
        code = "import os, sys; os.posix_spawn('/bin/true', ['true'], {})"

        def one(_: int) -> None:
            subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, range(count)))
        return os.times().elapsed - start

    return measure


class Fleet:
    """The servers of one measurement."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._turn = 0
        self._folders: list[Path] = []

    def talk(self, done: Callable[[Node], bool], *, program: bool = False) -> float:
        """Seconds until a new supervisor is done with all nodes."""
        start = os.times().elapsed
        self._turn += 1
        loop = EventLoop()
        errors: list[Exception] = []
        run = RunLoop(loop, errors.append)
        made = [Node(run, folder, self._turn, program=program) for folder in self._folders]
        while not all(map(done, made)):
            loop.run_once()
            if errors:
                raise errors[0]
        took = os.times().elapsed - start
        for node in made:
            node.contact.close()
        run.close()
        loop.close()
        return took

    def begin(self, root: Path) -> float:
        """Seconds until new servers run, and their programs."""
        self.end()
        start = os.times().elapsed
        folder = Path(tempfile.mkdtemp(dir=root))
        self._folders = [folder / str(number) for number in range(self._count)]
        spawn(self._folders)
        self.talk(lambda node: node.ready, program=True)
        return os.times().elapsed - start

    def end(self) -> None:
        for folder in self._folders:
            os.kill(server_pid(folder), signal.SIGKILL)
        self._folders = []


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    fleet = Fleet(count)
    with tempfile.TemporaryDirectory(dir="/dev/shm", ignore_cleanup_errors=True) as name:
        compare(
            f"{count} servers and their programs are started",
            {"floor: interpreters": plain(count), "servers": lambda: fleet.begin(Path(name))},
            rounds=3,
            count=count,
        )
        compare(
            f"another supervisor reaches {count} servers",
            {
                "floor: hello": lambda: fleet.talk(lambda node: node.greeted),
                "all that they know": lambda: fleet.talk(lambda node: node.ready),
            },
            rounds=5,
            count=count,
        )
        fleet.end()


if __name__ == "__main__":
    main()
