"""The file with what Muster says of a run, beside what its nodes write.

It repeats entries of the run's event log, which are the truth, for whoever has the files alone.
Whoever drives the run writes it: at first whole, since a predecessor may have been killed between
recording an entry and writing it here, and from then on what is new.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from muster.errors import StoreError
from muster.lifecycle.sentences import in_log, sentence
from muster.node.files import open_own, replace_file
from muster.secrets import hidden
from muster.storage.home import RunDir
from muster.store import events
from muster.store.database import Database
from muster.store.records import EventRecord


class ServiceLog:
    """One life of writing it."""

    def __init__(self, db: Database, run_id: str, folder: RunDir) -> None:
        self._db = db
        self._run_id = run_id
        self._path = folder.service_log
        self._written = 0  # number of the last entry that was

    def catch_up(self) -> None:
        """Write what was recorded since the last time. What cannot be written now is written
        another time, in a whole new file: no run fails of it."""
        try:
            new = events.since(self._db, self._run_id, self._written)
            if not new:
                return
            text = _lines(new)
            if self._written:
                _append(self._path, text)
            else:
                self._path.parent.mkdir(exist_ok=True)  # not the run's folder, if that is gone
                replace_file(self._path, text)
            self._written = new[-1].seq
        except (OSError, ImportError, StoreError):  # with all files open, nothing is imported
            self._written = 0


def _append(path: os.PathLike[str], text: bytes) -> None:
    if not text:
        return
    descriptor = open_own(path, os.O_WRONLY | os.O_APPEND)
    try:
        if os.write(descriptor, text) < len(text):
            raise OSError("no room for all of it")
    finally:
        os.close(descriptor)


def _lines(entries: Sequence[EventRecord]) -> bytes:
    lines = (
        f"{_time(entry.time)}  {sentence(entry.kind, hidden(entry.data))}\n"
        for entry in entries
        if in_log(entry.kind, entry.data)
    )
    return "".join(lines).encode(errors="backslashreplace")


def _time(seconds: float) -> str:
    """RFC 3339, in UTC, to the millisecond."""
    whole, millis = divmod(int(seconds * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{millis:03}Z"
