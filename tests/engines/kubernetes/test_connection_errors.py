"""Errors of connections in words."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.client import IncompleteRead
from pathlib import Path

import pytest

from muster.engines.kubernetes.connection_errors import certificate_in_words, in_words
from support.certificates import write_certificate
from support.kube_engine import require_client

#: What shows where a text is from.
RAW = re.compile(r"Errno|_ssl|\(['\"]|object at|Error\(|HTTPS?Connection")


@pytest.fixture(autouse=True)
def _client() -> None:
    require_client()


def reset(connection: socket.socket) -> None:
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def say_nothing(connection: socket.socket) -> None:
    connection.recv(1000)


def speak_http(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def cut_off(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab")


@contextlib.contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of one that treats one connection so, and closes it."""

    def run() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.close()
            thread.join()


def said_of(url: str) -> str:
    import urllib3

    with (
        urllib3.PoolManager(retries=False) as pool,
        pytest.raises(urllib3.exceptions.HTTPError) as error,
    ):
        pool.request("GET", url)
    words = in_words(error.value)
    assert RAW.search(words) is None
    return words


@pytest.mark.parametrize(
    ("scheme", "serve", "words"),
    [
        ("http", reset, "it has closed the connection"),
        ("http", say_nothing, "it has closed the connection without an answer"),
        ("http", cut_off, "its answer was cut off"),
        ("https", speak_http, "it does not speak TLS"),
    ],
)
def test_a_server_that_does_not_answer(
    scheme: str, serve: Callable[[socket.socket], None], words: str
) -> None:
    with server(serve) as port:
        assert said_of(f"{scheme}://127.0.0.1:{port}/") == words


def test_no_server_is_reached() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        assert said_of(f"http://127.0.0.1:{port}/") == f"127.0.0.1:{port} refuses connections"
    words = said_of("https://cluster.invalid/")
    assert words == "the name cluster.invalid cannot be resolved"


def test_a_certificate_that_is_not_accepted(tmp_path: Path) -> None:
    files = write_certificate(tmp_path, "cluster.test")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            context.wrap_socket(connection, server_side=True)

    with server(serve) as port, pytest.raises(ssl.SSLCertVerificationError) as error:
        own = ssl.create_default_context()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            own.wrap_socket(connection, server_hostname="cluster.test")
    words = certificate_in_words(error.value)
    assert RAW.search(words) is None
    assert "certificate" in words


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (BrokenPipeError(32, "Broken pipe"), "it has closed the connection"),
        (TimeoutError("timed out"), "it has not answered in time"),
        (IncompleteRead(b"", 3), "its answer was cut off"),
        (OSError(101, "Network is unreachable"), "Network is unreachable"),
        (OSError(), "OSError"),
        (ssl.SSLError(1, "[SSL: BAD_THING] bad thing (_ssl.c:1006)"), "bad thing"),
    ],
)
def test_errors_of_the_system(error: OSError, words: str) -> None:
    assert words in in_words(error)
    assert RAW.search(in_words(error)) is None
