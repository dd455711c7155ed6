"""A command inside a node on another machine, for a process other than the run's supervisor."""

from __future__ import annotations

import errno
import json
import os
import select
import sys
import termios
import tty
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import Any

from muster.engines.base import NodeCommand, OpenFile, RunningNode, Stdio
from muster.engines.remote.client import Client
from muster.errors import EngineError
from muster.node.files import write_all
from muster.node.streams import MAX_JSON, Stream

#: Bytes that are read from standard input at once, and how many of these may wait to be sent.
_CHUNK, _CHUNKS = 1 << 16, 4
#: Seconds for the thread that reads standard input to end.
_READER_TIMEOUT = 1.0
#: Errors of a file that nobody reads any more.
_UNREAD = (errno.EPIPE, errno.EIO, errno.ECONNRESET)


def run(node: RunningNode, command: NodeCommand, stdio: Stdio) -> RemoteProcess:
    """See `Engine.run_in_node`."""
    client = Client(node.folder)
    try:
        return RemoteProcess(client, node.rank, command, stdio)
    except BaseException:
        client.close()
        raise


class RemoteProcess:
    """See `engines.base.NodeProcess`. client: its own. Raises EngineError if it does not start.

    One thread talks to the supervisor. Others read and write the standard streams, whose files may
    block, and are shared with other processes.
    """

    in_process_group = False

    def __init__(self, client: Client, rank: int, command: NodeCommand, stdio: Stdio) -> None:
        self._client = client
        self._ended = Event()
        self._code = 0
        self._failure = ""
        self._line = b""
        self._started = False
        size = None
        if command.terminal:
            # keys, from the first on, are for the terminal in the node, which sends their signals
            tty.setraw(stdio.stdin.fileno(), termios.TCSANOW)
            size = list(termios.tcgetwinsize(stdio.stdin.fileno()))
        parts = {name: client.open(rank, name) for name in ("input", "output")}
        if size is None:
            parts["errors"] = client.open(rank, "errors")
        about: dict[str, Any] = {name: part.number for name, part in parts.items()}
        about |= {"argv": command.argv, "env": _env(command), "cwd": command.cwd, "terminal": size}
        if len(json.dumps(about)) > MAX_JSON - 1000:
            raise EngineError("the command line and its variables are too long")
        self._command = client.open(rank, "command", **about)
        client.until(self._has_started)
        if self._command.canceled:
            raise EngineError(f"cannot run a command in node-{rank}: {self._command.canceled}")
        self._reader = _Reader(stdio.stdin, parts["input"], client)
        self._writers = [_Writer(stdio.stdout, parts["output"], client, self._step)]
        if "errors" in parts:
            self._writers.append(_Writer(stdio.stderr, parts["errors"], client, self._step))
        client.on_change(lambda _: self._step())
        client.loop.post(self._step)  # for what has arrived already
        Thread(target=self._run, daemon=True).start()

    def wait(self) -> int:
        """See `NodeProcess.wait`."""
        self._ended.wait()
        if self._failure:
            raise EngineError(self._failure)
        return self._code

    def send_signal(self, number: int) -> None:
        """See `NodeProcess.send_signal`."""
        self._request(signal=number)

    def resize(self, rows: int, columns: int) -> None:
        """See `NodeProcess.resize`."""
        self._request(size=[rows, columns])

    def _request(self, **request: Any) -> None:
        line = json.dumps(request).encode() + b"\n"

        def send() -> None:
            if len(line) <= self._command.room:
                self._command.send(line)
                self._client.wake()

        self._client.loop.post(send)

    # --- in the thread of the loop

    def _has_started(self) -> bool:
        self._line += self._command.take()
        return b"\n" in self._line or bool(self._command.canceled)

    def _run(self) -> None:
        try:
            while not self._is_over():
                self._client.loop.run_once()
        except Exception as bug:
            self._failure = repr(bug)
            raise
        finally:
            self._reader.close()
            self._reader.join()
            self._client.close()
            self._ended.set()

    def _is_over(self) -> bool:
        if self._failure:
            for writer in self._writers:
                writer.abandon()
            return True
        return self._command.result is not None and all(one.done for one in self._writers)

    def _step(self) -> None:
        command = self._command
        command.take()
        if command.canceled:
            self._failure = self._client.lost or command.canceled
            return
        if command.result is not None:
            code = command.result.get("code")
            if type(code) is not int:
                self._failure = f"its host has sent an invalid exit code: {code!r:.100}"
                return
            self._code = code
        self._reader.step()
        for writer in self._writers:
            writer.step()
        self._client.wake()


def _env(command: NodeCommand) -> dict[str, str]:
    """The variables of a command: a terminal is of the kind of that of the caller."""
    terminal = os.environ.get("TERM") if command.terminal else None
    return {**({} if terminal is None else {"TERM": terminal}), **command.env}


class _Reader:
    """From a file to a stream."""

    def __init__(self, file: OpenFile, stream: Stream, client: Client) -> None:
        self._stream, self._client = stream, client
        self._descriptor = os.dup(file.fileno())
        self._stopped, self._stop = os.pipe()
        self._data: deque[bytes] = deque()  # to be sent; empty at the end of the file
        self._free = Semaphore(_CHUNKS)
        self._closed = False
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Send what there is room for."""
        stream = self._stream
        if stream.canceled:  # the command does not read it any more
            self.close()
        while self._data and stream.room and not stream.canceled:
            data = self._data.popleft()
            if not data:
                stream.finish({})
                return
            part = data[: stream.room]
            stream.send(part)
            if len(part) < len(data):
                self._data.appendleft(data[len(part) :])
            else:
                self._free.release()

    def close(self) -> None:
        """Read no more. May be repeated."""
        if not self._closed:
            self._closed = True
            os.close(self._stop)
            self._free.release()

    def join(self) -> None:
        """Wait until the file is closed, unless another process has read what was there."""
        self._thread.join(_READER_TIMEOUT)

    # --- in the thread of its own

    def _read(self) -> None:
        poll = select.poll()
        for descriptor in (self._descriptor, self._stopped):
            poll.register(descriptor, select.POLLIN)
        data = b"x"
        while data:
            self._free.acquire()
            ready = dict(poll.poll())
            if self._closed or self._stopped in ready:
                break
            try:
                data = os.read(self._descriptor, _CHUNK)
            except OSError:  # a terminal that was closed
                data = b""
            self._client.loop.post(partial(self._add, data))
        os.close(self._descriptor)
        os.close(self._stopped)

    def _add(self, data: bytes) -> None:
        self._data.append(data)
        self.step()
        self._client.wake()


class _Writer:
    """From a stream to a file. step: called when more can be taken."""

    def __init__(
        self, file: OpenFile, stream: Stream, client: Client, step: Callable[[], None]
    ) -> None:
        self._stream, self._client, self._step = stream, client, step
        self._descriptor = os.dup(file.fileno())
        self._queue: SimpleQueue[bytes] = SimpleQueue()  # to be written; empty at the end
        self._busy = False
        #: Whether everything is written, and the file is closed.
        self.done = False
        Thread(target=self._write, daemon=True).start()

    def step(self) -> None:
        """Take what has arrived, if what was taken before is written."""
        if not self._busy:
            data = self._stream.take()
            if data or self._stream.result is not None or self._stream.canceled:
                self._busy = True
                self._queue.put(data)

    def abandon(self) -> None:
        """Nothing more arrives."""
        self._queue.put(b"")

    def _written(self) -> None:
        self._busy = False
        self._step()

    def _unread(self) -> None:
        """What was not written is lost, and the command learns of it."""
        self._stream.cancel("nobody reads it any more")
        self._written()

    def _end(self) -> None:
        self.done = True

    # --- in the thread of its own

    def _write(self) -> None:
        post = self._client.loop.post
        while data := self._queue.get():
            try:
                write_all(self._descriptor, data)
            except OSError as error:
                if error.errno not in _UNREAD:
                    sys.stderr.write(f"muster: output is lost: {error.strerror}\n")
                post(self._unread)
            else:
                post(self._written)
        os.close(self._descriptor)
        post(self._end)
