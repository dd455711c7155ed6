"""Sends the events of notifications.

Each server claims what is due, so that one at a time attempts a delivery; if it is killed, another
one attempts it when the claim has expired. A receiver gets each event at least once, with the same
id each time.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Lock
from typing import TYPE_CHECKING

from muster.errors import Forbidden, MusterError, NotFound, StoreError
from muster.notify.conditions import wants
from muster.notify.retries import Answer, next_attempt
from muster.notify.sending import send
from muster.notify.targets import TargetKind
from muster.server.oci.event_runs import start_for_event
from muster.server.periodic_threads import PeriodicThread
from muster.service.notifications import creator_of, names_in_oci, route_of
from muster.store.notification_records import ClaimedDelivery, DeliveryState

if TYPE_CHECKING:
    from muster.server.state import ServerState
    from muster.store.protocols.notifications import Notifications

#: Seconds between looks: what reports events may be a process of another machine, which could tell
#: this one through the database only.
_INTERVAL = 1.0
#: Seconds of a claim: longer than an attempt may take.
_CLAIM = 60.0
#: Deliveries that are attempted at once. A receiver that hangs holds one of them up.
_THREADS = 16
#: Seconds for which deliveries that were given up are kept.
_KEPT = 30 * 24 * 3600.0
#: Seconds between removals of events that no listener will handle.
_CLEANING_INTERVAL = 3600.0


class Deliverer:
    """Threads that send events."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._rng = Random()
        #: Deliveries that are being attempted.
        self._busy = 0
        self._lock = Lock()
        given = ("deliverer", self.look, state.log, "events cannot be sent")
        self._thread = PeriodicThread(*given, pause=_INTERVAL)
        self._workers = ThreadPoolExecutor(_THREADS, "delivery")
        self._cleaned = time.monotonic()

    def start(self) -> None:
        """Begin; the first look is at once."""
        self._thread.start()

    def stop(self) -> None:
        """End after the attempts that have begun."""
        self._thread.stop()
        self._workers.shutdown(wait=True)

    @property
    def _notifications(self) -> Notifications:
        return self._state.backend.store.notifications

    def look(self) -> float:
        """Attempt what is due, as far as threads are idle. Raises StoreError, HomeGone."""
        self._state.check_home()
        if time.monotonic() > self._cleaned + _CLEANING_INTERVAL:
            self._cleaned = time.monotonic()
            self._state.backend.store.outbox.forget(time.time() - _KEPT)
        with self._lock:
            idle = _THREADS - self._busy
        if not idle:
            return _INTERVAL
        now = self._state.backend.store.leases.now()
        for delivery in self._notifications.claim(now, now + _CLAIM, limit=idle):
            with self._lock:
                self._busy += 1
            done = self._workers.submit(self._attempt, delivery)
            done.add_done_callback(self._ended)
        return _INTERVAL

    def _ended(self, _: object) -> None:
        """A thread is idle again, and the next event of its subject may be sent."""
        with self._lock:
            self._busy -= 1
        self._thread.wake()

    def _attempt(self, delivery: ClaimedDelivery) -> None:
        try:
            self._deliver(delivery)
        except NotFound:  # it was deleted
            return
        except Exception as error:  # noqa: BLE001  it is attempted again when the claim has expired
            self._thread.report(error)

    def _deliver(self, delivery: ClaimedDelivery) -> None:
        """Attempt a delivery, and record the outcome. Raises StoreError."""
        names = names_in_oci(delivery.notification.project, self._state.compartments.ocid)
        if not wants(delivery.notification, delivery.entry, names):
            self._notifications.drop(delivery)
            return
        began = time.monotonic()
        answer = self._answer(delivery)
        now = self._state.backend.store.leases.now()
        state, due_at = DeliveryState.DELIVERED, None
        if not answer.delivered:
            given = (answer, delivery.attempts + 1, delivery.first_at, now)
            due_at = next_attempt(*given, self._rng)
            state = DeliveryState.FAILED if due_at is None else DeliveryState.PENDING
        self._notifications.settle(delivery, state, answer.text, now, due_at)
        self._state.metrics.delivery(delivery.notification.kind, state)
        self._state.log.info(
            "delivery",
            notification=delivery.notification.name,
            project=delivery.notification.project,
            event=delivery.entry.id,
            type=delivery.entry.type,
            state=state,
            answer=answer.text,
            seconds=round(time.monotonic() - began, 3),
        )

    def _answer(self, delivery: ClaimedDelivery) -> Answer:
        """The outcome of an attempt, also of one that cannot be made."""
        state, notification = self._state, delivery.notification
        allowed = notification.local or state.settings.file.allow_private_addresses
        try:
            creator_of(state.backend.store.accounts, state.backend.policies, notification)
            if notification.kind == TargetKind.JOB:
                return start_for_event(state, notification, delivery.entry)
            route = route_of(
                state.backend.home,
                notification,
                allow_private=allowed,
                compartment=self._state.compartments.ocid,
            )
        except StoreError:
            raise
        except Forbidden as error:
            return Answer(False, f"not sent: {error}", final=True)
        except MusterError as error:
            return Answer(False, f"not sent: {error}")
        return send(route, delivery.entry)
