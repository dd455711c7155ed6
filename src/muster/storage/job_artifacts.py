"""Artifacts of jobs of the OCI API, byte for byte as they were uploaded.

    job-artifacts/JOB/NAME      complete
    job-artifacts/JOB.part-X    is being received

They never change. The code that nodes get from them is stored as that of all jobs
(`storage.artifacts`).
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import IO

from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.identity import new_id
from muster.node.files import remove_tree
from muster.storage.disk_use import entries_of
from muster.storage.home import Home

#: Bytes of a file's name.
_LONGEST_NAME = 255
#: Seconds after which what is being received is given up.
_RECEIVED_WITHIN = 86400.0


class ReceivedFile(Struct, frozen=True):
    """An artifact that was received."""

    name: str
    size: int
    md5: str
    """In hexadecimal digits."""


class Receiver:
    """Receives one artifact. To be closed."""

    def __init__(self, home: Home, job_id: str, name: str) -> None:
        """name: of the file. Raises InvalidInput for what is not the name of a file."""
        check_name(name)
        self._home, self._job_id, self._name = home, job_id, name
        home.job_artifacts.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = home.job_artifacts / f"{job_id}.part-{new_id()}"
        self._folder.mkdir(mode=0o700)
        self._file: IO[bytes] = open(self._folder / name, "wb")  # noqa: SIM115  see `close`
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._size = 0

    @property
    def path(self) -> Path:
        """What was received so far."""
        return self._folder / self._name

    def write(self, part: bytes) -> None:
        """Add a part."""
        self._file.write(part)
        self._md5.update(part)
        self._size += len(part)

    def flush(self) -> ReceivedFile:
        """What was received, on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return ReceivedFile(self._name, self._size, self._md5.hexdigest())

    def keep(self) -> None:
        """Make it the job's artifact. It replaces one that a killed server has left unrecorded. One
        caller at a time may do so for a job."""
        remove(self._home, self._job_id)
        self._folder.rename(self._home.job_artifacts / self._job_id)

    def close(self) -> None:
        """Remove what was not kept."""
        self._file.close()
        remove_tree(str(self._folder))


def check_name(name: str) -> None:
    """Raises InvalidInput for what is not the name of a file."""
    if (
        not name
        or name in (".", "..")
        or "/" in name
        or not name.isprintable()
        or len(os.fsencode(name)) > _LONGEST_NAME
    ):
        raise InvalidInput(Problem("content-disposition", "has no valid name of a file"))


def artifact_path(home: Home, job_id: str, name: str) -> Path:
    """The artifact of a job."""
    return home.job_artifacts / job_id / name


def remove(home: Home, job_id: str) -> None:
    """Delete the artifact of a job, if it has one."""
    remove_tree(str(home.job_artifacts / job_id))


def remove_old(home: Home, now: float) -> None:
    """Delete what was being received when a server was killed. now: epoch seconds."""
    for path in entries_of(home.job_artifacts):
        if ".part-" in path.name and now - path.stat().st_mtime > _RECEIVED_WITHIN:
            remove_tree(str(path))
