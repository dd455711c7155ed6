"""The settings of an engine `container`, and credentials of registries."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from muster.engines.container.credentials import auth_header, credentials, registry_of
from muster.engines.container.profile import ContainerSettings, HostMount, Registry, read_settings
from muster.errors import InvalidInput

LOGIN = {"host": "ghcr.io", "username": "ana"}
KEY = {"password_env": "TOKEN"}


def test_all_settings() -> None:
    table = {
        "socket": "unix:///run/podman/podman.sock",
        "image": "ghcr.io/ana/train:7",
        "python": "/opt/conda/bin/python",
        "pull": "always",
        "mounts": ["/data:ro", "/a:/mnt/a", "/b:/mnt/b:ro"],
        "registry": LOGIN | KEY,
    }
    assert read_settings(table) == ContainerSettings(
        table["socket"],
        table["image"],
        table["python"],
        "always",
        (
            HostMount("/data", "/data", True),
            HostMount("/a", "/mnt/a"),
            HostMount("/b", "/mnt/b", True),
        ),
        Registry("ghcr.io", "ana", "TOKEN"),
    )
    assert read_settings({}) == ContainerSettings()


@pytest.mark.parametrize(
    ("table", "path", "text"),
    [
        ({"imgae": "x"}, "imgae", "unknown setting"),
        ({"image": ""}, "image", "must be the name of an image"),
        ({"image": "two words"}, "image", "must be the name of an image"),
        ({"pull": "often"}, "pull", "must be missing, always or never"),
        ({"python": "python3 -x"}, "python", "must be an interpreter"),
        ({"socket": "tcp://10.0.0.1:2375"}, "socket", "is not the path of a Unix socket"),
        ({"socket": 1}, "socket", "must be the path of a socket"),
        ({"registry": "ghcr.io"}, "registry", "must be a table"),
        ({"registry": {**LOGIN, "password": "x"}}, "registry.password", "do not belong"),
        ({"registry": LOGIN}, "registry", "needs one of password_env and password_file"),
        ({"registry": {**LOGIN, "pw": "x"} | KEY}, "registry.pw", "unknown setting"),
        ({"registry": {"username": "a"} | KEY}, "registry", "has no host"),
        ({"registry": {**LOGIN, "host": 1} | KEY}, "registry.host", "must be a text"),
        ({"mounts": "/a"}, "mounts", "must be a list"),
        ({"mounts": ["a"]}, "mounts[0]", "must be SOURCE[:TARGET][:ro]"),
        ({"mounts": ["/a", 1]}, "mounts[1]", "must be SOURCE[:TARGET][:ro]"),
    ],
)
def test_wrong_settings(table: dict[str, Any], path: str, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        read_settings(table)
    (problem,) = error.value.problems
    assert problem.path == path
    assert text in problem.message


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("python:3.12", "docker.io"),
        ("ana/train", "docker.io"),
        ("ghcr.io/ana/train:7", "ghcr.io"),
        ("localhost/py:1", "localhost"),
        ("127.0.0.1:5000/py@sha256:1", "127.0.0.1:5000"),
    ],
)
def test_the_registry_of_an_image(image: str, registry: str) -> None:
    assert registry_of(image) == registry


def write(path: Path, data: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def login(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_credentials_are_those_of_docker_and_podman(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    assert credentials("ghcr.io", environ) is None
    assert auth_header("ghcr.io/ana/train", environ) == {}
    write(tmp_path / "run/containers/auth.json", {"auths": {"ghcr.io": login("pod", "man")}})
    assert credentials("ghcr.io", environ) == ("pod", "man")
    hub = {"https://index.docker.io/v1/": login("ana", "a:b")}
    write(tmp_path / ".docker/config.json", {"auths": hub})
    assert credentials("docker.io", environ) == ("ana", "a:b")
    file = tmp_path / "given.json"
    write(file, {"auths": {"docker.io": login("other", "x")}})
    environ["REGISTRY_AUTH_FILE"] = str(file)
    assert credentials("docker.io", environ) == ("other", "x")
    header = auth_header("python:3.12", environ)["X-Registry-Auth"]
    assert json.loads(base64.urlsafe_b64decode(header)) == {"username": "other", "password": "x"}


def test_a_helper_runs_in_the_environment_of_the_submitter(tmp_path: Path) -> None:
    helper = tmp_path / "docker-credential-box"
    helper.write_text(
        '#!/bin/sh\nread name\n[ "$name" = ghcr.io ] || exit 1\n'
        'echo \'{"Username": "\'$WHO\'", "Secret": "s"}\'\n'
    )
    helper.chmod(0o755)
    write(tmp_path / ".docker/config.json", {"credsStore": "box"})
    path = f"{tmp_path}:{os.environ['PATH']}"
    environ = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run"), "PATH": path}
    environ["WHO"] = "ana"
    assert credentials("ghcr.io", environ) == ("ana", "s")
    assert credentials("quay.io", environ) is None
