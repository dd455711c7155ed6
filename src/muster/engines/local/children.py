"""The child processes of a session: which of them have ended, and how to end all of them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from muster.engines.loop import Participant, RunLoop
from muster.node.processes import (
    become_subreaper,
    ended_children_with_cpu,
    kill_everything,
    wake_on_signals,
)

#: The pid of a child that has ended, its wait status, and the seconds of CPU time that it and its
#: own ended children have used.
Ended = tuple[int, int, float]


class Children(Protocol):
    """The child processes of one session."""

    def add(self, pid: int) -> None:
        """A node's agent was forked. Raises OSError if its end would not be noticed; it was killed
        then."""
        ...

    def release(self, pid: int) -> None:
        """The agent is not the session's any more."""
        ...

    def ended(self, ready: Mapping[int, int]) -> Iterator[Ended]:
        """Reap the children that have ended. ready: descriptors of the session's participant."""
        ...

    def end_all(self, then: Callable[[], None]) -> None:
        """Kill all processes of the session, and call `then` when none is left. The session's
        participant is closed already."""
        ...


class AllChildren:
    """For a session that has the process to itself: every child of it, and every orphan that
    becomes one."""

    def __init__(self, participant: Participant, *, contained: bool) -> None:
        self._contained = contained
        self._signals = wake_on_signals()
        participant.watch(self._signals)
        if not contained:
            become_subreaper()

    def add(self, pid: int) -> None:
        """See `Children.add`."""

    def release(self, pid: int) -> None:
        """See `Children.release`. There is no other session."""

    def ended(self, ready: Mapping[int, int]) -> Iterator[Ended]:
        """See `Children.ended`."""
        if self._signals in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._signals, 4096)
            yield from ended_children_with_cpu()

    def end_all(self, then: Callable[[], None]) -> None:
        """See `Children.end_all`. Waits for them."""
        kill_everything(self._contained, [])
        then()


class OwnChildren:
    """For one of several sessions of a process: the agents of its nodes, each process 1 of a PID
    namespace, so that nothing of a node outlives its agent."""

    def __init__(self, loop: RunLoop, participant: Participant) -> None:
        self._loop = loop
        self._participant = participant
        self._pids: dict[int, int] = {}  # by a descriptor that is readable when it has ended

    def add(self, pid: int) -> None:
        """See `Children.add`."""
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:  # too many open files: nobody else would end it
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self._pids[descriptor] = pid
        self._participant.watch(descriptor)

    def release(self, pid: int) -> None:
        """See `Children.release`."""
        self._forget(next(one for one, own in self._pids.items() if own == pid))

    def ended(self, ready: Mapping[int, int]) -> Iterator[Ended]:
        """See `Children.ended`."""
        for descriptor in [*self._pids.keys() & ready.keys()]:
            pid, status, used = os.wait4(self._forget(descriptor), 0)
            yield pid, status, used.ru_utime + used.ru_stime

    def _forget(self, descriptor: int) -> int:
        self._participant.unwatch(descriptor)
        os.close(descriptor)
        return self._pids.pop(descriptor)

    def end_all(self, then: Callable[[], None]) -> None:
        """See `Children.end_all`. Returns at once: a process that is blocked in the kernel must not
        keep other runs waiting."""

        def reap(ready: Mapping[int, int]) -> None:
            for _ in self.ended(ready):
                pass
            if not self._pids:
                self._participant.close()
                then()

        self._participant = self._loop.add(reap)
        for descriptor, pid in self._pids.items():
            os.kill(pid, signal.SIGKILL)
            self._participant.watch(descriptor)
        reap({})
