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

from muster.describe.log_entries import LogEntries
from muster.errors import StoreError
from muster.node.files import open_or_replace, replace_file
from muster.storage.home import RunDir
from muster.store.records import EventRecord

if TYPE_CHECKING:
    from muster.plan.model import Parameters
    from muster.store.base import Store


class ServiceLog:
    """Writes the service log of one run. arrays: the ranks of each array of the run. parameters: of
    one of them."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        folder: RunDir,
        arrays: Sequence[range] = (),
        parameters: Parameters | None = None,
    ) -> None:
        self._store = store
        self._arrays, self._parameters = arrays, parameters
        self._run_id = run_id
        self._path = folder.service_log
        self._written = 0  # number of the last written entry
        self._entries = LogEntries(lambda: arrays, lambda: parameters)

    def catch_up(self) -> None:
        """Write entries recorded since the last call. If that fails, the next call writes the whole
        file again: no run fails because of it."""
        try:
            new = self._store.events.since(self._run_id, self._written)
            if not new:
                return
            if not self._written:
                arrays, parameters = self._arrays, self._parameters
                self._entries = LogEntries(lambda: arrays, lambda: parameters)
            text = _lines(self._entries, new)
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


def _lines(shown: LogEntries, entries: Sequence[EventRecord]) -> bytes:
    lines = (
        f"{_time(entry.time)}  {text}\n"
        for entry in entries
        for text in shown.texts(entry.time, entry.kind, entry.data)
    )
    return "".join(lines).encode(errors="backslashreplace")


def _time(seconds: float) -> str:
    """RFC 3339, in UTC, to the millisecond."""
    whole, millis = divmod(int(seconds * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{millis:03}Z"
