"""Paths that say where code and requirements are, made absolute."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: What a conda environment file is called.
CONDA = (".yaml", ".yml")
#: Options of a requirements file that take a path (pip: Requirements File Format).
_OPTION = r"(-r|-c|-e|-f|--requirement|--constraint|--editable|--find-links)(\s+|=)(?P<path>\S.*)"
_PACKAGE = (".whl", ".zip", ".tar.gz", ".tgz")
_SCP = r"[^/]+:"


def absolute_sources(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The fields that change. What has the wrong shape is left for `decode` to refuse."""
    made: dict[str, Any] = {}
    git = data.get("git")
    if isinstance(git, Mapping) and isinstance(git.get("url"), str):
        made["git"] = {**git, "url": absolute_url(git["url"], folder)}
    # with git, it is a file of the repository
    if git is None and "requirements" in data:
        made["requirements"] = _requirements(data["requirements"], folder)
    conda = data.get("conda")
    if git is None and isinstance(conda, str) and is_file(conda, CONDA):
        made["conda"] = _absolute(conda, folder)
    return made


def is_file(text: Any, suffixes: tuple[str, ...]) -> bool:
    """Whether it names such a file, rather than holding what would be in it."""
    return isinstance(text, str) and "\n" not in text and text.lower().endswith(suffixes)


def absolute_url(url: str, folder: Path) -> str:
    """A repository's address; that of a folder made absolute."""
    if (
        not url
        or "://" in url
        or url.startswith("-")
        or (re.match(_SCP, url) and url[0] not in "./~")
    ):
        return url
    return _absolute(url, folder)


def absolute_line(line: str, folder: Path) -> str:
    """A line of a requirements file, with the path in it, if there is one, made absolute."""
    line = line.strip()
    if match := re.fullmatch(_OPTION, line):
        path = match["path"].strip()
        return line[: match.start("path")] + (path if _elsewhere(path) else _absolute(path, folder))
    name = line.partition("[")[0].partition(";")[0].strip()
    local = line.startswith((".", "~", "/")) or name.lower().endswith(_PACKAGE)
    return _absolute(line, folder) if local and not _elsewhere(line) else line


def path_in(line: str) -> Path | None:
    """The absolute path that a line of requirements, made absolute, names; None if it names none,
    or is a package or an address."""
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
    """Whether a requirement is the name of a file with more of them."""
    return is_file(line, (".txt",)) and not line.lstrip().startswith(("-", "#"))


def _absolute(text: str, folder: Path) -> str:
    return os.path.normpath(folder / os.path.expanduser(text))
