"""A spec file, or data as from one, into a checked `JobSpec`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from muster.errors import InvalidInput, Problem
from muster.spec.decode import salvage
from muster.spec.files import STDIN, called, read_text
from muster.spec.models import JobSpec
from muster.spec.places import Lines, Origins, in_order, placed
from muster.spec.rules import check
from muster.spec.source_paths import absolute_sources

#: ADS: what its YAML says at the top; apiVersion may be missing.
ADS_KINDS = ("distributed", "job")
_MANIFEST = re.compile(
    r"""^["']?apiVersion["']?[ \t]*:|^["']?kind["']?[ \t]*:[ \t]*(distributed|job)\s*$""",
    re.MULTILINE,
)


class Written(Struct, frozen=True):
    """A spec as somebody wrote it: what could be read of it, and all that is wrong with it.

    broken: paths of what could not be read, and is at its default. source: the file, for messages;
    lines: path -> line there. origins: of a file that is no spec itself, where the spec's fields
    stand in it.
    """

    spec: JobSpec
    problems: tuple[Problem, ...] = ()
    broken: tuple[str, ...] = ()
    source: str = ""
    lines: Lines = field(default_factory=dict)
    origins: Origins = field(default_factory=dict)

    def whole(self) -> JobSpec:
        """The spec. Raises InvalidInput with every problem and its line."""
        if self.problems:
            problems = in_order(self.problems, self.lines)
            raise InvalidInput(*(placed(p, self.source, self.lines) for p in problems))
        return self.spec


def read_spec(path: Path, name: str | None = None) -> JobSpec:
    """The spec in a YAML or JSON file, which may also be a JobSet manifest, or a folder of those.
    Relative paths in it are taken from its folder; without a name it is called after the file.

    name: of the JobSet that is meant, where there are several. Raises InvalidInput with every
    problem and its line.
    """
    return read_written(path, name).whole()


def read_written(path: Path, name: str | None = None) -> Written:
    """As `read_spec`, with whatever could be read. Raises InvalidInput where that is nothing."""
    from muster.spec.yaml import load

    text = "" if os.path.isdir(path) else read_text(path)
    if name is not None or os.path.isdir(path) or is_manifest(text):
        from muster.spec.formats.manifests import read_manifest

        found = read_manifest(path, name)
        return Written(found.spec, source=found.source, lines=found.lines, origins=found.origins)
    data, lines = load(text, called(path))
    if isinstance(data, Mapping) and data.get("name") is None:
        data = {**data, "name": _default_name(path)}
    return written_from(data, source=called(path), lines=lines, folder=path.absolute().parent)


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
    return written_from(data, source=source, lines=lines, folder=folder).whole()


def written_from(
    data: Any, *, source: str = "", lines: Lines | None = None, folder: Path | None = None
) -> Written:
    """As `spec_from_mapping`, with whatever could be read. Raises InvalidInput where that is
    nothing."""
    problems: list[Problem] = []
    spec = salvage(JobSpec, _absolute(data, folder or Path.cwd()), problems)
    if spec is None:
        raise InvalidInput(*(placed(problem, source, lines or {}) for problem in problems))
    # a misspelt field is no reason to say that it is missing
    broken = dict.fromkeys(path for p in problems for path in (p.path, p.meant) if path)
    problems += check(spec, tuple(broken))
    return Written(spec, tuple(problems), tuple(broken), source, lines or {})


def _default_name(path: Path) -> str:
    unnamed = path == STDIN or path.stem in ("job", "muster")
    name = path.absolute().parent.name if unnamed else path.stem
    cleaned = "".join(c if c.isalnum() or c in "._-" else "-" for c in name).strip("._-")
    return cleaned or "job"


def _absolute(data: Any, folder: Path) -> Any:
    """Relative paths made absolute. What has the wrong shape is left for `decode` to refuse."""
    if not isinstance(data, Mapping):
        return data
    made = absolute_paths(data, folder)
    made["artifact"] = _path(made.get("artifact"), folder)
    made |= absolute_sources(made, folder)
    groups = made.get("node_groups")
    if isinstance(groups, list):
        made["node_groups"] = [absolute_paths(group, folder) for group in groups]
    return made


def absolute_paths(data: Any, folder: Path) -> Any:
    """The paths of a job, a group, or what a run changes of either, made absolute: of its mounts
    and its logs."""
    if not isinstance(data, Mapping):
        return data
    made = dict(data)
    logging = made.get("logging")
    if isinstance(logging, Mapping):
        made["logging"] = {**logging, "directory": _path(logging.get("directory"), folder)}
    mounts = made.get("mounts")
    if isinstance(mounts, (list, tuple)):
        made["mounts"] = [_absolute_mount(mount, folder) for mount in mounts]
    return made


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
