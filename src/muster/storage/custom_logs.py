"""Entries that programs have put into logs of the OCI API themselves (OCI: PutLogs).

    custom-logs/LOG     an entry in each line, as JSON

A file that is too large loses its older half.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from muster.storage.home import Home

#: Bytes of a log.
_MOST = 256 << 20


def append(home: Home, log_id: str, entries: Iterable[Mapping[str, Any]]) -> None:
    """Add entries to a log."""
    data = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
    path = _path(home, log_id)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(data)
        file.flush()
        if file.tell() > _MOST:
            _drop_older_half(path)


def _drop_older_half(path: Path) -> None:
    """With the lock. Readers that have the file open still read all of it."""
    part = path.with_suffix(".part")
    with open(path, "rb") as old, open(part, "wb") as new:
        old.seek(path.stat().st_size // 2)
        old.readline()
        while block := old.read(1 << 20):
            new.write(block)
    os.replace(part, path)


def entries(home: Home, log_id: str) -> Iterator[dict[str, Any]]:
    """The entries of a log, in the order in which they were added."""
    try:
        file = open(_path(home, log_id), "rb")  # noqa: SIM115  closed below
    except FileNotFoundError:
        return
    with file:
        for line in file:
            if line.endswith(b"\n"):  # one that is being written has no end yet
                yield msgspec.json.decode(line)


def remove(home: Home, log_id: str) -> None:
    """Delete the entries of a log."""
    _path(home, log_id).unlink(missing_ok=True)


def _path(home: Home, log_id: str) -> Path:
    return home.custom_logs / log_id
