"""What all nodes on this machine can use together."""

from __future__ import annotations

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
    """Measure this machine."""
    return Machine(count_cpus(), count_memory(), len(gpu_numbers()))
