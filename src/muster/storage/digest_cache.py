"""Digests of a folder's files, kept so that unchanged files are not read again.

A file is unchanged if its device, inode, size, and times of modification and of status change are
those of the time when it was read. A file that changed a moment before it was read is not kept: a
second change could leave the same times (git: racy-git). The cache of a folder has a checksum, and
a damaged one is ignored.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from muster.node.files import read_regular
from muster.storage.home import Home

#: Nanoseconds for which a change may leave the same times. The kernel stamps files with a clock
#: that ticks every 10 ms or less; file systems without fractions of seconds have 1 or 2 s.
_TICK, _WHOLE_SECONDS = 100_000_000, 2_500_000_000
_SECOND = 1_000_000_000
_CHECKSUM = 32
#: More is not read, and then fails the checksum. A million files take about 100 MB.
_MAX_BYTES = 1 << 28


class _Entry(NamedTuple):
    """What is known about a file."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int
    digest: bytes


_decoder = msgspec.msgpack.Decoder(dict[bytes, _Entry])


class DigestCache:
    """The digests of one folder's files. Files that are not looked up are forgotten by `save`."""

    def __init__(self, home: Home, folder: Path) -> None:
        self._path = home.digests / hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:32]
        self._before = _read(self._path)
        self._now: dict[bytes, _Entry] = {}

    def find(self, name: str, found: os.stat_result) -> bytes | None:
        """The digest of an unchanged file; None if the file has to be read."""
        key = os.fsencode(name)
        entry = self._before.get(key)
        if entry is None or entry[:5] != stamp(found):
            return None
        self._now[key] = entry
        return entry.digest

    def add(self, name: str, found: os.stat_result, digest: bytes, read_at: int) -> None:
        """Keep a digest. found: the file as it was read; read_at: when reading began (epoch
        nanoseconds)."""
        newest = max(found.st_mtime_ns, found.st_ctime_ns)
        doubtful = _TICK if found.st_ctime_ns % _SECOND else _WHOLE_SECONDS
        if newest + doubtful < read_at:
            self._now[os.fsencode(name)] = _Entry(*stamp(found), digest)

    def save(self) -> None:
        """Write the cache for the next process, if it has changed. Does nothing if the disk is
        full: the files are read again then."""
        if self._now == self._before:
            return
        data = msgspec.msgpack.encode(self._now)
        part = self._path.with_name(f"{self._path.name}.part-{os.getpid()}-{time.monotonic_ns()}")
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            part.write_bytes(hashlib.sha256(data).digest() + data)
            os.replace(part, self._path)
        except OSError:
            part.unlink(missing_ok=True)


def stamp(found: os.stat_result) -> tuple[int, int, int, int, int]:
    """What changes when a file changes."""
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _read(path: Path) -> dict[bytes, _Entry]:
    try:
        data = read_regular(path, _MAX_BYTES)
        if hashlib.sha256(data[_CHECKSUM:]).digest() == data[:_CHECKSUM]:
            return _decoder.decode(data[_CHECKSUM:])
    except (OSError, msgspec.DecodeError):  # missing, not a file, or of another version
        pass
    return {}
