"""Copying between an fsspec URL and a folder: `python -m muster.storage.sync in|out URL FOLDER`.

A process of its own, since the library and its back ends are heavier than all the rest of a run.
Only what has changed is copied. Nothing is ever deleted at the URL.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import fsspec

#: What was last seen of each file on either side. Beside the folder, not in it: that is the job's.
Seen = dict[str, list[Any]]


def pull(url: str, folder: Path) -> int:
    """Copy what is new at the URL into the folder. Returns the number of files."""
    fs, root = fsspec.core.url_to_fs(url)
    folder.mkdir(parents=True, exist_ok=True)
    seen = _load(folder)
    copied = 0
    for path, info in _remote_files(fs, root).items():
        name = path.removeprefix(root.rstrip("/")).lstrip("/")
        target = folder / name
        if ".." in Path(name).parts:
            raise ValueError(f"{path} would land outside of the mount")
        mark = _mark(info)
        if target.exists() and seen.get(name, [None])[0] == mark:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        fs.get_file(path, str(target))
        seen[name] = [mark, _local_mark(target)]
        copied += 1
    _save(folder, seen)
    return copied


def push(url: str, folder: Path) -> int:
    """Copy what is new in the folder to the URL. Returns the number of files."""
    fs, root = fsspec.core.url_to_fs(url)
    seen = _load(folder)
    copied = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        name = path.relative_to(folder).as_posix()
        mark = _local_mark(path)
        if seen.get(name, [None, None])[1] == mark:
            continue
        remote = f"{root.rstrip('/')}/{name}"
        fs.makedirs(remote.rpartition("/")[0], exist_ok=True)
        fs.put_file(str(path), remote)
        seen[name] = [_mark(fs.info(remote)), mark]
        copied += 1
    _save(folder, seen)
    return copied


def _remote_files(fs: Any, root: str) -> dict[str, Any]:
    try:
        found = fs.find(root, detail=True)
    except FileNotFoundError:
        return {}  # nothing there yet: the first run of many writes it
    return {path: info for path, info in found.items() if info.get("type") != "directory"}


def _mark(info: dict[str, Any]) -> str:
    """What changes when the file does, as far as its file system tells."""
    keys = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "updated", "created")
    told = next((info[key] for key in keys if info.get(key)), "")
    return f"{info.get('size')}/{told}"


def _local_mark(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _seen_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.seen")


def _load(folder: Path) -> Seen:
    try:
        seen: Seen = json.loads(_seen_file(folder).read_text())
    except FileNotFoundError:
        return {}
    return seen


def _save(folder: Path, seen: Seen) -> None:
    part = folder.with_name(f"{folder.name}.seen.part")
    part.write_text(json.dumps(seen))
    part.replace(_seen_file(folder))


def main(argv: list[str]) -> int:
    """The process. Exit code 1, and one line on stderr, if it did not work."""
    direction, url, folder = argv
    try:
        (pull if direction == "in" else push)(url, Path(folder))
    except Exception as error:  # noqa: BLE001  back ends raise what they like
        sys.stderr.write(f"{url}: {type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
