"""What goes wrong with nodes, done to them on purpose: their processes are found from outside, by
the environment they were given."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path


def until(holds: Callable[[], object], what: str = "it", patience: float = 240.0) -> None:
    """Return once it holds; fail if it has not in so many seconds."""
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, f"{what} never came to be"
        time.sleep(0.05)


def processes_of(run: str, rank: int) -> dict[int, str]:
    """pid -> command line of the programs on a node of the run with that id."""
    marks = {f"MUSTER_RUN_ID={run}".encode(), f"NODE_RANK={rank}".encode()}
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if marks <= set((folder / "environ").read_bytes().split(b"\0")):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                found[int(folder.name)] = b" ".join(words).decode(errors="replace").strip()
        except OSError:
            continue  # it ended while we looked
    return found


def agent_of(run: str, rank: int) -> int:
    """The agent of a node: the parent of what runs there."""
    programs = processes_of(run, rank)
    parents = {pid: parent for pid in programs if (parent := _parent(pid)) is not None}
    (agent,) = {parent for parent in parents.values() if parent not in programs}
    return agent


def lose_node(run: str, rank: int) -> None:
    """End a node as if its machine had lost power: agent first, then all that is left."""
    os.kill(agent_of(run, rank), signal.SIGKILL)
    for pid in processes_of(run, rank):
        kill(pid)


def kill(pid: int) -> None:
    """End a process with SIGKILL, if it still is there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
