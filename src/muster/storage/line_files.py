"""Files to which several processes add lines, and that keep a limit.

A file that is too large loses its older half. Readers that have it open still read all of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from fcntl import LOCK_EX
from pathlib import Path
from typing import IO

from muster.file_locks import flock


def append(path: Path, data: bytes, most: int) -> None:
    """Add lines to a file. data: ends with a line feed. most: bytes that the file may have. Raises
    NoLocks, OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(path) as file:
        file.write(data)
        file.flush()
        if file.tell() > most:
            _drop_older_half(path)


def _locked(path: Path) -> IO[bytes]:
    """The file, open and locked. Not one that has been replaced or deleted while this waited: what
    is written there would be lost."""
    while True:
        file = open(path, "ab")  # noqa: SIM115  the caller closes it
        try:
            flock(file.fileno(), LOCK_EX, path)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:  # it was deleted
            pass
        except BaseException:
            file.close()
            raise
        file.close()


def _drop_older_half(path: Path) -> None:
    """With the lock."""
    part = path.with_suffix(".part")
    with open(path, "rb") as old, open(part, "wb") as new:
        old.seek(path.stat().st_size // 2)
        old.readline()
        while block := old.read(1 << 20):
            new.write(block)
    os.replace(part, path)


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, in the order in which they were added; none if there is no file."""
    try:
        file = open(path, "rb")  # noqa: SIM115  closed below
    except FileNotFoundError:
        return
    with file:
        for line in file:
            if line.endswith(b"\n"):  # one that is being written has no end yet
                yield line
