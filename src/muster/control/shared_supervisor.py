"""A supervisor that drives several runs, which the launcher hands to it one after the other.

Each run has its own lease, lock, liveness pipe, wakeup FIFO and log: only the pid shows that others
are driven by the same process. If that process is killed, each run is recovered like any other. It
ends when the launcher hands it no more runs, and those that it has have ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from muster.control import drive
from muster.control.ledger import record_together
from muster.control.open_store import open_store
from muster.control.supervisor import (
    DATABASE_TIMEOUT,
    Assignment,
    SupervisedRun,
    delete_old_runs,
    make_keeper,
)
from muster.engines.loop import EventLoop
from muster.secrets import print_traceback

if TYPE_CHECKING:
    from muster.engines.base import Engine
    from muster.storage.home import Home

#: A supervisor has at most this many runs at a time: a fault of it affects no more.
_MOST_RUNS = 64
#: It is handed this many in all: what it may still hold of those that have ended is given back.
_MOST_IN_ALL = 1000
#: Open files that one run with the most nodes takes at most, and that the process takes besides.
_FILES_OF_RUN, _OTHER_FILES = 20, 60
#: Runs that it has been handed and not begun: with more, it is busy or hangs.
_MOST_WAITING = 16
#: Bytes of a request; the kernel refuses to send larger ones.
_REQUEST = 1 << 18
#: What it answers when it has begun a run, and when one has ended.
_BEGUN, _ENDED = b"b", b"e"


class SharedSupervisor:
    """The launcher's end of the connection to a shared supervisor.

    key: what its runs have in common.
    """

    def __init__(self, key: tuple[str, str], pid: int, sock: socket.socket) -> None:
        self.key = key
        self.pid = pid
        self._sock = sock
        self._sock.setblocking(False)
        self._handed = 0
        self._answers = {_BEGUN: 0, _ENDED: 0}
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = _MOST_RUNS
        if allowed >= 0:
            self._most = min(self._most, (allowed - _OTHER_FILES) // _FILES_OF_RUN)

    def hand(self, request: bytes, held: Sequence[int]) -> bool:
        """Hand it a run: the encoded request to the launcher, and its descriptors. False if it
        takes no more: it has as many as it may, has had its share, is busy, or has ended."""
        with contextlib.suppress(OSError):  # BlockingIOError: there is no other answer
            while answer := self._sock.recv(1):
                self._answers[answer] += 1
        waiting = self._handed - self._answers[_BEGUN]
        in_progress = self._handed - self._answers[_ENDED]
        if waiting >= _MOST_WAITING or in_progress >= self._most or self._handed >= _MOST_IN_ALL:
            return False
        try:
            socket.send_fds(self._sock, [request], held)
        except OSError:  # also for a request that is too large
            return False
        self._handed += 1
        return True

    def close(self) -> None:
        """Hand it no more runs."""
        self._sock.close()


def supervise_handed(home: Home, engine: Engine, sock: socket.socket) -> None:
    """Drive the runs that arrive on a connection; returns when no more can, and none is left.

    home: of all of them. After SIGTERM it takes no more, and hands over those that it has.
    """
    _HandedRuns(home, engine, sock).drive()


class _HandedRuns:
    def __init__(self, home: Home, engine: Engine, sock: socket.socket) -> None:
        self._home = home
        self._engine = engine
        self._sock = sock
        self._store = open_store(home, timeout=DATABASE_TIMEOUT)
        self._loop = EventLoop()
        self._keeper = make_keeper(self._store, home, self._loop)
        self._driver = drive.Driver(self._loop, partial(record_together, self._store))
        self._runs: list[SupervisedRun] = []
        self._terminated = False
        self._connected = True
        self._connection = self._loop.add(lambda _: self._receive())
        self._connection.watch(sock.fileno())
        signal.signal(signal.SIGTERM, lambda *_: self._terminate())

    def drive(self) -> None:
        try:
            while self._connected or self._runs:
                self._loop.run_once()
                self._conclude([run for run in self._runs if run.ended])
        except Exception as error:  # a fault of the loop: every run ends with it
            for run in self._runs:
                run.fail(error)
            self._conclude(self._runs)
            raise
        self._loop.close()
        if self._home.config.exists():
            delete_old_runs(self._store, self._home)
        self._store.close()

    def _receive(self) -> None:
        """Begin a run that was handed over."""
        try:
            data, held, _, _ = socket.recv_fds(self._sock, _REQUEST, 2)
        except ConnectionResetError:  # the launcher has closed it, and what it sent comes next
            return
        if not data:
            self._connected = False
            self._connection.close()
            self._sock.close()
            return
        if len(held) < 2:  # too many open files: the run is recovered, by another supervisor
            for descriptor in held:
                os.close(descriptor)
            return
        for descriptor in held:
            os.set_inheritable(descriptor, False)
        assignment = Assignment.of(json.loads(data), held)
        run = SupervisedRun(self._store, assignment, self._engine, self._keeper, alone=False)
        self._runs.append(run)
        run.begin(self._driver, self._loop)
        if self._terminated:
            run.terminate()
        self._answer(_BEGUN)

    def _answer(self, answer: bytes) -> None:
        with contextlib.suppress(OSError):  # the launcher has ended, or hands over no more
            self._sock.send(answer)

    def _conclude(self, ended: Sequence[SupervisedRun]) -> None:
        """Conclude these runs."""
        for run in [*ended]:
            self._runs.remove(run)
            try:
                run.conclude()
            except Exception:  # noqa: BLE001  the run is recovered, and the others continue
                print_traceback()
            run.release()
            self._answer(_ENDED)

    def _terminate(self) -> None:
        self._terminated = True
        for run in self._runs:
            run.terminate()
        with contextlib.suppress(OSError):  # what was sent is received, and after it the end
            self._sock.shutdown(socket.SHUT_RD)
