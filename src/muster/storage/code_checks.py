"""Check that code can be run, before anything starts."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from muster.errors import InvalidInput, Problem
from muster.spec.kinds import ARCHIVES, KINDS, kind_of
from muster.spec.quantities import format_size
from muster.spec.wording import close_to
from muster.storage.entrypoint import command, locate

#: OCI: artifact at most 4 GB.
MAX_SIZE = 4 << 30
_MANIFEST = "META-INF/MANIFEST.MF"


def check_file(path: Path, file: IO[bytes], entrypoint: str | None) -> str:
    """The kind of a file. Raises InvalidInput if it cannot be run, unless `entrypoint` is "": then
    only commands run."""
    check_size(path.name, os.fstat(file.fileno()).st_size)
    kind = kind_of(path.name)
    if kind == "archive":
        _check_archive(path, entrypoint)
        return kind
    entrypoint = entrypoint or None
    if entrypoint is not None and kind != "jar":
        hint = "an entry point is for folders and archives"
        raise InvalidInput(Problem("entrypoint", f"{path.name} is a single file", hint))
    if kind == "class":
        command(kind, path.name, None, "", path.parent)  # raises if it cannot be run
    elif kind == "jar":
        _check_jar(path, entrypoint)
    elif kind == "notebook":
        check_notebook(path.name, file.read(), "artifact")
    elif kind is None:
        return _check_program(path, file)
    return kind


def check_notebook(name: str, data: bytes, where: str) -> None:
    """nbformat: a notebook is a JSON object with a list of cells. Raises InvalidInput."""
    try:
        cells = json.loads(data).get("cells")
    except (ValueError, AttributeError, RecursionError):
        cells = None
    if not isinstance(cells, list):
        hint = "save it again as a notebook of version 4"
        raise InvalidInput(Problem(where, f"{name} is damaged or not a notebook", hint))


def check_size(name: str, size: int) -> None:
    """size: in bytes. Raises InvalidInput."""
    if size > MAX_SIZE:
        text = f"{name} has {format_size(size)}; at most {format_size(MAX_SIZE)} are allowed"
        raise InvalidInput(Problem("artifact", text, "mount large data instead"))


def _check_jar(path: Path, main_class: str | None) -> None:
    import zipfile

    try:
        with zipfile.ZipFile(path) as jar:
            names = jar.namelist()
            manifest = jar.read(_MANIFEST) if _MANIFEST in names else b""
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError) as error:
        text = f"{path.name} is damaged or not a JAR: {error}"
        raise InvalidInput(Problem("artifact", text, "create it again")) from None
    if main_class is None and b"\nmain-class:" not in b"\n" + manifest.lower():
        hint = "give the main class as the entry point, or pack it with its Main-Class"
        raise InvalidInput(Problem("entrypoint", f"{path.name} does not name a main class", hint))


def _check_program(path: Path, file: IO[bytes]) -> str:
    start = file.read(4)
    if start[:2] == b"#!":
        return "program"
    if start == b"\x7fELF":
        hint = f"run it as a command: muster run -- {path}"
        raise InvalidInput(Problem("artifact", f"{path.name} is a binary program", hint))
    known = ", ".join([*KINDS, *ARCHIVES])
    hint = f"supported are {known}, folders, and files that begin with #!"
    raise InvalidInput(Problem("artifact", f"do not know how to run {path.name}", hint))


def _check_archive(path: Path, entrypoint: str | None) -> None:
    from muster.storage.archives import list_files, read_start

    files = list_files(path)
    if entrypoint == "":
        return
    entry = check_entry(path.name, path.name, files, entrypoint)
    if kind_of(entry) is None:
        check_start(entry, read_start(path, path.name, entry, 4))


def check_entry(shown: str, archive: str, files: Sequence[str], entrypoint: str | None) -> str:
    """The path of the entry point among the files. Raises InvalidInput."""
    if entrypoint is None:
        from shlex import quote  # only for this message

        likely = [f for f in files if kind_of(f) in ("python", "notebook", "shell", "jar")][:5]
        first = min(likely, key=lambda name: name.count("/"), default="")
        which = f"choose the file to run: --entrypoint {quote(first)}" if first else ""
        others = f"it holds {', '.join(likely)}" if len(likely) > 1 else ""
        ways = [which, others, "or give a command, after -- or in the spec"]
        hint = "; ".join(filter(None, ways))
        raise InvalidInput(Problem("entrypoint", f"is required for {shown}", hint))
    roots = sorted({f.partition("/")[0] for f in files if "/" in f})
    found = locate(entrypoint, archive, roots, set(files).__contains__)
    if found is None:
        close = nearest_files(entrypoint, files)
        more = ", ..." if len(files) > len(close) else ""
        hint = f"it holds {', '.join(close)}{more}" if close else "it is empty"
        raise InvalidInput(Problem("entrypoint", f"{entrypoint} is not in {shown}", hint))
    return found


def nearest_files(name: str, files: Sequence[str]) -> Sequence[str]:
    """For a hint: the files with the most similar names, else the first ones."""
    return close_to(name, files, 3, 0.4) or sorted(files)[:5]


def check_start(entry: str, start: bytes) -> None:
    """Check by its first bytes that a file of unknown kind is a program. Raises InvalidInput."""
    if start[:2] != b"#!" and start[:4] != b"\x7fELF":
        hint = f"supported are {', '.join(KINDS)}, programs, and files that begin with #!"
        raise InvalidInput(Problem("entrypoint", f"do not know how to run {entry}", hint))
