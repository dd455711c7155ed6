"""Whether code can be run, found out before anything starts."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from muster.errors import InvalidInput, Problem
from muster.storage.entrypoint import ARCHIVES, KINDS, command, kind_of, locate

#: OCI: artifact at most 4 GB.
MAX_SIZE = 4 << 30
_MANIFEST = "META-INF/MANIFEST.MF"


def check_file(path: Path, file: IO[bytes], entrypoint: str | None) -> str:
    """The kind of a file that can be run; of any, if `entrypoint` is "": only commands run then.
    Raises InvalidInput."""
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
        command(kind, path.name, None, "", path.parent)  # says if it cannot run from here
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
        raise InvalidInput(Problem(where, f"{name} is damaged or no notebook", hint))


def check_size(name: str, size: int) -> None:
    """size: in bytes. Raises InvalidInput."""
    if size > MAX_SIZE:
        text = f"{name} has {size / 2**30:.1f} GiB, at most 4 GiB are allowed"
        raise InvalidInput(Problem("artifact", text, "mount large data instead"))


def _check_jar(path: Path, main_class: str | None) -> None:
    import zipfile

    try:
        with zipfile.ZipFile(path) as jar:
            names = jar.namelist()
            manifest = jar.read(_MANIFEST) if _MANIFEST in names else b""
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError) as error:
        text = f"{path.name} is damaged or no JAR: {error}"
        raise InvalidInput(Problem("artifact", text, "make it again")) from None
    if main_class is None and b"\nmain-class:" not in b"\n" + manifest.lower():
        hint = "give the main class as the entry point, or pack it with its Main-Class"
        raise InvalidInput(Problem("entrypoint", f"{path.name} names no main class", hint))


def _check_program(path: Path, file: IO[bytes]) -> str:
    start = file.read(4)
    if start[:2] == b"#!":
        return "program"
    if start == b"\x7fELF":
        hint = f"run it as a command: muster run -- {path}"
        raise InvalidInput(Problem("artifact", f"{path.name} is a binary program", hint))
    known = ", ".join([*KINDS, *ARCHIVES])
    hint = f"known are {known}, folders, and files that begin with #!"
    raise InvalidInput(Problem("artifact", f"cannot tell how to run {path.name}", hint))


def _check_archive(path: Path, entrypoint: str | None) -> None:
    from muster.storage.archives import list_files, read_start

    files = list_files(path)
    if entrypoint == "":
        return
    entry = check_entry(path.name, path.name, files, entrypoint)
    if kind_of(entry) is None:
        check_start(entry, read_start(path, path.name, entry, 4))


def check_entry(shown: str, archive: str, files: Sequence[str], entrypoint: str | None) -> str:
    """Where the entry point lies among the files. Raises InvalidInput."""
    if entrypoint is None:
        likely = [f for f in files if kind_of(f) in ("python", "notebook", "shell", "jar")][:5]
        first = min(likely, key=lambda name: name.count("/"), default="")
        which = f"say which file to run: --entrypoint {shlex.quote(first)}" if first else ""
        others = f"it holds {', '.join(likely)}" if len(likely) > 1 else ""
        ways = [which, others, "or give a command, after -- or in the spec"]
        hint = "; ".join(filter(None, ways))
        raise InvalidInput(Problem("entrypoint", f"{shown} needs one", hint))
    roots = sorted({f.partition("/")[0] for f in files if "/" in f})
    found = locate(entrypoint, archive, roots, set(files).__contains__)
    if found is None:
        from difflib import get_close_matches

        close = get_close_matches(entrypoint, files, 3, 0.4) or files[:5]
        hint = f"it holds {', '.join(close)}" if close else "it is empty"
        raise InvalidInput(Problem("entrypoint", f"{entrypoint} is not in {shown}", hint))
    return found


def check_start(entry: str, start: bytes) -> None:
    """Whether a file of no known kind is a program, told by how it begins. Raises InvalidInput."""
    if start[:2] != b"#!" and start[:4] != b"\x7fELF":
        hint = f"known are {', '.join(KINDS)}, programs, and files that begin with #!"
        raise InvalidInput(Problem("entrypoint", f"cannot tell how to run {entry}", hint))
