"""Copy changed files between a URL and a folder: `python -m muster.storage.sync VERB FOLDER
[LIMIT]`.

Runs in a separate process, because fsspec and its back ends take more time and memory than the rest
of a run. Nothing is deleted at the URL. Files that cannot be copied do not stop the others.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import fsspec

from muster.node.files import read_regular, replace_file
from muster.secrets import redacted
from muster.spec.quantities import format_size
from muster.storage.private_addresses import refuse_private_addresses
from muster.storage.sync_process import (
    REFUSAL,
    REFUSED,
    SYNC_OWN_STORAGE,
    SYNC_PUBLIC_ONLY,
    SYNC_URL,
)

#: File name -> [its last mark at the URL, its last local mark]. A mark changes when the file does.
#: Stored next to the folder, because the folder's content belongs to the job.
Seen = dict[str, list[Any]]
#: Concurrent copies on asynchronous back ends; on others, files are copied one by one.
_CONCURRENCY = 16


class SyncError(Exception):
    """Some files could not be copied; the others were. The text has one line per file."""


def pull(url: str, folder: Path, limit: int | None = None, *, needed: bool = False) -> int:
    """Copy files that changed at the URL into the folder. Returns their number.

    limit: the most bytes that may be there; None: any number. needed: a URL without files is an
    error. Raises SyncError, and the errors of the back end.
    """
    fs, root = fsspec.core.url_to_fs(url)
    folder.mkdir(parents=True, exist_ok=True)
    seen = _load(folder)

    def copy(found: _RemoteFile) -> None:
        name = found.name
        target = folder / _safe(name)
        # written next to the folder first: a partial file must not look like a changed one
        part = _next_to(folder, f".{os.getpid()}-{hash(name):x}.part")
        try:
            fs.get_file(found.path, str(part))
            target.parent.mkdir(parents=True, exist_ok=True)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        seen[name] = [found.mark, _local_mark(target)]

    remote = list(_remote_files(fs, root, file=needed))
    if needed and not remote:
        raise SyncError("no files found")
    size = sum(one.size for one in remote)
    if limit is not None and size > limit:
        raise SyncError(f"it has {format_size(size)}, and at most {format_size(limit)} are copied")
    new = [
        found
        for found in remote
        if not (_same(seen, found.name, 0, found.mark) and (folder / found.name).exists())
    ]
    return _copy_all(fs, copy, new, folder, seen)


def push(url: str, folder: Path) -> int:
    """Copy files that changed in the folder to the URL. Returns their number.

    Links to files are followed, links to folders are not. Raises as `pull` does.
    """
    fs, root = fsspec.core.url_to_fs(url)
    seen = _load(folder)

    def copy(found: tuple[str, list[int]]) -> None:
        name, mark = found
        remote = f"{root.rstrip('/')}/{name}"
        try:
            fs.put_file(str(folder / name), remote)
        except FileNotFoundError:
            if not (folder / name).exists():
                return  # deleted by the job meanwhile, as old checkpoints are
            raise
        # the mark from before copying: a file that changes meanwhile is copied again
        seen[name] = [_mark(fs.info(remote)), mark]

    new = [found for found in _local_files(folder) if not _same(seen, found[0], 1, found[1])]
    for parent in sorted({str(PurePosixPath(name).parent) for name, _ in new}):
        fs.makedirs(root if parent == "." else f"{root.rstrip('/')}/{parent}", exist_ok=True)
    return _copy_all(fs, copy, new, folder, seen)


def _copy_all(
    fs: Any, copy: Callable[[Any], None], files: list[Any], folder: Path, seen: Seen
) -> int:
    errors = []

    def attempt(found: Any) -> None:
        try:
            copy(found)
        except Exception as error:  # noqa: BLE001  each back end raises its own errors
            errors.append(f"{found[0]}: {type(error).__name__}: {error}")

    with ThreadPoolExecutor(_CONCURRENCY if getattr(fs, "async_impl", False) else 1) as pool:
        for _ in pool.map(attempt, files):
            pass
    _save(folder, seen)
    if errors:
        raise SyncError("\n".join(sorted(errors)))
    return len(files)


class _RemoteFile(NamedTuple):
    """A file at a URL."""

    path: str
    #: Below the URL.
    name: str
    #: See `_mark`.
    mark: str
    #: Bytes; 0 if the back end does not say.
    size: int


def _remote_files(fs: Any, root: str, *, file: bool) -> Iterator[_RemoteFile]:
    """All files below a URL. file: it may also be one file."""
    try:
        found = fs.find(root, detail=True)
    except FileNotFoundError:
        return  # the first run may create it
    prefix = root.rstrip("/")
    for path, info in sorted(found.items()):
        name = path.removeprefix(prefix).lstrip("/")
        if info.get("type") == "directory":
            continue
        if not name:
            if info.get("size") == 0:
                continue  # the placeholder of a folder in an object store
            if not file:
                raise NotADirectoryError("it is a file; give its folder")
            name = prefix.rpartition("/")[2]
        yield _RemoteFile(path, name, _mark(info), info.get("size") or 0)


def _local_files(folder: Path) -> Iterator[tuple[str, list[int]]]:
    for here, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(here, name)
            try:
                if path.is_file():
                    yield path.relative_to(folder).as_posix(), _local_mark(path)
            except FileNotFoundError:
                continue  # deleted meanwhile


def _safe(name: str) -> str:
    """The name, unless it leads out of the folder: object stores allow any name."""
    if ".." in name.split("/"):
        raise ValueError("it would be outside the mount")
    return name


def _same(seen: Seen, name: str, side: int, mark: Any) -> bool:
    return name in seen and seen[name][side] == mark and mark != ""


def _mark(info: dict[str, Any]) -> str:
    """A value that changes when the file does; "" if the back end reports none."""
    keys = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated")
    version = next((info[key] for key in (*keys, "created") if info.get(key)), None)
    return "" if version is None else f"{info.get('size')}/{version}"


def _local_mark(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _next_to(folder: Path, suffix: str) -> Path:
    return folder.with_name(f"{folder.name}{suffix}")


def _load(folder: Path) -> Seen:
    try:
        seen: Seen = json.loads(read_regular(_next_to(folder, ".seen")))
    except (OSError, ValueError):  # missing at first, or damaged by a program: copy all files
        return {}
    return seen


def _save(folder: Path, seen: Seen) -> None:
    replace_file(_next_to(folder, ".seen"), json.dumps(seen).encode())


def _end_with_parent() -> None:
    """End this process when the run's supervisor ends, even if it is killed."""
    if sys.platform.startswith("linux"):
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)


def main(argv: list[str]) -> int:
    """Copy as the arguments say. Returns the exit code: 1, with a line on stderr per error; 2 for
    wrong usage; `REFUSED`. The URL is in the environment, because it may contain a password and
    other users can read command lines."""
    url = os.environ.get(SYNC_URL)
    if url and SYNC_PUBLIC_ONLY in os.environ:
        refused = refuse_private_addresses(os.environ.get(SYNC_OWN_STORAGE, ""))
        code = _copy_as(argv, url)
        if code == 1 and refused:
            _report(url, [f"{REFUSAL}: {', '.join(dict.fromkeys(refused))}"])
            return REFUSED
        return code
    return _copy_as(argv, url)


def _copy_as(argv: list[str], url: str | None) -> int:
    match argv:
        case ["in" | "need" as verb, folder, *limit] if url and len(limit) < 2:
            most = int(limit[0]) if limit else None
            return _run(url, lambda: pull(url, Path(folder), most, needed=verb == "need"))
        case ["out", folder] if url:
            return _run(url, lambda: push(url, Path(folder)))
    usage = "python -m muster.storage.sync in|need|out FOLDER [LIMIT]"
    sys.stderr.write(f"usage: {SYNC_URL}=URL {usage}\n")
    return 2


def _run(url: str, copy: Callable[[], int]) -> int:
    try:
        copy()
    except SyncError as error:
        _report(url, str(error).splitlines())
        return 1
    except Exception as error:  # noqa: BLE001  each back end raises its own errors
        _report(url, [f"{type(error).__name__}: {error}"])
        return 1
    return 0


def _report(url: str, lines: Iterable[str]) -> None:
    shown = redacted(url)
    for line in lines:
        sys.stderr.write(f"{shown}: {redacted(line.replace(url, shown))}\n")


if __name__ == "__main__":
    _end_with_parent()
    sys.exit(main(sys.argv[1:]))
