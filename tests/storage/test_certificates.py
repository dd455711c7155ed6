"""Certificates of a run, in real TLS handshakes."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from muster.storage.certificates import make_certificates, make_supervisor_certificate


class Node(Struct):
    address: str
    hostname: str
    names: tuple[str, ...] = ()


NODES = [
    Node("127.0.0.1", "node-0", ("main", "node-0.demo", "node-0")),
    Node("127.0.0.2", "node-1"),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {name: tmp_path_factory.mktemp("tls") / name for name in ("ours", "theirs")}
    for folder in folders.values():
        make_certificates(folder, NODES)
    return folders


def server(folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def client(folder: Path | None, trust: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=trust / "ca.pem")
    # as strict as Python is from 3.13 on
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if folder is not None:
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    """What the server sends to a client that connects to `name`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)

        def serve() -> None:
            raw, _ = listener.accept()
            raw.settimeout(60)
            try:
                with server.wrap_socket(raw, server_side=True) as connection:
                    connection.sendall(b"welcome")
            except OSError:
                raw.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with (
                socket.create_connection(listener.getsockname(), 60) as raw,
                client.wrap_socket(raw, server_hostname=name) as connection,
            ):
                return connection.recv(100).decode()
        finally:
            thread.join()


@pytest.mark.parametrize(
    "name", ["node-0", "main", "node-0.demo", "node-1", "127.0.0.1", "127.0.0.2"]
)
def test_nodes_of_a_run_trust_each_other(folders: dict[str, Path], name: str) -> None:
    ours = folders["ours"]
    assert handshake(server(ours), client(ours, ours), name) == "welcome"


ClientOf = Callable[[dict[str, Path]], tuple[ssl.SSLContext, str]]


@pytest.mark.parametrize(
    "client_of",
    [
        pytest.param(lambda f: (client(None, f["ours"]), "main"), id="no certificate"),
        pytest.param(lambda f: (client(f["theirs"], f["ours"]), "main"), id="another run"),
        pytest.param(
            lambda f: (client(f["ours"], f["theirs"]), "main"),
            id="a client that trusts another run",
        ),
        pytest.param(lambda f: (client(f["ours"], f["ours"]), "node-2"), id="another name"),
        pytest.param(lambda f: (client(f["ours"], f["ours"]), "127.0.0.3"), id="another address"),
    ],
)
def test_other_clients_and_names_are_refused(folders: dict[str, Path], client_of: ClientOf) -> None:
    context, name = client_of(folders)
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        handshake(server(folders["ours"]), context, name)


def test_only_their_owner_can_read_certificates(folders: dict[str, Path]) -> None:
    ours = folders["ours"]
    assert sorted(path.name for path in ours.iterdir()) == ["ca.pem", "cert.pem", "key.pem"]
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in ours.iterdir()} == {0o600}
    # the authority's key is not stored, so that no certificate can be added
    keys = [path for path in ours.iterdir() if b"PRIVATE KEY" in path.read_bytes()]
    assert [path.name for path in keys] == ["key.pem"]


def test_certificates_can_be_replaced(tmp_path: Path) -> None:
    for _ in range(2):
        make_certificates(tmp_path / "tls", NODES)
    folder = tmp_path / "tls"
    assert handshake(server(folder), client(folder, folder), "main") == "welcome"


def test_the_certificate_of_a_supervisor_is_good_for_its_name_only(tmp_path: Path) -> None:
    folder = tmp_path / "contact"
    make_supervisor_certificate(folder, "supervisor.r1")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    assert handshake(serving, client(None, folder), "supervisor.r1") == "welcome"
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(serving, client(None, folder), "supervisor.r2")
