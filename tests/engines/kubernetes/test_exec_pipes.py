"""Streams into pods, with a WebSocket server in the place of the API server."""

from __future__ import annotations

import json
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("kubernetes")

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from muster.engines.kubernetes import exec_pipes
from muster.engines.kubernetes.access import Access
from muster.engines.kubernetes.exec_pipes import ExecPipes, Opened, open_stream
from muster.engines.kubernetes.exec_streams import ExecStreams
from muster.engines.kubernetes.refusals import CannotCall
from support.certificates import write_certificate
from support.connect_proxy import ConnectProxy
from support.servers import serving

TIMEOUT = 60.0
GROUP = "Impersonate-Group"
HEADERS = (("Authorization", "Bearer t"), (GROUP, "a, b"), (GROUP, "c"))
Handler = Callable[[ServerConnection], None]
Open = Callable[..., ExecPipes]


class Cluster:
    """What streams are opened with."""

    def __init__(self, folder: Path, *, tls: bool) -> None:
        self._files = write_certificate(folder, "localhost")
        self._servers: list[Server] = []
        self._streams: list[ExecStreams] = []
        self._tls = tls

    def open(self, handler: Handler, refuse: HTTPStatus | None = None) -> ExecPipes:
        """A stream to a server with this handler."""
        return self.open_at(self.serve(handler, refuse))

    def serve(self, handler: Handler, refuse: HTTPStatus | None = None) -> int:
        """The port of a server with this handler."""
        context = None
        if self._tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._files.cert, self._files.key)

        def answer(connection: ServerConnection, _request: object) -> object:
            body = json.dumps({"kind": "Status", "message": "pods is forbidden"})
            return None if refuse is None else connection.respond(refuse, body)

        server = serve(
            handler,
            "127.0.0.1",
            0,
            ssl=context,
            subprotocols=["v5.channel.k8s.io"],  # type: ignore[list-item]
            process_request=answer,  # type: ignore[arg-type]
            compression=None,
            max_size=None,
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._servers.append(server)
        return int(server.socket.getsockname()[1])

    def access_to(self, port: int, proxy: str | None = None) -> Access:
        own = ssl.create_default_context(cafile=str(self._files.authority)) if self._tls else None
        url = f"{'https' if self._tls else 'http'}://localhost:{port}"
        return Access(url, HEADERS, own, proxy=proxy)

    def connect(self, port: int) -> Opened:
        """A stream that is up, to a server at a port."""
        return open_stream(self.access_to(port), "/exec")

    def open_at(self, port: int, proxy: str | None = None) -> ExecPipes:
        access = self.access_to(port, proxy)
        reached = SimpleNamespace(
            namespace="team", access=lambda: access, not_accepted=lambda _: None
        )
        streams = ExecStreams(reached)  # type: ignore[arg-type]
        self._streams.append(streams)
        return streams.open("train-0", "node", ["cat", "-"])

    def close(self) -> None:
        for one in self._streams:
            one.close()
        for server in self._servers:
            server.shutdown()


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(tmp_path, tls=request.param)
    yield made
    made.close()


def wait(pipes: ExecPipes) -> None:
    """As a connection waits."""
    poll = select.poll()
    writes = select.POLLOUT if pipes.waits_to_write else 0
    poll.register(pipes.reading, select.POLLIN | writes)
    assert poll.poll(TIMEOUT * 1000), "nothing happens"


def read(pipes: ExecPipes, size: int) -> bytes:
    """So many bytes, or the end."""
    found = b""
    while len(found) < size:
        try:
            found += pipes.recv(size - len(found))
        except BlockingIOError:
            wait(pipes)
    return found


def write(pipes: ExecPipes, data: bytes) -> None:
    while data:
        try:
            data = data[pipes.send(data[: 1 << 16]) :]
        except BlockingIOError:
            wait(pipes)


def echo(connection: ServerConnection) -> None:
    """As `cat`."""
    for message in connection:
        assert isinstance(message, bytes)
        if message[0] == 0:
            connection.send(b"\1" + message[1:])


def test_bytes_go_both_ways(cluster: Cluster) -> None:
    pipes = cluster.open(echo)
    for data in (b"x", b"hello", bytes(range(256)) * 4096):
        write(pipes, data)
        assert read(pipes, len(data)) == data
    pipes.close()


def links() -> list[str]:
    """What the descriptors of this process refer to."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the folder itself
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return found


def test_a_stream_that_is_up_has_one_descriptor(cluster: Cluster) -> None:
    """Others of this process may be closed meanwhile, such as those of earlier tests."""
    pipes = cluster.open(echo)
    wait(pipes)
    pipe = os.readlink(f"/proc/self/fd/{pipes.reading}")
    assert links().count(pipe) == 2
    write(pipes, b"x")
    wait(pipes)  # for the stream itself
    assert read(pipes, 1) == b"x"
    assert pipe not in links()
    assert pipes.reading == pipes.writing
    assert links().count(os.readlink(f"/proc/self/fd/{pipes.reading}")) == 1
    pipes.close()


def test_what_is_asked_for(cluster: Cluster) -> None:
    seen: list[str] = []

    def handler(connection: ServerConnection) -> None:
        assert connection.request is not None
        request = connection.request
        seen.extend(
            [request.path, request.headers["Authorization"], *request.headers.get_all(GROUP)]
        )
        connection.send(b"\1ok")
        connection.recv()

    pipes = cluster.open(handler)
    assert read(pipes, 2) == b"ok"
    pipes.close()
    start = "/api/v1/namespaces/team/pods/train-0/exec?container=node&stdin=true&stdout=true"
    assert seen == [f"{start}&stderr=true&command=cat&command=-", "Bearer t", "a, b", "c"]


def test_its_end_says_why(cluster: Cluster) -> None:
    def handler(connection: ServerConnection) -> None:
        connection.send(b"\1last")
        connection.send(b"\2noise\nmuster-node: no server\n")
        status = {"status": "Failure", "message": "exit code 1"}
        connection.send(b"\3" + json.dumps(status).encode())

    pipes = cluster.open(handler)
    assert read(pipes, 4) == b"last"
    with pytest.raises(OSError, match=r"^muster-node: no server$"):
        read(pipes, 1)
    pipes.close()


def test_it_is_cut_off(cluster: Cluster) -> None:
    pipes = cluster.open(lambda connection: connection.close())
    with pytest.raises(OSError, match="has closed the connection"):
        read(pipes, 1)
    pipes.close()


def test_it_is_refused(cluster: Cluster) -> None:
    pipes = cluster.open(echo, HTTPStatus.FORBIDDEN)
    with pytest.raises(OSError, match="pods is forbidden"):
        read(pipes, 1)
    pipes.close()


def test_nobody_answers(cluster: Cluster) -> None:
    pipes = cluster.open_at(1)
    with pytest.raises(OSError, match="it refuses connections"):
        write(pipes, b"x")
    pipes.close()


@pytest.mark.parametrize("login", ["", "ana:a/b c"])
def test_it_goes_through_a_proxy(cluster: Cluster, login: str) -> None:
    port = cluster.serve(echo)
    proxy = ConnectProxy(port, login)
    with serving(proxy):
        pipes = cluster.open_at(port, proxy.url)
        write(pipes, b"hello")
        assert read(pipes, 5) == b"hello"
        pipes.close()
        assert proxy.hosts == {"localhost"}


def test_the_other_end_hears_of_a_close(cluster: Cluster) -> None:
    heard: list[object] = []
    done = threading.Event()

    def handler(connection: ServerConnection) -> None:
        connection.send(b"\1up")
        heard.extend(connection)
        done.set()

    pipes = cluster.open(handler)
    assert read(pipes, 2) == b"up"
    write(pipes, b"last")
    pipes.close()
    pipes.close()
    assert done.wait(TIMEOUT)
    assert heard == [b"\0last", bytes([255, 0])]


def test_it_is_closed_before_it_is_up(cluster: Cluster) -> None:
    ended = threading.Event()

    def handler(connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            list(connection)
        ended.set()

    pipes = cluster.open(handler)
    pipes.close()
    assert ended.wait(TIMEOUT)


def test_frames_of_one_message(cluster: Cluster) -> None:
    def handler(connection: ServerConnection) -> None:
        connection.send([b"\1a", b"b", b"c"])
        connection.recv()

    pipes = cluster.open(handler)
    assert read(pipes, 3) == b"abc"
    pipes.close()


@pytest.mark.parametrize("by_proxy", [False, True], ids=["cluster", "proxy"])
def test_an_answer_that_comes_byte_by_byte_is_too_late(
    by_proxy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_pipes, "_OPEN_TIMEOUT", 0.3)
    given_up = threading.Event()

    def serve() -> None:
        accepted, _ = server.accept()
        with accepted, suppress(OSError):
            accepted.recv(1 << 16)
            accepted.sendall(
                b"HTTP/1.1 200 OK\r\nX-A: " if by_proxy else b"HTTP/1.1 101 Go\r\nX-A: "
            )
            for _ in range(100):
                if given_up.wait(0.05):
                    return
                accepted.sendall(b"a")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        access = Access("http://localhost:1", proxy=url) if by_proxy else Access(url)
        with pytest.raises(CannotCall if by_proxy else TimeoutError):
            open_stream(access, "/exec")
        given_up.set()
        thread.join()


def test_nothing_is_taken_while_the_other_end_does_not_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_pipes, "_MOST_WAITING", 1 << 16)
    goes_on = threading.Event()
    sizes: list[int] = []

    def handler(connection: ServerConnection) -> None:
        connection.send(b"\1up")
        goes_on.wait(TIMEOUT)
        with suppress(ConnectionClosed):
            sizes.extend(len(message) - 1 for message in connection)

    pipes = cluster.open(handler)
    assert read(pipes, 2) == b"up"
    sent, deadline = 0, time.monotonic() + TIMEOUT
    with pytest.raises(BlockingIOError):
        while time.monotonic() < deadline:
            sent += pipes.send(bytes(1 << 16))
    goes_on.set()
    while pipes.waits_to_write:
        wait(pipes)
        with pytest.raises(BlockingIOError):
            pipes.recv(1)
    pipes.close()
    assert sent > 1 << 16
