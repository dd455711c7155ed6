"""OCI's environment variables that choose what runs: every decision about them. Pure.

OCI: "Job Environment Variables" for JOB_RUN_ENTRYPOINT, and for containers CONTAINER_CUSTOM_IMAGE
(formerly DOCKER_CUSTOM_IMAGE), CONTAINER_ENTRYPOINT and CONTAINER_CMD. Fields of the spec take
precedence over them; a note reports each variable that is not used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from muster.errors import Problem
from muster.spec.wording import Refused, short

if TYPE_CHECKING:  # a supervisor needs names of this module, but no specs
    from muster.spec.models import JobSpec

#: Names the file of the code that runs.
ENTRYPOINT = "JOB_RUN_ENTRYPOINT"
_IMAGES = ("CONTAINER_CUSTOM_IMAGE", "DOCKER_CUSTOM_IMAGE")
_WORDS = ("CONTAINER_ENTRYPOINT", "CONTAINER_CMD")


def image_in(env: Mapping[str, str]) -> tuple[str, str] | None:
    """The variable that names an image, and the image; None if there is none."""
    return next(((name, env[name]) for name in _IMAGES if env.get(name)), None)


def command_in(env: Mapping[str, str]) -> tuple[str, ...]:
    """The command that the variables describe; empty if there is none. Raises Refused."""
    return tuple(word for name in _WORDS for word in _words(env.get(name, "")))


def only_arguments(env: Mapping[str, str], command: tuple[str, ...]) -> bool:
    """Whether a command comes from CONTAINER_CMD alone: an image's ENTRYPOINT gets it (OCI)."""
    given = env.get(_WORDS[1], "")
    if not given.strip() or env.get(_WORDS[0], "").strip():
        return False
    try:
        return tuple(_words(given)) == command
    except Refused:
        return False


def has_command(env: Mapping[str, str]) -> bool:
    """Whether the variables describe a command, valid or not."""
    return any(env.get(name, "").strip() for name in _WORDS)


def _words(text: str) -> list[str]:
    """Split a list as in a Dockerfile, with or without brackets; text with commas, as ADS does; or
    words, as a shell does."""
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
    """Invalid commands in variables, if they would run."""
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


def entrypoint_variable(spec: JobSpec) -> tuple[str, str] | None:
    """Path and value of the variable that chooses the job's entry point: the job's, else that of
    the first group that has one. None if a field chooses it, or nothing does."""
    if spec.entrypoint is not None:
        return None
    if spec.env.get(ENTRYPOINT):
        return f"env.{ENTRYPOINT}", spec.env[ENTRYPOINT]
    for number, group in enumerate(spec.node_groups):
        if group.command is None and group.env.get(ENTRYPOINT):
            return f"node_groups[{number}].env.{ENTRYPOINT}", group.env[ENTRYPOINT]
    return None


def has_entrypoint(spec: JobSpec) -> bool:
    """Whether a field or a variable chooses the job's entry point."""
    return spec.entrypoint is not None or entrypoint_variable(spec) is not None


def with_run_entrypoint(spec: JobSpec, run_env: Mapping[str, str]) -> JobSpec:
    """The spec of a new Job. Without an entry point, it gets that of its first run's variables."""
    if not run_env.get(ENTRYPOINT) or has_entrypoint(spec):
        return spec
    from msgspec.structs import replace

    return replace(spec, env={**spec.env, ENTRYPOINT: run_env[ENTRYPOINT]})


def options_set_entrypoint(values: Iterable[str]) -> bool:
    """Whether one of the values of `--env` (NAME=VALUE or GROUP:NAME=VALUE) is the entry point."""
    return any(value.partition("=")[0].rpartition(":")[2] == ENTRYPOINT for value in values)


def group_entrypoint(
    job_entrypoint: str | None, env: Mapping[str, str], command: tuple[str, ...] | None
) -> str | None:
    """The entry point that a group runs in place of the job's; None if it runs the job's.

    env, command: the group's, with all that it inherits. A group with a command has none.
    """
    chosen = env.get(ENTRYPOINT)
    if not chosen or command is not None:
        return None
    return None if job_entrypoint and same_file(chosen, job_entrypoint) else chosen


def same_file(one: str, other: str) -> bool:
    """Whether two entry points may be the same file, given with and without its folder."""
    first, second = PurePosixPath(one).parts, PurePosixPath(other).parts
    short_, long_ = sorted((first, second), key=len)
    return long_[len(long_) - len(short_) :] == short_


class Applied(NamedTuple):
    """A group's settings with the variables applied."""

    #: The group's variables, with the entry point that its programs see.
    env: Mapping[str, str]
    image: str | None
    #: The variable that gives the image; None if a field does, or there is no image.
    image_variable: str | None
    command: tuple[str, ...] | None
    #: One sentence for each variable that is not used.
    notes: tuple[str, ...]


def apply_variables(
    job: JobSpec,
    env: Mapping[str, str],
    image: str | None,
    command: tuple[str, ...] | None,
    *,
    own_entrypoint: bool,
) -> Applied:
    """Apply a group's variables where no field is set.

    env, image, command: the group's, with all that it inherits. own_entrypoint: whether the group
    or the run sets JOB_RUN_ENTRYPOINT, which takes precedence over the job's entry point.
    """
    if ENTRYPOINT in env and job.entrypoint is not None and not own_entrypoint:
        env = {**env, ENTRYPOINT: job.entrypoint}
    notes = []
    name, variable_image = image_in(env) or (None, None)
    used = name if image is None else None
    if name is not None and image not in (None, variable_image):
        notes.append(f"{name} is not used: image is {image}")
    try:
        variable_command = command_in(env) or None
    except Refused:  # reported by `bad_variables` if it would run
        variable_command = None
    has_code = job.artifact is not None or job.git is not None
    if command is None and not has_code:
        command = variable_command
    elif has_command(env) and (command is None or command != variable_command):
        names = " and ".join(name for name in _WORDS if env.get(name))
        instead = "the artifact" if command is None else "command"
        notes.append(f"{names} not used: {instead} is given")
    return Applied(env, variable_image if image is None else image, used, command, tuple(notes))


def unused_entrypoint(job: JobSpec) -> Iterator[str]:
    """A note if the job's JOB_RUN_ENTRYPOINT is not used."""
    given = job.env.get(ENTRYPOINT)
    if given and job.entrypoint is not None and not same_file(given, job.entrypoint):
        yield f"{ENTRYPOINT}: {given} is not used: entrypoint is {job.entrypoint}"
