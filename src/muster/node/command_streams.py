"""Runs commands in the node for the other end of a connection, such as those of `muster exec`.

The other end opens a stream for each standard stream of the command, then one that says what to
run, with the numbers of those:

    kind "input" / "output" / "errors"    the bytes; with a terminal, there are no errors
    kind "command"
        argv, env, cwd      see `engines.base.NodeCommand`
        input, output, errors
        terminal            None, or its (rows, columns)

On the stream of the command, the other end sends lines of JSON: {"signal": N} for the command, and
{"size": [rows, columns]} for its terminal. This end sends a line, {"pid": N}, when it has started.
The result is {"code": N}, as of a shell. Who cancels it, or loses the connection, hangs up: the
processes of the command are killed, unless they have left its process group. With a terminal, where
a shell gives each of its jobs a group, they are killed unless they have left its session or ignore
SIGHUP; also if the command ends by itself when it is hung up, or gets SIGHUP or SIGTERM. They are
killed when the node ends, too.

Who cancels the output closes it: the command gets SIGPIPE. The end of a terminal's input closes the
terminal: its processes get SIGHUP.

MUSTER_NODE_PYTHON in the environment of a command is the Python that runs this.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import struct
import sys
import termios
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

from muster.node import processes
from muster.node.control_groups import join_groups_of
from muster.node.streams import Stream

_CHUNK = 1 << 16
#: Bytes of a line on the stream of a command.
_MAX_LINE = 1000


#: The variable with the path of this Python.
PYTHON = "MUSTER_NODE_PYTHON"


class Program(NamedTuple):
    """The node's program, while it runs."""

    env: Mapping[str, str]
    cwd: str
    #: Where it listens.
    address: str = "127.0.0.1"
    #: The pid of its agent.
    agent: int = 0


#: Why something cannot be done in the node.
NO_PROGRAM = "no program runs there"


class CommandStreams:
    """The commands of a connection."""

    def __init__(self) -> None:
        self._parts: Dict[int, Stream] = {}  # by number, until a command uses them
        self._commands: Dict[Stream, _Command] = {}

    def add_part(self, stream: Stream) -> None:
        """A stream for a standard stream was opened."""
        self._parts = {number: part for number, part in self._parts.items() if not part.canceled}
        self._parts[stream.number] = stream

    def add(self, stream: Stream, program: Program | None) -> None:
        """Start a command. program: that of the node; None if none runs."""
        try:
            request = _Request.of(stream.about)
            parts = [self._parts[number] for number in request.parts]
        except (TypeError, ValueError, KeyError, OverflowError):
            stream.cancel("an invalid request to run a command")
            return
        for part in parts:
            del self._parts[part.number]
        why = ""
        if program is None:
            why = NO_PROGRAM
        else:
            try:
                command = self._commands[stream] = _Command(stream, parts, request, program)
                stream.send(b'{"pid": %d}\n' % command.pid)
            except OSError as error:
                why = "cannot run a command: %s" % error.strerror
        for one in (stream, *parts) if why else ():
            one.cancel(why)

    def interest(self) -> Dict[int, int]:
        """What to wait for: descriptor -> events of `select.poll`."""
        found: Dict[int, int] = {}
        for command in self._commands.values():
            found.update(command.interest())
        return found

    def step(self) -> None:
        """Do what is possible now."""
        for stream, command in list(self._commands.items()):
            if command.step():
                del self._commands[stream]

    def reaped(self, pid: int, status: int) -> bool:
        """Handle the end of a child process. Returns whether it was a command's."""
        for command in self._commands.values():
            if command.pid == pid and command.code is None:  # else it is another one's by now
                command.ended(processes.exit_of(status)[0])
                return True
        return False

    def kill(self) -> None:
        """The node has ended."""
        for command in self._commands.values():
            command.kill()

    def close(self) -> None:
        """The connection is lost: hang up."""
        for command in self._commands.values():
            command.hang_up()
        self._commands.clear()
        self._parts.clear()


class _Request(NamedTuple):
    argv: List[str]
    env: Dict[str, str]
    cwd: str
    parts: List[int]
    terminal: "Tuple[int, int] | None"

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> _Request:
        """Raises TypeError, ValueError, KeyError, OverflowError."""
        argv = [_text(word) for word in about["argv"]]
        env = {_text(name): _text(value) for name, value in dict(about.get("env", {})).items()}
        size = about.get("terminal")
        terminal = None if size is None else _size(size)
        names = ("input", "output", "errors") if terminal is None else ("input", "output")
        parts = [int(about[name]) for name in names]
        if not argv or len(set(parts)) < len(parts):
            raise ValueError
        return cls(argv, env, _text(about.get("cwd", "")), parts, terminal)


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError
    return value


def _size(value: Any) -> "Tuple[int, int]":
    rows, columns = map(int, value)
    if not (0 <= rows < 1 << 16 and 0 <= columns < 1 << 16):
        raise ValueError
    return rows, columns


class _Command:
    """A running command. Raises OSError."""

    def __init__(
        self, stream: Stream, parts: List[Stream], request: _Request, program: Program
    ) -> None:
        self._stream = stream
        self._line = b""
        #: Its exit code; None while it runs.
        self.code: int | None = None
        self._has_terminal = request.terminal is not None
        self._told_to_end = False
        self._terminal = -1
        ours: List[int] = []
        theirs: List[int] = []
        try:
            if request.terminal is None:
                for number in range(3):
                    ends = os.pipe()
                    theirs.append(ends[number > 0])
                    ours.append(ends[number == 0])
            else:
                self._terminal, other = os.openpty()
                theirs += [other] * 3
                _resize(self._terminal, request.terminal)
                for _ in range(2):
                    ours.append(os.dup(self._terminal))  # noqa: PERF401  each is closed on errors
            self.pid = _start(request, program, theirs)
        except OSError:
            for descriptor in {*ours, self._terminal} - {-1}:
                os.close(descriptor)
            raise
        finally:
            for descriptor in set(theirs):
                os.close(descriptor)
        for descriptor in ours:
            os.set_blocking(descriptor, False)
        self._input = _Input(parts[0], ours[0])
        self._outputs = [
            _Output(part, descriptor)
            for part, descriptor in zip(parts[1:], ours[1:])  # noqa: B905  Python 3.9 has no strict
        ]

    def interest(self) -> Dict[int, int]:
        found = self._input.interest()
        for output in self._outputs:
            found.update(output.interest())
        return found

    def step(self) -> bool:
        """Returns whether it is over."""
        if self._stream.canceled:
            self.hang_up()
            return True
        self._take_requests()
        self._input.step()
        if self._terminal >= 0 and self._input.at_end:
            self._close()
        for output in self._outputs:
            output.step(last=self.code is not None)
        if self.code is None or not all(output.done for output in self._outputs):
            return False
        self._stream.finish({"code": self.code})
        self._close()
        return True

    def ended(self, code: int) -> None:
        """It has just been reaped. A shell that was told to end, or hung up, may have left jobs."""
        self.code = code
        if self._has_terminal and (self._told_to_end or self._terminal < 0):
            processes.kill_session(self.pid)

    def hang_up(self) -> None:
        """Kill its processes, and close its files."""
        if self.code is None:
            processes.signal_group(self.pid, signal.SIGHUP)
        self.kill()
        if self.code is None and self._terminal >= 0:
            # the kernel signals only the job in the foreground, which a shell that was killed may
            # have started, but not put there yet
            processes.kill_session(self.pid)
        self._close()

    def kill(self) -> None:
        """Kill its process group."""
        if self.code is None:  # not reaped yet: the pid and the group are its own
            processes.signal_group(self.pid, signal.SIGKILL)
            with contextlib.suppress(PermissionError):
                os.kill(self.pid, signal.SIGKILL)  # it may not have its group yet

    def _close(self) -> None:
        self._input.close()
        for output in self._outputs:
            output.close()
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1

    def _take_requests(self) -> None:
        *lines, self._line = (self._line + self._stream.take()).split(b"\n")
        if len(self._line) > _MAX_LINE:
            self._stream.cancel("a line that is too long")
        for line in lines:
            try:
                request = json.loads(line)
                if "signal" in request and self.code is None:
                    self._signal(int(request["signal"]))
                elif "size" in request and self._terminal >= 0:
                    _resize(self._terminal, _size(request["size"]))
            except (ValueError, TypeError, OverflowError, RecursionError):
                self._stream.cancel("an invalid request to a command")

    def _signal(self, number: int) -> None:
        """Raises ValueError."""
        if number not in signal.valid_signals():
            raise ValueError
        self._told_to_end = self._told_to_end or number in (signal.SIGTERM, signal.SIGHUP)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # such as sudo's
            os.kill(self.pid, number)  # not reaped yet: the pid is its own


class _Input:
    """From a stream to a descriptor."""

    def __init__(self, stream: Stream, descriptor: int) -> None:
        self._stream, self._descriptor = stream, descriptor
        self._data = b""
        #: Whether nothing more comes.
        self.at_end = False

    @property
    def closed(self) -> bool:
        return self._descriptor < 0

    def interest(self) -> Dict[int, int]:
        return {self._descriptor: select.POLLOUT} if self._data and not self.closed else {}

    def step(self) -> None:
        while not self.closed:
            self._data = self._data or self._stream.take()
            if not self._data:
                if self._stream.result is not None or self._stream.canceled:
                    self.at_end = True
                    self.close()
                return
            try:
                self._data = self._data[os.write(self._descriptor, self._data) :]
            except BlockingIOError:
                return
            except OSError:  # nobody reads it any more
                self.close()

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
            self._descriptor = -1
        if self._stream.result is None:  # what follows would never be taken
            self._stream.cancel("the command does not read it any more")
        self._stream.finish({})


class _Output:
    """From a descriptor to a stream."""

    def __init__(self, stream: Stream, descriptor: int) -> None:
        self._stream, self._descriptor = stream, descriptor
        #: Whether all was read.
        self.done = False

    def interest(self) -> Dict[int, int]:
        return {} if self.done or not self._stream.room else {self._descriptor: select.POLLIN}

    def step(self, *, last: bool) -> None:
        """last: whether the command has ended; another process may still have its output open."""
        if self._stream.canceled:  # nobody reads it any more
            self.close()
        while not self.done and self._stream.room:
            try:
                data = os.read(self._descriptor, min(_CHUNK, self._stream.room))
            except BlockingIOError:
                self.done = last
                break
            except OSError:  # a terminal that no process has open
                data = b""
            self._stream.send(data)
            self.done = not data
        if self.done:
            self._stream.finish({})

    def close(self) -> None:
        self.done = True
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._stream.finish({})


def _start(request: _Request, program: Program, files: List[int]) -> int:
    """Start a command. files: its standard streams. Returns its pid. Raises OSError."""
    # signals that arrive before it has become the program are for the program
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _become(request, program, files)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _become(request: _Request, program: Program, files: List[int]) -> None:
    """In the child: become the command."""
    code = processes.NOT_EXECUTABLE
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        if request.terminal is not None:
            fcntl.ioctl(files[0], termios.TIOCSCTTY, 0)
        for number, descriptor in enumerate([os.dup(one) for one in files]):
            os.dup2(descriptor, number)
        processes.close_others(())
        if program.agent:
            join_groups_of(program.agent)
        os.chdir(request.cwd or program.cwd)
        env = {PYTHON: sys.executable, **program.env, **request.env}
        processes.execute(request.argv, env)
    except processes.CannotStart as error:
        code = error.code
        sys.stderr.write("muster: %s\n" % error)
    except OSError as error:
        sys.stderr.write("muster: %s\n" % error)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _resize(terminal: int, size: "Tuple[int, int]") -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
