"""Code that clients of a server have uploaded, for Jobs that they are about to create.

    uploads/PROJECT/DIGEST.part     a payload that is not complete yet; DIGEST is its SHA-256
    uploads/PROJECT/DIGEST          says that the project has uploaded the stored code DIGEST

A payload is a file, or the tar archive of a folder. Code is stored once for all projects; a project
can use what it has uploaded itself, or has a Job with: who only knows a digest gets nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal

from muster.errors import Conflict, InvalidInput, Problem
from muster.identity import new_id
from muster.node.files import remove_tree
from muster.storage.artifact_lock import ArtifactLock
from muster.storage.artifacts import ArtifactRef, store_artifact, store_files
from muster.storage.disk_use import entries_of
from muster.storage.home import Home

#: Seconds that uploaded code is kept without a Job, and that a partial upload is kept.
KEPT = 86400.0
#: Bytes of a file name.
_LONGEST_NAME = 255
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BLOCK = 1 << 20


def has(home: Home, project: str, sha256: str) -> bool:
    """Whether a project has uploaded stored code lately."""
    return bool(_DIGEST.fullmatch(sha256)) and _marker(home, project, sha256).exists()


def claimed(home: Home, now: float) -> set[str]:
    """The digests of code that was uploaded, and may get a Job yet. now: epoch seconds."""
    return {path.name for path in _all(home) if not path.suffix and _age(path, now) < KEPT}


def remove_old(home: Home, now: float) -> None:
    """Forget uploads that nobody has continued or used. now: epoch seconds."""
    for path in _all(home):
        if _age(path, now) >= KEPT:
            if path.is_dir():
                remove_tree(str(path))
            else:
                path.unlink(missing_ok=True)


def size(home: Home, project: str, digest: str) -> int:
    """How many bytes of a payload have arrived."""
    try:
        return _part(home, project, digest).stat().st_size
    except FileNotFoundError:
        return 0


def open_part(home: Home, project: str, digest: str, offset: int) -> IO[bytes]:
    """The payload so far, to be continued at an offset. Several requests may do so at once: they
    write the same bytes at the same places. Raises InvalidInput for what is no digest, Conflict if
    less has arrived."""
    path = _part(home, project, digest)
    arrived = size(home, project, digest)
    if offset > arrived:
        raise Conflict(f"{arrived} bytes have arrived: continue there, not at {offset}")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    file = open(path, "r+b")  # noqa: SIM115  closed by the caller
    file.seek(offset)
    return file


def finish(
    home: Home,
    project: str,
    digest: str,
    file_name: str,
    kind: Literal["file", "folder"],
    lock: ArtifactLock,
) -> ArtifactRef:
    """Store a payload that is complete as code. file_name: the original name of the file or
    folder. lock: of this process. Raises InvalidInput if it is not complete, damaged, or no
    code."""
    claim = new_id()
    lock.hold(claim)  # until it is noted, nobody else knows that the code is needed
    try:
        return _finish(home, project, digest, file_name, kind)
    finally:
        lock.release(claim)


def _finish(
    home: Home, project: str, digest: str, file_name: str, kind: Literal["file", "folder"]
) -> ArtifactRef:
    part = _part(home, project, digest)
    _check_name(file_name)
    _check_content(part, digest)
    folder = part.with_suffix(f".{os.urandom(6).hex()}.unpacked")
    folder.mkdir(mode=0o700)
    try:
        if kind == "file":
            os.link(part, folder / file_name)
            stored = store_artifact(home, folder / file_name, "")
        else:
            stored = _store_folder(home, part, folder / file_name)
    except FileNotFoundError:
        if part.exists():
            raise
        raise _nothing() from None  # another request has stored it meanwhile
    finally:
        remove_tree(str(folder))
    mark(home, project, stored.sha256)
    # not before: whoever is killed here may be asked again
    part.unlink(missing_ok=True)
    return stored


def mark(home: Home, project: str, sha256: str) -> None:
    """Note that a project can use stored code."""
    marker = _marker(home, project, sha256)
    marker.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    marker.touch(mode=0o600)


def _store_folder(home: Home, archive: Path, folder: Path) -> ArtifactRef:
    from muster.storage.archives import unpack
    from muster.storage.code_trees import names_below

    folder.mkdir(mode=0o700)
    unpack(archive, "code.tar", folder)
    return store_files(home, folder, names_below(folder), "", folder.name)


def _nothing() -> InvalidInput:
    hint = "it may be stored already: GET /v1/code/{sha256} tells"
    return InvalidInput(Problem("", "nothing was uploaded under this digest", hint))


def _check_name(name: str) -> None:
    valid = name.isprintable() and name not in ("", ".", "..") and "/" not in name
    if not valid or len(name.encode(errors="replace")) > _LONGEST_NAME:
        raise InvalidInput(Problem("file_name", f"{name[:80]!r} is not a file name"))


def _check_content(part: Path, digest: str) -> None:
    found = hashlib.sha256()
    try:
        with open(part, "rb") as file:
            while block := file.read(_BLOCK):
                found.update(block)
    except FileNotFoundError:
        raise _nothing() from None
    if found.hexdigest() == digest:
        return
    count = part.stat().st_size
    part.unlink(missing_ok=True)
    text = f"the {count:,} bytes that have arrived have another digest: {found.hexdigest()}"
    raise InvalidInput(Problem("", text, "upload them again"))


def _part(home: Home, project: str, digest: str) -> Path:
    return _marker(home, project, digest).with_suffix(".part")


def _marker(home: Home, project: str, sha256: str) -> Path:
    if not _DIGEST.fullmatch(sha256):
        raise InvalidInput(Problem("digest", f"{sha256[:80]!r} is not the SHA-256 of a file"))
    return home.uploads / project / sha256


def _all(home: Home) -> Iterator[Path]:
    for folder in entries_of(home.uploads):
        yield from entries_of(folder)


def _age(path: Path, now: float) -> float:
    with suppress(FileNotFoundError):
        return now - path.stat().st_mtime
    return 0.0


def is_recent(home: Home, sha256: str) -> bool:
    """Whether code was uploaded lately, by any project."""
    return sha256 in claimed(home, time.time())
