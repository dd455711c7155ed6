"""HTTP as the client speaks it, with servers that answer by the byte."""

from __future__ import annotations

import http.server
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.client.http.protocol import Answer, ConnectionLost, HttpSocket, NothingArrived
from muster.errors import InvalidInput
from support.certificates import write_certificate

HEAD = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def answered(data: bytes, *, pieces: int = 0, closes: bool = True) -> Iterator[HttpSocket]:
    """A connection to a server that answers the first request with these bytes. pieces: how many
    at a time."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        accepted, _ = listener.accept()
        with accepted:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.recv(1 << 16)
            step = pieces or max(len(data), 1)
            for at in range(0, len(data), step):
                accepted.sendall(data[at : at + step])
            if not closes:
                accepted.recv(1)

    thread = Thread(target=serve, daemon=True)
    thread.start()
    connection = HttpSocket(*listener.getsockname(), timeout=5)
    try:
        yield connection
    finally:
        connection.close()
        thread.join()
        listener.close()


def get(connection: HttpSocket) -> Answer:
    return connection.request("GET", "/x?y=1", {"Host": "h"})


@pytest.mark.parametrize("pieces", [0, 1])
@pytest.mark.parametrize(
    ("data", "body", "reusable"),
    [
        (HEAD + b"Content-Length: 5\r\n\r\nhello", b"hello", True),
        (HEAD + b"Content-Length: 0\r\n\r\n", b"", True),
        (HEAD + b"content-length:5\r\nConnection: close\r\n\r\nhello", b"hello", False),
        (HEAD + b"\r\nto the end", b"to the end", False),
        (b"HTTP/1.0 200\r\nContent-Length: 1\r\n\r\nx", b"x", False),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"Content-Length: 1\r\n\r\nx", b"x", True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b"", True),
        (
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n"
            b"0\r\nTrailer: 1\r\n\r\n",
            b"abc0123456789",
            True,
        ),
    ],
)
def test_answers(data: bytes, body: bytes, reusable: bool, pieces: int) -> None:
    with answered(data, pieces=pieces) as connection:
        answer = get(connection)
        assert answer.read() == body
        assert answer.complete
        assert answer.reusable == reusable
        assert answer.read1(10) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\n\n",
        b"HTTP/2 200 OK\r\n\r\n",
        HEAD,
        HEAD + b"Content-Length: 5\r\n\r\nhell",
        HEAD + b"Content-Length: -5\r\n\r\nhello",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nx\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        HEAD + b" folded: x\r\n\r\n",
        HEAD + b"no colon\r\n\r\n",
        HEAD + b"a: b\r\n" * 1000 + b"\r\n",
        HEAD + b"a: " + b"b" * (1 << 17) + b"\r\n\r\n",
    ],
)
def test_what_is_cut_off_or_not_valid(data: bytes) -> None:
    with answered(data) as connection, pytest.raises(ConnectionLost):
        get(connection).read()


def test_a_server_that_closes_or_is_silent() -> None:
    with answered(b"") as connection, pytest.raises(ConnectionResetError):
        get(connection)
    with answered(HEAD + b"Content-Length: 5\r\n\r\nhe", closes=False) as connection:
        answer = get(connection)
        assert answer.read1(10) == b"he"
        connection.settimeout(0.01)
        with pytest.raises(NothingArrived):
            answer.read1(10)
    with answered(HEAD + b"Content-Length: 1\r\n\r\nx") as connection:
        get(connection).read()
        connection._socket.settimeout(5)
        connection._socket.recv(1, socket.MSG_PEEK)  # until it has closed
        assert connection.dropped


def test_another_thread_ends_an_answer() -> None:
    with answered(HEAD + b"Content-Length: 5\r\n\r\nhe", closes=False) as connection:
        answer = get(connection)
        answer.read1(10)
        thread = Thread(target=answer.abort)
        thread.start()
        with pytest.raises(ConnectionLost):
            answer.read1(10)
        thread.join()


def test_an_answer_that_is_ended_keeps_its_keys(tmp_path: Path) -> None:
    """Else a thread that reads it at that moment would take what is encrypted for its content."""
    files = write_certificate(tmp_path, "localhost")
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(files.cert, files.key)

    def serve(sock: socket.socket) -> None:
        with theirs.wrap_socket(sock, server_side=True) as secured:
            secured.sendall(HEAD + b"Content-Length: 5\r\n\r\nhe")
            secured.recv(1)

    plain, served = socket.socketpair()
    thread = Thread(target=serve, args=(served,))
    thread.start()
    ours = ssl.create_default_context(cafile=str(files.authority))
    with ours.wrap_socket(plain, server_hostname="localhost") as secured:
        with secured.makefile("rb") as reader:
            answer = Answer(reader, secured, "GET")
            answer.abort()
            assert secured.cipher() is not None
        thread.join()


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/a b", {}),
        ("/a\r\nX: y", {}),
        ("a", {}),
        ("/", {"Authorization": "Bearer a\r\nX: y"}),
        ("/", {"Authorization": "Bearer \u20ac"}),
    ],
)
def test_what_cannot_be_sent(target: str, headers: dict[str, str]) -> None:
    with answered(HEAD) as connection:
        with pytest.raises(InvalidInput) as caught:
            connection.request("GET", target, headers)
        assert "Bearer" not in str(caught.value)
        connection._socket.sendall(b"x")


@given(st.lists(st.binary(min_size=1, max_size=2000), max_size=20), st.integers(1, 5000))
def test_chunks_of_any_size_arrive_whole(parts: list[bytes], most: int) -> None:
    data = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    with answered(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + data, pieces=700) as connection:
        answer = get(connection)
        found = list(iter(lambda: answer.read1(most), b""))
        assert b"".join(found) == b"".join(parts)
        assert all(len(block) <= most for block in found)
        assert answer.complete and answer.reusable


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_an_error(data: bytes) -> None:
    with answered(HEAD + data) as connection:
        try:
            get(connection).read()
        except OSError:
            pass


def test_requests_arrive_as_they_were_sent() -> None:
    """By a server of the standard library."""
    seen: list[tuple[str, str, str | None, bytes]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append((self.command, self.path, self.headers.get("X"), body))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        do_GET = do_POST = do_PUT = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        connection = HttpSocket(*server.server_address[:2], timeout=5)  # type: ignore[arg-type]
        headers = {"Host": "h", "X": "y"}
        for verb, body in (("GET", b""), ("POST", b"abc"), ("POST", b"")):
            assert connection.request(verb, "/p?q=1", headers, body).read() == b"ok"
        sized = {**headers, "Content-Length": "4"}
        assert connection.request("PUT", "/p", sized, iter([b"ab", b"cd"])).read() == b"ok"
        connection.close()
        server.shutdown()
        thread.join()
    assert seen == [
        ("GET", "/p?q=1", "y", b""),
        ("POST", "/p?q=1", "y", b"abc"),
        ("POST", "/p?q=1", "y", b""),
        ("PUT", "/p", "y", b"abcd"),
    ]
