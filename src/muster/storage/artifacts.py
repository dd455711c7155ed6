"""Artifacts: code, stored once under its SHA-256 and never changed.

OCI: a job's artifact is immutable and has at most 4 GB; its kind follows from its file name;
archives need JOB_RUN_ENTRYPOINT, a path from the archive's root.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from msgspec import Struct

from muster.errors import InvalidInput, NotFound, Problem, StoreError
from muster.spec.files import similar
from muster.spec.kinds import kind_of
from muster.storage.code_checks import (
    check_entry,
    check_file,
    check_notebook,
    check_size,
    check_start,
)
from muster.storage.entrypoint import NODE, command, locate
from muster.storage.home import Home
from muster.unix_account import as_root

_BLOCK = 1 << 20
_HOME_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class ArtifactRef(Struct, frozen=True):
    """Stored code."""

    sha256: str
    #: The original name.
    file_name: str
    #: python, notebook, function, shell, jar, class, program or archive.
    kind: str
    #: Bytes.
    size: int


def store_artifact(home: Home, path: Path, entrypoint: str | None) -> ArtifactRef:
    """Check and store a file or folder; the same content is stored once.

    A folder is stored without the files that its ignore files exclude, and is run like an archive
    of them. entrypoint: "" = none is needed, because only commands run. Raises InvalidInput.
    """
    with _translated_errors(home, path):
        kind, files = _examine(home, path, entrypoint)
        if files is not None:
            return _store_folder(home, path, files)
        with open(path, "rb") as file:
            return _store(home, file, path.name, kind)


def check_artifact(home: Home, path: Path, entrypoint: str | None) -> None:
    """Check as `store_artifact` does, without storing anything. Raises InvalidInput."""
    with _translated_errors(home, path):
        _examine(home, path, entrypoint)


def _examine(home: Home, path: Path, entrypoint: str | None) -> tuple[str, Sequence[str] | None]:
    """The kind of a file, or of a folder with its files to store. Raises InvalidInput."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        from muster.storage.ignore import files_of

        files = files_of(path, home.root)
        check_files(path, files, entrypoint, str(path))
        return "archive", files
    if not stat.S_ISREG(mode):  # opening a FIFO would block
        raise InvalidInput(Problem("artifact", f"{path} is neither a file nor a folder"))
    with open(path, "rb") as file:
        return check_file(path, file, entrypoint), None


@contextmanager
def _translated_errors(home: Home, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _translate(error, home, path) from None


def _translate(error: OSError, home: Home, path: Path) -> InvalidInput | StoreError:
    where = str(error.filename or path)
    if error.errno in _HOME_ERRNOS or where.startswith(f"{home.artifacts}/"):
        why = error.strerror or str(error)
        hint = "free some space, or set MUSTER_HOME to a folder you can write to"
        return StoreError(f"cannot store code in {home.artifacts}: {why} ({hint})")
    if isinstance(error, FileNotFoundError):
        hint = similar(Path(where)) or "check the path; it is relative to the spec's file"
        return NotFound(Problem("artifact", f"{where} not found", hint))
    if isinstance(error, PermissionError):
        text = f"{where} cannot be read: permission denied"
        return InvalidInput(Problem("artifact", text, "make it readable"))
    from muster.describe.layout import shorten

    # the name itself may be what is too long
    text = f"{shorten(where, 300)} cannot be stored: {error.strerror or error}"
    return InvalidInput(Problem("artifact", text))


def load_ref(home: Home, sha256: str, file_name: str) -> ArtifactRef:
    """The stored artifact. Raises InvalidInput if it is missing."""
    size = stored_size(home, sha256)
    if size is None:
        raise _missing(home, sha256)
    return ArtifactRef(sha256, file_name, kind_of(file_name) or "program", size)


def _missing(home: Home, sha256: str) -> InvalidInput:
    text = f"the stored code {sha256[:12]} is missing from {home.artifacts}"
    return InvalidInput(Problem("artifact", text, "run the job's file again"))


def stored_size(home: Home, sha256: str) -> int | None:
    """The size of stored code in bytes; None if it was deleted."""
    try:
        found = home.artifact(sha256).stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(found.st_mode):
        return found.st_size
    from muster.storage.code_trees import extent_of

    extent = extent_of(home.artifact(sha256) / "code")
    return None if extent is None else extent.size


@as_root()
def open_to_accounts(home: Home, sha256: str) -> Path:
    """Let accounts read stored code that is shown to them. They cannot reach it otherwise: nobody
    but root can pass through `artifacts`. Returns its path."""
    path = home.artifact(sha256)
    mode = stat.S_IMODE(path.stat().st_mode)
    wanted = mode | (0o055 if path.is_dir() else 0o044)
    if mode != wanted:
        path.chmod(wanted)
    return path


def stored_names(home: Home, ref: ArtifactRef) -> list[str]:
    """The paths of the files and links in a stored folder or archive. Raises FileNotFoundError."""
    stored = home.artifact(ref.sha256)
    if stored.is_dir():
        from muster.storage.code_trees import names_below

        return names_below(stored / "code")
    from muster.storage.archives import names_in

    return names_in(stored, ref.file_name)


def read_start(home: Home, ref: ArtifactRef, name: str, length: int) -> bytes:
    """The first bytes of a file in a stored folder or archive; empty if it is not a file."""
    stored = home.artifact(ref.sha256)
    if stored.is_dir():
        file = stored / "code" / name
        if file.is_symlink() or not file.is_file():
            return b""
        with open(file, "rb") as opened:
            return opened.read(length)
    from muster.storage import archives

    return archives.read_start(stored, ref.file_name, name, length)


def find_entry(home: Home, ref: ArtifactRef, entrypoint: str) -> str:
    """The path of an entry point in a stored archive. Raises InvalidInput."""
    try:
        files = stored_names(home, ref)
        entry = check_entry(ref.file_name, ref.file_name, files, entrypoint)
        if kind_of(entry) is None:
            check_start(entry, read_start(home, ref, entry, 4))
    except FileNotFoundError:
        raise _missing(home, ref.sha256) from None
    return entry


def read_entry(home: Home, ref: ArtifactRef, entrypoint: str | None) -> tuple[str, str]:
    """The name and source of the Python program that is run; ("", "") for other programs."""
    stored = home.artifact(ref.sha256)
    if ref.kind == "python":
        with open(stored, "rb") as file:
            return ref.file_name, file.read(_BLOCK).decode(errors="replace")
    if ref.kind != "archive" or kind_of(entrypoint or "") != "python":
        return "", ""
    source = read_start(home, ref, str(entrypoint), _BLOCK)
    return str(entrypoint), source.decode(errors="replace")


def place_artifact(home: Home, ref: ArtifactRef, target: Path) -> None:
    """Put the code into a folder: a file under its original name, an archive unpacked.

    Raises InvalidInput if the stored code is missing, and the errors of `archives.unpack`.
    """
    source = home.artifact(ref.sha256)
    try:
        if source.is_dir():
            from muster.storage.code_trees import place

            place(source / "code", ref.file_name, target)
            return
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
        raise _missing(home, ref.sha256) from None


def entry_command(
    ref: ArtifactRef,
    entrypoint: str | None,
    python: str,
    folder: Path,
    *,
    from_elsewhere: bool = False,
    shown: str = "",
    node: str = NODE,
) -> tuple[str, ...]:
    """The command to run in `folder`, where the code was placed. Raises InvalidInput.

    Makes a program executable: zip archives often lose that permission. from_elsewhere: the command
    runs in another folder. python, shown, node: the interpreter, the folder of the code (""; as
    here) and that of `muster.node` where the command runs, which may be on another machine.
    """
    base = f"{shown or folder}/" if from_elsewhere else ""
    run = partial(command, python=python, folder=folder, base=base, node=node)
    if ref.kind != "archive":
        return tuple(run(ref.kind, ref.file_name, entrypoint))
    with os.scandir(folder) as entries:
        roots = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    name = locate(entrypoint or "", ref.file_name, roots, lambda f: os.path.isfile(folder / f))
    if name is None:
        raise InvalidInput(Problem("entrypoint", f"{entrypoint} is not in the unpacked code"))
    kind = kind_of(name) or "program"
    if kind == "program" and not os.access(folder / name, os.X_OK):
        (folder / name).chmod(0o755)
    return tuple(run(kind, name, None))


def store_files(
    home: Home,
    folder: Path,
    files: Sequence[str],
    entrypoint: str | None,
    shown: str,
    *,
    follow: bool = False,
) -> ArtifactRef:
    """Check and store some files of a folder, which are run like an archive named like the folder.

    entrypoint: "" = none is needed. shown: the folder in messages. follow: store the targets of
    links instead of the links. Raises InvalidInput.
    """
    check_files(folder, files, entrypoint, shown, follow=follow)
    return _store_folder(home, folder, files, follow=follow)


def check_files(
    folder: Path,
    files: Sequence[str],
    entrypoint: str | None,
    shown: str,
    *,
    follow: bool = False,
) -> None:
    """Check as `store_files` does. Raises InvalidInput."""
    if entrypoint != "":
        entry = check_entry(shown, _archive_name(folder), files, entrypoint)
        if (kind := kind_of(entry)) is None:
            with open(folder / entry, "rb") as file:
                check_start(entry, file.read(4))
        elif kind == "notebook":
            check_notebook(entry, (folder / entry).read_bytes(), "entrypoint")
    # as text: for 10,000 files, paths as objects take a third of the whole time
    sizes = (os.stat(f"{folder}/{file}", follow_symlinks=follow).st_size for file in files)
    check_size(shown, sum(sizes))


def _store_folder(
    home: Home, folder: Path, files: Sequence[str], *, follow: bool = False
) -> ArtifactRef:
    from muster.storage.code_trees import FolderScan

    scan = FolderScan(home, folder, files, follow=follow)
    if not scan.is_stored:
        from muster.storage.large_code import warn_if_large

        warn_if_large(folder, scan.sizes())
    stored = scan.store()
    return ArtifactRef(stored.sha256, _archive_name(folder), "archive", stored.size)


def _archive_name(folder: Path) -> str:
    return f"{folder.absolute().name or 'code'}.tar"


def _store(home: Home, file: IO[bytes], name: str, kind: str) -> ArtifactRef:
    """Copy a file into the store unless it is stored already.

    The copy is written under a temporary name and renamed, so that no partial file is visible. The
    file and its name are synced to disk before the caller records them.
    """
    from muster.storage.file_copies import digest_of

    digest, size = digest_of(file)
    known = digest.hex()
    if _is_stored(home, known, size):
        return ArtifactRef(known, name, kind, size)
    file.seek(0)
    part = home.new_part()
    try:
        with open(part, "wb") as copy:
            digest, size = digest_of(file, copy)  # again: it may have changed meanwhile
            known = digest.hex()
            final = home.artifact(known)
            final.parent.mkdir(exist_ok=True)
            copy.flush()
            os.fsync(copy.fileno())
            os.chmod(part, 0o400)
            os.replace(part, final)
    finally:
        part.unlink(missing_ok=True)
    for folder in (final.parent, home.artifacts):
        _sync_folder(folder)
    return ArtifactRef(known, name, kind, size)


def _is_stored(home: Home, sha256: str, size: int) -> bool:
    try:
        return home.artifact(sha256).stat().st_size == size  # a power failure may have truncated it
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
