"""Credentials of registries, from the files where `docker login` and `podman login` keep them."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from muster.engines.container.profile import Registry
from muster.node.files import read_regular

#: How Docker's file calls Docker Hub, and its registry in names of images.
HUB, DOCKER_IO = "https://index.docker.io/v1/", "docker.io"
#: Seconds for a program that keeps credentials.
_HELPER_TIMEOUT = 20.0


class NoPassword(Exception):  # noqa: N818
    """The password of a profile's registry cannot be read. The text says why."""


def auth_header(
    image: str, environ: Mapping[str, str], registry: Registry | None = None
) -> dict[str, str]:
    """The header with the credentials for the registry of an image; empty if there are none.
    registry: the profile's. Raises NoPassword."""
    host = registry_of(image)
    if registry is not None and registry.host == host:
        found: tuple[str, str] | None = (registry.username, password_of(registry, environ))
    else:
        found = credentials(host, environ)
    if found is None:
        return {}
    text = json.dumps({"username": found[0], "password": found[1]}).encode()
    return {"X-Registry-Auth": base64.urlsafe_b64encode(text).decode()}


def password_of(registry: Registry, environ: Mapping[str, str]) -> str:
    """The password of a registry. Raises NoPassword."""
    if registry.password_env:
        if password := environ.get(registry.password_env):
            return password
        text = f"${registry.password_env}, the password of registry {registry.host}, is not set"
        raise NoPassword(text)
    path = os.path.expanduser(registry.password_file)
    try:
        return read_regular(Path(path)).decode().strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        text = f"{path}, with the password of registry {registry.host}, cannot be read: {why}"
        raise NoPassword(text) from None


def registry_of(image: str) -> str:
    """The registry in the name of an image: HOST[:PORT]."""
    first, slash, _ = image.partition("/")
    is_host = slash and ("." in first or ":" in first or first == "localhost")
    return first if is_host else DOCKER_IO


def credentials(registry: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The user and the password for a registry, from the first file that has them."""
    for path in _files(environ):
        try:
            data = json.loads(read_regular(path))
        except (OSError, ValueError):  # there is none
            continue
        if isinstance(data, dict) and (found := _of(registry, data, environ)) is not None:
            return found
    return None


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Podman's (containers-auth.json(5)), and Docker's."""
    if given := environ.get("REGISTRY_AUTH_FILE"):
        yield Path(given)
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    home = environ.get("HOME") or os.path.expanduser("~")
    yield Path(environ.get("DOCKER_CONFIG") or f"{home}/.docker") / "config.json"
    yield Path(runtime) / "containers/auth.json"
    yield Path("/run/containers") / str(os.getuid()) / "auth.json"
    yield Path(environ.get("XDG_CONFIG_HOME") or f"{home}/.config") / "containers/auth.json"


def _of(
    registry: str, data: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[str, str] | None:
    names = [registry, f"https://{registry}"]
    if registry == DOCKER_IO:
        names += [HUB, "index.docker.io"]
    helper = (data.get("credHelpers") or {}).get(registry) or data.get("credsStore")
    for name in names:
        entry = (data.get("auths") or {}).get(name) or {}
        if text := entry.get("auth"):
            try:
                user, _, password = base64.b64decode(text).decode().partition(":")
            except ValueError:
                continue
            return user, password
    return _ask_helper(str(helper), names, environ) if helper else None


def _ask_helper(
    helper: str, names: list[str], environ: Mapping[str, str]
) -> tuple[str, str] | None:
    """Ask docker-credential-HELPER, which gets the name of the registry on its standard input.
    environ: the submitter's, in which it is looked for and runs."""
    for name in names:
        argv = [f"docker-credential-{helper}", "get"]
        try:
            done = subprocess.run(
                argv,
                env=environ,
                input=name.encode(),
                capture_output=True,
                timeout=_HELPER_TIMEOUT,
                check=True,
            )
            found = json.loads(done.stdout)
            return str(found["Username"]), str(found["Secret"])
        except (OSError, subprocess.SubprocessError, ValueError, KeyError):
            continue
    return None
