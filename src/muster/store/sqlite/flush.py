"""Wait until committed transactions are on the disk, for several threads at once.

SQLite would flush its write-ahead log within each durable transaction, while others wait for their
turn to write. Here, a transaction is committed without that, and its thread waits afterwards:
threads that wait at the same time are served by one flush. What SQLite has copied from the log into
the database by then, it has flushed itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock

from muster.errors import StoreError

# macOS has no fdatasync
_flush_file = getattr(os, "fdatasync", os.fsync)


class Flush:
    """Flushes one file. Threads may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._flushing = Lock()
        #: Calls of `wait` so far, and those of them whose data is on the disk.
        self._calls = self._flushed = 0

    def wait(self) -> None:
        """Return when all that was written to the file before this call is on the disk. Nothing if
        the file was deleted. Raises StoreError."""
        with self._lock:
            self._calls += 1
            call = self._calls
        with self._flushing:
            if call <= self._flushed:
                return  # by the thread that was before this one
            calls = self._calls
            self._flush()
            self._flushed = calls

    def _flush(self) -> None:
        try:
            # closing it releases no lock: SQLite locks other files
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._error(error) from None
        try:
            _flush_file(descriptor)
        except OSError as error:
            raise self._error(error) from None
        finally:
            os.close(descriptor)

    def _error(self, error: OSError) -> StoreError:
        text = f"cannot write {self._path} to the disk: {error.strerror}"
        return StoreError(f"{text}; what was recorded last may be lost if the machine stops")
