"""Connections that fail, over real sockets: which are made again, and why others are not."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import struct
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pytest
from msgspec.structs import replace

from engines.kubernetes.api_stub import OBJECT, Answer, ApiStub, write_config
from muster.engines.kubernetes import cluster as cluster_calls
from muster.engines.kubernetes import connection, sessions
from muster.engines.kubernetes.answers import LONGEST_OBJECT, explained
from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.profile import KubernetesProfile
from support.certificates import TlsFiles, write_certificate
from support.connect_proxy import connect_proxy
from support.servers import serving

pytest.importorskip("kubernetes")
Fault = Callable[[socket.socket, TlsFiles], object]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_FIRST_PAUSE", 0.01)


def trusting(path: Path, url: str, tls: TlsFiles, **own: Any) -> KubernetesProfile:
    return write_config(path / "config", url, **{**expecting(tls), **own})


def expecting(tls: TlsFiles) -> dict[str, Any]:
    """The settings of a cluster with this certificate."""
    return {"certificate-authority": str(tls.authority), "tls-server-name": "api.test"}


@contextmanager
def faulty(tls: TlsFiles, faults: Sequence[Fault]) -> Iterator[str]:
    """The URL of a server whose first connections have these faults; the next ones are answered."""
    left = [*faults]

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            if left:
                left.pop(0)(self.request, tls)
                return
            with _accepted(self.request, tls) as secure:
                secure.recv(1 << 16)
                body = json.dumps(OBJECT.body).encode()
                secure.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
                )

    server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with serving(server):
        yield f"https://127.0.0.1:{server.server_address[1]}"
    assert not left


def _accepted(sock: socket.socket, tls: TlsFiles) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.cert, tls.key)
    return context.wrap_socket(sock, server_side=True)


def close_at_once(sock: socket.socket, _tls: TlsFiles) -> None:
    sock.close()


def close_in_the_handshake(sock: socket.socket, _tls: TlsFiles) -> None:
    sock.recv(1 << 16)
    sock.close()


def reset_in_the_handshake(sock: socket.socket, _tls: TlsFiles) -> None:
    sock.recv(1 << 16)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def speak_http(sock: socket.socket, _tls: TlsFiles) -> None:
    sock.recv(1 << 16)
    sock.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")


def send_garbage(sock: socket.socket, _tls: TlsFiles) -> None:
    sock.recv(1 << 16)
    sock.sendall(bytes(range(256)))


def send_an_alert(sock: socket.socket, _tls: TlsFiles) -> None:
    sock.recv(1 << 16)
    sock.sendall(b"\x15\x03\x03\x00\x02\x02\x50")  # internal_error, as of a proxy without a server


def close_after_the_handshake(sock: socket.socket, tls: TlsFiles) -> None:
    with _accepted(sock, tls) as secure:
        secure.recv(1 << 16)


@pytest.mark.parametrize(
    "fault",
    [
        close_at_once,
        close_in_the_handshake,
        reset_in_the_handshake,
        speak_http,
        send_garbage,
        send_an_alert,
        close_after_the_handshake,
    ],
)
def test_a_connection_that_is_cut_off_is_made_again(
    tls: TlsFiles, tmp_path: Path, fault: Fault
) -> None:
    with faulty(tls, [fault, fault]) as url:
        assert Cluster(trusting(tmp_path, url, tls)).read("Pod", "p") == OBJECT.body


def test_a_handshake_that_takes_too_long_is_made_again(
    tls: TlsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_CONNECT", 0.2)

    def say_nothing(sock: socket.socket, _tls: TlsFiles) -> None:
        while sock.recv(1 << 16):
            pass

    with faulty(tls, [say_nothing]) as url:
        assert Cluster(trusting(tmp_path, url, tls)).read("Pod", "p") == OBJECT.body


@pytest.mark.parametrize("has_certificate", [False, True])
def test_a_client_whose_certificate_is_not_accepted_is_refused(
    tls: TlsFiles, tmp_path: Path, has_certificate: bool
) -> None:
    # given a server that does not trust the authority of the client
    server = ApiStub(lambda _: OBJECT, replace(tls, authority=tls.cert), needs_certificate=True)
    (tmp_path / "client").mkdir()
    client = write_certificate(tmp_path / "client", "client.test")
    user = {"client-certificate": str(client.cert), "client-key": str(client.key)}
    own = expecting(tls)
    try:
        given = user if has_certificate else None
        cluster = Cluster(write_config(tmp_path / "config", server.url, given, **own))
        with pytest.raises(CannotCall, match="the connection to the cluster is not secure") as said:
            cluster.read("Pod", "p")
    finally:
        server.close()
    assert said.value.refused and not said.value.lasts
    assert server.requests == []


def test_a_certificate_that_is_replaced_is_used(tls: TlsFiles, tmp_path: Path) -> None:
    """A call that was refused reads the configuration again."""
    server = ApiStub(lambda _: OBJECT, tls, needs_certificate=True)
    own = expecting(tls)
    try:
        profile = write_config(tmp_path / "config", server.url, **own)
        cluster = Cluster(profile)
        with pytest.raises(CannotCall):
            cluster.read("Pod", "p")
        user = {"client-certificate": str(tls.cert), "client-key": str(tls.key)}
        write_config(tmp_path / "config", server.url, user, **own)
        assert cluster.read("Pod", "p") == OBJECT.body
    finally:
        server.close()


def test_a_certificate_is_checked_behind_a_proxy(tls: TlsFiles, tmp_path: Path) -> None:
    server = ApiStub(lambda _: OBJECT, tls)
    try:
        with connect_proxy(int(server.url.rpartition(":")[2])) as proxy:
            own = {"proxy-url": proxy.url, "tls-server-name": "other.test"}
            profile = trusting(tmp_path, "https://cluster.test", tls, **own)
            with pytest.raises(CannotCall, match=r"is not secure: .*other\.test") as said:
                Cluster(profile).read("Pod", "p")
            assert said.value.refused
    finally:
        server.close()


@pytest.mark.parametrize("body", [{"metadata": {}}, {"groups": [{"name": "x", "versions": [7]}]}])
def test_an_answer_of_another_shape_is_no_answer(tmp_path: Path, body: dict[str, Any]) -> None:
    server = ApiStub(lambda _: Answer(body))
    try:
        cluster = Cluster(write_config(tmp_path / "config", server.url), retry_for=0.0)
        with pytest.raises(CannotCall, match="the cluster's answer cannot be read") as said:
            cluster.versions() if "groups" in body else cluster.connection.bind(0.0)
        assert not said.value.refused
    finally:
        server.close()


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (ValueError("Invalid header value b'Bearer s3cr3t'"), True),
        (UnicodeEncodeError("latin-1", "Bearer s3cr3t\u20ac", 13, 14, "s3cr3t"), True),
        (RuntimeError("s3cr3t"), False),
    ],
)
def test_what_else_a_request_raises_is_not_quoted(error: Exception, refused: bool) -> None:
    with pytest.raises(CannotCall) as said, explained():
        raise error
    assert str(said.value) == f"the cluster cannot be called: {type(error).__name__}"
    assert said.value.refused is refused
    assert "s3cr3t" not in "".join(traceback.format_exception(said.value))


@pytest.mark.parametrize("size", [b"-5", b"zz"])
@pytest.mark.parametrize("code", [b"200 OK", b"500 No"])
def test_an_answer_in_garbled_chunks_is_asked_for_again(
    tmp_path: Path, size: bytes, code: bytes
) -> None:
    head = b"HTTP/1.1 %s\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" % code

    def answer(sock: socket.socket) -> None:
        accepted, _ = sock.accept()
        with accepted:
            accepted.recv(1 << 16)
            accepted.sendall(head + size + b"\r\nabc")

    with socket.create_server(("127.0.0.1", 0)) as sock:
        thread = threading.Thread(target=answer, args=(sock,))
        thread.start()
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        with pytest.raises(CannotCall) as said:
            Cluster(write_config(tmp_path / "config", url), retry_for=0.0).read("Pod", "p")
        thread.join(20)
    assert not said.value.refused


@contextmanager
def endless(head: bytes, part: bytes) -> Iterator[tuple[str, list[int]]]:
    """The URL of a server whose answers do not end before they have 64 MiB, and how many bytes of
    each of them it has sent."""
    sent: list[int] = []

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            sent.append(0)
            with suppress(OSError):  # the client has closed its connection
                self.request.sendall(head)
                while sent[-1] < 1 << 26:
                    self.request.sendall(part)
                    sent[-1] += len(part)

    server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_address[1]}", sent


SPACES = b" " * (1 << 18)
ENDLESS = {
    "length": (b"Content-Length: %d\r\n\r\n" % (1 << 26), SPACES),
    "no length": (b"\r\n", SPACES),
    "chunks": (b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n%s\r\n" % (1 << 18, SPACES)),
}


@pytest.mark.parametrize(("head", "part"), ENDLESS.values(), ids=ENDLESS)
def test_an_answer_that_is_too_large_is_not_read(tmp_path: Path, head: bytes, part: bytes) -> None:
    with endless(b"HTTP/1.1 200 OK\r\n" + head, part) as (url, sent):
        cluster = Cluster(write_config(tmp_path / "config", url), retry_for=0.0)
        with pytest.raises(CannotCall) as said:
            cluster.read("Pod", "p")
    assert str(said.value) == (
        "the cluster's answer cannot be read: that for /api/v1/namespaces/team/pods/p has more "
        "than 16 MiB: check whether it comes from the API server and, if so, make the objects or "
        "the log smaller"
    )
    assert not said.value.refused
    assert all(one < 1 << 26 for one in sent)


def test_a_refusal_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    head, part = ENDLESS["chunks"]
    with endless(b"HTTP/1.1 401 Unauthorized\r\n" + head, part) as (url, sent):
        cluster = Cluster(write_config(tmp_path / "config", url), retry_for=0.0)
        with pytest.raises(CannotCall, match="does not accept the credentials"):
            cluster.read("Pod", "p")
    assert len(sent) == 2 and all(one < 1 << 26 for one in sent)


@pytest.mark.parametrize(
    ("call", "most"),
    [
        (lambda cluster: cluster.list("Pod"), "_LONGEST_PAGE"),
        (lambda cluster: cluster.events("Pod", "p"), "_LONGEST_PAGE"),
        (lambda cluster: cluster.log("p", "node", retry_for=0.0), "_LONGEST_LOG"),
    ],
    ids=["list", "events", "log"],
)
def test_a_list_and_a_log_may_be_longer_than_an_object(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[Cluster], object],
    most: str,
) -> None:
    assert getattr(cluster_calls, most) >= 100 * 1_500_000  # a page of the largest objects
    body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": []}).encode()
    body += b" " * LONGEST_OBJECT
    stub = ApiStub(lambda _: Answer(body))
    try:
        cluster = Cluster(write_config(tmp_path / "config", stub.url), retry_for=0.0)
        call(cluster)
        monkeypatch.setattr(cluster_calls, most, len(body))
        call(cluster)
        monkeypatch.setattr(cluster_calls, most, len(body) - 1)
        with pytest.raises(CannotCall, match="has more than 16 MiB"):
            call(cluster)
    finally:
        stub.close()


def test_an_answer_that_was_compressed_unasked_is_not_unpacked(tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps(OBJECT.body).encode())
    server = ApiStub(lambda _: Answer(packed, 200, {"Content-Encoding": "gzip"}))
    try:
        with pytest.raises(CannotCall, match="cannot be read") as said:
            Cluster(write_config(tmp_path / "config", server.url), retry_for=0.0).read("Pod", "p")
    finally:
        server.close()
    assert not said.value.refused
    assert server.requests[0].headers["Accept-Encoding"] == "identity"
