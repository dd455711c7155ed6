"""Copying between an fsspec URL and a folder: `python -m muster.storage.sync VERB FOLDER`.

A process of its own, since the library and its back ends are heavier than all the rest of a run.
Only what has changed is copied. Nothing is ever deleted at the URL. What cannot be copied does not
keep the rest from being copied.
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
from typing import Any

import fsspec

from muster.node.files import read_regular, replace_file
from muster.secrets import redacted
from muster.storage.mounts import SYNC_URL

#: What was last seen of each file: [its mark at the URL, its mark here]. Kept beside the folder,
#: not in it: that is the job's.
Seen = dict[str, list[Any]]
#: Copies at once from back ends that only wait for the network; others are taken one by one.
_AT_ONCE = 16


class SyncError(Exception):
    """Some files could not be copied; the others were. The text has a line for each."""


def need(url: str, folder: Path) -> int:
    """As `pull`, for a URL that is only read: where nothing is, its name is wrong."""
    return pull(url, folder, needed=True)


def pull(url: str, folder: Path, *, needed: bool = False) -> int:
    """Copy what is new at the URL into the folder. Returns the number of files.

    A URL where nothing is yet is an empty one, unless it is needed. Raises SyncError, or what the
    back end raises.
    """
    fs, root = fsspec.core.url_to_fs(url)
    folder.mkdir(parents=True, exist_ok=True)
    seen = _load(folder)

    def copy(found: tuple[str, str, str]) -> None:
        path, name, mark = found
        target = folder / _safe(name)
        # written beside the folder first: half a file must never be taken for a changed one
        part = _beside(folder, f".{os.getpid()}-{hash(name):x}.part")
        try:
            fs.get_file(path, str(part))
            target.parent.mkdir(parents=True, exist_ok=True)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        seen[name] = [mark, _local_mark(target)]

    there = list(_remote_files(fs, root, file=needed))
    if needed and not there:
        raise SyncError("there is nothing")
    new = [
        found
        for found in there
        if not (_same(seen, found[1], 0, found[2]) and (folder / found[1]).exists())
    ]
    return _copy_all(fs, copy, new, folder, seen)


def push(url: str, folder: Path) -> int:
    """Copy what is new in the folder to the URL. Returns the number of files.

    Links are followed to files, not into folders. Raises as `pull` does.
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
                return  # the job has deleted it meanwhile, as it does with old checkpoints
            raise
        # the mark from before copying: what is written to meanwhile is copied again
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
        except Exception as error:  # noqa: BLE001  back ends raise what they like
            errors.append(f"{found[0]}: {type(error).__name__}: {error}")

    with ThreadPoolExecutor(_AT_ONCE if getattr(fs, "async_impl", False) else 1) as pool:
        for _ in pool.map(attempt, files):
            pass
    _save(folder, seen)
    if errors:
        raise SyncError("\n".join(sorted(errors)))
    return len(files)


def _remote_files(fs: Any, root: str, *, file: bool) -> Iterator[tuple[str, str, str]]:
    """(path, name below the root, mark) of all files below a URL, or of the file that it is."""
    try:
        found = fs.find(root, detail=True)
    except FileNotFoundError:
        return  # nothing there yet: the first run of many writes it
    prefix = root.rstrip("/")
    for path, info in sorted(found.items()):
        name = path.removeprefix(prefix).lstrip("/")
        if info.get("type") == "directory":
            continue
        if not name:
            if info.get("size") == 0:
                continue  # object stores mark folders so
            if not file:
                raise NotADirectoryError("it is a file; give the folder it is in")
            name = prefix.rpartition("/")[2]
        yield path, name, _mark(info)


def _local_files(folder: Path) -> Iterator[tuple[str, list[int]]]:
    for here, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(here, name)
            try:
                if path.is_file():
                    yield path.relative_to(folder).as_posix(), _local_mark(path)
            except FileNotFoundError:
                continue  # deleted while we looked


def _safe(name: str) -> str:
    """Object stores allow any name; a folder does not."""
    if ".." in name.split("/"):
        raise ValueError("it would land outside of the mount")
    return name


def _same(seen: Seen, name: str, side: int, mark: Any) -> bool:
    return name in seen and seen[name][side] == mark and mark != ""


def _mark(info: dict[str, Any]) -> str:
    """What changes when the file does; "" if its file system tells nothing that would."""
    keys = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated")
    told = next((info[key] for key in (*keys, "created") if info.get(key)), None)
    return "" if told is None else f"{info.get('size')}/{told}"


def _local_mark(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _beside(folder: Path, suffix: str) -> Path:
    return folder.with_name(f"{folder.name}{suffix}")


def _load(folder: Path) -> Seen:
    try:
        seen: Seen = json.loads(read_regular(_beside(folder, ".seen")))
    except (OSError, ValueError):  # the first time, or a program has been at it: all is new
        return {}
    return seen


def _save(folder: Path, seen: Seen) -> None:
    replace_file(_beside(folder, ".seen"), json.dumps(seen).encode())


def _end_with_parent() -> None:
    """A copy for a run must not outlive the run, however that ended."""
    if sys.platform.startswith("linux"):
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)


def main(argv: list[str]) -> int:
    """The process. The URL is in its environment, as it may hold a password and other users can
    read command lines. Exit code 1, and a line on stderr for each thing that did not work; 2 if it
    was called wrongly."""
    url = os.environ.get(SYNC_URL)
    match argv:
        case ["in" | "need" | "out" as direction, folder] if url:
            return _run({"in": pull, "need": need, "out": push}[direction], url, folder)
    sys.stderr.write(f"usage: {SYNC_URL}=URL python -m muster.storage.sync in|need|out FOLDER\n")
    return 2


def _run(copy: Callable[[str, Path], int], url: str, folder: str) -> int:
    try:
        copy(url, Path(folder))
    except SyncError as error:
        _report(url, str(error).splitlines())
        return 1
    except Exception as error:  # noqa: BLE001  back ends raise what they like
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
