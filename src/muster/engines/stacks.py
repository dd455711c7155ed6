"""Stacks of threads, as engines get them from the nodes."""

from __future__ import annotations

from muster.describe.stacks import Frame, ThreadStack
from muster.node.stacks import Thread


def thread_stack(rank: int, thread: Thread) -> ThreadStack:
    """The stack of a thread of a node."""
    frames = tuple(Frame(*frame) for frame in thread.frames)
    return ThreadStack(rank, thread.pid, thread.name, thread.main, frames)
