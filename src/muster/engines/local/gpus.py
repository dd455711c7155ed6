"""GPUs of this machine, each given to one node at a time.

A GPU is taken by holding a lock on a file of its own. The kernel lets go of it when the supervisor
that holds it ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from muster.errors import EngineError


def devices(root: Path = Path("/dev")) -> list[int]:
    """Numbers of the NVIDIA devices here (/dev/nvidia0, ...), those CUDA_VISIBLE_DEVICES names."""
    names = [name.removeprefix("nvidia") for name in os.listdir(root) if "nvidia" in name]
    present = sorted(int(name) for name in names if name.isdigit())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    named = {int(part) for part in visible.split(",") if part.strip().isdigit()}
    return [number for number in present if number in named]


class GpuPool:
    """GPUs held by one run. locks: the folder of lock files all runs share."""

    def __init__(self, locks: Path, numbers: Sequence[int]) -> None:
        self._locks = locks
        self._numbers = numbers
        self._held: dict[int, int] = {}  # GPU -> descriptor

    @property
    def size(self) -> int:
        """How many there are, free or not."""
        return len(self._numbers)

    def take(self, count: int) -> tuple[int, ...]:
        """`count` GPUs nobody holds. Raises EngineError, holding none of them, if too few are."""
        taken: list[int] = []
        self._locks.mkdir(parents=True, exist_ok=True)
        for number in self._numbers:
            if len(taken) == count:
                break
            if number not in self._held and self._lock(number):
                taken.append(number)
        if len(taken) < count:
            self.release(taken)
            raise EngineError(
                f"needs {count} GPUs, but only {len(taken)} of {len(self._numbers)} are free; "
                "other runs hold the rest (`muster runs list --state in_progress`)"
            )
        return tuple(taken)

    def release(self, numbers: Sequence[int]) -> None:
        """Give GPUs back."""
        for number in numbers:
            os.close(self._held.pop(number))

    def _lock(self, number: int) -> bool:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._locks / f"gpu-{number}", flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._held[number] = descriptor
        return True
