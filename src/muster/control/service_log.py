"""The service log: a file with Muster's messages about a run, next to the output of its nodes.

It repeats entries of the run's event log, for readers who have only the files. The supervisor
writes it: first as a whole, since its predecessor may have been killed between recording an entry
and writing it here, then new entries only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.describe.events import in_log, sentence
from muster.errors import StoreError
from muster.node.files import open_or_replace, replace_file
from muster.secrets import hidden
from muster.storage.home import RunDir
from muster.store.records import EventRecord

if TYPE_CHECKING:
    from muster.store.base import Store


class ServiceLog:
    """Writes the service log of one run."""

    def __init__(self, store: Store, run_id: str, folder: RunDir) -> None:
        self._store = store
        self._run_id = run_id
        self._path = folder.service_log
        self._written = 0  # number of the last written entry

    def catch_up(self) -> None:
        """Write entries recorded since the last call. If that fails, the next call writes the whole
        file again: no run fails because of it."""
        try:
            new = self._store.events.since(self._run_id, self._written)
            if not new:
                return
            text = _lines(new)
            if self._written:
                _append(self._path, text)
            else:
                self._path.parent.mkdir(
                    exist_ok=True
                )  # not the run's folder, which may have been deleted
                replace_file(self._path, text)
            self._written = new[-1].seq
        # at the limit of open files, an import fails
        except (OSError, ImportError, StoreError):
            self._written = 0


def _append(path: os.PathLike[str], text: bytes) -> None:
    if not text:
        return
    descriptor = open_or_replace(path, os.O_WRONLY | os.O_APPEND)
    try:
        if os.write(descriptor, text) < len(text):
            raise OSError("disk full: only a part was written")
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
