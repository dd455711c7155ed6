"""How much disk files take. Blocks that several names share by hard links are counted once."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


class DiskUse:
    """The disk that some folders and files take together."""

    def __init__(self) -> None:
        #: (device, inode) -> (bytes, names seen, names in all).
        self._files: dict[tuple[int, int], tuple[int, int, int]] = {}

    def add(self, path: str | Path) -> int:
        """Count a file, or a folder with its content. Returns the bytes that it adds."""
        return sum(map(self._count, _walk(os.fspath(path))))

    def _count(self, found: os.stat_result) -> int:
        key = (found.st_dev, found.st_ino)
        size, seen, _ = self._files.get(key, (0, 0, 0))
        added = 0 if seen else found.st_blocks * 512
        names = 1 if stat.S_ISDIR(found.st_mode) else found.st_nlink
        self._files[key] = (size or added, seen + 1, names)
        return added

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(size for size, _, _ in self._files.values())

    def freed(self, *, other_names: int = 0) -> int:
        """Bytes that are freed when all that was counted is deleted: not those of files that have
        more names elsewhere. other_names: how many of these are deleted as well."""
        return sum(
            size for size, seen, names in self._files.values() if seen + other_names >= names
        )


def disk_use(*paths: str | Path) -> int:
    """The bytes that these files and folders take on the disk."""
    use = DiskUse()
    return sum(map(use.add, paths))


def _walk(path: str) -> Iterator[os.stat_result]:
    """What is known about a path and everything below it. What vanishes meanwhile, or cannot be
    read, is left out."""
    with suppress(OSError):
        yield os.lstat(path)
    todo = [path] if os.path.isdir(path) and not os.path.islink(path) else []
    while todo:
        with suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    yield entry.stat(follow_symlinks=False)


def entries_of(folder: Path) -> list[Path]:
    """The entries of a folder; none if it does not exist."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
