"""Run the controllers of a cluster: each looks at an object again when something of it changes."""

from __future__ import annotations

import heapq
import threading
import time
import traceback
from collections.abc import Iterable
from typing import Protocol

from support.kube.objects import ApiError, Resource
from support.kube.storage import Event, Storage

Key = tuple[str, str]
#: Seconds until a controller tries again what was refused.
_RETRY = 1.0


class Clock:
    """Time for controllers. scale: real seconds that a second of the cluster takes."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def now(self) -> float:
        """Seconds of the cluster."""
        return time.monotonic() / self.scale


class ManualClock(Clock):
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def now(self) -> float:
        return self.time


class Controller(Protocol):
    """Reconciles objects: `keys` says which, when there is an event."""

    #: Seconds of the cluster that events are collected.
    batch: float

    def keys(self, resource: Resource, event: Event) -> Iterable[Key]: ...

    def reconcile(self, key: Key) -> float | None:
        """Returns seconds of the cluster after which it must look again; None: at the next event.
        May raise ApiError."""
        ...


class Manager:
    """The queue of all controllers, in one thread."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self.storage, self.clock = storage, clock
        self.controllers: list[Controller] = []
        #: Controllers that do nothing for now.
        self.paused: set[Controller] = set()
        #: What has failed in controllers, as text; tests look that there is nothing.
        self.defects: list[str] = []
        self._wake = threading.Condition()
        self._due: dict[tuple[int, Key], float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._thread: threading.Thread | None = None
        self._stopping = False
        storage.listeners.append(self._hear)

    def _hear(self, resource: Resource, event: Event) -> None:
        for controller in self.controllers:
            for key in controller.keys(resource, event):
                self.add(controller, key, controller.batch)

    def add(self, controller: Controller, key: Key, after: float = 0.0) -> None:
        """Look at an object after seconds of the cluster, unless it is to be looked at earlier."""
        number = self.controllers.index(controller)
        at = self.clock.now() + after
        with self._wake:
            if at < self._due.get((number, key), float("inf")):
                self._due[number, key] = at
                heapq.heappush(self._heap, (at, number, key))
                self._wake.notify_all()

    def resume(self, controller: Controller) -> None:
        """Let a controller that was paused go on."""
        with self._wake:
            self.paused.discard(controller)
            self._wake.notify_all()

    # --- in a thread

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="controllers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join(30)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._stopping and not self._is_due():
                    wait = None
                    if self._heap and not self.paused:
                        wait = (self._heap[0][0] - self.clock.now()) * self.clock.scale
                    self._wake.wait(0.05 if wait is None and self.paused else wait)
                if self._stopping:
                    return
            self._step()

    # --- without a thread

    def settle(self, most: int = 10_000) -> None:
        """Do all that is due, until nothing is."""
        for _ in range(most):
            if not self._step():
                return
        raise AssertionError("the controllers do not come to rest")

    def advance(self, seconds: float) -> None:
        """Let time of a `ManualClock` pass, with all that is due meanwhile."""
        assert isinstance(self.clock, ManualClock)
        end = self.clock.time + seconds
        self.settle()
        while (at := self._next()) is not None and at <= end:
            self.clock.time = max(self.clock.time, at)
            self.settle()
        self.clock.time = end

    def _next(self) -> float | None:
        times = [
            at
            for (number, _), at in self._due.items()
            if self.controllers[number] not in self.paused
        ]
        return min(times, default=None)

    def _is_due(self) -> bool:
        now = self.clock.now()
        if not self.paused:
            return bool(self._heap) and self._heap[0][0] <= now
        at = self._next()
        return at is not None and at <= now

    def _step(self) -> bool:
        """Look at the object that is due first; False if there is none."""
        with self._wake:
            taken = self._take()
        if taken is None:
            return False
        controller, key = taken
        try:
            after = controller.reconcile(key)
        except ApiError:
            after = _RETRY
        except Exception:  # noqa: BLE001  a test looks at them
            self.defects.append(traceback.format_exc())
            return True
        if after is not None:
            self.add(controller, key, after)
        return True

    def _take(self) -> tuple[Controller, Key] | None:
        now, kept, found = self.clock.now(), [], None
        while found is None and self._heap and self._heap[0][0] <= now:
            at, number, key = heapq.heappop(self._heap)
            if self._due.get((number, key)) != at:
                continue  # it was looked at since, or is due earlier
            controller = self.controllers[number]
            if controller in self.paused:
                kept.append((at, number, key))
                continue
            del self._due[number, key]
            found = controller, key
        for one in kept:
            heapq.heappush(self._heap, one)
        return found
