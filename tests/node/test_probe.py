"""Startup probes, step by step, with the test's own clock. test_agent tests what agents do with the
results."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from muster.node.launch_message import Probe
from muster.node.probe import StartupProbe


def probe(**what: Any) -> StartupProbe:
    usual = {"period": 1, "timeout": 5, "threshold": 1, "initial_delay": 0}
    return StartupProbe(Probe(**{**usual, **what}), "127.0.0.1", {}, 0.0)


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server on a port, and the requests that it receives: one answer for each."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for answer in answers:
                with server.accept()[0] as connection:
                    requests.append(connection.recv(4096))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], requests
        thread.join()


def status(code: int, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {code} Reason", "Content-Length: 0", *headers]
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
def test_successful_answers_pass(answer: bytes) -> None:
    with answering(answer) as (port, requests):
        probed = probe(port=port, http="/healthz?full=1")
        probed.step(0.0)
    assert probed.ready
    assert probed.due is None
    (request,) = requests
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
def test_other_answers_fail(answer: bytes, why: str) -> None:
    with answering(answer) as (port, _):
        probed = probe(port=port, http="/up")
        probed.step(0.0)
    assert not probed.ready
    assert probed.failed == f"startup probe failed 1 times: http://127.0.0.1:{port}/up: {why}"


def test_a_failed_probe_is_repeated() -> None:
    with answering(status(503), status(200)) as (port, requests):
        probed = probe(port=port, http="/", threshold=2)
        probed.step(0.0)
        assert (probed.ready, probed.failed, probed.due) == (False, "", 1.0)
        probed.step(0.9)
        assert len(requests) == 1, "not yet"
        probed.step(1.0)
    assert probed.ready


def test_a_port_without_a_listener() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        probed = probe(port=port, http="/")
        probed.step(0.0)
    assert probed.failed.endswith(f"http://127.0.0.1:{port}/: Connection refused")


def test_a_silent_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        probed = probe(port=server.getsockname()[1], http="/", timeout=0.01)
        probed.step(0.0)
    assert probed.failed.endswith("/: timed out")


@pytest.mark.parametrize("path", ["/a b", "/\u00fcber", "/\n"])
def test_an_invalid_path(path: str) -> None:
    """The spec's rules refuse it earlier; here it must not end the agent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        probed = probe(port=server.getsockname()[1], http=path)
        probed.step(0.0)
    assert probed.failed


def test_a_tcp_probe_needs_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        probed = probe(port=server.getsockname()[1], http=None)
        probed.step(0.0)
    assert probed.ready
