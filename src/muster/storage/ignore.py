"""Which files of a folder are code: all but those its ignore file names.

`.musterignore` where there is one, else `.gitignore`, both in git's syntax, in any folder. As in
git, folders without files are not seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from muster.errors import InvalidInput, Problem
from muster.storage.ignore_rules import Rule, read_rules, verdict

#: Never code, whatever the ignore files say. (`.git` is a file in a worktree.)
ALWAYS = frozenset({".git", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache", ".DS_Store"})
#: More files than this and the folder was probably not meant.
MAX_FILES = 100_000

#: Ignore files that bear on a folder, outermost first: (the folder each lies in, its rules).
_Rules = tuple[tuple[str, tuple[Rule, ...]], ...]


def files_of(folder: Path, home: Path) -> list[str]:
    """Relative paths of the folder's files and links, sorted. home: MUSTER_HOME, left out too.

    Raises InvalidInput if a link leads out of the folder, or there are too many files.
    """
    root = os.path.realpath(folder)
    found: list[str] = []
    for path, is_link in _walk(root, os.path.realpath(home)):
        if is_link:
            check_link(root, path, root)
        found.append(path)
        if len(found) > MAX_FILES:
            text = f"{folder} holds more than {MAX_FILES:,} files"
            hint = "name what is not code in .musterignore, or mount it"
            raise InvalidInput(Problem("artifact", text, hint))
    return sorted(found)


def files_below(folder: Path, name: str, home: Path) -> Iterator[str]:
    """Relative paths of the files that `files_of` would find in one of the folder's own folders,
    links left out."""
    root = os.path.realpath(folder)
    for path, is_link in _walk(root, os.path.realpath(home), only=name):
        if not is_link and path.startswith(f"{name}/"):
            yield path


def kept_back(folder: Path, names: Iterable[str]) -> set[str]:
    """Which of the entries of a folder its own ignore file keeps from being code."""
    root = os.path.realpath(folder)
    own = f"{root}/{_ignore_file(root)}"
    if not os.path.isfile(own):
        return set()
    with open(own, "rb") as file:
        rules: _Rules = (("", read_rules(file.read())),)
    return {name for name in names if _ignored(name, rules, folder=_is_folder(f"{root}/{name}"))}


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _ignore_file(root: str) -> str:
    return ".musterignore" if os.path.exists(f"{root}/.musterignore") else ".gitignore"


def _walk(root: str, home: str, only: str = "") -> Iterator[tuple[str, bool]]:
    """(relative path, whether it is a link) of all that is code, in no order. only: the one folder
    at the top to be looked into."""
    own = _ignore_file(root)
    todo: list[tuple[str, _Rules]] = [("", ())]
    while todo:
        below, rules = todo.pop()
        with os.scandir(f"{root}/{below}") as scan:
            entries = {entry.name: entry for entry in scan}
        if "pyvenv.cfg" in entries and below:
            continue  # a virtual environment, by whatever name
        if own in entries and entries[own].is_file():
            with open(f"{root}/{below}{own}", "rb") as file:
                rules = (*rules, (below, read_rules(file.read())))
        for name, entry in entries.items():
            path = f"{below}{name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            if name in ALWAYS or _ignored(path, rules, folder=is_folder):
                continue
            if is_folder:
                if f"{root}/{path}" != home and (below or only in ("", name)):
                    todo.append((f"{path}/", rules))
            elif entry.is_symlink() or entry.is_file():
                yield path, entry.is_symlink()


def _ignored(path: str, rules: _Rules, *, folder: bool) -> bool:
    """The nearest ignore file that says anything decides, as in git."""
    for below, own in reversed(rules):
        said = verdict(own, path.removeprefix(below), folder=folder)
        if said is not None:
            return said
    return False


def check_link(root: str, path: str, shown: str) -> None:
    """Raises InvalidInput if a link leads out of the folder. shown: what messages call that."""
    target = os.path.realpath(f"{root}/{path}")
    if target != root and not target.startswith(f"{root}/"):
        hint = "copy what it leads to into the folder, mount it, or name it in .musterignore"
        raise InvalidInput(Problem("artifact", f"the link {path} leads out of {shown}", hint))
