"""What all nodes on this machine can use together."""

from __future__ import annotations

import time
from functools import lru_cache

from msgspec import Struct

from muster.node.machine import count_cpus, count_memory, gpu_numbers


class Machine(Struct, frozen=True):
    """What all nodes together can use."""

    #: CPUs that this process may run on.
    cpus: int
    #: Bytes.
    memory: int
    #: Number of GPUs.
    gpus: int


def this_machine() -> Machine:
    """Measure this machine. The limit of its memory may have been read up to a second ago: a server
    plans hundreds of runs a second, and each file that is read lets another thread go first."""
    return Machine(count_cpus(), _memory(int(time.monotonic())), len(gpu_numbers()))


@lru_cache(maxsize=1)
def _memory(_second: int) -> int:
    return count_memory()
