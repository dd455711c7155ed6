"""Building and pushing with podman, buildah or docker: whichever is there. No shell in between."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from muster.errors import EngineError, InvalidInput, Problem
from muster.images.recipe import RECIPE_FILE
from muster.images.reference import Reference
from muster.images.trouble import LOOKED_AT, failure

#: In this order: those without a daemon first.
BUILDERS = ("podman", "buildah", "docker")
Tell = Callable[[str], object]
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Builder(Struct, frozen=True):
    name: str
    path: str


def find_builder(wanted: str | None) -> Builder:
    """The builder that is insisted on, or the first there is.

    Raises InvalidInput if that one is not there, EngineError if none is.
    """
    for name in (wanted,) if wanted else BUILDERS:
        path = shutil.which(name)
        if path is not None:
            return Builder(name, path)
    if wanted:
        there = [name for name in BUILDERS if shutil.which(name)]
        hint = f"there is {', '.join(there)}" if there else "nor any other builder"
        raise InvalidInput(Problem("--builder", f"{wanted} is not on PATH", hint))
    raise EngineError(
        f"none of {', '.join(BUILDERS)} is on PATH; install one, "
        "or write the recipe with --output and build it elsewhere"
    )


def build_command(
    builder: Builder, folder: Path, name: Reference, secrets: Mapping[str, Path], id_file: Path
) -> list[str]:
    """Up to where the owner's own options go; the folder comes after those."""
    command = [builder.path, "build", "--tag", str(name), "--iidfile", str(id_file)]
    if builder.name == "buildah":
        command.append("--layers")  # the others keep layers for the next time anyway
    for secret, path in secrets.items():
        command += ["--secret", f"id={secret},src={path}"]
    return [*command, "--file", str(folder / RECIPE_FILE)]


def build(
    builder: Builder,
    folder: Path,
    name: Reference,
    base: Reference,
    secrets: Mapping[str, Path],
    options: Sequence[str],
    tell: Tell,
) -> str:
    """Build the folder's recipe; returns the image's id (`sha256:...`).

    base: what it is made from, for messages. options: the owner's own, for the builder. tell:
    called with each line of the builder's output. Raises EngineError when it fails.
    """
    with tempfile.TemporaryDirectory(prefix="muster-image-") as scratch:
        id_file = Path(scratch) / "id"
        command = build_command(builder, folder, name, secrets, id_file)
        # docker's older way of building knows no secrets, but needs no plugin
        env = {"DOCKER_BUILDKIT": "1"} if builder.name == "docker" and secrets else {}
        code, last = _run([*command, *options, str(folder)], env, tell)
        if code != 0:
            action = f"cannot build {name}"
            raise EngineError(failure(action, builder.name, base.registry, code, last))
        return id_file.read_text().strip()


def push(builder: Builder, name: Reference, options: Sequence[str], tell: Tell) -> str:
    """Push the image; returns the digest it has there, "" where the builder does not say it.

    Raises EngineError when it fails, with what can be done about it.
    """
    with tempfile.TemporaryDirectory(prefix="muster-image-") as scratch:
        digest_file = Path(scratch) / "digest"
        told = builder.name != "docker"
        digests = ["--digestfile", str(digest_file)] if told else []
        code, last = _run([builder.path, "push", *digests, *options, str(name)], {}, tell)
        if code != 0:
            action = f"cannot push {name}"
            raise EngineError(failure(action, builder.name, name.registry, code, last))
        if told:
            return digest_file.read_text().strip()
    found = [digest for line in last for digest in _DIGEST.findall(line)]
    return found[-1] if found else ""


def _run(command: list[str], env: dict[str, str], tell: Tell) -> tuple[int, list[str]]:
    """Exit code and last lines. The builder never outlives us: it is ended when we are."""
    last: deque[str] = deque(maxlen=4 * LOOKED_AT)
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env},
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None, "it is a pipe"
            try:
                for line in process.stdout:
                    last.append(line.rstrip())
                    tell(line.rstrip())
            except BaseException:  # Ctrl-C, or nobody reads what is told
                process.terminate()
                raise
    except OSError as error:
        raise EngineError(f"cannot start {command[0]}: {error.strerror}") from None
    return process.returncode, list(last)
