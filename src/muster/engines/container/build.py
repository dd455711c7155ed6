"""Builds the image of a folder: by its Containerfile or Dockerfile, else from its requirements."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from msgspec import Struct

from muster.engines.container.api import CannotReach, Daemon, Refused
from muster.engines.container.bodies import BUILT
from muster.engines.container.credentials import DOCKER_IO, HUB, registry_of
from muster.engines.container.images import Login, look_up
from muster.errors import EngineError, InvalidInput, Problem
from muster.storage.ignore import files_of

_FILES = ("Containerfile", "Dockerfile")
_REQUIREMENTS = "requirements.txt"
_RECIPE = """\
FROM {base}
COPY {requirements} /opt/muster/
RUN {python} -m pip install --no-cache-dir --requirement /opt/muster/{requirements}
"""
#: Lines of output that begin a step (Podman, and both builders of Docker).
_STEP = re.compile(r"\s*(?:STEP|Step) \d+/\d+ ?: .*")
_FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)", re.I | re.M)
#: Seconds without output; lines of output that are shown when a step has failed.
_TIMEOUT, _SHOWN = 3600.0, 8


class ImageSource(Struct, frozen=True):
    """What an image is built from."""

    folder: Path
    #: Relative to the folder, sorted.
    files: tuple[str, ...]
    #: The name of the file with the steps, and its text. It is one of the files, or made here.
    recipe: str
    text: str
    #: The name of the image, with a tag for all of this.
    image: str


def read_source(folder: Path, home: Path, base: str, python: str) -> ImageSource:
    """What is in a folder. home: MUSTER_HOME, which is left out. base, python: the image, and its
    Python, that requirements are added to. Raises InvalidInput."""
    if not folder.is_dir():
        raise InvalidInput(Problem("--build", f"{folder} is no folder", "name the image's"))
    try:
        files = files_of(folder, home)
    except InvalidInput as error:
        raise InvalidInput(*(p._replace(path="--build") for p in error.problems)) from None
    recipe = next((name for name in _FILES if name in files), "")
    if recipe:
        text = (folder / recipe).read_text(errors="replace")
    elif _REQUIREMENTS in files:
        recipe, files = _FILES[0], [_REQUIREMENTS]
        text = _RECIPE.format(base=base, python=python, requirements=_REQUIREMENTS)
    else:
        text = f"{folder} has no Containerfile, Dockerfile or {_REQUIREMENTS}"
        raise InvalidInput(Problem("--build", text, "name the folder that has one"))
    name = re.sub("[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "image"
    return ImageSource(
        folder, tuple(files), recipe, text, f"{BUILT}{name}:{_digest(folder, files, text)}"
    )


def _digest(folder: Path, files: list[str], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in files:
        path = folder / name
        if path.is_symlink():
            content = b"link " + os.fsencode(os.readlink(path))
        else:
            content = b"%d " % (path.stat().st_mode & 0o111) + path.read_bytes()
        digest.update(b"\0%s\0%d\0" % (os.fsencode(name), len(content)))
        digest.update(content)
    return digest.hexdigest()[:16]


def build(daemon: Daemon, source: ImageSource, login: Login, say: Callable[[str], None]) -> None:
    """Build an image, unless it is there. login: see `images.find_image`. say: gets a line for each
    step. Raises EngineError."""
    try:
        if look_up(daemon, source.image) is not None:
            return
        say(f"building {source.image} from {source.folder}")
        with tempfile.TemporaryFile() as packed:
            _pack(source, packed)
            _build(daemon, source, login, packed, say)
    except (CannotReach, Refused, OSError) as error:
        raise EngineError(f"{source.folder} cannot be built: {error}") from None


def _pack(source: ImageSource, target: IO[bytes]) -> None:
    """Raises OSError."""
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name in source.files:
            archive.add(source.folder / name, name, filter=_of_root)
        if source.recipe not in source.files:
            entry = tarfile.TarInfo(source.recipe)
            entry.size = len(source.text.encode())
            archive.addfile(entry, io.BytesIO(source.text.encode()))
    target.seek(0)


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _build(
    daemon: Daemon,
    source: ImageSource,
    login: Login,
    packed: IO[bytes],
    say: Callable[[str], None],
) -> None:
    """Raises EngineError, CannotReach, Refused."""
    query = {"t": source.image, "dockerfile": source.recipe, "rm": "true", "forcerm": "true"}
    headers = {"Content-Type": "application/x-tar", **_logins(source, login)}
    stream = daemon.stream("POST", ("build",), query, headers, _TIMEOUT, packed)
    step, said = "", list[str]()
    try:
        for line in stream:
            if why := line.get("error") or (line.get("errorDetail") or {}).get("message"):
                raise EngineError(_failure(source, step, said, str(why)))
            for text in str(line.get("stream") or "").splitlines():
                if _STEP.fullmatch(text):
                    step, said = text.strip(), []
                    say(step)
                elif text.strip():
                    said = [*said[1 - _SHOWN :], text.rstrip()]
    finally:
        stream.close()
    if look_up(daemon, source.image) is None:
        raise EngineError(_failure(source, step, said, "the engine has not said why"))


def _failure(source: ImageSource, step: str, said: list[str], why: str) -> str:
    where = f"{source.folder / source.recipe}"
    if source.recipe not in source.files:
        where = f"{source.folder / _REQUIREMENTS}"
    lines = "".join(f"\n  {line}" for line in said)
    return f"{where} cannot be built: {why.strip()}\n  {step or 'before the first step'}{lines}"


def _logins(source: ImageSource, login: Login) -> Mapping[str, str]:
    """The header with the credentials for the registries of the images that it is built on. That of
    Docker Hub has two names: Docker knows it by the one in its files (Docker Engine API, build)."""
    found = {}
    for image in _FROM.findall(source.text):
        if header := login(image).get("X-Registry-Auth"):
            registry = registry_of(image)
            for name in (registry, HUB) if registry == DOCKER_IO else (registry,):
                found[name] = json.loads(base64.urlsafe_b64decode(header))
    if not found:
        return {}
    return {"X-Registry-Config": base64.urlsafe_b64encode(json.dumps(found).encode()).decode()}
