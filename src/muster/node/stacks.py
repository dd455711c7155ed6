"""The stacks of the Python processes of a node, read from outside by py-spy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

from muster.node.counters import processes_of

#: Processes that are read at the same time.
_AT_ONCE = 8
#: Seconds that one may take.
_TIMEOUT = 20
_SCOPE = "/proc/sys/kernel/yama/ptrace_scope"

#: Starts py-spy, with pipes as its standard output and errors. Gets its words. Raises OSError.
Start = Callable[[Sequence[str]], "subprocess.Popen[bytes]"]


class Frame(NamedTuple):
    """A call that has not returned."""

    function: str
    #: The path; below the node's working directory, the path in it.
    file: str
    line: int


class Thread(NamedTuple):
    """The calls of one thread, the innermost first."""

    pid: int
    #: The thread's name, and whether it is the process's main thread.
    name: str
    main: bool
    frames: List[Frame]


class ProcessStacks(NamedTuple):
    """What py-spy says of one process."""

    pid: int
    threads: List[Thread]
    #: Why it could not be read, for people; "" if it was.
    problem: str = ""


def python_processes(agents: Iterable[int]) -> List[Tuple[int, int]]:
    """The Python processes of the nodes of these agents: (agent, pid) of each."""
    of_agent = processes_of(list(agents))
    return [(agent, pid) for agent, pids in of_agent.items() for pid in pids if _is_python(pid)]


def find_program(paths: Iterable[str]) -> "str | None":
    """The path of py-spy; None if it is not installed. paths: values of PATH, searched in order."""
    return shutil.which("py-spy", path=os.pathsep.join(paths))


def read(
    program: str, pids: Sequence[int], work: Callable[[int], str], start: Start
) -> Iterator[ProcessStacks]:
    """Read these processes, a few at a time; without those that have ended. program: py-spy.
    work: returns the working directory of a process's node. Raises what `start` does."""
    for first in range(0, len(pids), _AT_ONCE):
        batch = pids[first : first + _AT_ONCE]
        running = [start((program, "dump", "--json", "--pid", str(pid))) for pid in batch]
        for pid, process in zip(batch, running):  # noqa: B905  Python 3.9 has no strict
            out, errors = _answer(process)
            if process.returncode == 0:
                yield ProcessStacks(pid, _threads(pid, work(pid), json.loads(out)))
            elif _is_python(pid):  # it has not ended meanwhile
                yield ProcessStacks(pid, [], _reason(errors))


def start(words: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """See `Start`. options: further ones of `subprocess.Popen`."""
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, **options)


def _is_python(pid: int) -> bool:
    """Whether a process runs Python, also as a library of another program."""
    try:
        if os.path.basename(os.readlink("/proc/%d/exe" % pid)).startswith("python"):
            return True
        with open("/proc/%d/maps" % pid, "rb") as file:
            return b"/libpython" in file.read()
    except OSError:
        return False


def _answer(process: "subprocess.Popen[bytes]") -> Tuple[bytes, bytes]:
    """What py-spy prints on its two streams; it may hang on a process that is stopped."""
    try:
        return process.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return b"", b"py-spy did not end within %d s" % _TIMEOUT


def _threads(pid: int, work: str, data: List[Dict[str, Any]]) -> List[Thread]:
    found = []
    for thread in data:
        # a program that has not imported `threading` has no names
        name = thread["thread_name"] or ("MainThread" if len(data) == 1 else "without a name")
        frames = [_frame(frame, work + "/") for frame in thread["frames"]]
        found.append(Thread(pid, name, name == "MainThread", frames))
    if found and not any(thread.main for thread in found):
        # py-spy lists the newest thread first
        found[-1] = found[-1]._replace(name="MainThread", main=True)
    return found


def _frame(frame: Dict[str, Any], work: str) -> Frame:
    name = frame["filename"]
    path = name[len(work) :] if name.startswith(work) else frame["short_filename"] or name
    return Frame(frame["name"], path, frame["line"])


def _reason(errors: bytes) -> str:
    text = errors.decode(errors="replace").strip()
    first = text.splitlines()[0] if text else "py-spy ended without an error message"
    try:
        with open(_SCOPE) as file:
            scope = int(file.read())
    except (OSError, ValueError):
        scope = 0
    if scope and os.geteuid() != 0:
        allow = "`sysctl kernel.yama.ptrace_scope=0`, as root, allows it"
        return "%s (kernel.yama.ptrace_scope is %d: %s)" % (first, scope, allow)
    return first
