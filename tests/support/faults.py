"""Cause faults of nodes, whose processes are found by their environment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path


def until(
    holds: Callable[[], object],
    what: str = "the condition",
    timeout: float = 240.0,
    *,
    pause: float = 0.05,
) -> None:
    """Return when the condition holds; fail after `timeout` seconds. pause: seconds between two
    checks."""
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(pause)


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
            continue  # it ended meanwhile
    return found


def agent_of(run: str, rank: int) -> int:
    """The agent of a node: the parent of its programs."""
    programs = processes_of(run, rank)
    parents = {pid: parent for pid in programs if (parent := _parent(pid)) is not None}
    (agent,) = {parent for parent in parents.values() if parent not in programs}
    return agent


def lose_node(run: str, rank: int) -> None:
    """Kill a node as if its machine had lost power: the agent first, then its programs."""
    os.kill(agent_of(run, rank), signal.SIGKILL)
    for pid in processes_of(run, rank):
        kill(pid)


def kill(pid: int) -> None:
    """Kill a process, if it still exists."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
