"""What clients send on the wire: broken, hostile, slow, or cut off at any moment."""

from __future__ import annotations

import json
import re
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.server import http_protocol
from muster.server.settings import FileSettings, Settings
from muster.service.backend import Backend
from muster.storage.certificates import server_certificate
from muster.storage.home import Home
from support.faults import until
from support.server_thread import TOKEN, ServerThread, running_server

AUTH = f"Authorization: Bearer {TOKEN}\r\n".encode()
HOST = b"Host: muster\r\n"
GET = b"GET /v1/caller HTTP/1.1\r\n" + HOST + AUTH
#: A complete request, with a body.
POST = (
    b"POST /v1/jobs/check-deletable HTTP/1.1\r\n"
    + HOST
    + AUTH
    + b'Content-Length: 14\r\n\r\n{"job_ids":[]}'
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    with running_server(Backend(Home(tmp_path_factory.mktemp("home")))) as running:
        yield running


class Wire:
    """A connection."""

    def __init__(self, port: int, *, buffer: int = 0) -> None:
        self.socket = socket.socket()
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(60)
        self.socket.connect(("127.0.0.1", port))

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def rest(self) -> bytes:
        """All that arrives until the server closes the connection."""
        parts = []
        try:
            while part := self.socket.recv(1 << 16):
                parts.append(part)
        except ConnectionResetError:
            pass
        return b"".join(parts)

    def until(self, mark: bytes) -> bytes:
        """What arrives, up to these bytes."""
        found = b""
        while mark not in found:
            part = self.socket.recv(1 << 16)
            assert part, found
            found += part
        return found


def answer(server: ServerThread, *parts: bytes, end: bool = False) -> bytes:
    """All that is answered to these parts until the server closes the connection. end: nothing
    follows, which may keep an answer from being sent."""
    with Wire(server.port) as wire:
        for part in parts:
            wire.socket.sendall(part)
        if end:
            wire.socket.shutdown(socket.SHUT_WR)
        return wire.rest()


def works(server: ServerThread) -> bool:
    """Whether the server still answers others."""
    found = answer(server, GET + b"Connection: close\r\n\r\n")
    return found.startswith(b"HTTP/1.1 200 OK\r\n")


def statuses(data: bytes) -> list[int]:
    """The statuses of the answers in what a server has sent."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) [A-Z]", data)]


SMUGGLED = b"GET /v1/whoami HTTP/1.1\r\n" + HOST + AUTH + b"\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        b"Content-Length: 4\r\nContent-Length: 5\r\n",
        b"Content-Length: 4, 4\r\n",
        b"Content-Length: +4\r\n",
        b"Content-Length: -4\r\n",
        b"Content-Length: 0x4\r\n",
        b"Content-Length : 4\r\n",
        b"Content-Length: 4\r\n Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
        b"Content-Length: 99999999999999999999999999\r\n",
        b"X: a\0b\r\nContent-Length: 4\r\n",
        b"X: a\nContent-Length: 4\r\n",
        b"\x80: a\r\n",
        b": a\r\n",
        b"no colon\r\n",
    ],
    ids=repr,
)
def test_ambiguous_requests_are_refused(server: ServerThread, headers: bytes) -> None:
    """A proxy might see another end of the request: nothing after it is taken for a request."""
    post = b"POST /v1/jobs/check-deletable HTTP/1.1\r\n" + HOST + AUTH
    found = answer(server, post + headers + b"\r\n0\r\n\r\n" + SMUGGLED)
    assert statuses(found) == [400], found
    assert b"connection: close" in found
    assert works(server)


@pytest.mark.parametrize(
    "line",
    [
        b"GET /v1/caller\r\n",
        b"GET /v1/caller HTTP/1.1 \r\n\r\n",
        b"GET  /v1/caller HTTP/1.1\r\n\r\n",
        b"get /v1/caller HTTP/1.1\r\n\r\n",
        b"GET /v1/\xff HTTP/1.1\r\n\r\n",
        b"GET /v1/caller HTTP/9.9\r\n\r\n",
        b"GET http://[x HTTP/1.1\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\n\r\n",
        b"CONNECT muster:80 HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        b"GET /v1/caller HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    ],
    ids=repr,
)
def test_what_is_no_request_harms_nobody(server: ServerThread, line: bytes) -> None:
    found = statuses(answer(server, line, end=True))
    assert not found or found[0] in (400, 401, 404, 405), found
    assert works(server)


def test_large_headers_are_refused(server: ServerThread) -> None:
    with Wire(server.port) as wire:
        wire.socket.sendall(GET)
        sent, part = 0, b"X-Header: " + b"x" * 10_000 + b"\r\n"
        try:
            while sent < 1 << 26:
                wire.socket.sendall(part)
                sent += len(part)
        except (ConnectionResetError, BrokenPipeError):
            pass
        assert sent < 1 << 24, "they are all read"
        assert statuses(wire.rest()) in ([400], [])
    assert works(server)
    cookie = b"X-Header: " + b"x" * 30_000 + b"\r\n"
    found = answer(server, GET + cookie, b"Connection: close\r\n\r\n")
    assert statuses(found) == [200], "headers of a reasonable size are read"


def test_large_bodies_are_refused(server: ServerThread) -> None:
    length = b"Content-Length: 1000000000\r\n\r\n"
    with Wire(server.port) as wire:
        wire.socket.sendall(b"POST /v1/jobs HTTP/1.1\r\n" + HOST + AUTH + length)
        found = wire.until(b"}")
        assert statuses(found) == [413]
        assert b"the body has more than 67,108,864 bytes" in found


def test_one_request_after_another(server: ServerThread) -> None:
    found = answer(server, (GET + b"\r\n") * 3 + POST + GET + b"Connection: close\r\n\r\n")
    assert statuses(found) == [200] * 5


def test_chunked_bodies(server: ServerThread) -> None:
    post = POST.partition(b"Content-Length")[0] + b"Transfer-Encoding: chunked\r\n"
    body = b'b\r\n{"job_ids":\r\n3\r\n[]}\r\n0\r\n\r\n'
    found = answer(server, post + b"Connection: close\r\n\r\n" + body)
    assert statuses(found) == [200], found


def test_http_1_0(server: ServerThread) -> None:
    found = answer(server, b"GET /v1/caller HTTP/1.0\r\n" + AUTH + b"\r\n" + SMUGGLED)
    assert statuses(found) == [200], "the connection is closed after the answer"


@pytest.mark.parametrize("request_", [GET + b"\r\n", POST], ids=["GET", "POST"])
def test_a_connection_may_be_cut_anywhere(server: ServerThread, request_: bytes) -> None:
    for end in range(len(request_)):
        with Wire(server.port) as wire:
            wire.socket.sendall(request_[:end])
            if end % 2:  # with a reset
                linger = b"\1\0\0\0\0\0\0\0"
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    assert works(server)
    assert defects(server) == []


def test_any_split_is_the_same_request(server: ServerThread) -> None:
    for at in range(1, len(POST), 7):
        with Wire(server.port) as wire:
            wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire.socket.sendall(POST[:at])
            wire.socket.sendall(POST[at:])
            assert statuses(wire.until(b"null")) == [200]


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_random_bytes(server: ServerThread, data: st.DataObject) -> None:
    request = bytearray(data.draw(st.sampled_from([GET + b"\r\n", POST, GET + b"\r\n" + POST])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(request)))
        end = at + data.draw(st.integers(0, 3))
        request[at:end] = data.draw(st.binary(max_size=6))
    found = statuses(answer(server, bytes(request), end=True))
    assert all(200 <= status < 500 for status in found), found
    assert defects(server) == []


def defects(server: ServerThread) -> list[str]:
    """The entries of the log about defects of Muster."""
    entries = [json.loads(line) for line in server.log.getvalue().splitlines()]
    return [str(entry) for entry in entries if entry["level"] == "error"]


# --- time


@contextmanager
def short() -> Iterator[None]:
    """Limits that a test which is held up may miss itself: nothing that it has to send in time is
    sent meanwhile, and what is to be one is sent at once."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HEAD_TIMEOUT", "DRAIN_TIMEOUT", "WRITE_TIMEOUT"):
            patch.setattr(http_protocol, name, 0.3)
        yield


@contextmanager
def used(server: ServerThread, *, buffer: int = 0) -> Iterator[Wire]:
    """A connection on which a request was answered."""
    with Wire(server.port, buffer=buffer) as wire:
        wire.socket.sendall(GET + b"\r\n")
        wire.until(b"}")
        yield wire


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"G", GET, GET + b"\r\n" + b"\r\n" + GET], ids=repr)
def test_a_request_that_does_not_end_is_ended(server: ServerThread, sent: bytes) -> None:
    with short(), Wire(server.port) as wire:
        wire.socket.sendall(sent)
        wire.rest()  # which ends
    with used(server) as wire, short():
        wire.socket.sendall(b"\r\n" if sent else GET)
        wire.rest()


def test_a_slow_request_is_ended_however_busy_it_is(server: ServerThread) -> None:
    with short(), Wire(server.port) as wire:
        began = time.monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while time.monotonic() < began + 30:
                wire.socket.sendall(b"x")
                time.sleep(0.01)


def test_a_body_that_nobody_reads_is_ended(server: ServerThread) -> None:
    with used(server) as wire, short():
        wire.socket.sendall(b"PUT /v1/nothing HTTP/1.1\r\n" + HOST + b"Content-Length: 100\r\n\r\n")
        assert statuses(wire.until(b"}")) == [401]
        wire.rest()


def test_an_answer_may_take_long(server: ServerThread) -> None:
    """The limits are of what the client does."""
    with used(server) as wire, short():
        time.sleep(1.0)  # between two requests
        wire.socket.sendall(GET + b"Connection: close\r\n\r\n")
        assert statuses(wire.rest()) == [200]


def test_a_client_that_reads_nothing_is_cut_off(server: ServerThread) -> None:
    with used(server, buffer=4096) as wire, short():
        many = 300
        wire.socket.sendall((b"GET /v1/openapi.json HTTP/1.1\r\n" + HOST + AUTH + b"\r\n") * many)
        connections = server.server._server.server_state.connections
        until(lambda: not connections, "the connection is closed")
    assert works(server)


def test_a_thousand_slow_connections_keep_nobody_out(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT", 3600.0)  # none makes room for others
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 1000
    if hard < 3 * count:
        pytest.skip("this machine allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * count), hard))
    try:
        with ExitStack() as stack:
            for number in range(count):
                wire = stack.enter_context(Wire(server.port))
                wire.socket.sendall([GET[:10], POST[:-3], GET][number % 3])
            assert works(server)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert works(server)


def test_idle_connections_with_tls_do_not_keep_the_server_from_stopping(tmp_path: Path) -> None:
    """The server waits for no answer of theirs, which takes OpenSSL half a minute."""
    files = server_certificate(tmp_path / "tls", ["127.0.0.1"], datetime.now(UTC))
    settings = Settings(
        tls_cert=str(files / "cert.pem"),
        tls_key=str(files / "key.pem"),
        file=FileSettings(separate_owners=False),
    )
    context = ssl.create_default_context(cafile=files / "ca.pem")
    with running_server(Backend(Home(tmp_path / "home")), settings=settings) as server:
        raw = socket.create_connection(("127.0.0.1", server.port))
        client = context.wrap_socket(raw, server_hostname="127.0.0.1")
        client.sendall(GET + b"\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
    client.close()  # after the server has stopped, which `stop` checks
