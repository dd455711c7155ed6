"""What a spec may not ask for on a server where several people's runs are kept apart. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from muster.errors import Problem
from muster.spec.kinds import classify_source
from muster.spec.models import JobSpec, Mount
from muster.spec.paths import CONDA, absolute_line, is_file, is_requirements_file, path_in

_VOLUME = "use a URL, or volume:NAME for a directory that your runs share on the server"


def local_paths(spec: JobSpec) -> list[Problem]:
    """The paths of a spec that would be read or written on the server's machine.

    Files of the client's machine have been sent by then, and the spec names what was sent. Named
    volumes, scratch directories and URLs are fine, as are paths inside the job's code and mounts.
    """
    return list(_local_paths(spec))


def workload_problems(spec: JobSpec) -> Iterator[Problem]:
    """What a JobSet of the user's may not ask for on a server, whose credentials of the cluster are
    those of all."""
    if spec.workload is None:
        return
    if spec.workload.uid is not None:
        text = "adopting is not possible on a server: its engines run JobSets of all users"
        yield Problem("workload.uid", text, "adopt it where you have credentials of the cluster")
    if (spec.workload.manifest.get("metadata") or {}).get("namespace"):
        text = "on a server, runs are in the namespace of the engine"
        yield Problem("workload.manifest.metadata.namespace", text, "leave it out")


def owner_problems(spec: JobSpec) -> list[Problem]:
    """What nodes with a Unix account of their owner cannot have: it would take root's rights, or
    lead to the runs of other owners."""
    return list(_owner_problems(spec))


def _local_paths(spec: JobSpec) -> Iterator[Problem]:
    if spec.artifact is not None:
        text = f"{spec.artifact} is a path on the client's machine"
        yield Problem("artifact", text, "send the code, or use git")
    if spec.git is not None and _is_local_repository(spec.git.url):
        text = f"{spec.git.url} is on the server's machine"
        yield Problem("git.url", text, "name a repository by https:// or ssh://")
    for number, line in enumerate(spec.requirements or ()):
        if spec.git is None and (is_requirements_file(line) or _names_local_file(line)):
            text = f"{line} is a file of a machine"
            hint = "name packages, or put what is to be installed where pip finds it by a URL"
            yield Problem(f"requirements[{number}]", text, hint)
    if spec.git is None and is_file(spec.conda, CONDA):
        yield Problem("conda", f"{spec.conda} is a file of a machine", "give its content")
    if spec.logging.directory is not None:
        text = f"{spec.logging.directory} would be a directory of the server's machine"
        yield Problem("logging.directory", text, "leave it out: `muster logs` shows the output")
    yield from _level("", spec.working_dir, spec.mounts)
    for group in spec.node_groups:
        place = f"node_groups[{group.name}]."
        yield from _level(place, group.working_dir, (*spec.mounts, *group.mounts), group.mounts)
        for extra in group.extra_containers:
            yield from _mounts(f"{place}extra_containers[{extra.name}].", extra.mounts)
    if spec.array is not None and spec.array.file is not None and spec.array.rows is None:
        yield _array_file("array.file", spec.array.file)
    for group in spec.node_groups:
        array = group.array
        if array is not None and array.file is not None and array.rows is None:
            yield _array_file(f"node_groups[{group.name}].array.file", array.file)


def _array_file(path: str, file: str) -> Problem:
    return Problem(path, f"{file} is a file of a machine", "give its rows")


def _level(
    place: str,
    working_dir: str | None,
    mounts: tuple[Mount, ...],
    own: tuple[Mount, ...] | None = None,
) -> Iterator[Problem]:
    """mounts: those that the working directory may be in. own: those of this level; None: all."""
    if working_dir is not None and working_dir.startswith(("/", "~")):
        folder = os.path.normpath(working_dir)
        if not any(_is_in(folder, mount.destination) for mount in mounts):
            text = f"{working_dir} would be a directory of the server's machine"
            hint = "use a path relative to the code, or one in a mount"
            yield Problem(f"{place}working_dir", text, hint)
    yield from _mounts(place, mounts if own is None else own)


def _mounts(place: str, mounts: tuple[Mount, ...]) -> Iterator[Problem]:
    for number, mount in enumerate(mounts):
        if mount.source is None:
            continue
        kind = classify_source(mount.source)
        path = f"{place}mounts[{number}].source"
        if kind == "directory":
            yield Problem(
                path, f"{mount.source} would be a directory of the server's machine", _VOLUME
            )
        elif kind == "url" and _is_local_url(mount.source):
            yield Problem(path, f"{mount.source} is on the server's machine", _VOLUME)


def _is_local_url(url: str) -> bool:
    """Whether a URL of fsspec leads to files of the machine. It may be chained:
    `zip://*.csv::s3://...`."""
    *outer, last = url.split("::")
    parts = [part for part in (*outer, last) if "://" in part]
    return "://" not in last or any(
        part.partition("://")[0].lower() in _LOCAL_PROTOCOLS for part in parts
    )


#: Those of fsspec that open what is on this machine.
_LOCAL_PROTOCOLS = frozenset({"file", "local", "dir", "git", "memory"})


def _is_local_repository(url: str) -> bool:
    if "://" in url:
        return url.lower().startswith("file:")
    host, colon, _ = url.partition(":")  # without a protocol, HOST:PATH is one of ssh
    return not colon or "/" in host or host.lower() == "file"


def _names_local_file(line: str) -> bool:
    made = absolute_line(line, Path("/"))
    return path_in(made) is not None or "file:" in made


def _is_in(folder: str, parent: str) -> bool:
    return folder == parent or folder.startswith(parent.rstrip("/") + "/")


def _owner_problems(spec: JobSpec) -> Iterator[Problem]:
    if spec.network == "shared":
        text = "nodes would share the server's network with the runs of other owners"
        yield Problem("network", text, "use cluster, which is the default here, or isolated")
    for group in spec.node_groups:
        for number, mount in enumerate(group.mounts):
            if mount.source is not None and classify_source(mount.source) == "nfs":
                text = f"{mount.source} is mounted by root, with access to everybody's files there"
                path = f"node_groups[{group.name}].mounts[{number}].source"
                yield Problem(path, text, _VOLUME)
        if group.resources is not None and group.resources.disk_image:
            text = "a disk image is made and mounted by root"
            path = f"node_groups[{group.name}].resources.disk_image"
            yield Problem(path, text, "leave it out: `disk` alone is measured")
