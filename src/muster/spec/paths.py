"""Make the relative paths of a spec absolute: code, requirements, mounts and logs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Suffixes of conda environment files.
CONDA = (".yaml", ".yml")
#: Options of a requirements file that take a path (pip: Requirements File Format).
_OPTION = r"(-r|-c|-e|-f|--requirement|--constraint|--editable|--find-links)(\s+|=)(?P<path>\S.*)"
_PACKAGE = (".whl", ".zip", ".tar.gz", ".tgz")
_SCP = r"[^/]+:"


def absolute_sources(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The changed fields. Values of the wrong type are left for `decode` to report."""
    made: dict[str, Any] = {}
    git = data.get("git")
    if isinstance(git, Mapping) and isinstance(git.get("url"), str):
        made["git"] = {**git, "url": absolute_url(git["url"], folder)}
    # with git, the file is in the repository
    if git is None and "requirements" in data:
        made["requirements"] = _requirements(data["requirements"], folder)
    conda = data.get("conda")
    if git is None and isinstance(conda, str) and is_file(conda, CONDA):
        made["conda"] = _absolute(conda, folder)
    return made


def is_file(text: Any, suffixes: tuple[str, ...]) -> bool:
    """Whether the text is a file name with such a suffix, rather than a file's content."""
    return isinstance(text, str) and "\n" not in text and text.lower().endswith(suffixes)


def absolute_url(url: str, folder: Path) -> str:
    """A repository's address; the path of a local folder is made absolute."""
    if (
        not url
        or "://" in url
        or url.startswith("-")
        or (re.match(_SCP, url) and url[0] not in "./~")
    ):
        return url
    return _absolute(url, folder)


def absolute_line(line: str, folder: Path) -> str:
    """A line of a requirements file with its path, if any, made absolute."""
    line = line.strip()
    if match := re.fullmatch(_OPTION, line):
        path = match["path"].strip()
        return line[: match.start("path")] + (path if _elsewhere(path) else _absolute(path, folder))
    name = line.partition("[")[0].partition(";")[0].strip()
    local = line.startswith((".", "~", "/")) or name.lower().endswith(_PACKAGE)
    return _absolute(line, folder) if local and not _elsewhere(line) else line


def path_in(line: str) -> Path | None:
    """The path in a line from `absolute_line`; None for packages and URLs."""
    word = line.rpartition(" ")[2]
    path = Path(word.partition("=")[2] or word)
    return path if path.is_absolute() else None


def _elsewhere(path: str) -> bool:
    return ":/" in path or "@" in path.partition("/")[0]


def _requirements(given: Any, folder: Path) -> Any:
    if isinstance(given, str) and is_file(given, (".txt",)):
        given = [given]
    if not isinstance(given, (list, tuple)):
        return given
    return [
        (_absolute if is_requirements_file(line) else absolute_line)(line, folder)
        if isinstance(line, str)
        else line
        for line in given
    ]


def is_requirements_file(line: str) -> bool:
    """Whether a requirement is the name of another requirements file."""
    return is_file(line, (".txt",)) and not line.lstrip().startswith(("-", "#"))


def _absolute(text: str, folder: Path) -> str:
    return os.path.normpath(folder / os.path.expanduser(text))


def absolute_job(data: Any, folder: Path) -> Any:
    """A spec as plain data with absolute paths. Values of the wrong type are left for `decode`."""
    if not isinstance(data, Mapping):
        return data
    made = absolute_paths(data, folder)
    if not is_url(made.get("artifact")):  # which is refused, with the text as written
        made["artifact"] = _path(made.get("artifact"), folder)
    made |= absolute_sources(made, folder)
    groups = made.get("node_groups")
    if isinstance(groups, list):
        made["node_groups"] = [absolute_paths(group, folder) for group in groups]
    return made


def has_array(data: Any) -> bool:
    """Whether a spec or overrides, as plain data, have an array."""
    if not isinstance(data, Mapping):
        return False
    groups = data.get("node_groups")
    if isinstance(groups, Mapping):
        groups = list(groups.values())
    levels = [data, *(groups if isinstance(groups, (list, tuple)) else ())]
    return any("array" in level for level in levels if isinstance(level, Mapping))


def is_url(text: Any) -> bool:
    """Whether the text is a URL, not a path."""
    return isinstance(text, str) and "://" in text


def absolute_paths(data: Any, folder: Path) -> Any:
    """Make the paths of mounts and logs absolute, in the plain data of a job, a group or overrides
    of either."""
    if not isinstance(data, Mapping):
        return data
    made = dict(data)
    logging = made.get("logging")
    if isinstance(logging, Mapping):
        made["logging"] = {**logging, "directory": _path(logging.get("directory"), folder)}
    mounts = made.get("mounts")
    if isinstance(mounts, (list, tuple)):
        made["mounts"] = [_absolute_mount(mount, folder) for mount in mounts]
    extra = made.get("extra_containers")
    if isinstance(extra, (list, tuple)):
        made["extra_containers"] = [absolute_paths(one, folder) for one in extra]
    return made


def _absolute_mount(mount: Any, folder: Path) -> Any:
    if not isinstance(mount, Mapping) or not isinstance(mount.get("source"), str):
        return mount
    return {**mount, "source": absolute_source(mount["source"], folder)}


def _path(text: Any, folder: Path) -> Any:
    if not isinstance(text, str) or not text:
        return text
    # Path.expanduser raises for unknown users
    return str(folder / os.path.expanduser(text))


def absolute_source(source: str, folder: Path) -> str:
    """A mount's source; a relative directory is made absolute."""
    if not source or ":/" in source or source.startswith(("scratch:", "volume:")):
        return source
    return os.path.normpath(str(_path(source, folder)))
