"""The code in an image: which files, which one is the program, which should stay private."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from muster.errors import InvalidInput, Problem
from muster.storage.code_checks import nearest_files
from muster.storage.ignore import files_of

# Names of files that often contain credentials.
_PRIVATE = frozenset(
    {".env", ".netrc", ".pypirc", "pip.conf", "credentials", "id_rsa", "id_ed25519", "id_ecdsa"}
)
_PRIVATE_ENDS = (".pem", ".key", ".p12", ".pfx")


def find_code(source: Path | None, home: Path) -> tuple[Path | None, tuple[str, ...]]:
    """The source, and the relative paths of its code files. home: MUSTER_HOME, which is excluded.

    Raises InvalidInput.
    """
    if source is None:
        return None, ()
    if source.is_file():
        return source, (source.name,)
    if not source.is_dir():
        raise InvalidInput(Problem("--source", f"file or folder {source} not found"))
    try:
        files = files_of(source, home)
    except InvalidInput as error:
        raise InvalidInput(*(p._replace(path="--source") for p in error.problems)) from None
    if not files:
        hint = "check whether .musterignore or .gitignore excludes everything"
        raise InvalidInput(Problem("--source", f"{source} has no code", hint))
    return source, tuple(files)


def find_entrypoint(source: Path | None, given: str | None, code: Sequence[str]) -> str | None:
    """The program's path below the source folder. None if there is none.

    given: relative to the source folder or to the working directory; not needed if the source is a
    single file. Raises InvalidInput.
    """
    if given is None:
        return code[0] if source is not None and source.is_file() else None
    if source is None:
        hint = "name its folder with --source FOLDER"
        raise InvalidInput(Problem("--entrypoint", f"{given} without --source", hint))
    if not code:
        return None  # `find_code` reports what is wrong with the source
    folder = source.parent if source.is_file() else source
    relative = str(PurePosixPath(given))
    for path in (relative, os.path.relpath(given, folder)):
        if path in code:
            return path
    if (folder / given).is_file():
        hint = "include it with !FILE in .musterignore, or choose another"
        text = f"{given} is ignored in {source}, or outside of it"
        raise InvalidInput(Problem("--entrypoint", text, hint))
    hint = f"it has {', '.join(nearest_files(relative, code))}"
    raise InvalidInput(Problem("--entrypoint", f"{given} is not in {source}", hint))


def private_files(code: Sequence[str]) -> list[str]:
    """Files whose names suggest credentials."""
    return [
        path
        for path in code
        if PurePosixPath(path).name in _PRIVATE or path.endswith(_PRIVATE_ENDS)
    ]
