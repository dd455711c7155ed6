"""The secrets that a job uses. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from muster.spec.models import ExtraContainer, JobSpec, Mount, NodeGroup
from muster.spec.placeholders import OF_SECRET, placeholders


def stored_secrets(spec: JobSpec) -> dict[str, str]:
    """The secrets that a job uses and does not have itself: they are its project's. Name -> the
    path of the setting that uses it first."""
    found: dict[str, str] = {}
    for path, template in _templates(spec):
        if "${secret." not in template:
            continue
        for name in placeholders(template):
            secret = name.removeprefix(OF_SECRET)
            if secret != name and secret not in spec.secrets:
                found.setdefault(secret, path)
    return found


def _templates(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """The texts that may have placeholders of secrets, with their paths."""
    yield from _of_mounts("mounts", spec.mounts)
    for number, group in enumerate(spec.node_groups):
        path = f"node_groups[{number}]"
        yield from _of_level(path, group)
        for position, one in enumerate(group.extra_containers):
            yield from _of_level(f"{path}.extra_containers[{position}]", one)


def _of_level(path: str, level: NodeGroup | ExtraContainer) -> Iterator[tuple[str, str]]:
    for name, text in level.node_env.items():
        yield f"{path}.node_env.{name}", text
    for position, text in enumerate(level.node_args or ()):
        yield f"{path}.node_args[{position}]", text
    yield from _of_mounts(f"{path}.mounts", level.mounts)


def _of_mounts(path: str, mounts: Iterable[Mount]) -> Iterator[tuple[str, str]]:
    for position, mount in enumerate(mounts):
        yield from mount_templates(f"{path}[{position}]", mount)


def mount_templates(path: str, mount: Mount) -> Iterator[tuple[str, str]]:
    """The contents of a mount's files, with their paths. path: the mount's."""
    for name, file in mount.files.items():
        for kind, text in (("text", file.text), ("base64", file.base64)):
            if text is not None:
                yield f"{path}.files.{name}.{kind}", text
