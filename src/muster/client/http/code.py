"""Upload the code of a Job: what the server does not have yet, continued where it was cut off."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec
from msgspec.structs import replace

from muster.api.operations import PREFIX
from muster.client.http.connection import Connection
from muster.errors import Conflict, MusterError, NotFound, Problem, ServerUnavailable
from muster.identity import new_id
from muster.spec.models import JobSpec
from muster.spec.paths import is_url
from muster.spec.problem_places import touched
from muster.spec.reader import ParsedSpec
from muster.storage.artifact_lock import ArtifactLock, try_exclusive
from muster.storage.artifacts import ArtifactRef
from muster.storage.code_trees import remove_artifact, remove_unlinked
from muster.storage.disk_use import DiskUse, entries_of
from muster.storage.home import Home, default_home
from muster.storage.sources import check_gathering, store_sources
from muster.submission import of_this_process
from muster.type_info import encode_json

_BLOCK = 1 << 20
#: Seconds to wait before an upload is continued, each time that the connection was lost and
#: nothing received since: a proxy or a server that is started again takes a few.
_PAUSES = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
#: Versions of code that are kept here after they were sent, and the bytes of all; the last one is
#: kept in any case.
_KEPT, _MOST_KEPT = 10, 1 << 30
#: Seconds that digests of a folder's files are kept after they were last needed.
_LAST_READ = 30 * 86400.0


def send(connection: Connection, spec: JobSpec) -> tuple[JobSpec, ArtifactRef | None]:
    """Send the code of a spec, and keep a copy for a while: the next version shares its files and
    is read faster. Returns the spec with what was found: the commit of a repository, the packages
    of a requirements file, the entry point. Raises InvalidInput."""
    home = default_home().sent
    if spec.artifact is None and spec.git is None:
        return store_sources(home, spec, of_this_process())
    default_home().prepare()
    home.artifacts.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock, claim = ArtifactLock(home), new_id()
    lock.hold(claim)  # another process could delete it
    try:
        found, code = store_sources(home, spec, of_this_process())
        if code is not None:
            _upload(connection, code)
            os.utime(home.artifact(code.sha256))
    finally:
        lock.release(claim)
    _forget_old(home)
    return found, code


def _forget_old(home: Home) -> None:
    """Delete the code that was sent long ago. Does nothing while another process sends some."""
    with try_exclusive(home) as alone:
        if not alone:
            return
        stored = [code for folder in home.artifacts.glob("??") for code in folder.iterdir()]
        stored.sort(key=lambda code: code.stat().st_mtime, reverse=True)
        use = DiskUse()
        for number, code in enumerate(stored):
            use.add(code)
            if number and (number >= _KEPT or use.size > _MOST_KEPT):
                remove_artifact(home, code.name, shared=False)
        remove_unlinked(home)
        for cache in entries_of(home.digests):
            if time.time() - cache.lstat().st_mtime > _LAST_READ:
                cache.unlink(missing_ok=True)


def digest_here(spec: JobSpec) -> str | None:
    """The digest of a spec's code on this machine; None if it cannot be read."""
    from muster.spec.sources import entrypoint_of
    from muster.storage.script_modules import digest_of_code

    try:
        return digest_of_code(default_home().sent, Path(str(spec.artifact)), entrypoint_of(spec))
    except (MusterError, OSError):
        return None


def _upload(connection: Connection, code: ArtifactRef) -> None:
    """Send stored code to the server, unless it has the code already."""
    if _has_code(connection, code.sha256):
        return
    stored = default_home().sent.artifact(code.sha256)
    kind, name = "file", code.file_name
    if stored.is_dir():
        kind, name = "folder", name.removesuffix(".tar")
    with _payload(stored) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        path = f"{PREFIX}/uploads/{digest}"
        _send(connection, path, file)
        connection.request("POST", path, encode_json({"file_name": name, "kind": kind}))


def _has_code(connection: Connection, sha256: str) -> bool:
    with suppress(NotFound):
        connection.request("GET", f"{PREFIX}/code/{sha256}")
        return True
    return False


def _send(connection: Connection, path: str, file: IO[bytes]) -> None:
    pauses, reached = [*_PAUSES], 0
    while True:
        try:
            received: int = msgspec.json.decode(connection.request("GET", path))["size"]
            if received > reached:
                pauses, reached = [*_PAUSES], received
            _send_rest(connection, path, file, received)
        except (ServerUnavailable, Conflict):
            if not pauses:
                raise
            time.sleep(pauses.pop(0))
        else:
            return


def _send_rest(connection: Connection, path: str, file: IO[bytes], offset: int) -> None:
    size = os.fstat(file.fileno()).st_size
    if offset >= size > 0:  # an empty file is sent as well: the server knows nothing of it yet
        return
    file.seek(offset)
    headers = {"Content-Length": str(size - offset), "Content-Type": "application/octet-stream"}
    connection.request("PUT", f"{path}?offset={offset}", _blocks(file), headers)


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block


@contextmanager
def _payload(stored: Path) -> Iterator[IO[bytes]]:
    """Stored code as one file: a folder as an archive that is always the same."""
    if not stored.is_dir():
        with open(stored, "rb") as file:
            yield file
        return
    with tempfile.TemporaryFile() as packed:
        _pack(stored / "code", packed)
        packed.seek(0)
        yield packed


def _pack(code: Path, target: IO[bytes]) -> None:
    from muster.storage.code_trees import names_below

    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in names_below(code):
            info = archive.gettarinfo(str(code / name), name)
            # a second name of the same file is a file, too
            if info.islnk():
                info.type, info.linkname = tarfile.REGTYPE, ""
                info.size = os.stat(code / name).st_size
            info.mtime = info.uid = info.gid = 0
            info.uname = info.gname = ""
            if info.isreg():
                with open(code / name, "rb") as file:
                    archive.addfile(info, file)
            else:
                archive.addfile(info, io.BytesIO())


def code_problems(written: ParsedSpec) -> list[Problem]:
    """The problems of a spec's code and of the files that it requires, which are on this
    machine."""
    spec = written.spec
    known = not touched(("artifact", "git", "entrypoint", "command"), written.broken)
    if touched(("artifact", "git"), written.broken) or is_url(spec.artifact):
        spec = replace(spec, artifact=None, git=None)
    return check_gathering(default_home().sent, spec, Path.cwd(), entrypoint_known=known)
