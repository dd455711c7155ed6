"""Copies what the main containers of observed pods write to the log files of their nodes, by the
logs of pods in the API server.

How far each was copied is kept beside the run, so that the next supervisor goes on from there: no
line is missing or there twice, as far as the cluster still has it.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.observed_facts import ObservedPod
from muster.engines.kubernetes.pod_logs import LogLine, LogReader, Position
from muster.engines.loop import RunLoop
from muster.engines.remote.record import read_record, write_record
from muster.node.files import write_all

#: Seconds between two records of how far a log was copied.
_RECORD_PAUSE = 1.0
#: Threads, and logs that are followed at the same time.
_MOST = 16
#: Seconds until a log is read again: one that is followed, when its stream has ended; and one of
#: more than are followed.
_FOLLOW_PAUSE, _TURN_PAUSE = 1.0, 5.0
#: HTTP: the container has not started.
_BAD_REQUEST = 400


class PodRecord(Struct, frozen=True):
    """The pod of a node, and how far its log was copied."""

    uid: str
    pod: str
    container: str
    #: The log file of the node.
    path: str
    #: The size of the file before the first line of this pod, and behind the last one.
    start: int
    size: int
    #: See `pod_logs.Position`.
    time: int = 0
    lines: int = 0


class PodLog:
    """The copy of the log of one pod.

    path: the log file of its node. record: the file of its `PodRecord`.
    """

    def __init__(self, cluster: Cluster, pod: ObservedPod, path: str, record: Path) -> None:
        #: The log file of its node.
        self.uid, self.path = pod.uid, path
        self._file = record
        size = _size(path)
        known = _known(record, pod, path)
        self._record = known or PodRecord(
            *(pod.uid, pod.name, pod.container, path), start=size, size=size
        )
        self._saved: PodRecord | None = None
        #: Bytes behind the recorded position that are in the file already.
        self._skipped = size - self._record.size
        position = Position(self._record.time, self._record.lines)
        self._reader = LogReader(cluster, pod.name, pod.container, position)
        #: Why not all was copied, as a sentence; "" if it was, or that is not known yet.
        self.problem = ""
        #: Whether the container has ended: what it has written is read to the end, and no more.
        self.has_ended = False
        self.is_done = False
        #: Whether nobody needs it when it is done.
        self.is_dropped = False

    @property
    def start(self) -> int:
        """Where in the file the log of this pod begins."""
        return self._record.start

    def allow(self) -> None:
        """See `LogReader`."""
        self._reader.allow()

    def interrupt(self) -> None:
        """Have `copy` return soon."""
        self._reader.interrupt()

    def copy(self, *, follow: bool) -> bool:
        """Copy what is new. follow: and what is written until the container ends or this is
        interrupted. Returns whether nothing more follows. In a thread."""
        is_last = self.has_ended  # before it is read: what is written later is not missed
        try:
            self._save()
            self._append(is_last=is_last, follow=follow)
        except CannotCall as error:
            not_started = error.status == _BAD_REQUEST and not is_last
            if not error.refused or not_started:
                return False
            self.problem = str(error)
        except OSError as error:
            self.problem = str(error)
        self.is_done = is_last or bool(self.problem)
        return self.is_done

    def _append(self, *, is_last: bool, follow: bool) -> None:
        """Raises CannotCall, OSError."""
        due = time.monotonic() + _RECORD_PAUSE
        # opened each time: there may be thousands of logs
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            for line in self._reader.rest() if is_last else self._reader.new(follow=follow):
                self._write(descriptor, line)
                if time.monotonic() >= due:
                    self._save()
                    due = time.monotonic() + _RECORD_PAUSE
        finally:
            os.close(descriptor)
            self._save()

    def _write(self, descriptor: int, line: LogLine) -> None:
        content = line.content + b"\n"
        known = min(self._skipped, len(content))
        self._skipped -= known
        write_all(descriptor, content[known:])
        position, size = self._reader.position, self._record.size + len(content)
        self._record = replace(self._record, size=size, time=position.time, lines=position.lines)

    def _save(self) -> None:
        if self._record is not self._saved:
            write_record(self._file, self._record)
            self._saved = self._record


class LogCopies:
    """The copies of a run's logs, made by a few threads: each follows a log or, if there are more
    logs than threads, reads one after the other, those of containers that have ended first.

    done: gets a log of which nothing more is copied, in the thread of the run's loop.
    """

    def __init__(self, loop: RunLoop, done: Callable[[PodLog], None]) -> None:
        self._loop, self._done = loop, done
        self._changed = threading.Condition()
        self._logs: set[PodLog] = set()  # of which more is copied
        self._idle: set[PodLog] = set()  # those of them that no thread has
        self._ended: deque[PodLog] = deque()
        self._due: list[tuple[float, int, PodLog]] = []  # a heap; the numbers only order it
        self._number = self._threads = 0
        self._is_closed = False

    def __len__(self) -> int:
        """How many logs there are of which more is copied."""
        return len(self._logs)

    def add(self, log: PodLog) -> None:
        """Copy a log until it has ended."""
        with self._changed:
            self._logs.add(log)
            if len(self._logs) > _MOST:
                self._interrupt()  # all take turns now
            self._put(log, 0.0)
            if self._threads < min(_MOST, len(self._logs)):
                self._threads += 1
                threading.Thread(target=self._work, daemon=True, name="pod-logs").start()

    def end(self, log: PodLog) -> None:
        """The container has ended."""
        with self._changed:
            self._end(log)

    def end_all(self) -> None:
        """Copy of all what is there now, and no more."""
        with self._changed:
            for log in self._logs:
                self._end(log)
            self._interrupt()

    def _end(self, log: PodLog) -> None:
        if not log.has_ended:
            log.has_ended = True
            self._ended.append(log)
            self._changed.notify()

    def close(self) -> None:
        """Copy nothing more. Returns at once: `len` says how many are still being copied."""
        with self._changed:
            self._is_closed = True
            self._interrupt()
            self._logs -= self._idle
            self._changed.notify_all()

    def _interrupt(self) -> None:
        for log in self._logs - self._idle:
            log.interrupt()

    def _put(self, log: PodLog, pause: float) -> None:
        self._idle.add(log)
        self._number += 1
        heapq.heappush(self._due, (time.monotonic() + pause, self._number, log))
        if log.has_ended:
            self._ended.append(log)
        self._changed.notify()

    # --- in threads

    def _work(self) -> None:
        try:
            while (taken := self._take()) is not None:
                log, follows = taken
                is_done = log.copy(follow=follows)
                with self._changed:
                    is_done = is_done or self._is_closed
                    if is_done:
                        self._logs.discard(log)
                        self._changed.notify_all()  # threads that none is left for end
                    else:
                        self._put(log, _FOLLOW_PAUSE if follows else _TURN_PAUSE)
                if is_done:
                    self._loop.post(partial(self._done, log))
        except Exception as error:  # noqa: BLE001  raised where it ends the run
            bug = error
            self._loop.post(lambda: _raise(bug))

    def _take(self) -> tuple[PodLog, bool] | None:
        """The next log to read, and whether it is followed; None: this thread is not needed any
        more."""
        with self._changed:
            while True:
                if self._is_closed or self._threads > len(self._logs):
                    self._threads -= 1
                    return None
                log, wait = self._next()
                if log is not None:
                    self._idle.discard(log)
                    log.allow()
                    return log, len(self._logs) <= _MOST
                self._changed.wait(wait)

    def _next(self) -> tuple[PodLog | None, float | None]:
        """One that is to be read now, or in how many seconds."""
        while self._ended:
            log = self._ended.popleft()
            if log in self._idle:
                return log, 0.0
        while self._due:
            due, _, log = self._due[0]
            wait = due - time.monotonic()
            if log in self._idle and wait > 0:
                return None, wait
            heapq.heappop(self._due)
            if log in self._idle:
                return log, 0.0
        return None, None


def _raise(error: Exception) -> None:
    raise error


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _known(file: Path, pod: ObservedPod, path: str) -> PodRecord | None:
    """What an earlier session has copied of a pod to a file; None if nothing."""
    found = read_record(file, PodRecord)
    same = found is not None and (found.uid, found.path) == (pod.uid, path)
    return found if same and found is not None and found.size <= _size(path) else None
