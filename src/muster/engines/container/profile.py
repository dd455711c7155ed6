"""The settings of an engine `container`, as its profile has them (`engines.profiles`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from muster.engines.container.sockets import NoSocket, path_of
from muster.errors import InvalidInput, Problem
from muster.spec.wording import close_to, say

#: A path, or the name of a program.
_PYTHON = re.compile(r"/?[A-Za-z0-9_.+][A-Za-z0-9_./+-]*")
#: An image of Python's own project with the version of this one, as jobs may need that.
DEFAULT_IMAGE = f"docker.io/library/python:{sys.version_info.major}.{sys.version_info.minor}-slim"
PULLS = ("missing", "always", "never")


class HostMount(Struct, frozen=True):
    """A directory of this machine that all nodes see."""

    source: str
    target: str
    read_only: bool = False


class Registry(Struct, frozen=True):
    """A login to a registry. The password is elsewhere: in a variable of the submitter's
    environment, or in a file."""

    host: str
    username: str
    password_env: str = ""
    password_file: str = ""


class ContainerSettings(Struct, frozen=True):
    """What an engine `container` is made of."""

    #: The path of the engine's socket, or `unix://` and a path; "": see `sockets.find_socket`.
    socket: str = ""
    #: Of nodes whose group names none.
    image: str = DEFAULT_IMAGE
    #: The interpreter in images that runs `python` jobs: a path, or a name on PATH.
    python: str = "python3"
    #: When images are pulled: `missing`, `always` (at the start of each run) or `never`.
    pull: str = "missing"
    mounts: tuple[HostMount, ...] = ()
    #: None: only the files of Docker and Podman have logins.
    registry: Registry | None = None


_KEYS = ("socket", "image", "python", "pull", "mounts", "registry")
_REGISTRY = ("host", "username", "password_env", "password_file")


def read_settings(table: Mapping[str, Any]) -> ContainerSettings:
    """The settings, as TOML has them. Raises InvalidInput with every problem; their paths are
    keys."""
    problems = list(_problems(table))
    if problems:
        raise InvalidInput(*problems)
    given = {key: table[key] for key in _KEYS if key in table}
    given["mounts"] = tuple(read_mount(text) for text in table.get("mounts", ()))
    if "registry" in given:
        given["registry"] = Registry(**given["registry"])
    return ContainerSettings(**given)


def read_mount(text: str) -> HostMount:
    """A mount from SOURCE[:TARGET][:ro]. Raises ValueError."""
    rest, _, last = text.rpartition(":")
    read_only = last == "ro" and bool(rest)
    source, _, target = (rest if read_only else text).partition(":")
    target = target or source
    if not source.startswith("/") or not target.startswith("/") or ":" in target:
        raise ValueError(text)
    return HostMount(source, target, read_only)


def _problems(table: Mapping[str, Any]) -> Iterator[Problem]:
    for key in table:
        if key not in _KEYS:
            close = close_to(key, [*_KEYS])
            hint = f'did you mean "{close[0]}"?' if close else f"there are {', '.join(_KEYS)}"
            yield Problem(key, "unknown setting", hint)
    yield from _socket_problems(table.get("socket", ""))
    image = table.get("image", DEFAULT_IMAGE)
    if not isinstance(image, str) or not image.strip() or image.split() != [image]:
        yield Problem("image", f"must be the name of an image, not {say(image)}")
    python = table.get("python", "python3")
    if not isinstance(python, str) or not _PYTHON.fullmatch(python):
        hint = "a path in the image, or the name of a program there"
        yield Problem("python", f"must be an interpreter, not {say(python)}", hint)
    pull = table.get("pull", "missing")
    if pull not in PULLS:
        yield Problem("pull", f"must be {', '.join(PULLS[:-1])} or {PULLS[-1]}, not {say(pull)}")
    yield from _registry_problems(table.get("registry"))
    mounts = table.get("mounts", [])
    if not isinstance(mounts, list):
        yield Problem("mounts", "must be a list of directories", 'as in mounts = ["/data:ro"]')
        return
    for number, text in enumerate(mounts):
        try:
            read_mount(text if isinstance(text, str) else "")
        except ValueError:
            hint = "as in /data, /data:/mnt/data or /data:/mnt/data:ro"
            yield Problem(
                f"mounts[{number}]", f"must be SOURCE[:TARGET][:ro], not {say(text)}", hint
            )


def _registry_problems(given: object) -> Iterator[Problem]:
    if given is None:
        return
    example = 'as in {host = "ghcr.io", username = "ana", password_env = "GHCR_TOKEN"}'
    if not isinstance(given, dict):
        yield Problem("registry", "must be a table", example)
        return
    for key, value in given.items():
        if key == "password":
            hint = "name a variable in password_env, or a file in password_file"
            yield Problem("registry.password", "passwords do not belong into profiles", hint)
        elif key not in _REGISTRY:
            yield Problem(f"registry.{key}", "unknown setting", f"there are {', '.join(_REGISTRY)}")
        elif not isinstance(value, str) or not value.strip():
            yield Problem(f"registry.{key}", f"must be a text, not {say(value)}", example)
    missing = [key for key in ("host", "username") if key not in given]
    if missing:
        yield Problem("registry", f"has no {' and no '.join(missing)}", example)
    if ("password_env" in given) == ("password_file" in given) and "password" not in given:
        yield Problem("registry", "needs one of password_env and password_file", example)


def _socket_problems(socket: object) -> Iterator[Problem]:
    try:
        if not isinstance(socket, str):
            yield Problem("socket", f"must be the path of a socket, not {say(socket)}")
        elif socket:
            path_of(socket)
    except NoSocket as error:
        yield Problem("socket", str(error))
