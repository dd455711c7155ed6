"""The code that goes into an image: which files, which of them starts, what to mind."""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from muster.errors import InvalidInput, Problem
from muster.storage.ignore import files_of

#: Files that often hold what nobody else should read.
_PRIVATE = frozenset(
    {".env", ".netrc", ".pypirc", "pip.conf", "credentials", "id_rsa", "id_ed25519", "id_ecdsa"}
)
_PRIVATE_ENDS = (".pem", ".key", ".p12", ".pfx")


def find_code(source: Path | None, home: Path) -> tuple[Path | None, tuple[str, ...]]:
    """The folder, or the one file, and which files are code, by their paths in the folder. home:
    MUSTER_HOME, which is none.

    Raises InvalidInput.
    """
    if source is None:
        return None, ()
    if source.is_file():
        return source, (source.name,)
    if not source.is_dir():
        raise InvalidInput(Problem("--source", f"there is no file or folder {source}"))
    try:
        files = files_of(source, home)
    except InvalidInput as error:
        raise InvalidInput(*(p._replace(path="--source") for p in error.problems)) from None
    if not files:
        hint = "does .musterignore or .gitignore leave everything out?"
        raise InvalidInput(Problem("--source", f"{source} holds no code", hint))
    return source, tuple(files)


def find_entrypoint(source: Path | None, given: str | None, code: Sequence[str]) -> str | None:
    """The program, below the folder. given: seen from there or from here; not needed for a file.

    Raises InvalidInput.
    """
    if given is None:
        return code[0] if source is not None and source.is_file() else None
    if source is None:
        hint = "say which folder it is in: --source FOLDER"
        raise InvalidInput(Problem("--entrypoint", f"{given} without --source", hint))
    if not code:
        return None  # the source is wrong, which is told
    folder = source.parent if source.is_file() else source
    wanted = str(PurePosixPath(given))
    for path in (wanted, os.path.relpath(given, folder)):
        if path in code:  # given from the folder, or from here
            return path
    if (folder / given).is_file():
        hint = "say so with !FILE in .musterignore, or choose another"
        text = f"{given} is not code by what {source} ignores, or lies elsewhere"
        raise InvalidInput(Problem("--entrypoint", text, hint))
    close = get_close_matches(wanted, code, 3, 0.4) or code[:5]
    hint = f"it holds {', '.join(close)}"
    raise InvalidInput(Problem("--entrypoint", f"{given} is not in {source}", hint))


def private_files(code: Sequence[str]) -> list[str]:
    """Those that, by their names, not everyone should read."""
    return [
        path
        for path in code
        if PurePosixPath(path).name in _PRIVATE or path.endswith(_PRIVATE_ENDS)
    ]
