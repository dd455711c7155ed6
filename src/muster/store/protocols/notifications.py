"""Notifications, which are listeners, and the deliveries of their events. Several servers may
deliver at once: each delivery is claimed by one of them and, if that was killed, by another one
when the claim has expired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from muster.store.notification_records import (
        ClaimedDelivery,
        DeliveryRecord,
        DeliveryState,
        NotificationRecord,
    )


class Notifications(Protocol):
    """See the module."""

    def insert(self, notification: NotificationRecord) -> NotificationRecord:
        """Add a notification. Raises InvalidInput if the name is taken."""
        ...

    def get(self, notification_id: str) -> NotificationRecord:
        """The notification with this id. Raises NotFound, CorruptRecord."""
        ...

    def find(self, project: str, text: str) -> NotificationRecord:
        """The notification with this name or id. Raises NotFound, CorruptRecord."""
        ...

    def listing(
        self, project: str, *, limit: int | None = None, after: str | None = None
    ) -> list[NotificationRecord]:
        """The notifications of a project, by name. limit: only the first ones. after: only those
        after this name."""
        ...

    def update(self, before: NotificationRecord, after: NotificationRecord) -> NotificationRecord:
        """Change a notification, but not its name and who created it. Raises Conflict if it was
        changed since `before` was read, NotFound."""
        ...

    def delete(self, notification_id: str) -> bool:
        """Delete a notification and its deliveries. False if there is none."""
        ...

    def claim(self, now: float, until: float, *, limit: int) -> list[ClaimedDelivery]:
        """Claim deliveries that are due, so that no other server attempts them before `until`. Of
        those about one subject, only the first: the next ones wait for it. now: `Leases.now`."""
        ...

    def settle(
        self,
        delivery: ClaimedDelivery,
        state: DeliveryState,
        answer: str,
        now: float,
        due_at: float | None = None,
    ) -> bool:
        """Record what has become of an attempt. due_at: when the next one is, if it stays pending.
        False if the claim has expired, and another server has it."""
        ...

    def drop(self, delivery: ClaimedDelivery) -> None:
        """Forget a delivery: the notification does not want this event."""
        ...

    def deliveries(
        self,
        project: str,
        *,
        notification_id: str | None = None,
        state: DeliveryState | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[DeliveryRecord]:
        """Deliveries, those of the newest events first. limit: only the first ones. before: only
        those of events before the one with this `seq`."""
        ...

    def retry(self, project: str, now: float, *, notification_id: str | None = None) -> int:
        """Have deliveries that were given up attempted again, as if for the first time. Returns
        their number."""
        ...
