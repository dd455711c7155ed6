"""Which files of a folder are code: all but those its ignore file names.

`.musterignore` where there is one, else `.gitignore`, both in git's syntax, in any folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from pathspec import GitIgnoreSpec

from muster.errors import InvalidInput, Problem

#: Never code, whatever the ignore files say.
ALWAYS = (".git/", "__pycache__/", "*.pyc", ".venv/", "venv/", ".mypy_cache/", ".DS_Store")
#: More files than this and the folder was probably not meant.
MAX_FILES = 100_000


def files_of(folder: Path, home: Path) -> list[str]:
    """Relative paths of the folder's files and links, sorted. home: MUSTER_HOME, left out too.

    Raises InvalidInput if a link leads out of the folder, or there are too many files.
    """
    name = ".musterignore" if (folder / ".musterignore").exists() else ".gitignore"
    found: list[str] = []
    specs: list[tuple[str, GitIgnoreSpec]] = [("", GitIgnoreSpec.from_lines(ALWAYS))]
    _walk(folder, "", name, specs, home.absolute(), found)
    return sorted(found)


def _walk(
    root: Path,
    below: str,
    name: str,
    specs: list[tuple[str, GitIgnoreSpec]],
    home: Path,
    found: list[str],
) -> None:
    here = root / below
    own = here / name
    if own.is_file():
        lines = own.read_text(errors="replace").splitlines()
        specs = [*specs, (below, GitIgnoreSpec.from_lines(lines))]
    with os.scandir(here) as scan:
        entries = list(scan)
    for entry in entries:
        path = f"{below}{entry.name}"
        is_folder = entry.is_dir(follow_symlinks=False)
        if _ignored(f"{path}/" if is_folder else path, specs):
            continue
        if entry.is_symlink():
            _check_link(root, path)
            found.append(path)
        elif is_folder:
            if (root / path).absolute() != home:
                _walk(root, f"{path}/", name, specs, home, found)
        elif entry.is_file(follow_symlinks=False):
            found.append(path)
        if len(found) > MAX_FILES:
            text = f"{root} holds more than {MAX_FILES:,} files"
            hint = "name what is not code in .musterignore, or mount it"
            raise InvalidInput(Problem("artifact", text, hint))


def _ignored(path: str, specs: list[tuple[str, GitIgnoreSpec]]) -> bool:
    """The nearest ignore file that says anything decides, as in git."""
    for below, spec in reversed(specs):
        verdict = spec.check_file(path.removeprefix(below)).include
        if verdict is not None:
            return verdict
    return False


def _check_link(root: Path, path: str) -> None:
    target = (root / path).resolve()
    if not target.is_relative_to(root.resolve()):
        hint = "copy what it leads to into the folder, mount it, or name it in .musterignore"
        raise InvalidInput(Problem("artifact", f"the link {path} leads out of {root}", hint))
