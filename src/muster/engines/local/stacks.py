"""The stacks of the Python processes of nodes, read from outside by py-spy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from muster.describe.stacks import Frame, ThreadStack
from muster.engines.local import namespaces
from muster.engines.local.counters import processes_of
from muster.engines.local.entry import find_agents
from muster.errors import InvalidInput, Problem
from muster.node import launch_record
from muster.storage.home import RunDir

#: Processes that are read at the same time.
_AT_ONCE = 8
#: Seconds that one may take.
_TIMEOUT = 20
_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")


def read_stacks(
    folder: RunDir, supervisor: int, ranks: Collection[int]
) -> tuple[list[ThreadStack], list[str]]:
    """The stacks of all threads, and a sentence for each process that could not be read.

    ranks: the nodes to read; empty for all. Raises InvalidInput if py-spy is not installed.
    """
    agents = find_agents(folder, supervisor)
    chosen = {rank: pid for rank, pid in sorted(agents.items()) if not ranks or rank in ranks}
    processes = processes_of(chosen.values())
    found = [(rank, pid) for rank in chosen for pid in processes[chosen[rank]] if _python(pid)]
    if not found:
        return [], []
    program = _py_spy(chosen[found[0][0]])
    stacks: list[ThreadStack] = []
    problems: list[str] = []
    for start in range(0, len(found), _AT_ONCE):
        batch = found[start : start + _AT_ONCE]
        try:
            running = [_start(program, pid, supervisor) for _, pid in batch]
        except FileNotFoundError:  # the supervisor, and with it the run, has just ended
            break
        for (rank, pid), process in zip(batch, running, strict=True):
            out, errors = _answer(process)
            if process.returncode == 0:
                stacks += _stacks(rank, pid, folder.work(rank), json.loads(out))
            elif _python(pid):  # it has not ended meanwhile
                problems.append(f"rank {rank}: process {pid}: {_reason(errors)}")
    return stacks, problems


def _python(pid: int) -> bool:
    """Whether a process runs Python, also as a library of another program."""
    try:
        if os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python"):
            return True
        with open(f"/proc/{pid}/maps", "rb") as file:
            return b"/libpython" in file.read()
    except OSError:
        return False


def _answer(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """What py-spy prints on its two streams; it may hang on a process that is stopped."""
    try:
        return process.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return b"", b"py-spy did not end within %d s" % _TIMEOUT


def _py_spy(agent: int) -> str:
    """The program, from Muster's environment or that of the agent's node. Raises InvalidInput."""
    paths = [os.path.dirname(sys.executable), os.environ.get("PATH", "")]
    record = launch_record.read(agent)
    paths += [] if record is None else [record.environments[0].get("PATH", "")]
    found = shutil.which("py-spy", path=os.pathsep.join(paths))
    if found is None:
        hint = "pip install py-spy, or muster-jobs[stacks]"
        raise InvalidInput(Problem("", "py-spy, which reads the stacks, is not installed", hint))
    return found


def _start(program: str, pid: int, supervisor: int) -> subprocess.Popen[bytes]:
    words = [program, "dump", "--json", "--pid", str(pid)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    own = f"/proc/{supervisor}/ns/user"
    if os.geteuid() == 0 or os.readlink(own) == os.readlink("/proc/self/ns/user"):
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, **pipes)
    # root of the run's user namespace may look into its processes, whatever ptrace_scope is
    descriptor = os.open(own, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: namespaces.setns(descriptor, namespaces.CLONE_NEWUSER),  # noqa: PLW1509
            **pipes,
        )
    finally:
        os.close(descriptor)


def _stacks(rank: int, pid: int, work: Path, data: list[dict[str, Any]]) -> list[ThreadStack]:
    found = []
    for thread in data:
        # a program that has not imported `threading` has no names
        name = thread["thread_name"] or ("MainThread" if len(data) == 1 else "without a name")
        frames = tuple(_frame(frame, f"{work}/") for frame in thread["frames"])
        found.append(ThreadStack(rank, pid, name, name == "MainThread", frames))
    if found and not any(stack.main for stack in found):
        # py-spy lists the newest thread first
        found[-1] = found[-1]._replace(thread="MainThread", main=True)
    return found


def _frame(frame: dict[str, Any], work: str) -> Frame:
    name = frame["filename"]
    path = name.removeprefix(work) if name.startswith(work) else frame["short_filename"] or name
    return Frame(frame["name"], path, frame["line"])


def _reason(errors: bytes) -> str:
    text = errors.decode(errors="replace").strip()
    first = text.splitlines()[0] if text else "py-spy ended without an error message"
    try:
        scope = int(_SCOPE.read_text())
    except (OSError, ValueError):
        scope = 0
    if scope and os.geteuid() != 0:
        allow = "run muster as root, or `sysctl kernel.yama.ptrace_scope=0` (as root)"
        return f"{first} (kernel.yama.ptrace_scope is {scope}: {allow})"
    return first
