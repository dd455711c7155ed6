"""Variables that say what runs, as OCI's jobs read them. Pure.

OCI: "Job Environment Variables" for JOB_RUN_ENTRYPOINT, and for containers CONTAINER_CUSTOM_IMAGE
(before that DOCKER_CUSTOM_IMAGE), CONTAINER_ENTRYPOINT and CONTAINER_CMD. They are the older way:
what a spec says in its own fields beats them, and is told apart in a note.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from muster.errors import Problem
from muster.spec.wording import Refused, short

if TYPE_CHECKING:  # a supervisor needs a name from here, and nothing of a spec
    from muster.spec.models import JobSpec, NodeGroup

ENTRYPOINT = "JOB_RUN_ENTRYPOINT"
_IMAGES = ("CONTAINER_CUSTOM_IMAGE", "DOCKER_CUSTOM_IMAGE")
_WORDS = ("CONTAINER_ENTRYPOINT", "CONTAINER_CMD")


def image_in(env: Mapping[str, str]) -> tuple[str, str] | None:
    """The variable that names an image, and the image; None without one."""
    return next(((name, env[name]) for name in _IMAGES if env.get(name)), None)


def command_in(env: Mapping[str, str]) -> tuple[str, ...]:
    """What a container would run, by the variables alone. Raises Refused."""
    return tuple(word for name in _WORDS for word in _words(env.get(name, "")))


def says_command(env: Mapping[str, str]) -> bool:
    """Whether the variables say what runs, readable or not."""
    return any(env.get(name, "").strip() for name in _WORDS)


def _words(text: str) -> list[str]:
    """A list as in a Dockerfile, with its brackets or without; text split at commas, as ADS does;
    or words as a shell splits them."""
    text = text.strip()
    if text.startswith(("[", '"')):
        try:
            found = json.loads(text if text.startswith("[") else f"[{text}]")
        except ValueError:
            found = None
        if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
            hint = 'write ["sh", "-c", "..."]'
            raise Refused(f"{short(text)} is not a list of words in double quotes", hint)
        return found
    if "," in text:
        return [part.strip().strip("'\"") for part in text.split(",") if part.strip()]
    from muster.spec.values import words_of

    return words_of(text)


def bad_variables(spec: JobSpec) -> Iterator[Problem]:
    """Commands in variables that cannot be read, where they would be run."""
    if spec.artifact is not None or spec.git is not None or spec.command is not None:
        return
    yield from _unreadable("", spec.env)
    for number, group in enumerate(spec.node_groups):
        if group.command is None:
            yield from _unreadable(f"node_groups[{number}].", group.env)


def _unreadable(prefix: str, env: Mapping[str, str]) -> Iterator[Problem]:
    for name in _WORDS:
        try:
            _words(env.get(name, ""))
        except Refused as error:
            yield Problem(f"{prefix}env.{name}", error.message, error.hint)


def entrypoint_in(spec: JobSpec) -> tuple[str, str] | None:
    """The variable that chooses a job's entry point where no field does: its path, and what it
    says. That of the first group with one, if the job itself has none."""
    if spec.entrypoint is not None:
        return None
    if spec.env.get(ENTRYPOINT):
        return f"env.{ENTRYPOINT}", spec.env[ENTRYPOINT]
    for number, group in enumerate(spec.node_groups):
        if group.command is None and group.env.get(ENTRYPOINT):
            return f"node_groups[{number}].env.{ENTRYPOINT}", group.env[ENTRYPOINT]
    return None


def same_file(one: str, other: str) -> bool:
    """Whether two entry points may be one file, of which one has the folder in front."""
    first, second = PurePosixPath(one).parts, PurePosixPath(other).parts
    short_, long_ = sorted((first, second), key=len)
    return long_[len(long_) - len(short_) :] == short_


def overruled(job: JobSpec, groups: tuple[NodeGroup, ...]) -> Iterator[str]:
    """What variables say that is not used. groups: with all that they inherit."""
    said = job.env.get(ENTRYPOINT)
    if said and job.entrypoint is not None and not same_file(said, job.entrypoint):
        yield f"{ENTRYPOINT}: {said} is not used: entrypoint says {job.entrypoint}"
    for group in groups:
        image = image_in(group.env)
        if image is not None and group.image != image[1]:
            yield f"group {group.name}: {image[0]} is not used: image says {group.image}"
        if says_command(group.env) and (group.command is None or not _is_command(group)):
            names = " and ".join(name for name in _WORDS if group.env.get(name))
            instead = "the artifact" if group.command is None else "command"
            yield f"group {group.name}: {names} not used: {instead} says what runs"


def _is_command(group: NodeGroup) -> bool:
    try:
        return group.command == command_in(group.env)
    except Refused:
        return False
