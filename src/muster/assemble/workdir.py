"""The folder in which the nodes of one cluster find each other: `WORK_DIR/JOB_OCID`, on any fsspec
file system. Small JSON files, written whole; a file that cannot be read yet is not there yet.

An object store may list a file late, or one that is gone: what has a known name is opened without
being listed, and a listing is never believed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, TypeVar

import fsspec

from muster.errors import EngineError, InvalidInput, Problem
from muster.storage.mounts import without_secret

T = TypeVar("T")
_LARGEST = 16 << 20  # bytes; whatever is larger is not one of these
MAIN, CLUSTER, BEAT, STOP = "MAIN_config.json", "cluster.json", "beat.json", "stop"


class WorkDir:
    """work_dir: a folder or URL. interval: seconds between two looks that cost little there.

    Raises InvalidInput if nobody here knows such URLs.
    """

    def __init__(self, work_dir: str, job: str) -> None:
        shown = without_secret(work_dir)
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

    def make(self) -> None:
        """Have the folder, and see that it can be written to and read. Raises EngineError."""

        def make() -> None:
            new = self._local and not self._fs.exists(self._root)
            self._fs.makedirs(self._root, exist_ok=True)
            if new:
                os.chmod(self._root, 0o700)  # the secret of the cluster will be in there

        self._call("written to", make)

    def write(self, name: str, data: Any) -> None:
        """Raises EngineError."""
        content = json.dumps(data, indent=1).encode()
        self._call("written to", lambda: self._fs.pipe_file(self._path(name), content))

    def read(self, name: str) -> Any:
        """The file's data; None if it is not there, or not whole. Text that is no JSON counts as
        such where the name says so (`stop`). Raises EngineError."""

        def look() -> bytes | None:
            try:
                found: bytes = self._fs.cat_file(self._path(name), end=_LARGEST)
            except (FileNotFoundError, IsADirectoryError):
                return None
            return found

        content = self._call("read", look)
        if content is None:
            return None
        try:
            return json.loads(content)
        except ValueError:
            return {"why": content.decode(errors="replace").strip()} if name == STOP else None

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

    def _call(self, what: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except Exception as error:  # back ends raise what they like
            text = f"{self.place} cannot be {what}: {type(error).__name__}: {error}"
            raise EngineError(text) from error


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
