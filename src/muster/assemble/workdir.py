"""The folder in which the nodes of one cluster find each other: `WORK_DIR/JOB_OCID`, on any fsspec
file system. Small JSON files, written whole; a file that cannot be read yet is not there yet.

An object store may list a file late, or one that is gone: what has a known name is opened without
being listed, and a listing is never believed.
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
from muster.storage.reach import way_out

T = TypeVar("T")
_LARGEST = 16 << 20  # bytes; whatever is larger is not one of these
MAIN, CLUSTER, BEAT, STOP = "MAIN_config.json", "cluster.json", "beat.json", "stop"
#: How long what has to succeed is tried for, and the time between two attempts (seconds).
_INSISTENCE, _PAUSE = 30.0, 0.5
_ATTEMPTS = int(_INSISTENCE / _PAUSE)


class WorkDir:
    """work_dir: a folder or URL. interval: seconds between two looks that cost little there. wait:
    what passes the time between two attempts.

    Raises InvalidInput if nobody here knows such URLs.
    """

    def __init__(self, work_dir: str, job: str, wait: Callable[[float], None] = time.sleep) -> None:
        shown = redacted(work_dir)
        try:
            # a listing that is kept from before would never show who came since
            self._fs, root = fsspec.core.url_to_fs(work_dir, use_listings_cache=False)
        except (ImportError, ValueError) as error:  # a package is missing; no such protocol
            hint = "a folder, or a URL such as s3://bucket/clusters"
            raise InvalidInput(Problem("WORK_DIR", f"{shown}: {error}", hint)) from None
        self._root = f"{root.rstrip('/')}/{job}"
        self.place = f"{shown.rstrip('/')}/{job}"
        self._local = "file" in _protocols(self._fs)
        self.interval = 0.1 if self._local else 2.0
        self._wait = wait
        self._attempts = 1
        #: What is not tried again. Later on even a refusal may be over in a moment.
        self._final: Callable[[Exception], bool] = lambda _: False

    @property
    def insisting(self) -> WorkDir:
        """The same, but what fails there is tried again for a while: for what is said only once. A
        store may be back in a moment."""
        insisting = copy.copy(self)
        insisting._attempts = _ATTEMPTS
        return insisting

    def make(self) -> None:
        """Have the folder, and see that it can be written to and read. Raises EngineError."""

        def make() -> None:
            self._fs.makedirs(self._root, exist_ok=True)
            if self._local:
                _close_to_others(self._root)  # the secret of the cluster will be in there

        self._call("written to", make)
        self._probe()

    def _probe(self) -> None:
        """A file system that is there may be read-only, or its policy may be."""
        name, probing = f"probe-{secrets.token_hex(4)}", self.insisting
        probing._final = _is_refusal
        probing.write(name, None)
        probing.remove(name)

    def write(self, name: str, data: Any) -> None:
        """Raises EngineError."""
        content = json.dumps(data, indent=1).encode()
        put = _put if self._local else self._fs.pipe_file
        self._call("written to", lambda: put(self._path(name), content))

    def read(self, name: str) -> Any:
        """The file's data; None if it is not there, or not whole. Text that is no JSON counts in
        `stop`, as the reason, and in `MAIN_config.json`, as text. Raises EngineError."""

        def look() -> bytes | None:
            try:
                return self._content(self._path(name))
            except (FileNotFoundError, IsADirectoryError):
                return None

        return _decoded(name, self._call("read", look))

    def read_many(self, names: Sequence[str]) -> dict[str, Any]:
        """What `read` finds in each, at once where the store can; without those that could not be
        read this time. Raises EngineError."""
        if not names:
            return {}
        paths = [self._path(name) for name in names]
        found = self._call("read", lambda: self._fs.cat_ranges(paths, 0, _LARGEST))
        return {
            name: None if isinstance(content, FileNotFoundError) else _decoded(name, content)
            for name, content in zip(names, found, strict=True)
            if isinstance(content, bytes | FileNotFoundError)
        }

    def names(self, *prefixes: str) -> list[str]:
        """Files listed by now whose names begin so, in order. Raises EngineError."""

        def look() -> list[str]:
            self._fs.invalidate_cache()
            try:
                found = self._fs.ls(self._root, detail=False)
            except FileNotFoundError:
                return []
            return [str(path).rstrip("/").rpartition("/")[2] for path in found]

        return sorted(name for name in self._call("read", look) if name.startswith(prefixes))

    def remove(self, name: str) -> None:
        """Raises EngineError, but not if it is gone already."""

        def end() -> None:
            try:
                self._fs.rm_file(self._path(name))
            except FileNotFoundError:
                return

        self._call("written to", end)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _content(self, path: str) -> bytes:
        try:
            found: bytes = self._fs.cat_file(path, end=_LARGEST)
        except FileNotFoundError:
            raise
        except Exception:
            # stores refuse to send a part of what is empty, such as a `stop` that was touched
            if self._fs.info(path)["size"] == 0:
                return b""
            raise
        return found

    def _call(self, what: str, work: Callable[[], T]) -> T:
        deadline = time.monotonic() + _INSISTENCE  # one attempt may take its time, too
        left = self._attempts
        while True:
            left -= 1
            try:
                return work()
            except Exception as error:  # back ends raise what they like
                if left <= 0 or time.monotonic() >= deadline or self._final(error):
                    text = f"{self.place} cannot be {what}: {type(error).__name__}: {error}"
                    doing = what.removesuffix(" to")
                    hint = way_out(self.place, self._fs, self._root, doing, error)
                    raise EngineError(f"{text} ({hint})" if hint else text) from error
            self._wait(_PAUSE)


def _decoded(name: str, content: bytes | None) -> Any:
    if content is None:
        return None
    try:
        return json.loads(content)
    except ValueError:
        text = content.decode(errors="replace").strip()
        return {"why": text} if name == STOP else text if name == MAIN and text else None


def _is_refusal(error: Exception) -> bool:
    """Whether writing is not possible, or not allowed."""
    if isinstance(error, OSError) and error.errno == errno.EROFS:
        return True
    return isinstance(error, (NotImplementedError, PermissionError))


def _put(path: str, content: bytes) -> None:
    """A file that is its owner's alone, and there as a whole or not at all."""
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


def _close_to_others(folder: str) -> None:
    """Unless it is somebody else's, who will know why it is open."""
    found = os.stat(folder)
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid == os.geteuid() and mode & 0o077:
        os.chmod(folder, mode & 0o700)


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
