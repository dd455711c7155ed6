"""An API server in a process of its own, for measurements with thousands of pods: what is applied
is not stored, each JobSet has its pods at once, and a pod's node server says what a real one says.

It speaks HTTP and WebSockets over TLS, as the engine expects. Nothing runs in the pods.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import select
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from remote_session import Server
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from muster.engines.kubernetes.kinds import KINDS
from muster.engines.kubernetes.names import (
    JOB_INDEX,
    JOBSET_GROUP,
    JOBSET_NAME,
    POD_INDEX,
    RUN,
)
from muster.node import messages
from muster.node.connection import Pipes
from muster.node.messages import ExitReport
from support.certificates import TlsFiles, write_certificate

_STDIN, _STDOUT = 0, 1
_PROTOCOL = Subprotocol("v5.channel.k8s.io")
_JSON = b"application/json"


class Wire(Pipes):
    """A transport in memory."""

    def __init__(self) -> None:
        self.reading = self.writing = -1
        self.incoming, self.outgoing = bytearray(), bytearray()

    def recv(self, size: int) -> bytes:
        if not self.incoming:
            raise BlockingIOError
        data = bytes(self.incoming[:size])
        del self.incoming[:size]
        return data

    def send(self, data: bytes) -> int:
        self.outgoing += data
        return len(data)

    def close(self) -> None: ...


class Agent(Server):
    """A node server whose programs run until they are told to end, or fail on request. started:
    called with its slot when its programs have started."""

    def __init__(
        self, wire: Wire, run_id: str, slot: int, started: Callable[[int], object]
    ) -> None:
        super().__init__(wire, run_id, slot)  # type: ignore[arg-type]
        self._has_started = started
        self._incarnation, self._kept = -1, False

    def _handle(self, message: messages.Message) -> None:
        assert self._link is not None
        if isinstance(message, messages.Stop):
            self._end(ExitReport(143, 15, "exit"))
        elif isinstance(message, messages.Launch) and self._kept:
            self._incarnation, self._kept = message.incarnation, False
            self._link.send(messages.Launched(message.incarnation, message.attempt))
            self._start()
        elif isinstance(message, messages.Launch):
            self._incarnation = message.incarnation
            super()._handle(message)
        elif isinstance(message, messages.Start):
            self._start()
        elif isinstance(message, messages.ReservePorts):
            numbers = {port.name: port.number for port in message.ports}
            self._link.send(messages.PortsReserved(numbers, ""))
        else:
            super()._handle(message)

    def _start(self) -> None:
        assert self._link is not None
        self._link.send(messages.Started(self._incarnation))
        self._link.send(messages.Ready(self._incarnation))
        self._has_started(self._number)

    def fail(self) -> None:
        """Its program exits with 1."""
        self._end(ExitReport(1, 0, "exit", "lost a GPU"))

    def _end(self, report: ExitReport) -> None:
        assert self._link is not None
        self._kept = True
        self._link.send(messages.Ended(self._incarnation, report, kept=True))


def pod_of(
    template: Mapping[str, Any], jobset: str, group: str, job: int, index: int
) -> dict[str, Any]:
    """A pod that runs, of the size that pods have."""
    name = f"{jobset}-{group}-{job}-{index}-x7f2q"
    labels = {JOBSET_NAME: jobset, JOBSET_GROUP: group, JOB_INDEX: str(job), POD_INDEX: str(index)}
    about = template.get("metadata") or {}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"{jobset}-{group}-{job}"}
    owned = {f"f:{number}": {"f:name": {}, "f:value": {}} for number in range(60)}
    return {
        "metadata": {
            "uid": f"uid-{name}",
            "name": name,
            "namespace": "default",
            "labels": {**(about.get("labels") or {}), **labels},
            "annotations": {POD_INDEX: str(index)},
            "ownerReferences": [{**owner, "uid": f"uid-{owner['name']}", "controller": True}],
            "managedFields": [{"manager": "kubelet", "fieldsV1": owned}],
            "resourceVersion": "1",
        },
        "spec": {**template["spec"], "nodeName": f"host-{job}-{index}"},
        "status": {
            "phase": "Running",
            "podIPs": [{"ip": f"10.1.{index // 250}.{index % 250 + 1}"}],
            "hostIP": "10.0.0.1",
            "conditions": [
                {"type": one, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for one in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [
                {"name": "node", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
            ],
        },
    }


class SimulatedCluster:
    """What the process has. control: its end of the pipe to whoever measures."""

    def __init__(self, control: Pipe, tls: TlsFiles) -> None:
        self._control, self._tls = control, tls
        self._pods: dict[str, dict[str, Any]] = {}
        self._slots: dict[str, tuple[str, int]] = {}  # pod -> its run and slot
        self._agents: dict[int, tuple[Agent, Any]] = {}  # slot -> with what sends for it
        self._watches: list[asyncio.Queue[bytes]] = []
        self._version = 1
        self._started: set[int] = set()  # slots whose programs have started since `_since`
        self._since = time.monotonic()
        self.calls: list[str] = []

    async def serve(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._tls.cert, self._tls.key)
        server = await asyncio.start_server(
            self._connected, "127.0.0.1", 0, ssl=context, backlog=8192, limit=1 << 22
        )
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._control.fileno(), partial(self._told, done))
        self._control.send(server.sockets[0].getsockname()[1])
        await done.wait()

    def _told(self, done: asyncio.Event) -> None:
        what, value = self._control.recv()
        if what == "fail":
            self._started.clear()
            agent, send = self._agents[value]
            self._since = time.monotonic()
            agent.fail()
            send()
        elif what == "change":
            self._change_all(value)
        elif what == "pods":
            self._make_pods(value)
        elif what == "calls":
            self._control.send(self.calls)
        else:
            done.set()

    # --- pods

    def _make_pods(self, jobset: Mapping[str, Any]) -> None:
        name, made = jobset["metadata"]["name"], []
        slot = 0
        for group in jobset["spec"]["replicatedJobs"]:
            job = group["template"]["spec"]
            for number in range(group["replicas"]):
                for index in range(job["completions"]):
                    pod = pod_of(job["template"], name, group["name"], number, index)
                    made.append(pod)
                    run = pod["metadata"]["labels"][RUN]
                    self._slots[pod["metadata"]["name"]] = run, slot
                    slot += 1
        self._pods |= {one["metadata"]["name"]: one for one in made}
        for pod in made:
            self._send("ADDED", pod)

    def _change_all(self, phase: str) -> None:
        """Change each pod once."""
        for pod in self._pods.values():
            pod["status"]["message"] = phase
            pod["status"]["conditions"][3]["status"] = "False"
            pod["metadata"]["annotations"]["changed"] = phase
            pod["status"]["podIPs"][0]["ip"] = f"10.2.{self._version // 250 % 250}.7"
            self._send("MODIFIED", pod)

    def _send(self, kind: str, pod: dict[str, Any]) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        if self._watches:
            line = json.dumps({"type": kind, "object": pod}).encode() + b"\n"
            for watch in self._watches:
                watch.put_nowait(line)

    # --- HTTP

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request. Returns whether another one may follow."""
        head = await reader.readuntil(b"\r\n\r\n")
        line, *fields = head.decode().split("\r\n")
        method, target, _ = line.split(" ", 2)
        headers = {
            name.lower(): value.strip() for name, _, value in (f.partition(":") for f in fields)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        url = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        kind = url.path.split("/namespaces/default/")[-1].partition("/")[0]
        verb = "WATCH" if "watch" in query else method
        self.calls.append(f"{verb} {'exec' if url.path.endswith('/exec') else kind}")
        if url.path.endswith("/exec"):
            await self._exec(head, url.path.split("/")[-2], reader, writer)
            return False
        if "watch" in query:
            await self._watch(kind, writer)
            return False
        found = self._object(method, url.path, kind, query, body)
        content = json.dumps(found).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
            % (_JSON, len(content))
            + content
        )
        await writer.drain()
        return True

    def _object(
        self, method: str, path: str, kind: str, query: Mapping[str, str], body: bytes
    ) -> dict[str, Any]:
        if path == "/version":
            return {"major": "1", "minor": "36"}
        if path == "/apis":
            jobset = KINDS["JobSet"]
            return {"groups": [{"name": jobset.group, "versions": [{"version": jobset.version}]}]}
        if path == "/api/v1/namespaces/kube-system":
            return {"metadata": {"name": "kube-system", "uid": "uid-cluster"}}
        if method == "PATCH":
            given: dict[str, Any] = json.loads(body)
            given["metadata"]["uid"] = f"uid-{given['metadata']['name']}"
            if kind == "jobsets":
                self._make_pods(given)
            return given
        if method == "GET" and kind == "pods":
            return self._page(query)
        return {"metadata": {"resourceVersion": str(self._version)}, "items": []}

    def _page(self, query: Mapping[str, str]) -> dict[str, Any]:
        first, limit = int(query.get("continue", 0)), int(query["limit"])
        every = list(self._pods.values())
        more = str(first + limit) if first + limit < len(every) else ""
        about = {"resourceVersion": str(self._version), "continue": more}
        return {"metadata": about, "items": every[first : first + limit]}

    async def _watch(self, kind: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await writer.drain()
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        if kind == "pods":
            self._watches.append(lines)
        while True:
            line = await lines.get()
            writer.write(b"%x\r\n" % len(line) + line + b"\r\n")
            await writer.drain()

    # --- exec

    async def _exec(
        self, head: bytes, pod: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        protocol = ServerProtocol(select_subprotocol=lambda *_: _PROTOCOL, max_size=None)
        protocol.receive_data(head)
        (request,) = protocol.events_received()
        assert isinstance(request, Request)
        protocol.send_response(protocol.accept(request))
        run, slot = self._slots[pod]
        wire = Wire()
        agent = Agent(wire, run, slot, self._has_started)

        def send() -> None:
            agent.step()
            while agent.connection.interest().get(-1, 0) & select.POLLOUT:
                agent.step()
            if wire.outgoing:
                protocol.send_binary(bytes([_STDOUT]) + wire.outgoing)
                wire.outgoing.clear()
            for data in protocol.data_to_send():
                writer.write(data)

        self._agents[slot] = agent, send
        send()
        while data := await reader.read(1 << 16):
            protocol.receive_data(data)
            for event in protocol.events_received():
                if isinstance(event, Frame) and event.opcode is Opcode.BINARY:
                    if event.data[0] == _STDIN:
                        wire.incoming += event.data[1:]
                elif isinstance(event, Frame) and event.opcode is Opcode.CLOSE:
                    return
            send()
            await writer.drain()
            if agent.leaves:
                return

    def _has_started(self, slot: int) -> None:
        self._started.add(slot)
        if len(self._started) == len(self._pods):
            self._control.send(time.monotonic() - self._since)


def _run(control: Pipe, tls: TlsFiles) -> None:
    asyncio.run(SimulatedCluster(control, tls).serve())


class Handle:
    """The cluster, for whoever measures."""

    def __init__(self, control: Pipe, kubeconfig: Path) -> None:
        self._control, self.kubeconfig = control, kubeconfig

    def tell(self, what: str, value: Any = None) -> None:
        self._control.send((what, value))

    def fileno(self) -> int:
        """Readable when there is an answer."""
        return self._control.fileno()

    def answer(self) -> Any:
        return self._control.recv()


@contextmanager
def simulated_cluster(folder: Path) -> Iterator[Handle]:
    """A cluster that runs in the block."""
    tls = write_certificate(folder, "localhost")
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(theirs, tls))
    process.start()
    try:
        port = ours.recv()
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [
                {
                    "name": "c",
                    "cluster": {
                        "server": f"https://localhost:{port}",
                        "certificate-authority": str(tls.authority),
                    },
                }
            ],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        yield Handle(ours, kubeconfig)
        ours.send(("end", None))
        process.join()
    finally:
        if process.is_alive():
            process.kill()
