"""The folder through which the nodes of a cluster communicate: `WORK_DIR/JOB_OCID`, on any fsspec
file system. It holds small JSON files, each written as a whole; a file that is not complete yet
reads as missing.

An object store may list new files late, and removed ones for a while. So files with known names are
opened without being listed, and each listed file may turn out to be missing.
"""

from __future__ import annotations

import copy
import errno
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import fsspec

from muster.errors import EngineError, InvalidInput, Problem
from muster.secrets import redacted
from muster.storage.protocols import (
    GIT_IS_COMMITTED,
    is_local,
    protocol_named,
    remove_file,
)
from muster.storage.url_errors import error_hint

T = TypeVar("T")
_MAX_SIZE = 16 << 20  # bytes; larger files are not ours
MAIN, CLUSTER, HEARTBEAT, STOP = "MAIN_config.json", "cluster.json", "beat.json", "stop"
#: Seconds for which `WorkDir.retrying` retries an operation, and between two attempts.
_RETRY_TIMEOUT, _RETRY_INTERVAL = 30.0, 0.5
_ATTEMPTS = int(_RETRY_TIMEOUT / _RETRY_INTERVAL)

_INSTEAD = "use a folder that all nodes mount, or a bucket: s3://bucket/clusters"
_GIT_HINT = f"keep code there and clone it into CODE_DIR; for WORK_DIR, {_INSTEAD}"


def work_dir_problem(work_dir: str, variable: str = "WORK_DIR") -> Problem | None:
    """Why a folder or URL cannot be a work directory, as far as its text tells; None if it may be
    one. variable: the environment variable that sets it."""
    chain, separator, rest = work_dir.partition("://")
    protocol = chain.partition("::")[0].lower()
    shown = redacted(work_dir)
    if work_dir.lower().startswith("data:"):  # the only URLs without //
        return Problem(
            variable, f"{shown}: data: {protocol_named('data').not_a_work_dir}", _INSTEAD
        )
    if "::" not in work_dir and not separator:
        return None
    if why := protocol_named(protocol).not_a_work_dir:
        hint = _GIT_HINT if why == GIT_IS_COMMITTED else _INSTEAD
        return Problem(variable, f"{shown}: {protocol}:// {why}", hint)
    try:
        fsspec.get_filesystem_class(protocol)
    except (ImportError, ValueError) as error:  # a package is missing; unknown protocol
        return Problem(variable, f"{shown}: {error}", _INSTEAD)
    if not rest.strip("/"):
        return Problem(variable, f"{shown} names no bucket or folder", _INSTEAD)
    return None


class WorkDir:
    """The work directory of one cluster.

    work_dir: a folder or URL. wait: sleeps between two attempts. Raises InvalidInput for a URL that
    no installed package handles.
    """

    def __init__(self, work_dir: str, job: str, wait: Callable[[float], None] = time.sleep) -> None:
        shown = redacted(work_dir)
        try:
            # a cached listing would not show new files
            self._fs, root = fsspec.core.url_to_fs(work_dir, use_listings_cache=False)
        except (ImportError, ValueError) as error:  # a package is missing; unknown protocol
            hint = "a folder, or a URL such as s3://bucket/clusters"
            raise InvalidInput(Problem("WORK_DIR", f"{shown}: {error}", hint)) from None
        self._root = f"{root.rstrip('/')}/{job}"
        #: The folder, for messages.
        self.location = f"{shown.rstrip('/')}/{job}"
        self._local = is_local(self._fs)
        #: Seconds between two polls.
        self.interval = 0.1 if self._local else 2.0
        self._wait = wait
        self._attempts = 1
        #: Errors that are not retried. After the first access even a refusal may be temporary.
        self._final: Callable[[Exception], bool] = lambda _: False

    @property
    def retrying(self) -> WorkDir:
        """The same directory, with operations that are retried for 30 s: for files that are written
        only once. A store may be unavailable for a moment."""
        retrying = copy.copy(self)
        retrying._attempts = _ATTEMPTS
        return retrying

    def make(self) -> None:
        """Create the folder, and check that it can be written. Raises EngineError."""

        def make() -> None:
            self._fs.makedirs(self._root, exist_ok=True)
            if self._local:
                _make_private(self._root)  # it will hold the secret of the cluster

        self._call("written to", make)
        self._probe()

    def _probe(self) -> None:
        """Write and remove a file: the file system or its policy may not allow writing."""
        name, probing = f"probe-{secrets.token_hex(4)}", self.retrying
        probing._final = _is_refusal
        probing.write(name, None)
        probing.remove(name)

    def write(self, name: str, data: Any) -> None:
        """Write a file as a whole. Raises EngineError."""
        content = json.dumps(data, indent=1).encode()
        put = _put if self._local else self._fs.pipe_file
        self._call("written to", lambda: put(self._path(name), content))

    def read(self, name: str) -> Any:
        """The file's data; None if it is missing or incomplete. Text that is not JSON is the reason
        in `stop`, and text in `MAIN_config.json`. Raises EngineError."""

        def load() -> bytes | None:
            try:
                return self._content(self._path(name))
            except (FileNotFoundError, IsADirectoryError):
                return None

        return _decode(name, self._call("read", load))

    def read_many(self, names: Sequence[str]) -> dict[str, Any]:
        """What `read` returns for each file; concurrent where the store allows it. Files that could
        not be read this time are left out. Raises EngineError."""
        if not names:
            return {}
        paths = [self._path(name) for name in names]
        found = self._call("read", lambda: self._fs.cat_ranges(paths, 0, _MAX_SIZE))
        return {
            name: None if isinstance(content, FileNotFoundError) else _decode(name, content)
            for name, content in zip(names, found, strict=True)
            if isinstance(content, bytes | FileNotFoundError)
        }

    def names(self, *prefixes: str) -> list[str]:
        """The listed files whose names start with a prefix, sorted. Raises EngineError."""

        def load() -> list[str]:
            self._fs.invalidate_cache()
            try:
                found = self._fs.ls(self._root, detail=False)
            except FileNotFoundError:
                return []
            return [str(path).rstrip("/").rpartition("/")[2] for path in found]

        return sorted(name for name in self._call("read", load) if name.startswith(prefixes))

    def remove(self, name: str) -> None:
        """Remove a file if it exists. Raises EngineError."""

        def unlink() -> None:
            try:
                remove_file(self._fs, self._path(name))
            except FileNotFoundError:
                return

        self._call("written to", unlink)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _content(self, path: str) -> bytes:
        try:
            found: bytes = self._fs.cat_file(path, end=_MAX_SIZE)
        except FileNotFoundError:
            raise
        except Exception:
            # stores refuse to send a range of an empty object, such as a `stop` made by `touch`
            if self._fs.info(path)["size"] == 0:
                return b""
            raise
        return found

    def _call(self, what: str, work: Callable[[], T]) -> T:
        deadline = time.monotonic() + _RETRY_TIMEOUT  # a single attempt may take long
        left = self._attempts
        while True:
            left -= 1
            try:
                return work()
            except Exception as error:  # each back end raises its own errors
                if left <= 0 or time.monotonic() >= deadline or self._final(error):
                    text = f"{self.location} cannot be {what}: {type(error).__name__}: {error}"
                    doing = what.removesuffix(" to")
                    hint = error_hint(self.location, self._fs, self._root, doing, error)
                    raise EngineError(f"{text} ({hint})" if hint else text) from error
            self._wait(_RETRY_INTERVAL)


def _decode(name: str, content: bytes | None) -> Any:
    if content is None:
        return None
    try:
        return json.loads(content)
    except ValueError:
        text = content.decode(errors="replace").strip()
        return {"why": text} if name == STOP else text if name == MAIN and text else None


def _is_refusal(error: Exception) -> bool:
    """Whether writing is impossible or not allowed."""
    if isinstance(error, OSError) and error.errno == errno.EROFS:
        return True
    return isinstance(error, (NotImplementedError, PermissionError))


def _put(path: str, content: bytes) -> None:
    """Write a file, private to its owner, atomically."""
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{secrets.token_hex(4)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _make_private(folder: str) -> None:
    """Take all access from others, unless another user owns the folder."""
    found = os.stat(folder)
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid == os.geteuid() and mode & 0o077:
        os.chmod(folder, mode & 0o700)
