"""CPUs, memory and GPUs: what this machine has, and how much of it each node gets."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from muster.errors import EngineError
from muster.file_locks import flock
from muster.plan.model import GroupPlan, ResourcePlan, RunPlan
from muster.spec.quantities import format_size

# --- the machine


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


# --- demands, shares and limits of nodes


class Demand(Struct, frozen=True):
    """What the machine must have for a node; None for any amount."""

    cpus: float | None
    #: Bytes.
    memory: int | None
    gpus: int


def demand_of(resources: ResourcePlan) -> Demand:
    """What a node of a group demands. What its shape has is reduced to what the machine has."""
    return Demand(
        resources.cpus if resources.demands("cpus") else None,
        resources.memory if resources.demands("memory") else None,
        resources.gpus if resources.demands("gpus") else 0,
    )


def uses_gpus(plan: RunPlan) -> bool:
    """Whether nodes get GPUs, if the machine has some: demanded ones, or those of a shape."""
    return any(group.resources.gpus for group in plan.groups)


class Limits(Struct, frozen=True):
    """The limits that control groups enforce for a node; None for no limit."""

    cpus: float | None
    #: Bytes.
    memory: int | None


def limits_of(resources: ResourcePlan, machine: Machine) -> Limits:
    """The limits of a node. A shape that is larger than the machine limits nothing."""
    demand, cpus, memory = demand_of(resources), resources.cpus, resources.memory
    if demand.cpus is None and cpus is not None and cpus >= machine.cpus:
        cpus = None
    if demand.memory is None and memory is not None and memory >= machine.memory:
        memory = None
    return Limits(cpus, memory)


def may_reserve(plan: RunPlan) -> bool:
    """Whether a run may need resources that no other run can have at the same time; cheap."""
    demands = (demand_of(group.resources) for group in plan.groups)
    return uses_gpus(plan) or any(one.cpus or one.memory for one in demands)


def share_of_cpus(plan: RunPlan, group: GroupPlan, machine: Machine) -> int:
    """How many CPUs a node of this group should use: its limit or, without one, an equal share of
    the machine. At least 1."""
    limit = limits_of(group.resources, machine).cpus
    return max(1, int(machine.cpus // plan.policy.initial_size if limit is None else limit))


def share_of_memory(plan: RunPlan, group: GroupPlan, machine: Machine) -> int:
    """How many bytes of memory a node of this group should use, by the same rule as CPUs."""
    limit = limits_of(group.resources, machine).memory
    return machine.memory // plan.policy.initial_size if limit is None else limit


def describe_limits(resources: ResourcePlan, machine: Machine) -> str:
    """What each node of a group may use, as a phrase; "" if the job sets no resources."""
    limits = limits_of(resources, machine)
    parts = []
    if limits.cpus is not None:
        parts.append(f"{limits.cpus:g} CPU{'s' * (limits.cpus != 1)}")
    if limits.memory is not None:
        parts.append(f"{format_size(limits.memory)} of memory")
    if resources.gpus and machine.gpus:
        exact = "" if resources.demands("gpus") else " at most"
        parts.append(count_gpus(min(resources.gpus, machine.gpus)) + exact)
    phrase = f"each node has {', '.join(parts)}"
    if resources.shape is None:
        return phrase if parts else ""
    if not parts:
        return f"shape {resources.shape}: each node has what this machine has"
    return f"shape {resources.shape}: {phrase}"


def count_gpus(count: int) -> str:
    """ "1 GPU" or "2 GPUs"."""
    return "1 GPU" if count == 1 else f"{count} GPUs"


def share_of_gpus(plan: RunPlan, rank: int, available: int) -> int:
    """How many GPUs a node gets: what the job demands for it, or what its shape has.

    When shapes together have more GPUs than demands leave, the remaining ones are divided equally,
    lower ranks first.
    """
    resources = plan.group_of(rank).resources
    if resources.demands("gpus") or not resources.gpus:
        return resources.gpus
    sizes = [
        (group, policy.initial * policy.nodes)
        for group, policy in zip(plan.groups, plan.policy.groups, strict=True)
        if group.resources.gpus
    ]
    demanded = sum(g.resources.gpus * n for g, n in sizes if g.resources.demands("gpus"))
    shaped = [(g, n) for g, n in sizes if not g.resources.demands("gpus")]
    left = max(0, available - demanded)
    if sum(group.resources.gpus * nodes for group, nodes in shaped) <= left:
        return resources.gpus
    first_ranks = [group.first_rank for group, _ in shaped if group.first_rank <= rank]
    position = sum(n for g, n in shaped if g.first_rank < first_ranks[-1]) + rank - first_ranks[-1]
    share, more = divmod(left, sum(nodes for _, nodes in shaped))
    return min(resources.gpus, share + (position < more))


def count_gpus_of(plan: RunPlan, replicas: Mapping[str, int], available: int) -> int:
    """How many GPUs the nodes of a run get together. replicas: how many of each group. More than
    are available if nodes were added, or demand too many."""
    return sum(
        share_of_gpus(plan, rank, available)
        for group in plan.groups
        if group.resources.gpus
        for rank in range(group.first_rank, group.first_rank + replicas[group.name] * group.nodes)
    )


# --- GPUs


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

    def locked(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Those of the GPUs that nodes of any run hold."""
        return tuple(number for number in numbers if _is_locked(self._locks / f"gpu-{number}"))


def _flock(descriptor: int, path: Path) -> bool:
    """Lock a file, waiting a moment: the run that had the GPU has ended, and if it was killed, the
    kernel may not have released its lock yet."""
    try:
        flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, path)
    except BlockingIOError:
        waiting = threading.Thread(
            target=fcntl.flock, args=(descriptor, fcntl.LOCK_EX), daemon=True
        )
        waiting.start()
        waiting.join(_RELEASE_TIMEOUT)
        return not waiting.is_alive()
    return True


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # no node has ever held it
    try:
        flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, path)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
