"""A command in a pod of an observed JobSet, beside its program, by an exec stream of the cluster.

Kubernetes has no way to send such a command a signal, so a signal ends the stream. A command with a
terminal gets SIGHUP then; another one keeps running until it reads or writes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import select
import termios
import threading
import tty
from signal import SIGCHLD, SIGCONT, SIGHUP, SIGPIPE, SIGURG, SIGWINCH
from threading import Event, Thread

from muster.engines.base import NodeCommand, OpenFile, Stdio
from muster.engines.kubernetes.cluster import RETRY_BRIEFLY, CannotCall, Cluster
from muster.engines.kubernetes.exec_channels import ExecChannels, keep_alive
from muster.engines.kubernetes.exec_pipes import STATUS, STDERR, STDIN, STDOUT, Ending, Opened
from muster.engines.kubernetes.exec_streams import ExecStreams, exec_query, status_text, why_ended
from muster.engines.kubernetes.observed_pods import NodePod
from muster.engines.kubernetes.observed_record import ObservedRecord, profile_of
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.errors import EngineError

#: Seconds for the thread that reads standard input to end.
_INPUT_TIMEOUT = 1.0
#: Bytes of standard input that are sent at once.
_CHUNK = 1 << 15
#: Signals that a program ignores, unless it handles them: SIGWINCH comes with each new size of a
#: terminal here, which a command need not have.
_HARMLESS = (SIGCHLD, SIGCONT, SIGURG, SIGWINCH)
#: Errors of a file that nobody reads any more.
_UNREAD = (errno.EPIPE, errno.EIO, errno.ECONNRESET)
#: What container runtimes say of a program that does not exist, or cannot be executed.
_NO_PROGRAM = re.compile(r"executable file not found|no such file or directory", re.IGNORECASE)
_NO_RIGHT = re.compile(r"permission denied|exec format error", re.IGNORECASE)


def run(
    pod: NodePod,
    found: ObservedRecord,
    profile: KubernetesProfile,
    command: NodeCommand,
    stdio: Stdio,
) -> PodProcess:
    """See `Engine.run_in_node`."""
    from websockets.exceptions import InvalidHandshake

    cluster = Cluster(profile_of(profile, found), ref=found.cluster, retry_for=RETRY_BRIEFLY)
    try:
        opened = _open(cluster, pod, command)
    except (OSError, CannotCall, InvalidHandshake) as error:
        if isinstance(error, CannotCall) and error.is_unknown:
            raise EngineError(
                f"the pod of node-{pod.rank} is being replaced: try again in a moment (pod "
                f"{pod.name} is gone)"
            ) from None
        why = why_ended(Ending(failure=error))
        raise EngineError(f"cannot run a command in pod {pod.name}: {why}") from None
    finally:
        cluster.close()
    channels = ExecChannels(opened)
    try:
        keep_alive(opened.sock)
        return PodProcess(channels, pod.name, command, stdio)
    except BaseException:
        channels.close()
        raise


def _open(cluster: Cluster, pod: NodePod, command: NodeCommand) -> Opened:
    """Raises OSError, CannotCall, websockets' InvalidHandshake."""
    query = exec_query(pod.container, argv_of(command), terminal=command.terminal)
    streams = ExecStreams(cluster.connection)
    try:
        return streams.connect(pod.name, query)
    except CannotCall as error:
        if error.status != 401:
            raise
    return streams.connect(pod.name, query)  # with credentials that are read again


def argv_of(command: NodeCommand) -> tuple[str, ...]:
    """A command with its variables and its directory: an exec stream has neither."""
    argv = command.argv
    if command.env:
        argv = ("env", *(f"{name}={value}" for name, value in command.env.items()), *argv)
    if command.cwd:
        argv = ("sh", "-c", 'cd "$0" && exec "$@"', command.cwd, *argv)
    return argv


class PodProcess:
    """See `engines.base.NodeProcess`. One thread receives, and writes to the files of the command's
    output; another one reads its input, and sends it."""

    in_process_group = False

    def __init__(
        self, channels: ExecChannels, pod: str, command: NodeCommand, stdio: Stdio
    ) -> None:
        self._channels, self._pod = channels, pod
        self._lock = threading.Lock()  # of what follows
        self._is_closed = False
        self._code: int | None = None
        self._failure = ""
        self._size: tuple[int, int] | None = None  # the newest one that is not sent
        self._ended = Event()
        if command.terminal:
            # keys, from the first on, are for the terminal in the pod, which makes signals of them
            tty.setraw(stdio.stdin.fileno(), termios.TCSANOW)
            self._size = termios.tcgetwinsize(stdio.stdin.fileno())
        # written for a new size, and closed at the end
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        files = {STDOUT: _dup(stdio.stdout), STDERR: _dup(stdio.stderr)}
        stdin = _dup(stdio.stdin)
        self._input = Thread(target=self._send, args=(stdin, command.terminal), daemon=True)
        self._input.start()
        Thread(target=self._run, args=(files,), daemon=True).start()

    def wait(self) -> int:
        """See `NodeProcess.wait`."""
        self._ended.wait()
        if self._code is None:
            raise EngineError(self._failure)
        return self._code

    def send_signal(self, number: int) -> None:
        """See `NodeProcess.send_signal`: it ends the stream, if it ends a program by default."""
        if number not in _HARMLESS:
            self._end(128 + number)

    def resize(self, rows: int, columns: int) -> None:
        """See `NodeProcess.resize`. Does not wait: the thread that sends input sends the newest
        size, once there is room for it."""
        with self._lock:
            if not self._is_closed:
                self._size = rows, columns
                with contextlib.suppress(BlockingIOError):  # that thread is woken already
                    os.write(self._wake, b"!")

    def _end(self, code: int) -> None:
        """End the stream, unless that has happened. code: of the command, unless that is known."""
        if self._code is None:
            self._code = code
        with self._lock:
            if not self._is_closed:
                self._channels.interrupt()

    # --- in the thread that receives

    def _run(self, files: dict[int, int]) -> None:
        try:
            self._receive(files)
        except OSError as error:
            self._failure = why_ended(Ending(failure=error))
        except Exception as bug:
            self._failure = repr(bug)
            raise
        finally:
            self._channels.interrupt()
            with self._lock:
                self._is_closed = True
                os.close(self._wake)
            # it may wait for what another process has read
            self._input.join(_INPUT_TIMEOUT)
            self._channels.close()
            for descriptor in files.values():
                os.close(descriptor)
            self._ended.set()

    def _receive(self, files: dict[int, int]) -> None:
        for channel, data in self._channels.messages():
            if channel in files and data:
                try:
                    _write(files[channel], data)
                except OSError as error:
                    if error.errno in _UNREAD:
                        self._end(128 + SIGPIPE)
                    else:
                        self._failure = f"cannot write the command's output: {error.strerror}"
                    return
            elif channel == STATUS:
                self._take_status(data, files[STDERR])
                return
        self._failure = (
            f"the connection to pod {self._pod} is lost; the command may still be running there"
        )

    def _take_status(self, status: bytes, stderr: int) -> None:
        """How the command has ended."""
        code = exit_code(status)
        if code is None:
            why = status_text(status, b"")
            code = 127 if _NO_PROGRAM.search(why) else 126 if _NO_RIGHT.search(why) else None
            if code is None:
                why = why or "the cluster does not say why"
                self._failure = f"cannot run a command in pod {self._pod}: {why}"
            else:
                with contextlib.suppress(OSError):  # nobody reads it
                    _write(stderr, f"{why}\n".encode())
        if self._code is None:
            self._code = code

    # --- in the thread that sends

    def _send(self, stdin: int, is_terminal: bool) -> None:
        poll = select.poll()
        for descriptor in (stdin, self._woken):
            poll.register(descriptor, select.POLLIN)
        try:
            self._send_size()
            while True:
                if self._woken in dict(poll.poll()):
                    if not os.read(self._woken, _CHUNK):
                        break
                    self._send_size()
                    continue
                try:
                    data = os.read(stdin, _CHUNK)
                except BlockingIOError:  # another process has read what was there
                    continue
                except OSError:  # a terminal that was closed
                    data = b""
                if data:
                    self._channels.send(STDIN, data)
                elif is_terminal:
                    self._end(128 + SIGHUP)
                    break
                else:
                    self._channels.end_input()
                    break
        except OSError:
            pass  # the stream has ended, as the other thread learns
        finally:
            os.close(stdin)
            os.close(self._woken)

    def _send_size(self) -> None:
        """Raises OSError."""
        with self._lock:
            size, self._size = self._size, None
        if size is not None:
            self._channels.resize(*size)


def exit_code(status: bytes) -> int | None:
    """The exit code that a status of Kubernetes has; None if the program has not run, or that is
    not known."""
    try:
        found = json.loads(status)
        if found.get("status") == "Success":
            return 0
        causes = found["details"]["causes"]
        (code,) = (int(one["message"]) for one in causes if one.get("reason") == "ExitCode")
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return None
    return code if 0 <= code <= 255 else None


def _dup(file: OpenFile) -> int:
    return os.dup(file.fileno())


def _write(descriptor: int, data: bytes) -> None:
    """Waits also for a file that does not block, as those who share it may have set. Raises
    OSError."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()
