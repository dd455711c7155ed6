"""Temporary folders that are removed even if their process is killed."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from muster.file_locks import flock, try_flock


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Create a folder below `parent` that is removed at the end of the context.

    A process locks its folder while it runs. The folder of a process that was killed is not locked,
    and is removed by the next call.
    """
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _lock(parent):  # no process removes the folder before it is locked
        _remove_unlocked(parent)
        folder = parent / os.urandom(6).hex()
        folder.mkdir(mode=0o700)
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        flock(descriptor, fcntl.LOCK_EX, folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        flock(descriptor, fcntl.LOCK_EX, path)
        yield
    finally:
        os.close(descriptor)


def remove_abandoned(parent: Path) -> None:
    """Remove the temporary folders of processes that were killed."""
    if parent.is_dir():
        with _lock(parent):
            _remove_unlocked(parent)


def _remove_unlocked(parent: Path) -> None:
    for folder in parent.iterdir():
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # removed by its owner
        try:
            if try_flock(descriptor, fcntl.LOCK_EX, folder):  # else it is in use
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)
