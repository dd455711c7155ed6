"""CPUs, memory and GPUs of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct


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


def count_cpus() -> int:
    """The number of CPUs that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def count_memory() -> int:
    """Bytes of memory: the machine's, or fewer if a control group limits this process."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(memory, memory_limit() or memory)


def memory_limit(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> int | None:
    """The lowest memory limit (bytes) of this process's control groups; None without a limit.

    root: where control groups are mounted. own: the file that lists this process's groups.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, file = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, file = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        limits += [_read_number(f"{top}/{group}/{file}") for group in _ancestry(path.strip("/"))]
    return min((limit for limit in limits if limit is not None), default=None)


def _ancestry(group: str) -> Iterator[str]:
    """The path of a group, then those of its parents; the root's, which is empty, last."""
    while group:
        yield group
        group = group.rpartition("/")[0]
    yield ""


def _read_number(file: str) -> int | None:
    try:
        with open(file, "rb") as opened:
            text = opened.read().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def gpu_numbers(root: Path = Path("/dev")) -> list[int]:
    """Numbers of the NVIDIA devices (/dev/nvidia0, ...) that CUDA_VISIBLE_DEVICES allows."""
    names = [name.removeprefix("nvidia") for name in os.listdir(root) if "nvidia" in name]
    present = sorted(int(name) for name in names if name.isdigit())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    allowed = {int(part) for part in visible.split(",") if part.strip().isdigit()}
    return [number for number in present if number in allowed]
