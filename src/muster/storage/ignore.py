"""Select the files of a folder that are code: all except those that ignore files exclude.

Ignore files are called `.musterignore` if the top folder has one, else `.gitignore`. They have
git's syntax and may be in any folder. As in git, empty folders do not count.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from muster.errors import InvalidInput, Problem
from muster.storage.ignore_rules import Rule, is_ignored, read_rules

#: Always excluded. (`.git` is a file in a worktree.)
ALWAYS = frozenset({".git", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache", ".DS_Store"})
#: A folder with more files was probably given by mistake.
MAX_FILES = 100_000

#: Ignore files that apply to a folder, outermost first: (folder of the file, its rules).
_Rules = tuple[tuple[str, tuple[Rule, ...]], ...]


def files_of(folder: Path, home: Path) -> list[str]:
    """Relative paths of the folder's files and links, sorted. home: MUSTER_HOME, also excluded.

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
            hint = "exclude files that are not code with .musterignore, or mount them"
            raise InvalidInput(Problem("artifact", text, hint))
    return sorted(found)


def files_below(folder: Path, name: str, home: Path) -> Iterator[str]:
    """Relative paths of the files that `files_of` returns below one subfolder, without links."""
    root = os.path.realpath(folder)
    for path, is_link in _walk(root, os.path.realpath(home), only=name):
        if not is_link and path.startswith(f"{name}/"):
            yield path


def ignored_entries(folder: Path, names: Iterable[str]) -> set[str]:
    """The entries of a folder that the ignore file in it excludes."""
    root = os.path.realpath(folder)
    own = f"{root}/{_ignore_file(root)}"
    if not os.path.isfile(own):
        return set()
    with open(own, "rb") as file:
        rules: _Rules = (("", read_rules(file.read())),)
    return {name for name in names if _is_ignored(name, rules, folder=_is_folder(f"{root}/{name}"))}


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _ignore_file(root: str) -> str:
    return ".musterignore" if os.path.exists(f"{root}/.musterignore") else ".gitignore"


def _walk(root: str, home: str, only: str = "") -> Iterator[tuple[str, bool]]:
    """(relative path, whether it is a link) of all code files, in no order. only: if set, the only
    top-level folder to enter."""
    own = _ignore_file(root)
    todo: list[tuple[str, _Rules]] = [("", ())]
    while todo:
        below, rules = todo.pop()
        with os.scandir(f"{root}/{below}") as scan:
            entries = {entry.name: entry for entry in scan}
        if "pyvenv.cfg" in entries and below:
            continue  # a virtual environment
        if own in entries and entries[own].is_file():
            with open(f"{root}/{below}{own}", "rb") as file:
                rules = (*rules, (below, read_rules(file.read())))
        for name, entry in entries.items():
            path = f"{below}{name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            if name in ALWAYS or _is_ignored(path, rules, folder=is_folder):
                continue
            if is_folder:
                if f"{root}/{path}" != home and (below or only in ("", name)):
                    todo.append((f"{path}/", rules))
            elif entry.is_symlink() or entry.is_file():
                yield path, entry.is_symlink()


def _is_ignored(path: str, rules: _Rules, *, folder: bool) -> bool:
    """The nearest ignore file with a matching rule decides, as in git."""
    for below, own in reversed(rules):
        decision = is_ignored(own, path.removeprefix(below), folder=folder)
        if decision is not None:
            return decision
    return False


def check_link(root: str, path: str, shown: str) -> None:
    """Raises InvalidInput if a link leads out of the folder. shown: the folder in messages."""
    target = os.path.realpath(f"{root}/{path}")
    if target != root and not target.startswith(f"{root}/"):
        hint = "copy its target into the folder, mount it, or name it in .musterignore"
        raise InvalidInput(Problem("artifact", f"the link {path} points outside {shown}", hint))
