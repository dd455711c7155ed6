"""Stacks of a run's threads, grouped by equal ones: they show what a hanging run waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from muster.lifecycle.ranks import format_ranks


class Frame(NamedTuple):
    """A call that has not returned."""

    function: str
    #: The path; below a node's working directory, the path in it.
    file: str
    line: int


class ThreadStack(NamedTuple):
    """The calls of one thread, the innermost first."""

    rank: int
    #: The process's pid on this machine.
    pid: int
    #: The thread's name, and whether it is the process's main thread.
    thread: str
    main: bool
    frames: tuple[Frame, ...]


class StackGroup(NamedTuple):
    """Threads with the same stack."""

    threads: tuple[ThreadStack, ...]

    @property
    def ranks(self) -> list[int]:
        """The ranks of the nodes, in order."""
        return sorted({stack.rank for stack in self.threads})

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The calls, the innermost first."""
        return self.threads[0].frames


def group(stacks: Iterable[ThreadStack]) -> list[StackGroup]:
    """Threads with the same stack, main threads first, then the largest group."""
    found: dict[tuple[bool, tuple[Frame, ...]], list[ThreadStack]] = {}
    for stack in stacks:
        found.setdefault((stack.main, stack.frames), []).append(stack)
    groups = [StackGroup(tuple(threads)) for threads in found.values()]
    return sorted(groups, key=lambda one: (not one.threads[0].main, -len(one.threads), one.ranks))


def lines(one: StackGroup) -> Iterator[str]:
    """The text of a group: who, then the calls, the innermost last, as in a traceback."""
    plural = "s" if len(one.ranks) > 1 else ""
    names = sorted({stack.thread for stack in one.threads})
    who = "" if one.threads[0].main else f", thread {', '.join(names)}"
    count = len({stack.pid for stack in one.threads})
    several = f" ({count} processes)" if count > len(one.ranks) else ""
    yield f"rank{plural} {format_ranks(one.ranks)}{several}{who}:"
    for frame in reversed(one.frames):
        yield f"    {frame.function} ({frame.file}:{frame.line})"
