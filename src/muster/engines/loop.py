"""The event loop of a process that drives runs: one thread waits for everything that can happen to
all of them.

Participants register their own descriptors. In one round, each participant that has something to do
is called once, with all of its descriptors that are ready. The driver of the runs comes first: what
a session reports in one round is recorded before the session is called in the next one.

A descriptor has to be unwatched before it is closed. The kernel keeps a registration while any
process has the file open, and nodes are forked with all descriptors of this process.
"""

from __future__ import annotations

import heapq
import math
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from typing import Protocol, TypeVar

T = TypeVar("T")
#: Gets the ready descriptors, with their events as in poll(2); empty at the deadline, or after
#: `notify`.
OnReady = Callable[[Mapping[int, int]], None]
#: Gets what one of those, or a posted call, has raised.
Failed = Callable[[Exception], None]


def _do_nothing(_ready: Mapping[int, int]) -> None:
    pass


class Participant:
    """What the loop calls when there is something to do. Not thread-safe."""

    def __init__(
        self,
        loop: EventLoop,
        on_ready: OnReady,
        failed: Failed | None = None,
        *,
        first: bool = False,
    ) -> None:
        self.first = first
        self._loop = loop
        self._on_ready = on_ready
        self._failed = failed
        self._descriptors: dict[int, int] = {}  # the events that are watched, by descriptor
        self.deadline: float | None = None
        #: The time of the first entry for it in the loop's heap.
        self.queued = math.inf
        self.closed = False

    def watch(self, descriptor: int, *, read: bool = True, write: bool = False) -> None:
        """Call `on_ready` when a descriptor is readable, unless `read` is False, or has hung up,
        and with `write` also when it is writable. May be repeated, to change these. Raises
        OSError."""
        events = (select.POLLIN if read else 0) | (select.POLLOUT if write else 0)
        watched = self._descriptors.get(descriptor)
        if watched != events and not self.closed:
            self._descriptors[descriptor] = events
            self._loop.register(self, descriptor, events, known=watched is not None)

    def unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor; nothing if it is not watched. Call it before closing it."""
        if self._descriptors.pop(descriptor, None) is not None:
            self._loop.unregister(descriptor)

    def wake_at(self, deadline: float | None) -> None:
        """Call `on_ready` once at this time (see `EventLoop.now`), in place of the time that was
        set before. None: at none."""
        self.deadline = deadline
        if deadline is not None and deadline < self.queued and not self.closed:
            self._loop.queue_timer(self, deadline)

    def notify(self) -> None:
        """Call `on_ready` in the next round."""
        if not self.closed:
            self._loop.notified[self] = None

    def close(self) -> None:
        """Never call `on_ready` again. Its descriptors are unwatched, not closed."""
        self.closed = True
        for descriptor in [*self._descriptors]:
            self.unwatch(descriptor)
        self._loop.notified.pop(self, None)
        # the loop knows it until its last deadline, which may be weeks away; what these refer to,
        # such as a run, is not kept until then
        self._on_ready = _do_nothing
        self._failed = None

    def call(self, ready: Mapping[int, int]) -> None:
        """Call `on_ready`."""
        failed = self._failed
        try:
            self._on_ready(ready)
        except Exception as error:
            if failed is None:
                raise
            failed(error)


class EventLoop:
    """See the module. Only `post` may be called from other threads, and from signal handlers."""

    def __init__(self) -> None:
        self._poll = _make_poll()
        self._owners: dict[int, Participant] = {}  # by descriptor
        #: Participants to call in the next round, in order.
        self.notified: dict[Participant, None] = {}
        self._timers: list[tuple[float, int, Participant]] = []  # a heap
        self._numbers = count()
        self._posted: deque[tuple[Callable[[], None], Failed | None]] = deque()
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)
        self._mailbox = self.add(self._call_posted)
        self._mailbox.watch(self._reader.fileno())
        self._signaled = False  # whether the reader has something to read

    def now(self) -> float:
        """The time of deadlines: monotonic seconds."""
        return time.monotonic()

    def add(
        self, on_ready: OnReady, failed: Failed | None = None, *, first: bool = False
    ) -> Participant:
        """Add a participant. failed: called if `on_ready` raises an exception; without it,
        `run_once` passes the exception on. first: if it was notified, it is called before all
        others of the round."""
        return Participant(self, on_ready, failed, first=first)

    def post(self, call: Callable[[], None], failed: Failed | None = None) -> None:
        """Call something in the loop's thread, after what was posted before. Nothing once the loop
        is closed."""
        self._posted.append((call, failed))
        if not self._signaled:
            self._signaled = True
            try:
                self._writer.send(b"!")
            except OSError:  # closed
                return

    def run_once(self) -> None:
        """Wait until there is something to do, and do it: one round."""
        calls: dict[Participant, dict[int, int]] = {
            one: {} for one in sorted(self.notified, key=_last)
        }
        self.notified.clear()
        for descriptor, events in self._poll(0.0 if calls else self.timeout()):
            owner = self._owners.get(descriptor)
            if owner is not None:
                calls.setdefault(owner, {})[descriptor] = events
        if self._timers:
            self._expire_timers(calls)
        for participant, ready in calls.items():
            participant.call(ready)

    def close(self) -> None:
        """Release the loop's own descriptors."""
        self._mailbox.close()
        self._reader.close()
        self._writer.close()
        self._poll.close()

    # --- for participants

    def register(
        self, participant: Participant, descriptor: int, events: int, *, known: bool
    ) -> None:
        """Watch a descriptor, or change its events if it is known."""
        if known:
            self._poll.modify(descriptor, events)
        else:
            self._poll.register(descriptor, events)
            self._owners[descriptor] = participant

    def unregister(self, descriptor: int) -> None:
        """Stop watching a descriptor."""
        del self._owners[descriptor]
        self._poll.unregister(descriptor)

    def queue_timer(self, participant: Participant, deadline: float) -> None:
        """Put a participant into the heap of timers."""
        participant.queued = deadline
        heapq.heappush(self._timers, (deadline, next(self._numbers), participant))

    # --- rounds

    def timeout(self) -> float | None:
        """Seconds until the first deadline; None without one."""
        return max(0.0, self._timers[0][0] - self.now()) if self._timers else None

    def _expire_timers(self, calls: dict[Participant, dict[int, int]]) -> None:
        """Add the participants whose deadline has passed.

        A deadline that is moved stays in the heap until its time comes; it is put in again then.
        """
        now = self.now()
        while self._timers and self._timers[0][0] <= now:
            at, _, participant = heapq.heappop(self._timers)
            if participant.queued == at:
                participant.queued = math.inf
            deadline = participant.deadline
            if deadline is None or participant.closed:
                continue
            if deadline <= now:
                participant.deadline = None
                calls.setdefault(participant, {})
            elif deadline < participant.queued:
                self.queue_timer(participant, deadline)

    def _call_posted(self, _ready: Mapping[int, int]) -> None:
        self._reader.recv(4096)
        self._signaled = False  # from now on, another post signals again
        for _ in range(len(self._posted)):
            call, failed = self._posted.popleft()
            try:
                call()
            except Exception as error:
                if failed is None:
                    raise
                failed(error)


def _last(participant: Participant) -> bool:
    return not participant.first


class RunLoop:
    """One run's share of the loop: an exception in it reaches whoever drives the run, and what it
    added ends with it."""

    def __init__(self, loop: EventLoop, failed: Failed) -> None:
        self._loop = loop
        self._failed = failed
        self._participants: list[Participant] = []
        self._closed = False

    @property
    def process_loop(self) -> EventLoop:
        """The loop, for what the runs of a process share."""
        return self._loop

    def now(self) -> float:
        """See `EventLoop.now`."""
        return self._loop.now()

    def add(self, on_ready: OnReady) -> Participant:
        """See `EventLoop.add`."""
        participant = self._loop.add(on_ready, self._failed)
        self._participants = [one for one in self._participants if not one.closed]
        self._participants.append(participant)
        return participant

    def post(self, call: Callable[[], None]) -> None:
        """Call something in the loop's thread, unless the run is closed by then. May be called from
        any thread."""
        self._loop.post(lambda: None if self._closed else call(), self._failed)

    def in_thread(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Do something in a thread, and pass what it returns on in the loop's thread. What it
        raises is raised there, and reaches whoever drives the run."""
        import threading  # few runs need threads

        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001  raised where it ends the run
                bug = error
                self.post(lambda: _raise(bug))
                return
            self.post(lambda: done(result))

        threading.Thread(target=run, daemon=True).start()

    def close(self) -> None:
        """Call nothing of the run any more."""
        self._closed = True
        for participant in self._participants:
            participant.close()


def _raise(error: Exception) -> None:
    raise error


class _Poll(Protocol):
    """epoll, or what stands for it."""

    def __call__(self, timeout: float | None) -> list[tuple[int, int]]: ...
    def register(self, descriptor: int, events: int) -> None: ...
    def modify(self, descriptor: int, events: int) -> None: ...
    def unregister(self, descriptor: int) -> None: ...
    def close(self) -> None: ...


class _Epoll:
    def __init__(self) -> None:
        epoll = select.epoll()
        self.register, self.modify = epoll.register, epoll.modify
        self.unregister, self.close = epoll.unregister, epoll.close
        self._wait = epoll.poll

    def __call__(self, timeout: float | None) -> list[tuple[int, int]]:
        # some 24 days at most
        return self._wait(timeout if timeout is None or timeout < 1e6 else 1e6)


class _PlainPoll:
    """For systems without epoll."""

    def __init__(self) -> None:
        poll = select.poll()
        self.register, self.modify, self.unregister = poll.register, poll.modify, poll.unregister
        self._wait = poll.poll

    def __call__(self, timeout: float | None) -> list[tuple[int, int]]:
        # rounded up, so that a deadline has passed when poll returns
        return self._wait(None if timeout is None else math.ceil(min(timeout, 1e6) * 1000))

    def close(self) -> None:
        """poll(2) holds nothing."""


def _make_poll() -> _Poll:
    return _Epoll() if hasattr(select, "epoll") else _PlainPoll()
