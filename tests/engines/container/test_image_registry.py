"""Registries that refuse: with a Podman of the tests' own, and a registry that has no image."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from typing import Any, cast

import pytest

from muster.engines.container.api import Daemon, Refused
from muster.engines.container.credentials import NoPassword, auth_header
from muster.engines.container.images import NoImage, find_image
from muster.engines.container.profile import Registry
from support import podman_service
from support.command import muster, output_of
from support.podman_service import PodmanService
from support.servers import serving

USER, PASSWORD = "ana", "correct horse"
_AUTHORIZED = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
_UNKNOWN = b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}'
_LOGIN = b'{"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}'


@pytest.fixture
def asked(podman: PodmanService) -> Iterator[list[str]]:
    """The paths of what was asked of the registry, which requires a login."""
    found: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.headers.get("Authorization") == _AUTHORIZED
            found.append(self.path)
            status, body = (404, _UNKNOWN) if is_known else (401, _LOGIN)
            if is_known and self.path == "/v2/":
                status, body = 200, b"{}"
            self.send_response(status)
            if not is_known:
                self.send_header("WWW-Authenticate", 'Basic realm="tests"')
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *args: object) -> None:
            pass

    with serving(ThreadingHTTPServer(podman.registry, Handler)):
        yield found


def run(podman: PodmanService, folder: Path) -> str:
    """What the run of an image of the registry says, which may be restarted."""
    path = folder / "job.yaml"
    image = f"{podman.registry[0]}:{podman.registry[1]}/ana/none:1"
    path.write_text(f"image: {image}\nengine: container\nfailure: {{max_restarts: 3}}\n")
    return muster("run", str(path), code=1).stderr


def test_what_a_registry_has_refused_is_not_tried_again(
    podman: PodmanService, own_home: Path, tmp_path: Path, asked: list[str]
) -> None:
    podman_service.add_engine(own_home, podman)
    said = run(podman, tmp_path)
    assert "ana/none:1 cannot be pulled: " in said
    assert "`podman login`" in said
    assert "another start would fail until this is corrected" in said
    assert len([path for path in asked if "/manifests/" in path]) <= 1


def test_a_password_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    login = Registry("ghcr.io", USER, password_file=str(file))
    with pytest.raises(NoPassword, match=r"password of registry .* cannot be read"):
        auth_header("ghcr.io/a/b", {}, login)
    file.write_text(f"{PASSWORD}\n")
    text = base64.urlsafe_b64decode(auth_header("ghcr.io/a/b", {}, login)["X-Registry-Auth"])
    assert json.loads(text) == {"username": USER, "password": PASSWORD}


def test_the_login_of_a_profile(
    podman: PodmanService,
    own_home: Path,
    tmp_path: Path,
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = "{}:{}".format(*podman.registry)
    login = {"host": host, "username": USER, "password_env": "TOKEN_OF_TESTS"}
    podman_service.add_engine(own_home, podman, registry=login)
    text = f"$TOKEN_OF_TESTS, the password of registry {host}, is not set"
    assert text in run(podman, tmp_path)
    assert text in muster("engines", "check", "container", code=1).stdout
    assert not asked
    monkeypatch.setenv("TOKEN_OF_TESTS", PASSWORD)
    assert "manifest unknown" in run(podman, tmp_path)
    assert PASSWORD not in output_of("status", "last", "--json")
    assert not [
        path
        for path in (own_home / "runs").rglob("*")
        if path.is_file() and PASSWORD.encode() in path.read_bytes()
    ]


class Engine:
    """Has an image once it was pulled."""

    def __init__(self) -> None:
        self.has = False

    def get(self, *words: str) -> dict[str, Any]:
        if not self.has:
            raise Refused(404, "no such image")
        digests = ["ghcr.io/ana/train@sha256:12"]
        return {"Id": "sha256:34", "RepoDigests": digests, "Config": {}}

    def stream(self, *_: object) -> Any:
        self.has = True
        return StringIO("")


def test_it_is_asked_whether_a_run_may_use_an_image() -> None:
    asked, said, engine = list[str](), list[str](), Engine()

    def refuse(image: str) -> str:
        asked.append(image)
        return f"image {image} cannot be used: no policy"

    def find() -> None:
        name = "ghcr.io/ana/train:7"
        find_image(cast(Daemon, engine), name, "missing", lambda _: {}, said.append, refuse)

    with pytest.raises(NoImage, match="cannot be used: no policy") as refused:
        find()
    assert (refused.value.final, engine.has, said) == (True, False, [])
    engine.has = True  # also if another run has pulled it
    with pytest.raises(NoImage, match="cannot be used: no policy"):
        find()
    assert asked == ["ghcr.io/ana/train:7"] * 2


def test_the_digest_of_what_was_pulled_is_said() -> None:
    said, daemon = list[str](), cast(Daemon, Engine())
    for _ in range(2):  # the second time, it is there
        found = find_image(daemon, "ghcr.io/ana/train:7", "missing", lambda _: {}, said.append)
        assert found.digest == "ghcr.io/ana/train@sha256:12"
    which = "which is ghcr.io/ana/train@sha256:12"
    assert said == ["pulling ghcr.io/ana/train:7", f"pulled ghcr.io/ana/train:7, {which}"]
