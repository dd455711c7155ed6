"""Control groups of a node: they limit its CPUs and memory, and hold all of its processes.

Control groups of version 1 (a hierarchy for each controller) and version 2 (one for all) work. The
groups of a node are created below the one that Muster runs in or, where that can have none, below
the next one above it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

from muster.node import machine

_ROOT, _OWN = "/sys/fs/cgroup", "/proc/self/cgroup"
_PERIOD = 100_000  # microseconds, the kernel's default
_PREFIX = "muster-"
#: The controllers of limits, and what they limit, for people.
LIMITED = {"cpu": "CPUs", "memory": "memory"}
#: Controllers of version 1 whose groups hold processes and change nothing else.
_HOLDERS = ("freezer", "pids")
#: The file of a group that counts processes which were killed at its memory limit, in version 1 and
#: 2.
_OOM_COUNTS = ("memory.oom_control", "memory.events")
#: Seconds that killed processes get to end, and between two looks.
_END_TIMEOUT, _PAUSE = 10.0, 0.005


class CannotLimit(Exception):  # noqa: N818
    """The text says what this machine lacks."""


class Hierarchy(NamedTuple):
    """Where groups of one controller can be created."""

    controller: str
    #: The group to create them in.
    parent: str
    #: Version of control groups: 1 or 2.
    version: int


class Amounts(NamedTuple):
    """What a node may use of its machine; None: no limit."""

    cpus: float | None = None
    #: Bytes.
    memory: int | None = None
    #: The controllers (`LIMITED`) of those that the machine has to have, and to limit. Others are
    #: reduced to what it has.
    required: Sequence[str] = ()


def hierarchies(root: str = _ROOT, own: str = _OWN) -> Dict[str, Hierarchy]:
    """Where groups for the controllers `cpu` and `memory` can be created, by controller. A
    controller is missing if its groups are not writable.

    root: where control groups are mounted. own: the file that lists this process's groups.
    """
    found: Dict[str, Hierarchy] = {}
    for controllers, path in _groups_of(own):
        if controllers == [""]:
            # a process has one group for all controllers: the first with most of them
            parents = [one for one in _ancestry(root, path) if _writable(one)]
            parent = max(parents, key=lambda one: len(_delegated(one)), default="")
            for name in _delegated(parent):
                found.setdefault(name, Hierarchy(name, parent, 2))
        for name in controllers:
            parent = _join(root, name, path)
            if name in LIMITED and _writable(parent):
                found[name] = Hierarchy(name, parent, 1)
    return found


def _holder(root: str = _ROOT, own: str = _OWN) -> str | None:
    """A group in which others can be created that hold processes; None if there is none."""
    parents = {
        name: _join(root, name, path)
        for controllers, path in _groups_of(own)
        for name in controllers
        if name in ("", *_HOLDERS)
    }
    candidates = [parents[name] for name in ("", *_HOLDERS) if name in parents]
    is_group = (os.path.exists(os.path.join(one, "cgroup.procs")) for one in candidates)
    usable = (one for one, is_one in zip(candidates, is_group) if is_one)  # noqa: B905
    return next((one for one in usable if _writable(one)), None)


def _groups_of(file: str) -> List[Tuple[List[str], str]]:
    """The controllers of each hierarchy, and the path of the group in it. A hierarchy of version 2
    has the controller "". file: as /proc/PID/cgroup."""
    try:
        with open(file) as opened:
            lines = opened.read().splitlines()
    except OSError:
        return []
    parts = [line.split(":", 2) for line in lines]
    return [(controllers.split(","), path) for _, controllers, path in parts]


def _join(root: str, name: str, path: str) -> str:
    return os.path.join(root, name, path.strip("/")).rstrip("/")


def _ancestry(root: str, path: str) -> Iterator[str]:
    """A group of version 2, and those above it."""
    path = path.strip("/")
    while path:
        yield os.path.join(root, path)
        path = path.rpartition("/")[0]
    yield root


def _writable(folder: str) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.W_OK)


def _delegated(parent: str) -> List[str]:
    try:
        with open(os.path.join(parent, "cgroup.subtree_control")) as file:
            enabled = file.read().split()
    except OSError:
        return []
    return [name for name in LIMITED if name in enabled]


def unenforceable(needed: Sequence[str]) -> List[str]:
    """Which of these controllers have no writable groups on this machine."""
    available = hierarchies()
    return [name for name in needed if name not in available]


def usable_limits() -> List[str]:
    """The controllers with which this process can limit nodes, as was tried."""
    return [name for name in hierarchies() if not _why_unusable(name)]


def _why_unusable(name: str) -> str:
    """Why nodes cannot be limited by a controller, for people; "" if they can. Tries it."""
    if name not in hierarchies():
        return "no control groups that this user may change"
    cpus, memory = (1.0, None) if name == "cpu" else (None, 1 << 30)
    try:
        groups = NodeGroups(_unique_name(), cpus, memory)
        try:
            admitted = groups.admit()
        finally:
            groups.end()
    except OSError as error:
        return "%s: %s" % (error.filename, error.strerror)
    return "" if admitted else "this user may not move processes into its control groups"


def check(amounts: Amounts) -> None:
    """Raises CannotLimit if this machine lacks what is required."""
    has = {"cpu": machine.count_cpus(), "memory": machine.count_memory()}
    wanted = {"cpu": amounts.cpus, "memory": amounts.memory}
    for name in amounts.required:
        need = wanted[name]
        if need is not None and need > has[name]:
            words = (_amount(name, has[name]), _amount(name, need))
            raise CannotLimit("it has %s, and a node needs %s" % words)
    for name in amounts.required:
        if wanted[name] is not None and (why := _why_unusable(name)):
            raise CannotLimit("it cannot limit the %s of nodes (%s)" % (LIMITED[name], why))


def _amount(name: str, value: float) -> str:
    """For people."""
    if name == "cpu":
        return "1 CPU" if value == 1 else "%g CPUs" % value
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return "%.3g %s of memory" % (value / size, unit)
    return "%d bytes of memory" % value


def reduced(amounts: Amounts) -> Amounts:
    """The limits of a node on this machine: without those of which the machine has no more, unless
    they are required, and without those that it cannot limit."""
    missing = unenforceable([name for name in LIMITED if name not in amounts.required])
    cpus, memory = amounts.cpus, amounts.memory
    if "cpu" not in amounts.required and cpus is not None:
        cpus = None if "cpu" in missing or cpus >= machine.count_cpus() else cpus
    if "memory" not in amounts.required and memory is not None:
        memory = None if "memory" in missing or memory >= machine.count_memory() else memory
    return amounts._replace(cpus=cpus, memory=memory)


class NodeGroups:
    """The control groups of one node. name: unique on this machine. hold: whether it has a group
    also without limits, if this machine lets it have one. Raises OSError.

    A limit that this machine cannot enforce is left out.
    """

    def __init__(
        self, name: str, cpus: float | None, memory: int | None, *, hold: bool = False
    ) -> None:
        #: Their paths.
        self.paths: List[str] = []
        self._memory: str | None = None
        try:
            self._make(name, cpus, memory)
            if hold and not self.paths and (parent := _holder()) is not None:
                self._create(parent, name)
        except OSError:
            self.remove()
            raise

    @classmethod
    def of_container(cls, root: str = _ROOT) -> NodeGroups:
        """What limits a node is the container in which this process is: its own group is mounted
        as the root of each hierarchy. root: where control groups are mounted."""
        made = cls("", None, None)
        places = (os.path.join(root, "memory"), root)
        made._memory = next((one for one in places if _counts_oom_kills(one)), None)
        return made

    def _make(self, name: str, cpus: float | None, memory: int | None) -> None:
        available = hierarchies() if cpus is not None or memory is not None else {}
        if cpus is not None and "cpu" in available:
            group = self._create(available["cpu"].parent, name)
            quota = max(1000, int(cpus * _PERIOD))
            if available["cpu"].version == 1:
                _write(os.path.join(group, "cpu.cfs_quota_us"), str(quota))
            else:
                _write(os.path.join(group, "cpu.max"), "%d %d" % (quota, _PERIOD))
        if memory is not None and "memory" in available:
            group = self._create(available["memory"].parent, name)
            limit = "memory.limit_in_bytes" if available["memory"].version == 1 else "memory.max"
            _write(os.path.join(group, limit), str(memory))
            self._memory = group

    def _create(self, parent: str, name: str) -> str:
        group = os.path.join(parent, _PREFIX + name)
        with contextlib.suppress(FileExistsError):
            os.mkdir(group)
        if group not in self.paths:
            self.paths.append(group)
        return group

    def join(self) -> None:
        """Move the calling process into the groups. Its future children are in them too. Raises
        OSError."""
        for group in self.paths:
            _write(os.path.join(group, "cgroup.procs"), "0")

    def admit(self) -> bool:
        """Whether processes of this user can join the groups: one that is forked tries."""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self.join()
                code = 0
            finally:
                os._exit(code)
        return os.waitpid(pid, 0)[1] == 0

    def oom_kill_count(self) -> int:
        """How many processes of the node the kernel has killed at its memory limit."""
        if self._memory is None:
            return 0
        for name in _OOM_COUNTS:
            with contextlib.suppress(OSError), open(os.path.join(self._memory, name)) as file:
                for line in file.read().splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        return 0

    def remove(self) -> None:
        """Remove the groups; the node's processes have ended."""
        for group in self.paths:
            with contextlib.suppress(OSError):  # a process is exiting: others remove it later
                os.rmdir(group)
        self.paths.clear()

    def end(self) -> List[int]:
        """Kill what is left in the groups, and remove them. Returns the pids that do not end."""
        left = end_groups(self.paths)
        self.paths.clear()
        return left


def _counts_oom_kills(group: str) -> bool:
    return any(os.path.exists(os.path.join(group, name)) for name in _OOM_COUNTS)


def unique_groups() -> Tuple[str, List[str]]:
    """A name for the groups of a node, which no other has, and where they will be."""
    name = _unique_name()
    parents = {one.parent for one in hierarchies().values()} | {_holder()}
    return name, sorted(os.path.join(one, _PREFIX + name) for one in parents if one is not None)


def _unique_name() -> str:
    return "node-" + os.urandom(8).hex()


def end_groups(paths: Sequence[str]) -> List[int]:
    """Kill all processes in groups of nodes, and those below them, and remove the groups. Paths of
    groups that do not exist, or are not of nodes, are ignored. Returns the pids of the processes
    that do not end."""
    deadline = time.monotonic() + _END_TIMEOUT
    left: List[int] = []
    for path in paths:
        if not os.path.basename(path).startswith(_PREFIX):
            continue
        while not _remove(path):
            left = _kill(path)
            if time.monotonic() > deadline:
                return left
            time.sleep(_PAUSE)  # they are no children of this process
    return []


def _remove(path: str) -> bool:
    """Remove a group and those below it. Returns whether it does not exist any more."""
    for folder, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):  # a process is in it
            os.rmdir(folder)
    return not os.path.isdir(path)


def _kill(path: str) -> List[int]:
    """Kill the processes in a group, and in those below it. Returns their pids."""
    found = []
    for folder, _, _ in os.walk(path):
        with contextlib.suppress(OSError), open(os.path.join(folder, "cgroup.procs")) as file:
            # 0: a process that cannot be seen from here, in another PID namespace
            found += [pid for pid in map(int, file.read().split()) if pid]
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return found


def join_groups_of(pid: int, root: str = _ROOT, processes: str = "/proc") -> None:
    """Move the calling process into the node's groups that process `pid` is in. Raises OSError.

    root: where control groups are mounted. processes: where /proc is.
    """
    with open("%s/%d/cgroup" % (processes, pid)) as file:
        lines = file.read().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if os.path.basename(path).startswith(_PREFIX):
            group = _join(root, controllers.split(",")[0], path)
            _write(os.path.join(group, "cgroup.procs"), "0")


def remove_groups_of(run_id: str) -> None:
    """Remove the control groups that a killed supervisor of this run left behind."""
    for hierarchy in hierarchies().values():
        start = "%s%s-" % (_PREFIX, run_id)
        for name in os.listdir(hierarchy.parent):
            if name.startswith(start):
                with contextlib.suppress(OSError):  # busy: its last process is still exiting
                    os.rmdir(os.path.join(hierarchy.parent, name))


def _write(path: str, text: str) -> None:
    """Raises OSError with the path."""
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
