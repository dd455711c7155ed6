"""Read from /proc what the processes of nodes use."""

from __future__ import annotations

import os
from typing import Collection, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Tuple

#: Ticks of CPU time in a second, and bytes of a page.
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Counters(NamedTuple):
    """What the processes of one node use now, and have used since it started.

    An engine that has its nodes measured by others may know `cpus` and `memory` only: what it does
    not know is None.
    """

    #: Seconds of CPU time, that of ended processes included.
    cpu: float | None
    #: Bytes, with each page that processes share counted once; None if not measured.
    memory: int | None
    #: Bytes read from and written to disks, by ended processes too; 0 if the system does not tell.
    disk_read: int | None
    disk_written: int | None
    #: Bytes received and sent; None for a node that shares the machine's network.
    received: int | None
    sent: int | None
    #: How many processes run.
    processes: int | None
    #: How many GPUs are busy (1.5: one always, one half the time), and their memory in bytes; None
    #: for a node without GPUs.
    gpus: float | None = None
    gpu_memory: int | None = None
    #: How many CPUs were busy lately, where that is measured and not `cpu`.
    cpus: float | None = None


class Process(NamedTuple):
    """A line of /proc/PID/stat."""

    pid: int
    parent: int
    #: Ticks of its own CPU time, and of that of its children that have ended.
    own: int
    ended: int
    #: Pages in memory.
    pages: int


class NodeReading(NamedTuple):
    """The counters of a node, and the CPU time of its agent, which they do not contain."""

    counters: Counters
    #: Seconds.
    agent_cpu: float


def read_nodes(agents: Collection[int], *, memory: bool = True) -> Dict[int, NodeReading]:
    """What the nodes of these agents use, by the agent's pid; without those that have ended.

    The time and the input and output of an ended process are added to those of the parent that
    waited for it. Orphans become children of the agent. So the sum over the processes that exist
    is that of all that ever existed.
    """
    table = {process.pid: process for process in _processes()}
    children = _children(table.values())
    found = {}
    for pid in agents:
        if (agent := table.get(pid)) is not None:
            tree = _descendants(pid, children)
            found[pid] = NodeReading(_counters(agent, tree, memory=memory), agent.own / _TICKS)
    return found


def read_idle_node(agent: int) -> NodeReading | None:
    """What a node uses of which no process is left but the agent; None if that has ended too."""
    process = _process(agent)
    if process is None:
        return None
    return NodeReading(_counters(process, [], memory=False), process.own / _TICKS)


def processes_of(agents: Collection[int]) -> Dict[int, List[int]]:
    """The pids of the processes of these agents' nodes, without the agents, by the agent's pid."""
    children = _children(_processes())
    return {pid: [process.pid for process in _descendants(pid, children)] for pid in agents}


def _processes() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := _process(int(name))) is not None:
            yield process


def _process(pid: int) -> Process | None:
    data = _read(f"/proc/{pid}/stat")
    if not data:
        return None
    words = data.rpartition(b")")[2].split()
    user, system, ended_user, ended_system = map(int, words[11:15])
    parent, pages = int(words[1]), int(words[21])
    return Process(pid, parent, user + system, ended_user + ended_system, pages)


def _children(processes: Iterable[Process]) -> Dict[int, List[Process]]:
    children: Dict[int, List[Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    return children


def _descendants(pid: int, children: Mapping[int, List[Process]]) -> List[Process]:
    found: List[Process] = []
    parents = [pid]  # not a recursion: a program may start a chain of any length
    while parents:
        born = children.get(parents.pop(), [])
        found += born
        parents += [child.pid for child in born]
    return found


def _counters(agent: Process, tree: List[Process], *, memory: bool) -> Counters:
    ticks = agent.ended + sum(process.own + process.ended for process in tree)
    read = written = 0
    for process in (agent, *tree):
        for line in _read(f"/proc/{process.pid}/io").splitlines():
            name, _, value = line.partition(b": ")
            if name == b"read_bytes":
                read += int(value)
            elif name == b"write_bytes":
                written += int(value)
    received, sent = _network(agent.pid)
    return Counters(
        cpu=ticks / _TICKS,
        memory=sum(map(_memory, tree)) if memory else None,
        disk_read=read,
        disk_written=written,
        received=received,
        sent=sent,
        processes=len(tree),
    )


def _memory(process: Process) -> int:
    """Bytes of memory, with a page that N processes share counted as an Nth of it."""
    for line in _read(f"/proc/{process.pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return process.pages * _PAGE  # an old kernel, or a process of another user


def _network(pid: int) -> Tuple[int | None, int | None]:
    """Bytes received and sent by the interfaces of a node with a network of its own."""
    try:
        if os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            return None, None
    except OSError:
        return None, None
    received = sent = 0
    for line in _read(f"/proc/{pid}/net/dev").splitlines()[2:]:
        name, _, values = line.partition(b":")
        if name.strip() != b"lo":
            words = values.split()
            received, sent = received + int(words[0]), sent + int(words[8])
    return received, sent


def _read(path: str) -> bytes:
    """A file of /proc; empty if the process has ended, or belongs to another user."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
