"""The GPUs of one run, and which of its nodes has which of them."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from muster.engines.reservations.demands import count_gpus
from muster.errors import EngineError
from muster.file_locks import try_flock
from muster.unix_account import as_root


class RunGpus(Struct, frozen=True):
    """The GPUs of one run."""

    #: How many it may be given; nodes share as many.
    visible: int = 0
    #: Returns the numbers of those that it has by now: scaling it up may have added some.
    numbers: Callable[[], Sequence[int]] = tuple


#: Those of a run that uses none.
NO_GPUS = RunGpus()

#: Seconds for the kernel to release the locks of a supervisor that was killed.
_RELEASE_TIMEOUT = 5.0


class GpuPool:
    """The GPUs that one run was given. Each GPU is given to one node of one run at a time.

    A node's GPU is also held by a lock on a file, which versions of Muster without reservations
    look at. The kernel releases the lock when the supervisor ends, however it ends. locks: the
    folder of lock files, shared by all runs. numbers: returns the GPUs that the run has by now.
    """

    def __init__(self, locks: Path, numbers: Callable[[], Sequence[int]]) -> None:
        self._locks = locks
        self._numbers = numbers
        self._held: dict[int, int] = {}  # GPU number -> descriptor of its lock

    @as_root()
    def acquire(self, count: int) -> tuple[int, ...]:
        """Hold `count` of the run's GPUs and return their numbers. Raises EngineError, holding
        none of them, if fewer are free."""
        taken: list[int] = []
        self._locks.mkdir(parents=True, exist_ok=True)
        numbers = self._numbers()
        own = sum(number in self._held for number in numbers)
        for number in numbers:
            if len(taken) == count:
                break
            if number not in self._held and self._lock(number):
                taken.append(number)
        if len(taken) < count:
            self.release(taken)
            free, total = len(taken), len(numbers)
            texts = [f"needs {count_gpus(count)}, but only {free} of the run's {total} are free"]
            if own:
                texts.append(f"its other nodes hold {own}")
            if others := total - own - free:  # which took them without a reservation
                texts.append(
                    f"runs of an earlier version of Muster hold {others} "
                    "(`muster ps --state in_progress`)"
                )
            raise EngineError("; ".join(texts))
        return tuple(taken)

    def release(self, numbers: Sequence[int]) -> None:
        """Free these GPUs for other nodes of the run, and for other runs once it has ended."""
        for number in numbers:
            os.close(self._held.pop(number))

    def _lock(self, number: int) -> bool:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        path = self._locks / f"gpu-{number}"
        descriptor = os.open(path, flags, 0o600)
        if not _flock(descriptor, path):
            os.close(descriptor)
            return False
        self._held[number] = descriptor
        return True

    @as_root()
    def locked(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Those of the GPUs that nodes of any run hold."""
        return tuple(number for number in numbers if _is_locked(self._locks / f"gpu-{number}"))


def _flock(descriptor: int, path: Path) -> bool:
    """Lock a file, waiting a moment: the run that had the GPU has ended, and if it was killed, the
    kernel may not have released its lock yet."""
    if try_flock(descriptor, fcntl.LOCK_EX, path):
        return True
    waiting = threading.Thread(target=fcntl.flock, args=(descriptor, fcntl.LOCK_EX), daemon=True)
    waiting.start()
    waiting.join(_RELEASE_TIMEOUT)
    return not waiting.is_alive()


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # no node has ever held it
    try:
        return not try_flock(descriptor, fcntl.LOCK_SH, path)
    finally:
        os.close(descriptor)
