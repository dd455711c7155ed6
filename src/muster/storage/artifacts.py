"""Code, stored once under its SHA-256 and never changed.

OCI: a job's artifact is immutable, at most 4 GB; its kind is told by its file name; archives need
JOB_RUN_ENTRYPOINT, a path from the archive's root.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import IO

from msgspec import Struct

from muster.errors import InvalidInput, NotFound, Problem
from muster.storage.home import Home

#: OCI: artifact at most 4 GB.
MAX_SIZE = 4 << 30
_BLOCK = 1 << 20

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_KINDS = {".py": "python", ".sh": "shell", ".bash": "shell", ".jar": "jar", ".class": "class"}


class ArtifactRef(Struct, frozen=True):
    """Stored code. kind: python, shell, jar, class, program or archive; size in bytes."""

    sha256: str
    file_name: str
    kind: str
    size: int


def kind_of(name: str) -> str | None:
    """The kind a file name tells; None if it tells none."""
    if name.endswith(ARCHIVES):
        return "archive"
    return _KINDS.get(PurePosixPath(name).suffix)


def store_artifact(home: Home, path: Path, entrypoint: str | None) -> ArtifactRef:
    """Check and store a file or folder; the same content is stored once.

    A folder becomes an archive, less what its ignore files name. Raises InvalidInput.
    """
    try:
        if path.is_dir():
            return _store_folder(home, path, entrypoint)
        with open(path, "rb") as file:
            kind = _check_file(path, file, entrypoint)
            file.seek(0)
            return _store(home, file, path.name, kind)
    except FileNotFoundError:
        hint = "check the path; it is relative to the spec's file"
        raise NotFound(Problem("artifact", f"there is no {path}", hint)) from None
    except PermissionError as error:
        text = f"{error.filename or path} cannot be read: permission denied"
        raise InvalidInput(Problem("artifact", text, "make it readable")) from None
    except OSError as error:
        text = f"{path} cannot be stored: {error.strerror}"
        raise InvalidInput(Problem("artifact", text)) from None


def load_ref(home: Home, sha256: str, file_name: str) -> ArtifactRef:
    """The stored artifact. Raises InvalidInput if its file is gone."""
    try:
        size = stored_path(home, sha256).stat().st_size
    except FileNotFoundError:
        text = f"the stored code {sha256[:12]} is gone from {home.artifacts}"
        raise InvalidInput(Problem("artifact", text, "run the job's file again")) from None
    return ArtifactRef(sha256, file_name, kind_of(file_name) or "program", size)


def stored_path(home: Home, sha256: str) -> Path:
    """Where code of this digest is kept."""
    return home.artifacts / sha256[:2] / sha256


def place_artifact(home: Home, ref: ArtifactRef, target: Path) -> None:
    """Put the code into a folder: a file under its name, an archive unpacked."""
    source = stored_path(home, ref.sha256)
    if ref.kind == "archive":
        from muster.storage.archives import unpack

        unpack(source, ref.file_name, target)
        return
    with open(source, "rb") as stored, open(target / ref.file_name, "wb") as placed:
        while block := stored.read(_BLOCK):
            placed.write(block)
    os.chmod(target / ref.file_name, 0o755)


def entry_command(
    ref: ArtifactRef, entrypoint: str | None, python: str, folder: Path
) -> tuple[str, ...]:
    """What to run in `folder`, where the code was placed. Raises InvalidInput."""
    if ref.kind == "archive":
        entry = _find_entry(folder, entrypoint or "")
        return _command(entry, kind_of(entry) or "program", None, python)
    return _command(ref.file_name, ref.kind, entrypoint, python)


def _command(name: str, kind: str, entrypoint: str | None, python: str) -> tuple[str, ...]:
    if kind == "python":
        return (python, name)
    if kind == "shell":
        return ("bash", name)
    if kind == "jar":
        return ("java", "-cp", name, entrypoint) if entrypoint else ("java", "-jar", name)
    if kind == "class":
        path = PurePosixPath(name)
        return ("java", "-cp", str(path.parent), path.stem)
    return (f"./{name}",)


def _find_entry(folder: Path, entrypoint: str) -> str:
    """OCI: the path starts at the archive's root folder; ADS leaves that out. Both will do."""
    if (folder / entrypoint).is_file():
        return entrypoint
    inside = [path for path in folder.iterdir() if path.is_dir()]
    for path in inside:
        if len(inside) == 1 and (path / entrypoint).is_file():
            return f"{path.name}/{entrypoint}"
    raise InvalidInput(Problem("entrypoint", f"{entrypoint} is not in the unpacked code"))


def _check_file(path: Path, file: IO[bytes], entrypoint: str | None) -> str:
    size = os.fstat(file.fileno()).st_size
    if size > MAX_SIZE:
        text = f"{path.name} has {size / 2**30:.1f} GiB, at most 4 GiB are allowed"
        raise InvalidInput(Problem("artifact", text, "mount large data instead"))
    kind = kind_of(path.name)
    if kind == "archive":
        _check_archive(path, entrypoint)
        return kind
    if entrypoint is not None and kind != "jar":
        hint = "an entry point is for folders and archives"
        raise InvalidInput(Problem("entrypoint", f"{path.name} is a single file", hint))
    if kind is None:
        return _check_program(path, file)
    return kind


def _check_program(path: Path, file: IO[bytes]) -> str:
    start = file.read(4)
    if start[:2] == b"#!":
        return "program"
    if start == b"\x7fELF":
        hint = f"run it as a command: muster run -- {path}"
        raise InvalidInput(Problem("artifact", f"{path.name} is a binary program", hint))
    known = ", ".join([*_KINDS, *ARCHIVES])
    hint = f"known are {known}, folders, and files that begin with #!"
    raise InvalidInput(Problem("artifact", f"cannot tell how to run {path.name}", hint))


def _check_archive(path: Path, entrypoint: str | None) -> None:
    from muster.storage.archives import list_files

    _check_entry(path.name, list_files(path), entrypoint)


def _check_entry(name: str, files: list[str], entrypoint: str | None) -> None:
    if entrypoint is None:
        likely = [f for f in files if kind_of(f) in ("python", "shell", "jar")][:5]
        hint = f"say which file to run; it holds {', '.join(likely)}" if likely else ""
        raise InvalidInput(Problem("entrypoint", f"{name} needs one", hint))
    wanted = str(PurePosixPath(entrypoint))
    roots = {f.partition("/")[0] for f in files}
    inside = f"{next(iter(roots))}/{wanted}" if len(roots) == 1 else wanted
    if wanted not in files and inside not in files:
        from difflib import get_close_matches

        close = get_close_matches(wanted, files, 3, 0.4) or files[:5]
        hint = f"it holds {', '.join(close)}"
        raise InvalidInput(Problem("entrypoint", f"{entrypoint} is not in {name}", hint))


def _store_folder(home: Home, folder: Path, entrypoint: str | None) -> ArtifactRef:
    from muster.storage.archives import pack
    from muster.storage.ignore import files_of

    files = files_of(folder, home.root)
    name = f"{folder.absolute().name or 'code'}.tar"
    _check_entry(str(folder), [str(PurePosixPath(f)) for f in files], entrypoint)
    with open(_temporary(home), "w+b") as packed:
        try:
            pack(folder, files, packed)
            packed.seek(0)
            return _store(home, packed, name, "archive")
        finally:
            os.unlink(packed.name)


def _store(home: Home, file: IO[bytes], name: str, kind: str) -> ArtifactRef:
    """Copy into the store. Written whole under another name first, so that nobody sees half."""
    import hashlib

    digest, size = hashlib.sha256(), 0
    part = _temporary(home)
    try:
        with open(part, "wb") as copy:
            while block := file.read(_BLOCK):
                digest.update(block)
                copy.write(block)
                size += len(block)
            final = stored_path(home, digest.hexdigest())
            if not final.exists():
                final.parent.mkdir(exist_ok=True)
                copy.flush()
                os.fsync(copy.fileno())
                os.chmod(part, 0o400)
                os.replace(part, final)
    finally:
        part.unlink(missing_ok=True)
    return ArtifactRef(digest.hexdigest(), name, kind, size)


def _temporary(home: Home) -> Path:
    return home.artifacts / f".part-{os.getpid()}-{os.urandom(6).hex()}"
