"""Find and store the modules in a script's folder that the script imports.

Imports are found by parsing the code, without running it. A package is stored as a whole, because
it may have data files and imports that parsing does not find. Ignored files are left out.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from muster.errors import InvalidInput, Problem
from muster.spec.kinds import kind_of
from muster.spec.quantities import format_size
from muster.storage.artifacts import (
    ArtifactRef,
    check_artifact,
    check_files,
    store_artifact,
    store_files,
)
from muster.storage.home import Home

#: More or larger files are a project rather than a script.
MAX_FILES = 500
MAX_SIZE = 64 << 20  # bytes
_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+(\w.*)", re.MULTILINE)
_NAME = re.compile(r"[^\W\d]\w*")
_READ = 1 << 20  # bytes of a module; longer ones are generated


def store_code(home: Home, path: Path, entrypoint: str | None) -> tuple[ArtifactRef, str | None]:
    """Store a file or folder; a script together with the modules in its folder that it imports.
    Returns the artifact and its entry point. Raises InvalidInput."""
    files = _script_files(home, path, entrypoint)
    if files:
        own = path.name if entrypoint is None else ""
        # a module may be a link to another folder, which Python follows
        return store_files(home, path.parent, files, own, str(path), follow=True), own or None
    return store_artifact(home, path, entrypoint), entrypoint


def digest_of_code(home: Home, path: Path, entrypoint: str | None) -> str:
    """The digest that `store_code` would store the code under. Raises InvalidInput, OSError."""
    from muster.storage.code_trees import FolderScan

    if files := _script_files(home, path, entrypoint):
        return FolderScan(home, path.parent, files, follow=True).sha256
    if path.is_dir():
        from muster.storage.ignore import files_of

        return FolderScan(home, path, files_of(path, home.root)).sha256
    from muster.storage.file_copies import digest_of

    with open(path, "rb") as file:
        return digest_of(file)[0].hex()


def check_code(home: Home, path: Path, entrypoint: str | None) -> None:
    """Check as `store_code` does, without storing anything. Raises InvalidInput."""
    files = _script_files(home, path, entrypoint)
    if files:
        own = path.name if entrypoint is None else ""
        check_files(path.parent, files, own, str(path), follow=True)
    else:
        check_artifact(home, path, entrypoint)


def _script_files(home: Home, path: Path, entrypoint: str | None) -> list[str]:
    """A script and its modules; empty if it imports none of its folder. Raises InvalidInput."""
    if kind_of(path.name) not in ("python", "notebook") or entrypoint or not os.path.isfile(path):
        return []
    found = find_modules(path, home.root)
    return sorted({path.name, *found}) if found else []


def find_modules(script: Path, home: Path) -> list[str]:
    """The files in a script's folder that the script imports, directly or indirectly; sorted.

    Raises InvalidInput if they are too many or too large.
    """
    folder = script.parent
    todo, known, found = [script], {script.stem}, set[str]()
    while todo:
        for name in sorted(_imports(todo.pop(), folder) - known):
            known.add(name)
            files = list(islice(_files_of(folder, name, home), MAX_FILES + 1))
            found.update(files)
            _check_bounds(script, folder, found)
            todo += [folder / file for file in files if file.endswith(".py")]
    return sorted(found)


def _imports(file: Path, folder: Path) -> set[str]:
    """Top-level names of imported modules that exist in the folder."""
    try:
        with open(file, "rb") as opened:
            source = opened.read(_READ).decode(errors="replace")
    except OSError:
        return set()
    if file.suffix.lower() == ".ipynb":
        source = _cells(source)
    lines = _IMPORT.findall(source)
    likely = {name for line in lines for name in _NAME.findall(line) if _is_module(folder, name)}
    return likely & _parse_imports(source) if likely else set()


def _is_module(folder: Path, name: str) -> bool:
    return os.path.isfile(folder / f"{name}.py") or _is_package(folder / name)


def _is_package(folder: Path) -> bool:
    """Whether a folder contains Python modules; packages do not need an __init__.py."""
    if not os.path.isdir(folder) or folder.is_symlink():
        return False
    return (folder / "__init__.py").is_file() or any(folder.glob("*.py"))


def _parse_imports(source: str) -> set[str]:
    """Top-level names of all imports in the code, also inside functions."""
    import ast

    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # perhaps for another version of Python, or of a notebook: search the lines instead
        lines = _IMPORT.findall(source)
        return {found[0] for line in lines if (found := _NAME.findall(line))}
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _cells(text: str) -> str:
    """The code of a notebook's cells, without lines that are not Python."""
    try:
        cells = json.loads(text).get("cells", [])
        code = [cell["source"] for cell in cells if cell.get("cell_type") == "code"]
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        return ""
    texts = ["".join(part) if isinstance(part, list) else str(part) for part in code]
    lines = "\n".join(texts).splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!", "?")))


def _files_of(folder: Path, name: str, home: Path) -> Iterator[str]:
    """The files of a module or package, relative to the folder. If both exist, Python imports the
    package."""
    from muster.storage.ignore import files_below, ignored_entries

    if _is_package(folder / name):
        yield from files_below(folder, name, home)
    module = f"{name}.py"
    if os.path.isfile(folder / module) and not ignored_entries(folder, [module]):
        yield module


def _check_bounds(script: Path, folder: Path, files: set[str]) -> None:
    size = sum(os.stat(folder / file).st_size for file in files)
    if len(files) <= MAX_FILES and size <= MAX_SIZE:
        return
    many = f"more than {MAX_FILES}" if len(files) > MAX_FILES else len(files)
    text = f"{script.name} imports {many} files ({format_size(size)}) from its folder"
    hint = (
        f"run the folder: muster run {folder} --entrypoint {script.name}; "
        "exclude files that are not code with .musterignore there"
    )
    raise InvalidInput(Problem("artifact", text, hint))
