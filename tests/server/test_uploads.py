"""Upload code: continued, cut off, damaged, too large, hostile."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.caller import Role
from muster.server import uploads as server_uploads
from muster.storage import uploads
from muster.store.account_records import AuditFilter, UserKind, UserRecord
from support.faults import until
from support.teams import Reply, Teams, serving_teams


@pytest.fixture(scope="module")
def teams() -> Iterator[Teams]:
    with serving_teams() as made:
        yield made


@pytest.fixture
def token(teams: Teams) -> str:
    return teams.token("anouk")


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put(teams: Teams, token: str, digest: str, data: bytes, offset: int = 0) -> Reply:
    return teams.request("PUT", f"/v1/uploads/{digest}?offset={offset}", token, data)


def finish(
    teams: Teams, token: str, digest: str, name: str = "train.py", kind: str = "file"
) -> Reply:
    body = {"file_name": name, "kind": kind}
    return teams.request("POST", f"/v1/uploads/{digest}", token, body)


def stored_names(teams: Teams) -> list[str]:
    return sorted(path.name for path in (teams.backend.home.uploads / "vision").iterdir())


def test_an_upload_is_continued(teams: Teams, token: str) -> None:
    data = os.urandom(100_000)
    digest = digest_of(data)
    assert put(teams, token, digest, data[:70_000]).json == {"size": 70_000}
    assert teams.request("GET", f"/v1/uploads/{digest}", token).json == {"size": 70_000}
    early = put(teams, token, digest, data[80_000:], 80_000)
    assert (early.status, early.problem) == (409, "Conflict")
    assert "70000 bytes have arrived: continue there, not at 80000" in early.json["detail"]
    assert put(teams, token, digest, data[60_000:], 60_000).json == {"size": 100_000}
    reply = finish(teams, token, digest)
    assert reply.status == 201
    assert teams.request("GET", f"/v1/code/{reply.json['sha256']}", token).status == 200


def test_an_upload_that_is_cut_off_is_continued(teams: Teams, token: str) -> None:
    data = os.urandom(200_000)
    digest = digest_of(data)
    head = (
        f"PUT /v1/uploads/{digest}?offset=0 HTTP/1.1\r\nHost: muster\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", teams.port)) as connection:
        connection.sendall(head.encode() + data[:150_000])
    path = f"/v1/uploads/{digest}"
    until(lambda: teams.request("GET", path, token).json["size"] > 0, "some of it has arrived", 30)
    size = teams.request("GET", path, token).json["size"]
    assert put(teams, token, digest, data[size:], size).json == {"size": len(data)}
    assert finish(teams, token, digest).status == 201


def test_a_wrong_digest_is_refused(teams: Teams, token: str) -> None:
    digest = digest_of(b"right")
    put(teams, token, digest, b"wrong")
    reply = finish(teams, token, digest)
    assert (reply.status, reply.problem) == (422, "InvalidInput")
    assert "the 5 bytes that have arrived have another digest" in reply.json["detail"]
    assert teams.request("GET", f"/v1/uploads/{digest}", token).json == {"size": 0}
    reply = finish(teams, token, digest)
    assert "nothing was uploaded under this digest" in reply.json["detail"]


@pytest.mark.parametrize("digest", ["x", "A" * 64, "..%2f" * 10, "0" * 65, "0" * 63 + "%0a"])
def test_what_is_no_digest(teams: Teams, token: str, digest: str) -> None:
    for reply in (
        put(teams, token, digest, b"data"),
        finish(teams, token, digest),
        teams.request("GET", f"/v1/uploads/{digest}", token),
    ):
        assert (reply.status, reply.problem) == (422, "InvalidInput")
    assert teams.request("GET", f"/v1/code/{digest}", token).status == 404


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../a", "/etc/passwd", "a/b", "a\0b", "a\nb", "\x1b[2J", "x" * 256]
)
def test_what_is_no_file_name(teams: Teams, token: str, name: str) -> None:
    data = f"name {name!r}".encode()
    put(teams, token, digest_of(data), data)
    reply = finish(teams, token, digest_of(data), name)
    assert (reply.status, reply.problem) == (422, "InvalidInput")
    assert "is not a file name" in reply.json["detail"]


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for info, data in members:
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return file.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def special(name: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    return info


HOSTILE = {
    "parent": archive((tarfile.TarInfo("../../../planted"), b"x")),
    "absolute": archive((tarfile.TarInfo("/tmp/muster-planted"), b"x")),
    "link out": archive((link("out", "/tmp"), b""), (tarfile.TarInfo("out/muster-planted"), b"x")),
    "link up": archive((link("up", ".."), b""), (tarfile.TarInfo("up/planted"), b"x")),
    "hard link": archive((link("passwd", "/etc/passwd", tarfile.LNKTYPE), b"")),
    "device": archive((special("disk", tarfile.BLKTYPE), b"")),
    "pipe": archive((special("pipe", tarfile.FIFOTYPE), b"")),
    "no archive": b"this is no archive",
    "cut off": archive((tarfile.TarInfo("a.py"), b"x" * 5000))[:2000],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives(teams: Teams, token: str, name: str) -> None:
    data = HOSTILE[name]
    put(teams, token, digest_of(data), data)
    home = teams.backend.home
    before = set(home.root.rglob("planted*"))
    reply = finish(teams, token, digest_of(data), "code", "folder")
    assert reply.status in (201, 422), reply
    assert set(home.root.rglob("planted*")) == before
    assert not Path("/tmp/muster-planted").exists()
    if reply.status == 201:  # nothing of another place is in it
        code = home.artifact(reply.json["sha256"])
        for path in code.rglob("*"):
            assert path.is_symlink() or path.is_dir() or path.read_bytes() in (b"", b"x")
            assert not path.is_symlink() or not os.path.isabs(os.readlink(path))
    assert not [each for each in stored_names(teams) if each.endswith(".unpacked")]


def test_a_payload_has_a_maximum(teams: Teams, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_uploads, "MOST", 1000)
    data = b"x" * 1001
    reply = put(teams, token, digest_of(data), data)
    assert reply.status == 413
    assert put(teams, token, digest_of(data), data[:600]).status == 200
    assert put(teams, token, digest_of(data), data[600:], 600).status == 413


def test_the_digest_of_another_project_is_of_no_use(teams: Teams, token: str) -> None:
    data = b"print('of vision')\n"
    put(teams, token, digest_of(data), data)
    code = finish(teams, token, digest_of(data)).json
    spec = {"name": "stolen", "artifact": "train.py", "entrypoint": "train.py"}
    source = {"type": "spec", "spec": spec, "code": code}
    reply = teams.request("POST", "/v1/jobs", teams.token("oscar"), source)
    assert (reply.status, reply.problem) == (422, "InvalidInput")
    unknown = {**source, "code": {**code, "sha256": "0" * 64}}
    other = teams.request("POST", "/v1/jobs", teams.token("oscar"), unknown)
    assert other.json["detail"].replace("0" * 64, code["sha256"]) == reply.json["detail"]
    assert teams.request("POST", "/v1/jobs", token, source).status == 201


def test_old_uploads_are_removed(teams: Teams, token: str) -> None:
    home, data = teams.backend.home, b"old"
    put(teams, token, digest_of(data), data)
    (home.uploads / "vision" / "left.unpacked").mkdir()
    uploads.remove_old(home, time.time())
    assert f"{digest_of(data)}.part" in stored_names(teams)
    uploads.remove_old(home, time.time() + uploads.KEPT + 1)
    assert stored_names(teams) == []


def test_uploads_are_in_the_audit_log(teams: Teams) -> None:
    data = os.urandom(100)
    teams.accounts.create_user(UserRecord("vera", UserKind.PERSON, 0.0))
    teams.accounts.set_member("vision", "vera", Role.VIEWER)
    digest, viewer = digest_of(data), teams.token("vera")
    refused = [
        put(teams, viewer, digest, data),
        finish(teams, viewer, digest),
        teams.request("GET", f"/v1/uploads/{digest}", viewer),
        teams.request("GET", f"/v1/code/{digest}", viewer),
    ]
    assert [each.status for each in refused] == [403] * 4
    token = teams.token("anouk")
    put(teams, token, digest, data)
    assert finish(teams, token, digest).status == 201
    found = teams.backend.store.audit.listing(AuditFilter(project="vision", limit=5))
    entries = sorted(found, key=lambda entry: entry.time)
    assert [(entry.user, entry.action, entry.allowed) for entry in entries] == [
        *[("vera", "api.check_may_upload", False)] * 4,
        ("anouk", "code.upload", True),
    ]
    assert entries[-1].object == digest
