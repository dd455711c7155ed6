"""Folders that somebody works in for a while, and that go even if nobody tidied up."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """A folder of our own below `parent`, gone afterwards.

    One that belonged to a process that was killed is removed by the next to come: while somebody
    lives, the folder is locked.
    """
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(parent):  # nobody sweeps between our making it and our locking it
        _sweep(parent)
        folder = parent / os.urandom(6).hex()
        folder.mkdir(mode=0o700)
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sweep(parent: Path) -> None:
    for folder in parent.iterdir():
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # its owner was faster
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass  # somebody works in it
        finally:
            os.close(descriptor)
