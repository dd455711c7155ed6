"""The session of nodes elsewhere with many of them: until all are ready, though their hosts are
reached one after the other, until they have ended, one after the other, and until all have left.

`python bench/remote_session.py 1000`. Servers are links in another process, over TCP on loopback,
and do nothing but say what real ones say. Figures are seconds of CPU of the session's process, with
what a node costs; if that grows with their number, something looks at all of them again and again.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import select
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from muster.engines.base import RunContext
from muster.engines.loop import EventLoop, RunLoop
from muster.engines.remote.contact import SupervisorId
from muster.engines.remote.hosts import Host, HostsOwner
from muster.engines.remote.session import RemoteSession
from muster.lifecycle.events import EngineEvent, NodeEnded, NodeReady, SessionClosed
from muster.lifecycle.status import NodeRef
from muster.node import messages
from muster.node.connection import Connection
from muster.node.counters import Counters
from muster.node.greeting import PROTOCOL, AgentHello, attach, conversation, supervisor_hello
from muster.node.link import Link
from muster.node.messages import ExitReport, HostFacts
from muster.node.streams import Streams
from muster.storage.home import Home
from support.sessions import make_plan

LINE = b"some output\n"
COUNTERS = json.dumps(Counters(0.0, 1 << 20, 0, 0, None, None, 1)).encode()


class Server:
    """What a node server says, without a node. It writes some output as long as it runs."""

    def __init__(self, sock: socket.socket, run_id: str, number: int) -> None:
        self.connection = Connection(sock)
        self._hello = AgentHello(PROTOCOL, "0", "there", run_id, number, "p", 0, "", 0)
        self._number = number
        self._streams = Streams(supervisor=False)
        self._link: Link | None = None
        self.leaves = False
        self.connection.say(self._hello._asdict())

    def step(self) -> None:
        while self._step():
            pass

    def _step(self) -> bool:
        """Returns whether something has arrived."""
        received = self.connection.step()
        if self._link is None and self.connection.hello is not None:
            answer = supervisor_hello(self.connection.hello, self._hello, turn=0)
            self._link = conversation(None, answer)
            attach(self._link, self.connection, answer.received)
            self._link.send(self._facts())
            self.connection.talk(self._link, self._streams)
            return True
        for message in received:
            self._handle(message)
        opened, changed = self._streams.opened(), self._streams.changed()
        for stream in opened:
            if stream.about["kind"] == "tree":
                stream.finish({"left_out": [], "error": ""})
            elif stream.about["kind"] == "counters":
                stream.send(COUNTERS)
                stream.finish({"code": 0})
            elif stream.about["path"].endswith(".out"):
                stream.send(LINE)
        for stream in changed:
            stream.take()
            if stream.result is not None:
                stream.finish({"offset": 0})
        return bool(received or opened or changed)

    def _facts(self) -> HostFacts:
        address = f"10.0.{self._number // 250}.{self._number % 250 + 1}"
        return HostFacts(
            *(
                "me",
                f"/n/{self._number}",
                address,
                [messages.Interface("eth0", address)],
                2,
                1 << 30,
                [],
                "3.11",
            ),
            *(time.time(), -1, "/py", "/m", f"/s/{self._number}", {"PATH": "/bin"}),
        )

    def _handle(self, message: messages.Message) -> None:
        assert self._link is not None
        if isinstance(message, messages.Launch):
            self._link.send(messages.Launched(message.incarnation, 0))
            self._link.send(messages.Joined(message.incarnation))
        elif isinstance(message, messages.Start):
            self._link.send(messages.Started(message.incarnation))
            self._link.send(messages.Ready(message.incarnation))
        elif isinstance(message, messages.Kill):
            report = ExitReport(137, 9, "exit")
            self._link.send(messages.Ended(message.incarnation, report, kept=False))
        elif isinstance(message, messages.Leave):
            self.leaves = True


def serve(listener: socket.socket, run_id: str, count: int) -> None:
    """Serve in another process, until the session has closed its connections."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    poll = select.epoll()
    servers: dict[int, Server] = {}
    left = count
    poll.register(listener.fileno(), select.EPOLLIN)
    made = 0
    while left:
        for descriptor, _ in poll.poll():
            if descriptor == listener.fileno():
                sock, _ = listener.accept()
                descriptor = sock.fileno()  # noqa: PLW2901  it is served at once
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server = servers[descriptor] = Server(sock, run_id, made)
                made += 1
                poll.register(descriptor, select.EPOLLIN)
            server = servers[descriptor]
            server.step()
            writes = select.EPOLLOUT if server.connection.interest().get(descriptor, 0) & 4 else 0
            if server.connection.ended or (server.leaves and not writes):
                poll.unregister(descriptor)
                server.connection.close()
                del servers[descriptor]
                left -= 1
                continue
            poll.modify(descriptor, select.EPOLLIN | writes)


class TcpHosts:
    """Every node has a host, which is reached at one port."""

    def __init__(self, port: int, loop: RunLoop, owner: HostsOwner) -> None:
        self._port, self._loop, self._owner = port, loop, owner

    def allocate(self, ranks: Sequence[int]) -> None:
        def dial() -> socket.socket:
            sock = socket.create_connection(("127.0.0.1", self._port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock

        host = Host(dial, "there")

        def place(rank: int) -> None:
            self._owner.placed(ranks[rank], host)
            if rank + 1 < len(ranks):
                self._loop.post(lambda: place(rank + 1))

        self._loop.post(lambda: place(0))

    def place_ended(self) -> None:
        pass

    def give_up(self, rank: int) -> None:
        pass

    def close(self) -> None:
        pass


def measure(count: int, home: Path) -> None:  # noqa: PLR0915
    plan = make_plan("true", count)
    folder = Home(home).run_dir(plan.run_id)
    folder.path.mkdir(parents=True)
    context = RunContext(plan, Home(home), dict(os.environ), sys.executable)
    events: list[EngineEvent] = []
    loop, errors = EventLoop(), list[Exception]()
    run = RunLoop(loop, errors.append)
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        child = multiprocessing.Process(target=serve, args=(listener, plan.run_id, count))
        child.start()
        port = listener.getsockname()[1]
        supervisor = SupervisorId(plan.run_id, 1)
        session = RemoteSession(
            context, supervisor, run, events.extend, lambda owner: TcpHosts(port, run, owner)
        )
        refs = [NodeRef(rank, 0) for rank in range(count)]

        def until(what: str, done: Callable[[], bool]) -> None:
            begun, rounds, cpu = time.perf_counter(), 0, time.process_time()
            while not done():
                loop.run_once()
                rounds += 1
                if errors:
                    raise errors[0]
            took, used = time.perf_counter() - begun, time.process_time() - cpu
            each = used / count * 1e6
            figures = f"{took:8.2f} s {used:8.2f} s CPU {each:9.0f} us a node"
            print(f"{what:12} {figures} {rounds:7} rounds")

        def seen(kind: type[EngineEvent]) -> Callable[[], bool]:
            found: set[int] = set()
            looked = 0

            def done() -> bool:
                nonlocal looked
                found.update(e.rank for e in events[looked:] if isinstance(e, kind))  # type: ignore[attr-defined]
                looked = len(events)
                return len(found) == count

            return done

        print(f"{count} nodes")
        session.start(0, refs)
        until("ready", seen(NodeReady))
        files = [folder.logs(0) / f"workers-{rank}.out" for rank in range(count)]
        until("output", lambda: all(file.stat().st_size for file in files))
        ended = seen(NodeEnded)
        waiting = refs[:]

        def end_next() -> bool:
            if len(events) > heard[0] or len(waiting) == count:
                heard[0] = len(events)
                session.kill([waiting.pop()] if waiting else [])
            return ended()

        heard = [len(events)]
        until("ended", end_next)
        session.close()
        until("left", lambda: any(isinstance(e, SessionClosed) for e in events))
        session.finish_logs()
        child.join()
    run.close()
    loop.close()


def main() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    for count in map(int, sys.argv[1:] or ("100", "1000")):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
            measure(count, Path(name))


if __name__ == "__main__":
    main()
