"""The stacks of the Python processes of nodes, which are read with the rights of their run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Collection, Sequence

from muster.describe.stacks import ThreadStack
from muster.engines.local import namespaces
from muster.engines.local.entry import find_agents
from muster.engines.stacks import thread_stack
from muster.errors import InvalidInput, Problem
from muster.node import launch_record, stacks
from muster.storage.home import RunDir
from muster.storage.run_files import slot_of
from muster.unix_account import as_root, process_options


def read_stacks(
    folder: RunDir, supervisor: int, ranks: Collection[int]
) -> tuple[list[ThreadStack], list[str]]:
    """The stacks of all threads, and a sentence for each process that could not be read.

    ranks: the nodes to read; empty for all. Raises InvalidInput if py-spy is not installed.
    """
    agents = find_agents(folder, supervisor)
    chosen = {pid: rank for rank, pid in sorted(agents.items()) if not ranks or rank in ranks}
    with as_root():
        processes = stacks.python_processes(chosen)
    if not processes:
        return [], []
    rank_of = {pid: chosen[agent] for agent, pid in processes}

    def work(pid: int) -> str:
        slot = slot_of(folder, rank_of[pid])
        return str(folder.work(rank_of[pid] if slot is None else slot))

    def start(words: Sequence[str]) -> subprocess.Popen[bytes]:
        return _start(words, supervisor)

    program = _py_spy(processes[0][0])
    found: list[ThreadStack] = []
    problems: list[str] = []
    # that of the supervisor is not found if it, and with it the run, has just ended
    with contextlib.suppress(FileNotFoundError):
        for one in stacks.read(program, [*rank_of], work, start):
            rank = rank_of[one.pid]
            found += [thread_stack(rank, thread) for thread in one.threads]
            if one.problem:
                problems.append(f"rank {rank}: process {one.pid}: {one.problem}")
    return found, problems


def _py_spy(agent: int) -> str:
    """The program, from Muster's environment or that of the agent's node. Raises InvalidInput."""
    paths = [os.path.dirname(sys.executable), os.environ.get("PATH", "")]
    with as_root():
        record = launch_record.read(agent)
    paths += [] if record is None else [record.environments[0].get("PATH", "")]
    found = stacks.find_program(paths)
    if found is None:
        hint = "pip install py-spy, or muster-jobs[stacks]"
        raise InvalidInput(Problem("", "py-spy, which reads the stacks, is not installed", hint))
    return found


def _start(words: Sequence[str], supervisor: int) -> subprocess.Popen[bytes]:
    own = f"/proc/{supervisor}/ns/user"
    if os.geteuid() == 0 or os.readlink(own) == os.readlink("/proc/self/ns/user"):
        return stacks.start(words, **process_options())
    # root of the run's user namespace may look into its processes, whatever ptrace_scope is
    descriptor = os.open(own, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: namespaces.setns(descriptor, namespaces.CLONE_NEWUSER),  # noqa: PLW1509
        )
    finally:
        os.close(descriptor)
