"""Code, stored once under its SHA-256 and never changed.

OCI: a job's artifact is immutable, at most 4 GB; its kind is told by its file name; archives need
JOB_RUN_ENTRYPOINT, a path from the archive's root.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from msgspec import Struct

from muster.errors import InvalidInput, NotFound, Problem, StoreError
from muster.spec.files import similar
from muster.storage.code_checks import (
    check_entry,
    check_file,
    check_notebook,
    check_size,
    check_start,
)
from muster.storage.entrypoint import command, kind_of, locate
from muster.storage.home import Home

_BLOCK = 1 << 20
_HOME_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class ArtifactRef(Struct, frozen=True):
    """Stored code. kind: python, notebook, function, shell, jar, class,
    program or archive; size in bytes."""

    sha256: str
    file_name: str
    kind: str
    size: int


def store_artifact(home: Home, path: Path, entrypoint: str | None) -> ArtifactRef:
    """Check and store a file or folder; the same content is stored once.

    A folder becomes an archive, less what its ignore files name. entrypoint: "" = none is needed,
    only commands run. Raises InvalidInput.
    """
    with _explaining(home, path):
        kind, files = _examine(home, path, entrypoint)
        if files is not None:
            return _pack(home, path, files)
        with open(path, "rb") as file:
            return _store(home, file, path.name, kind)


def check_artifact(home: Home, path: Path, entrypoint: str | None) -> None:
    """What `store_artifact` refuses, with nothing stored. Raises InvalidInput."""
    with _explaining(home, path):
        _examine(home, path, entrypoint)


def _examine(home: Home, path: Path, entrypoint: str | None) -> tuple[str, Sequence[str] | None]:
    """The kind of a file; of a folder, and its files that count. Raises InvalidInput."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        from muster.storage.ignore import files_of

        files = files_of(path, home.root)
        check_files(path, files, entrypoint, str(path))
        return "archive", files
    if not stat.S_ISREG(mode):  # opening a FIFO would wait for ever
        raise InvalidInput(Problem("artifact", f"{path} is neither file nor folder"))
    with open(path, "rb") as file:
        return check_file(path, file, entrypoint), None


@contextmanager
def _explaining(home: Home, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _explain(error, home, path) from None


def _explain(error: OSError, home: Home, path: Path) -> InvalidInput | StoreError:
    where = str(error.filename or path)
    if error.errno in _HOME_TROUBLE or where.startswith(f"{home.artifacts}/"):
        why = error.strerror or str(error)
        hint = "free some space, or set MUSTER_HOME to a folder you can write to"
        return StoreError(f"cannot store code in {home.artifacts}: {why} ({hint})")
    if isinstance(error, FileNotFoundError):
        hint = similar(Path(where)) or "check the path; it is relative to the spec's file"
        return NotFound(Problem("artifact", f"there is no {where}", hint))
    if isinstance(error, PermissionError):
        text = f"{where} cannot be read: permission denied"
        return InvalidInput(Problem("artifact", text, "make it readable"))
    text = f"{where} cannot be stored: {error.strerror or error}"
    return InvalidInput(Problem("artifact", text))


def load_ref(home: Home, sha256: str, file_name: str) -> ArtifactRef:
    """The stored artifact. Raises InvalidInput if its file is gone."""
    try:
        size = stored_path(home, sha256).stat().st_size
    except FileNotFoundError:
        raise _gone(home, sha256) from None
    return ArtifactRef(sha256, file_name, kind_of(file_name) or "program", size)


def _gone(home: Home, sha256: str) -> InvalidInput:
    text = f"the stored code {sha256[:12]} is gone from {home.artifacts}"
    return InvalidInput(Problem("artifact", text, "run the job's file again"))


def stored_path(home: Home, sha256: str) -> Path:
    """Where code of this digest is kept."""
    return home.artifacts / sha256[:2] / sha256


def find_entry(home: Home, ref: ArtifactRef, entrypoint: str) -> str:
    """Where an entry point lies in a stored archive. Raises InvalidInput."""
    from muster.storage.archives import names_in, read_start
    from muster.storage.code_checks import check_entry, check_start

    stored = stored_path(home, ref.sha256)
    try:
        files = names_in(stored, ref.file_name)
        entry = check_entry(ref.file_name, ref.file_name, files, entrypoint)
        if kind_of(entry) is None:
            check_start(entry, read_start(stored, ref.file_name, entry, 4))
    except FileNotFoundError:
        raise _gone(home, ref.sha256) from None
    return entry


def read_entry(home: Home, ref: ArtifactRef, entrypoint: str | None) -> tuple[str, str]:
    """The name of the Python program that is run, and its source; nothing of anything else."""
    stored = stored_path(home, ref.sha256)
    if ref.kind == "python":
        with open(stored, "rb") as file:
            return ref.file_name, file.read(_BLOCK).decode(errors="replace")
    if ref.kind != "archive" or kind_of(entrypoint or "") != "python":
        return "", ""
    from muster.storage.archives import read_start

    source = read_start(stored, ref.file_name, str(entrypoint), _BLOCK)
    return str(entrypoint), source.decode(errors="replace")


def place_artifact(home: Home, ref: ArtifactRef, target: Path) -> None:
    """Put the code into a folder: a file under its name, an archive unpacked.

    Raises InvalidInput if the stored code is gone; what `archives.unpack` raises.
    """
    source = stored_path(home, ref.sha256)
    try:
        if ref.kind == "archive":
            from muster.storage.archives import unpack

            unpack(source, ref.file_name, target)
            return
        with open(source, "rb") as stored:
            with open(target / ref.file_name, "wb") as placed:
                while block := stored.read(_BLOCK):
                    placed.write(block)
            os.chmod(target / ref.file_name, 0o755)
    except FileNotFoundError as error:
        if error.filename != str(source):
            raise
        raise _gone(home, ref.sha256) from None


def entry_command(
    ref: ArtifactRef,
    entrypoint: str | None,
    python: str,
    folder: Path,
    *,
    from_elsewhere: bool = False,
) -> tuple[str, ...]:
    """What to run in `folder`, where the code was placed; or in any other. Raises InvalidInput.

    A program that lost its permission to run on the way (zips often do that) gets it back.
    """
    base = f"{folder}/" if from_elsewhere else ""
    if ref.kind != "archive":
        return tuple(command(ref.kind, base + ref.file_name, entrypoint, python, folder))
    roots = [entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    name = locate(entrypoint or "", ref.file_name, roots, lambda f: os.path.isfile(folder / f))
    if name is None:
        raise InvalidInput(Problem("entrypoint", f"{entrypoint} is not in the unpacked code"))
    kind = kind_of(name) or "program"
    if kind == "program" and not os.access(folder / name, os.X_OK):
        (folder / name).chmod(0o755)
    return tuple(command(kind, base + name, None, python, folder))


def store_files(
    home: Home,
    folder: Path,
    files: Sequence[str],
    entrypoint: str | None,
    shown: str,
    *,
    follow: bool = False,
) -> ArtifactRef:
    """Check and store some files of a folder, as an archive called after it.

    entrypoint: "" = none is needed. shown: what messages call the folder. follow: links are stored
    as the files they lead to. Raises InvalidInput.
    """
    check_files(folder, files, entrypoint, shown, follow=follow)
    return _pack(home, folder, files, follow=follow)


def check_files(
    folder: Path,
    files: Sequence[str],
    entrypoint: str | None,
    shown: str,
    *,
    follow: bool = False,
) -> None:
    """What `store_files` refuses. Raises InvalidInput."""
    if entrypoint != "":
        entry = check_entry(shown, _archive_name(folder), files, entrypoint)
        if (kind := kind_of(entry)) is None:
            with open(folder / entry, "rb") as file:
                check_start(entry, file.read(4))
        elif kind == "notebook":
            check_notebook(entry, (folder / entry).read_bytes(), "entrypoint")
    sizes = (os.stat(folder / file, follow_symlinks=follow).st_size for file in files)
    check_size(shown, sum(sizes))


def _pack(home: Home, folder: Path, files: Sequence[str], *, follow: bool = False) -> ArtifactRef:
    from muster.storage.archives import pack

    with open(_temporary(home), "w+b") as packed:
        try:
            pack(folder, files, packed, follow=follow)
            packed.seek(0)
            return _store(home, packed, _archive_name(folder), "archive")
        finally:
            os.unlink(packed.name)


def _archive_name(folder: Path) -> str:
    return f"{folder.absolute().name or 'code'}.tar"


def _store(home: Home, file: IO[bytes], name: str, kind: str) -> ArtifactRef:
    """Copy into the store what is not there yet.

    Written whole under another name first, so that nobody sees half; the file and its name are on
    the disk before the store may speak of them.
    """
    known, size = _digest(file)
    if _is_stored(home, known, size):
        return ArtifactRef(known, name, kind, size)
    file.seek(0)
    part = _temporary(home)
    try:
        with open(part, "wb") as copy:
            known, size = _digest(file, copy)  # again: it may be written to while we read
            final = stored_path(home, known)
            final.parent.mkdir(exist_ok=True)
            copy.flush()
            os.fsync(copy.fileno())
            os.chmod(part, 0o400)
            os.replace(part, final)
    finally:
        part.unlink(missing_ok=True)
    for folder in (final.parent, home.artifacts):
        _sync_names(folder)
    return ArtifactRef(known, name, kind, size)


def _digest(file: IO[bytes], copy: IO[bytes] | None = None) -> tuple[str, int]:
    """SHA-256 and size of what is left to read, written to `copy` on the way."""
    import hashlib

    digest, size = hashlib.sha256(), 0
    while block := file.read(_BLOCK):
        digest.update(block)
        size += len(block)
        if copy is not None:
            copy.write(block)
    return digest.hexdigest(), size


def _is_stored(home: Home, sha256: str, size: int) -> bool:
    try:
        return stored_path(home, sha256).stat().st_size == size  # else cut short by a power cut
    except FileNotFoundError:
        return False


def _sync_names(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _temporary(home: Home) -> Path:
    return home.artifacts / f".part-{os.getpid()}-{os.urandom(6).hex()}"
