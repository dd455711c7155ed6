"""Looks at a node, one by one, with the test's own clock. What agents make of them is in
test_agent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from muster.node.probe import StartupProbe


def probe(**what: Any) -> StartupProbe:
    none = {"command": None, "port": None, "file": None}
    usual = {"period": 1, "timeout": 5, "threshold": 1, "initial_delay": 0}
    return StartupProbe({**usual, **none, **what}, "127.0.0.1", {}, 0.0)


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server on a port, with the requests it has got: one answer for each."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for answer in answers:
                with server.accept()[0] as connection:
                    asked.append(connection.recv(4096))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], asked
        thread.join()


def status(code: int, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {code} Whatever", "Content-Length: 0", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize(
    "answer",
    [
        status(200),
        status(204),
        status(302, "Location: http://192.0.2.1/elsewhere"),
        status(399),
        b"HTTP/1.0 200 OK\r\n\r\nfor ever and ",
        status(100) + status(200),
    ],
)
def test_any_good_answer_will_do(answer: bytes) -> None:
    with answering(answer) as (port, asked):
        look = probe(port=port, http="/healthz?full=1")
        look.step(0.0)
    assert look.ready
    assert look.due is None
    (request,) = asked
    assert request.startswith(b"GET /healthz?full=1 HTTP/1.1\r\n")
    assert f"\r\nHost: 127.0.0.1:{port}\r\n".encode() in request


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (status(199), "the answer was 199"),
        (status(404), "the answer was 404"),
        (status(503), "the answer was 503"),
        (b"", "Remote end closed connection without response"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "BadStatusLine: SSH-2.0-OpenSSH_9.2"),
    ],
)
def test_any_other_will_not(answer: bytes, why: str) -> None:
    with answering(answer) as (port, _):
        look = probe(port=port, http="/up")
        look.step(0.0)
    assert not look.ready
    assert look.failed == f"startup probe failed 1 times: http://127.0.0.1:{port}/up: {why}"


def test_it_is_asked_again() -> None:
    with answering(status(503), status(200)) as (port, asked):
        look = probe(port=port, http="/", threshold=2)
        look.step(0.0)
        assert (look.ready, look.failed, look.due) == (False, "", 1.0)
        look.step(0.9)
        assert len(asked) == 1, "not yet"
        look.step(1.0)
    assert look.ready


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    look = probe(port=port, http="/")
    look.step(0.0)
    assert look.failed.endswith(f"http://127.0.0.1:{port}/: Connection refused")


def test_a_server_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        look = probe(port=server.getsockname()[1], http="/", timeout=0.01)
        look.step(0.0)
    assert look.failed.endswith("/: timed out")


@pytest.mark.parametrize("path", ["/a b", "/\u00fcber", "/\n"])
def test_a_path_that_is_none(path: str) -> None:
    """Whoever writes specs is told earlier; here it must not take the node's agent down."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        look = probe(port=server.getsockname()[1], http=path)
        look.step(0.0)
    assert look.failed


def test_a_port_alone_needs_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        look = probe(port=server.getsockname()[1], http=None)
        look.step(0.0)
    assert look.ready
