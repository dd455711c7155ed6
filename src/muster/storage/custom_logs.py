"""Entries that programs have put into logs of the OCI API themselves (OCI: PutLogs).

    custom-logs/LOG     an entry in each line, as JSON

A file that is too large loses its older half.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from muster.storage import line_files
from muster.storage.home import Home

#: Bytes of a log.
_MOST = 256 << 20


def append(home: Home, log_id: str, entries: Iterable[Mapping[str, Any]]) -> None:
    """Add entries to a log."""
    data = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
    line_files.append(_path(home, log_id), data, _MOST)


def entries(home: Home, log_id: str) -> Iterator[dict[str, Any]]:
    """The entries of a log, in the order in which they were added."""
    for line in line_files.lines(_path(home, log_id)):
        yield msgspec.json.decode(line)


def remove(home: Home, log_id: str) -> None:
    """Delete the entries of a log."""
    _path(home, log_id).unlink(missing_ok=True)


def _path(home: Home, log_id: str) -> Path:
    return home.custom_logs / log_id
