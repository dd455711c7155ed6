"""Answers that come a byte at a time, over real sockets: none is waited for without an end."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Event

import pytest

from engines.kubernetes.api_stub import Answer, ApiStub, event, write_config
from muster.engines.kubernetes import answer_deadlines, connection, sessions
from muster.engines.kubernetes.cluster import CannotCall, Cluster
from support.certificates import TlsFiles, write_certificate
from support.servers import serving

pytest.importorskip("kubernetes")

BODY = b'{"metadata": {"uid": "1"}}'
HEAD = b"HTTP/1.1 200 OK\r\n"
ERROR_HEAD = b"HTTP/1.1 500 Internal Server Error\r\n"
WITH_LENGTH = b"Content-Length: %d\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(autouse=True)
def short_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_WHOLE_ANSWER", 0.3)
    monkeypatch.setattr(connection, "RETRY_FOR", 0.0)


@contextmanager
def dripping(at_once: bytes, slowly: bytes, tls: TlsFiles | None = None) -> Iterator[str]:
    """The URL of a server that answers everything with some bytes at once, and with others one by
    one: all of them take much longer than the deadline."""
    done = Event()

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            sock = self.request if tls is None else _accepted(self.request, tls)
            with sock, suppress(OSError):  # the client has closed its connection
                sock.recv(1 << 16)
                sock.sendall(at_once)
                for number in range(len(slowly)):
                    if done.wait(0.02):
                        return
                    sock.sendall(slowly[number : number + 1])

    server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with serving(server):
        scheme = "http" if tls is None else "https"
        yield f"{scheme}://127.0.0.1:{server.server_address[1]}"
        done.set()


def _accepted(sock: socket.socket, tls: TlsFiles) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.cert, tls.key)
    return context.wrap_socket(sock, server_side=True)


#: A body that is valid JSON, so that nothing but the deadline is wrong with the answer.
LONG = BODY + b" " * 200
DRIPS = {
    "status": (b"", HEAD + b"X: %s\r\n" % (b"x" * 200) + WITH_LENGTH % len(BODY) + BODY),
    "headers": (HEAD, b"X: %s\r\n" % (b"x" * 200) + WITH_LENGTH % len(BODY) + BODY),
    "body": (HEAD + WITH_LENGTH % len(LONG), LONG),
    "body without a length": (HEAD + b"Connection: close\r\n\r\n", LONG),
    "chunk": (HEAD + CHUNKED, b"%x\r\n%s\r\n0\r\n\r\n" % (len(LONG), LONG)),
    "size of a chunk": (
        HEAD + CHUNKED,
        b"%x;%s\r\n%s\r\n0\r\n\r\n" % (len(BODY), b"x" * 200, BODY),
    ),
}


@pytest.mark.parametrize("drip", DRIPS.values(), ids=DRIPS)
@pytest.mark.parametrize("is_secure", [False, True], ids=["http", "https"])
def test_a_slow_answer_has_an_end(
    tmp_path: Path, drip: tuple[bytes, bytes], is_secure: bool
) -> None:
    tls = write_certificate(tmp_path, "api.test") if is_secure else None
    own = {"tls-server-name": "api.test"}
    trust = {} if tls is None else {"certificate-authority": str(tls.authority), **own}
    with dripping(*drip, tls) as url:
        cluster = Cluster(write_config(tmp_path / "config", url, None, **trust), retry_for=0.0)
        with pytest.raises(CannotCall) as said:
            cluster.read("Pod", "p")
    assert str(said.value) == (
        f"the cluster does not answer: GET {url}/api/v1/namespaces/team/pods/p has no complete "
        "answer after 0.3s: check the network and the proxies on the way"
    )
    assert not said.value.refused and said.value.status is None


CALLS: dict[str, Callable[[Cluster], object]] = {
    "list": lambda cluster: cluster.list("Pod"),
    "log": lambda cluster: cluster.log("p", "node", retry_for=0.0),
    "bind": lambda cluster: cluster.connection.bind(),
    "versions": lambda cluster: cluster.versions(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_each_call_has_a_deadline(tmp_path: Path, call: Callable[[Cluster], object]) -> None:
    body = b'{"metadata": {"resourceVersion": "1", "uid": "1"}, "items": [], "groups": []}'
    body += b" " * 200
    with dripping(HEAD + WITH_LENGTH % len(body), body) as url:
        cluster = Cluster(write_config(tmp_path / "config", url), retry_for=0.0)
        with pytest.raises(CannotCall, match="has no complete answer after"):
            call(cluster)


def test_a_slow_error_has_an_end(tmp_path: Path) -> None:
    body = b'{"kind": "Status", "message": "no"}' + b" " * 200
    with dripping(ERROR_HEAD + WITH_LENGTH % len(body), body) as url:
        cluster = Cluster(write_config(tmp_path / "config", url), retry_for=0.0)
        with pytest.raises(CannotCall, match="has no complete answer after"):
            cluster.read("Pod", "p")


def test_a_slow_proxy_has_an_end(tmp_path: Path) -> None:
    with dripping(HEAD, b"X: %s\r\n\r\n" % (b"x" * 300)) as proxy:
        own = {"proxy-url": proxy}
        profile = write_config(tmp_path / "config", "https://api.test", None, **own)
        with pytest.raises(CannotCall, match="has no complete answer after"):
            Cluster(profile, retry_for=0.0).read("Pod", "p")


def test_a_stream_begins_in_time(tmp_path: Path) -> None:
    with dripping(HEAD, b"X: %s\r\n" % (b"x" * 200) + WITH_LENGTH % 0) as url:
        cluster = Cluster(write_config(tmp_path / "config", url), retry_for=0.0)
        with pytest.raises(CannotCall, match="has no complete answer after"):
            cluster.watch("Pod", "", "1")


class Clock:
    """In the place of `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(answer_deadlines, "time", found)
    return found


def test_a_stream_that_has_begun_lasts(tmp_path: Path, clock: Clock) -> None:
    """Longer than any other answer."""
    stub = ApiStub(lambda _: Answer(stream=iter([event("ADDED", {"metadata": {"uid": "1"}})])))
    try:
        stream = Cluster(write_config(tmp_path / "config", stub.url)).watch("Pod", "", "1")
        clock.now += 1000.0
        assert [one.type for one in stream] == ["ADDED"]
    finally:
        stub.close()


def test_each_call_of_a_connection_has_its_own_deadline(tmp_path: Path, clock: Clock) -> None:
    ports: list[int] = []

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            ports.append(self.client_address[1])
            while self.request.recv(1 << 16):
                self.request.sendall(HEAD + WITH_LENGTH % len(BODY) + BODY)

    server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with serving(server):
        url = f"http://127.0.0.1:{server.server_address[1]}"
        cluster = Cluster(write_config(tmp_path / "config", url), retry_for=0.0)
        for _ in range(2):
            cluster.read("Pod", "p")
            clock.now += 1000.0
        cluster.close()
    assert len(ports) == 1
