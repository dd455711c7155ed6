"""A spec file, or data as from one, into a checked `JobSpec`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.errors import InvalidInput, Problem
from muster.spec.decode import salvage
from muster.spec.files import STDIN, called, read_text
from muster.spec.models import JobSpec
from muster.spec.places import Lines, in_order, placed
from muster.spec.rules import check, conflicts
from muster.spec.source_paths import absolute_sources

#: ADS: what its YAML says at the top; apiVersion may be missing.
ADS_KINDS = ("distributed", "job")
_MANIFEST = re.compile(
    r"""^["']?apiVersion["']?[ \t]*:|^["']?kind["']?[ \t]*:[ \t]*(distributed|job)\s*$""",
    re.MULTILINE,
)


def read_spec(path: Path, name: str | None = None) -> JobSpec:
    """The spec in a YAML or JSON file, which may also be a JobSet manifest, or a folder of those.
    Relative paths in it are taken from its folder; without a name it is called after the file.

    name: of the JobSet that is meant, where there are several. Raises InvalidInput with every
    problem and its line.
    """
    from muster.spec.yaml import load

    text = "" if os.path.isdir(path) else read_text(path)
    if name is not None or os.path.isdir(path) or is_manifest(text):
        from muster.spec.formats.manifests import read_manifest

        return read_manifest(path, name).spec
    data, lines = load(text, called(path))
    if isinstance(data, Mapping) and data.get("name") is None:
        data = {**data, "name": _default_name(path)}
    return spec_from_mapping(data, source=called(path), lines=lines, folder=path.absolute().parent)


def is_manifest(text: str) -> bool:
    """Whether a file's text is a Kubernetes manifest, whatever its kind, or ADS's YAML. A spec has
    neither apiVersion nor kind at its top."""
    if text.lstrip().startswith("{"):
        return '"kind"' in text and ('"apiVersion"' in text or '"runtime"' in text)
    return _MANIFEST.search(text) is not None


def spec_from_mapping(
    data: Any, *, source: str = "", lines: Lines | None = None, folder: Path | None = None
) -> JobSpec:
    """The spec that plain data describe.

    source: where they are from, for messages; lines: path -> line there; folder: what relative
    paths are relative to (default: the working directory). Raises InvalidInput.
    """
    problems: list[Problem] = []
    spec = salvage(JobSpec, _absolute(data, folder or Path.cwd()), problems)
    if spec is None or problems:
        # what is there and cannot be is told as well; what is missing may be among what is wrong
        told = {problem.path for problem in problems}
        more = conflicts(spec) if spec is not None else []
        problems += [problem for problem in more if problem.path not in told]
    else:
        problems = check(spec)
    if spec is None or problems:
        known = lines or {}
        raise InvalidInput(*(placed(p, source, known) for p in in_order(problems, known)))
    return spec


def _default_name(path: Path) -> str:
    unnamed = path == STDIN or path.stem in ("job", "muster")
    name = path.absolute().parent.name if unnamed else path.stem
    cleaned = "".join(c if c.isalnum() or c in "._-" else "-" for c in name).strip("._-")
    return cleaned or "job"


def _absolute(data: Any, folder: Path) -> Any:
    """Relative paths made absolute. What has the wrong shape is left for `decode` to refuse."""
    if not isinstance(data, Mapping):
        return data
    made = dict(data)
    made["artifact"] = _path(made.get("artifact"), folder)
    made |= absolute_sources(made, folder)
    logging = made.get("logging")
    if isinstance(logging, Mapping):
        made["logging"] = {**logging, "directory": _path(logging.get("directory"), folder)}
    made = _absolute_mounts(made, folder)
    groups = made.get("node_groups")
    if isinstance(groups, list):
        made["node_groups"] = [_absolute_mounts(group, folder) for group in groups]
    return made


def _absolute_mounts(data: Any, folder: Path) -> Any:
    if not isinstance(data, Mapping) or not isinstance(data.get("mounts"), list):
        return data
    return {**data, "mounts": [_absolute_mount(mount, folder) for mount in data["mounts"]]}


def _absolute_mount(mount: Any, folder: Path) -> Any:
    if not isinstance(mount, Mapping) or not isinstance(mount.get("source"), str):
        return mount
    return {**mount, "source": absolute_source(mount["source"], folder)}


def _path(text: Any, folder: Path) -> Any:
    if not isinstance(text, str) or not text:
        return text
    # leaves ~nobody as it is, where Path.expanduser raises
    return str(folder / os.path.expanduser(text))


def absolute_source(source: str, folder: Path) -> str:
    """A mount's source with a relative directory made absolute; all others as they are."""
    if not source or ":/" in source or source.startswith(("scratch:", "volume:")):
        return source
    return os.path.normpath(str(_path(source, folder)))
