"""Requests to URLs of users: where they lead, and what is made of answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread, Timer
from urllib.parse import urlsplit

import pytest

from muster.notify import http
from muster.notify.http import post
from muster.notify.retries import Answer
from support.receivers import Receiver, Reply, receiving

REFUSED = "is not in the public internet"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def send(url: str, *, allow_private: bool = True) -> Answer:
    return post(urlsplit(url), b"{}", {"x-a": "b"}, allow_private=allow_private)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "127.0.0.1",
        "127.1",
        "2130706433",  # 127.0.0.1 as one number
        "0x7f000001",
        "0177.0.0.1",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",  # carriers' networks
        "169.254.169.254",  # the metadata of clouds
        "224.0.0.1",
        "255.255.255.255",
        "[::]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:a9fe:a9fe]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fc00::1]",
        "[ff02::1]",
    ],
)
def test_no_connection_to_an_address_that_is_not_public(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda _, address: connected.append(address))
    answer = send(f"https://{host}:8443/x", allow_private=False)
    assert connected == []
    assert not answer.delivered
    assert REFUSED in answer.text or "cannot be resolved" in answer.text


def test_the_address_that_was_checked_is_the_one_that_is_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a name that is public at first, and that of this machine when it is resolved again
    answers = iter(["93.184.216.34", "127.0.0.1", "127.0.0.1"])
    used: list[object] = []

    def resolve(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    def refuse(_: object, address: object) -> None:
        used.append(address)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    answer = send(f"https://rebinding.example:{receiver.port}/", allow_private=False)
    assert used == [("93.184.216.34", receiver.port)]
    assert answer == Answer(False, "Connection refused")
    assert REFUSED in send("https://rebinding.example/", allow_private=False).text


def test_a_host_with_one_private_address_is_reached_at_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[object] = []

    def resolve(host: str, port: int, **_: object) -> list[object]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in ("10.0.0.1", "93.184.216.34")
        ]

    def refuse(_: object, address: object) -> None:
        used.append(address)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    send("https://two.example/", allow_private=False)
    assert used == [("93.184.216.34", 443)]


def test_no_events_without_tls() -> None:
    answer = send("http://example.com/", allow_private=False)
    assert (answer.final, answer.text) == (True, "not sent: the URL has to be https")


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    with receiving() as other:
        receiver.answer = lambda _: Reply(307, {"location": other.url})
        answer = send(receiver.url)
        assert not answer.delivered
        assert f"HTTP 307: redirects to {other.url}" in answer.text
        assert other.received == []


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(204), Answer(True, "HTTP 204")),
        (Reply(200, body=b"ok\x1b[31m\n"), Answer(True, "HTTP 200: ok\\x1b[31m")),
        (Reply(404, body=b"no"), Answer(False, "HTTP 404: no")),
        (Reply(410), Answer(False, "HTTP 410", final=True)),
        (Reply(429, {"retry-after": "7"}), Answer(False, "HTTP 429", retry_after=7.0)),
        (
            Reply(503, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}),
            Answer(False, "HTTP 503"),
        ),
        (Reply(503, {"retry-after": "soon"}), Answer(False, "HTTP 503")),
    ],
)
def test_answers(receiver: Receiver, reply: Reply, expected: Answer) -> None:
    receiver.answer = lambda _: reply
    assert send(receiver.url) == expected
    (request,) = receiver.received
    assert (request.path, request.body, request.headers["x-a"]) == (
        *("/hook?key=of-the-receiver", b"{}", "b"),
    )
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"


def test_only_the_start_of_an_answer_is_read(receiver: Receiver) -> None:
    receiver.answer = lambda _: Reply(500, body=b"x" * 1_000_000)
    assert send(receiver.url).text == f"HTTP 500: {'x' * 200}"


@pytest.mark.parametrize(
    ("scheme", "start"),
    [
        ("http", b"HTTP/"),  # a status line that never ends
        ("https", b"\x16\x03\x03\x01\x00\x02\x00\x00\xfc"),  # a handshake that never does
    ],
)
def test_a_receiver_that_is_slow_at_everything(
    monkeypatch: pytest.MonkeyPatch, scheme: str, start: bytes
) -> None:
    monkeypatch.setattr(http, "TIMEOUT", 0.2)
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(start)
            connection.settimeout(0.05)  # from one byte to the next one
            ended = False
            while not ended:
                try:
                    ended = not connection.recv(1 << 16)
                except TimeoutError:
                    connection.sendall(b"a")

    thread = Thread(target=drip, daemon=True)
    thread.start()
    answer = send(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/")
    thread.join(20)
    listener.close()
    assert answer == Answer(False, "no answer within 0s")
    assert not thread.is_alive()


def test_the_time_is_over_before_there_is_a_connection(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Over(Timer):
        def start(self) -> None:
            self.function()

    monkeypatch.setattr(http, "Timer", Over)
    assert send(receiver.url) == Answer(False, "no answer within 10s")
    assert receiver.received == []


def test_nobody_listens() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.close()
    assert send(f"http://127.0.0.1:{port}/") == Answer(False, "Connection refused")


def test_a_certificate_is_verified(receiver: Receiver) -> None:
    answer = send(receiver.url.replace("http:", "https:"))
    assert not answer.delivered  # the receiver speaks no TLS
    assert "SSL" in answer.text or "without an answer" in answer.text
