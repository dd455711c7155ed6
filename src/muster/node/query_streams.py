"""Answers questions about what the node does now, such as those of `muster top`.

What a stream is about:

    kind "counters"     what the node uses: `counters.Counters`
    kind "stacks"       the stacks of its Python processes: a list of `stacks.ProcessStacks`

The bytes of the stream are the answer, as JSON, with records as lists; its result is {"code": N}: 0
if the answer is complete. What takes long, such as nvidia-smi, runs in a forked process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import Any, Callable, Dict, List

from muster.node import counters, gpu_usage, processes, stacks
from muster.node.command_streams import NO_PROGRAM, Program
from muster.node.streams import Stream

_CHUNK = 1 << 16
#: Seconds for nvidia-smi: who asks for counters does not wait for long.
_GPU_TIMEOUT = 1.0

#: Returns JSON-ready data. Gets the node's program.
Answer = Callable[[Program], Any]


class QueryStreams:
    """The questions of a connection."""

    def __init__(self) -> None:
        self._queries: Dict[Stream, _Query] = {}

    def add(self, stream: Stream, program: Program | None) -> None:
        """Begin to answer a question. program: that of the node; None if none runs."""
        if program is None:
            stream.cancel(NO_PROGRAM)
            return
        try:
            self._queries[stream] = _Query(stream, program)
        except OSError as error:
            stream.cancel(error.strerror or str(error))

    def interest(self) -> Dict[int, int]:
        """What to wait for: descriptor -> events of `select.poll`."""
        found: Dict[int, int] = {}
        for query in self._queries.values():
            found.update(query.interest())
        return found

    def step(self) -> None:
        """Do what is possible now."""
        for stream, query in list(self._queries.items()):
            if query.step():
                del self._queries[stream]

    def reaped(self, pid: int, status: int) -> bool:
        """Handle the end of a child process. Returns whether it was one of these."""
        for query in self._queries.values():
            if query.pid == pid and query.code is None:
                query.code = processes.exit_of(status)[0]
                return True
        return False

    def close(self) -> None:
        """The connection is lost."""
        for query in self._queries.values():
            query.close()
        self._queries.clear()


class _Query:
    """A question that a forked process answers. Raises OSError."""

    def __init__(self, stream: Stream, program: Program) -> None:
        self._stream = stream
        #: The exit code of the process; None while it runs.
        self.code: int | None = None
        self._read_all = False
        self._reading, writing = os.pipe()
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _run(_ANSWERS[stream.about["kind"]], program, writing)
        except OSError:
            os.close(self._reading)
            raise
        finally:
            os.close(writing)
        os.set_blocking(self._reading, False)

    def interest(self) -> Dict[int, int]:
        return {} if self._read_all or not self._stream.room else {self._reading: select.POLLIN}

    def step(self) -> bool:
        """Returns whether it is over."""
        self._stream.take()  # nothing
        if self._stream.canceled:
            self.close()
            return True
        while not self._read_all and self._stream.room:
            try:
                data = os.read(self._reading, min(_CHUNK, self._stream.room))
            except BlockingIOError:
                return False
            self._stream.send(data)
            self._read_all = not data
        if not self._read_all or self.code is None:
            return False
        self._stream.finish({"code": self.code})
        self.close()
        return True

    def close(self) -> None:
        """Kill what still runs."""
        if self.code is None:  # not reaped yet: the pid, and the group, is its own
            processes.signal_group(self.pid, signal.SIGKILL)
            os.kill(self.pid, signal.SIGKILL)
        os.close(self._reading)


def _run(answer: Answer, program: Program, writing: int) -> None:
    """In the child: write the answer, and exit."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        processes.close_others((writing,))
        with os.fdopen(writing, "w") as file:
            json.dump(answer(program), file)
        code = 0
    except BaseException:  # noqa: BLE001
        import traceback  # few fail

        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def _counters(program: Program) -> counters.Counters:
    found = counters.read_nodes([program.agent])[program.agent].counters
    gpus = gpu_usage.gpus_of(program.env, gpu_usage.read_gpus(_GPU_TIMEOUT))
    return gpu_usage.with_usage(found, gpus)


def _stacks(program: Program) -> List[Any]:
    pids = [pid for _, pid in stacks.python_processes([program.agent])]
    if not pids:
        return []
    path = stacks.find_program((*map(_folder_of, pids), program.env.get("PATH", ""), os.defpath))
    if path is None:
        why = "py-spy, which reads the stacks, is not installed there"
        return [stacks.ProcessStacks(pid, [], why) for pid in pids[:1]]
    return list(stacks.read(path, pids, lambda _: program.cwd, stacks.start))


def _folder_of(pid: int) -> str:
    """The folder of a process's program, as it was started: that of a virtual environment."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return os.path.dirname(os.fsdecode(file.read().split(b"\0")[0]))
    except OSError:  # it has ended
        return ""


_ANSWERS: Dict[str, Answer] = {"counters": _counters, "stacks": _stacks}
