"""What a client keeps of the code that it has sent to servers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pytest

from muster.client.client import Client
from muster.client.http import code as sent_code
from muster.errors import ServerUnavailable
from muster.service.backend import Backend
from muster.spec.overrides import Changes
from muster.storage.home import Home
from support.server_thread import TOKEN, running_server


@pytest.fixture
def client(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Of a server with a MUSTER_HOME of its own. own_home: the client's."""
    with running_server(Backend(Home(tmp_path / "server"))) as server:
        monkeypatch.setenv("MUSTER_URL", server.address().url)
        monkeypatch.setenv("MUSTER_TOKEN", TOKEN)
        with Client() as made:
            yield made


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "main.py").write_text("print(1)\n")
    (folder / "data").write_bytes(os.urandom(300_000))
    return folder


def send(client: Client, folder: Path) -> str:
    """Send a folder. Returns its digest."""
    prepared = client.prepare(folder, Changes(), entrypoint="main.py")
    return str(prepared.job.artifact_sha256)


def kept(own_home: Path) -> set[str]:
    stored = (own_home / "sent" / "artifacts").glob("??/*")
    return {path.name for path in stored if path.parent.parent.name == "artifacts"}


def test_only_the_last_versions_are_kept(client: Client, own_home: Path, code: Path) -> None:
    sent = []
    for number in range(13):
        (code / "main.py").write_text(f"print({number})\n")
        sent.append(send(client, code))
    assert kept(own_home) == {*sent[-10:]}
    (code / "main.py").write_text("print(0)\n")
    assert send(client, code) == sent[0]
    assert kept(own_home) == {*sent[-9:], sent[0]}, "it was sent last"
    contents = [*(own_home / "sent" / "artifacts" / "objects").rglob("*")]
    assert sum(path.is_file() for path in contents) == 11, "versions share what is the same"
    assert not (own_home / "artifacts").exists() or not [*(own_home / "artifacts").glob("??/*")]


def test_large_versions_are_not_kept(
    client: Client, own_home: Path, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_code, "_MOST_KEPT", 700_000)
    sent = []
    for _ in range(4):
        (code / "data").write_bytes(os.urandom(300_000))
        sent.append(send(client, code))
    assert kept(own_home) == {*sent[-2:]}
    monkeypatch.setattr(sent_code, "_MOST_KEPT", 1)
    sent.append(send(client, code))
    assert kept(own_home) == {sent[-1]}


def payload(tmp_path: Path) -> IO[bytes]:
    file = tmp_path / "payload"
    file.write_bytes(bytes(range(100)))
    return file.open("rb")


class Restarting:
    """A connection to a server that is away for some requests, after half of a payload."""

    def __init__(self, away: int) -> None:
        self.away, self.got = away, b""

    def request(self, verb: str, path: str, body: Any = None, headers: Any = None) -> bytes:
        if self.got and self.away:
            self.away -= 1
            raise ServerUnavailable("nothing listens there")
        if verb == "PUT":
            sent = b"".join(body)
            self.got += sent if self.got else sent[: len(sent) // 2]
            if len(self.got) < 100:
                raise ServerUnavailable("the connection was lost")
        return b'{"size": %d}' % len(self.got)


def test_an_upload_goes_on_when_the_server_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    connection: Any = Restarting(away=4)
    with payload(tmp_path) as file:
        sent_code._send(connection, "/v1/uploads/x", file)
    assert connection.got == bytes(range(100))
    assert slept == [0.1, 0.5, 1.0, 2.0, 4.0]
    connection = Restarting(away=100)
    with (
        payload(tmp_path) as file,
        pytest.raises(ServerUnavailable, match="nothing listens there"),
    ):
        sent_code._send(connection, "/v1/uploads/x", file)
    assert sum(slept) < 60


def test_versions_are_sent_at_the_same_time(client: Client, own_home: Path, tmp_path: Path) -> None:
    def make(number: int) -> str:
        folder = tmp_path / f"code-{number}"
        folder.mkdir()
        (folder / "main.py").write_text(f"print({number})\n")
        return send(client, folder)

    with ThreadPoolExecutor(8) as pool:
        assert len({*pool.map(make, range(24))}) == 24
    last = make(24)
    assert last in kept(own_home)
    assert len(kept(own_home)) == 10
