"""Build and push images with podman, buildah or docker. Runs them without a shell."""

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
from muster.images.builder_errors import LINES_SEARCHED, failure
from muster.images.recipe import RECIPE_FILE
from muster.images.reference import Reference

#: In order of preference: those without a daemon first.
BUILDERS = ("podman", "buildah", "docker")
#: Called with each line of the builder's output.
PrintLine = Callable[[str], object]
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Builder(Struct, frozen=True):
    name: str
    path: str


def find_builder(requested: str | None) -> Builder:
    """Find the requested builder, or the first one on PATH.

    Raises InvalidInput if the requested one is missing, EngineError if there is none at all.
    """
    for name in (requested,) if requested else BUILDERS:
        path = shutil.which(name)
        if path is not None:
            return Builder(name, path)
    if requested:
        found = [name for name in BUILDERS if shutil.which(name)]
        hint = f"found {', '.join(found)}" if found else "no other builder is either"
        raise InvalidInput(Problem("--builder", f"{requested} is not on PATH", hint))
    raise EngineError(
        f"none of {', '.join(BUILDERS)} is on PATH; install one, "
        "or write the recipe with --output and build it elsewhere"
    )


def build_command(
    builder: Builder, folder: Path, name: Reference, secrets: Mapping[str, Path], id_file: Path
) -> list[str]:
    """The command line, without the user's options and the folder, which come after it."""
    command = [builder.path, "build", "--tag", str(name), "--iidfile", str(id_file)]
    if builder.name == "buildah":
        command.append("--layers")  # the others cache layers by default
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
    print_line: PrintLine,
) -> str:
    """Build the folder's recipe; returns the image's id (`sha256:...`).

    base: the base image, for messages. options: the user's own options for the builder.
    Raises EngineError if the build fails.
    """
    with tempfile.TemporaryDirectory(prefix="muster-image-") as scratch:
        id_file = Path(scratch) / "id"
        command = build_command(builder, folder, name, secrets, id_file)
        # docker's classic builder needs no plugin but does not support secrets
        env = {"DOCKER_BUILDKIT": "1"} if builder.name == "docker" and secrets else {}
        code, last = _run([*command, *options, str(folder)], env, print_line)
        if code != 0:
            action = f"cannot build {name}"
            raise EngineError(failure(action, builder.name, base.registry, code, last))
        return id_file.read_text().strip()


def push(builder: Builder, name: Reference, options: Sequence[str], print_line: PrintLine) -> str:
    """Push the image; returns its digest in the registry, "" if the builder does not print it.

    Raises EngineError if the push fails.
    """
    with tempfile.TemporaryDirectory(prefix="muster-image-") as scratch:
        digest_file = Path(scratch) / "digest"
        writes_digest = builder.name != "docker"
        digests = ["--digestfile", str(digest_file)] if writes_digest else []
        code, last = _run([builder.path, "push", *digests, *options, str(name)], {}, print_line)
        if code != 0:
            action = f"cannot push {name}"
            raise EngineError(failure(action, builder.name, name.registry, code, last))
        if writes_digest:
            return digest_file.read_text().strip()
    found = [digest for line in last for digest in _DIGEST.findall(line)]
    return found[-1] if found else ""


def _run(command: list[str], env: dict[str, str], print_line: PrintLine) -> tuple[int, list[str]]:
    """Exit code and last lines. Terminates the builder if this process is interrupted."""
    last: deque[str] = deque(maxlen=4 * LINES_SEARCHED)
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
                    print_line(line.rstrip())
            except BaseException:  # Ctrl-C, or stdout was closed
                process.terminate()
                raise
    except OSError as error:
        raise EngineError(f"cannot start {command[0]}: {error.strerror}") from None
    return process.returncode, list(last)
