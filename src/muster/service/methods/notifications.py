"""Notifications, and the deliveries of events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.iam.resources import resource_of_notification
from muster.permissions import Permission
from muster.service import resources
from muster.service.caller_checks import CallerChecks
from muster.service.readable import require
from muster.service.required_permissions import notification_of, of_one, requires

if TYPE_CHECKING:
    from muster.api.notifications import (
        ChangedNotification,
        NotificationChange,
        NotificationRequest,
        TestAnswer,
    )
    from muster.store.notification_records import DeliveryRecord, NotificationRecord


class NotificationMethods(CallerChecks):
    """See `MusterAPI`."""

    @requires(Permission.EVENT_RULE_CREATE, "add notifications", action="notifications.create")
    def create_notification(self, request: NotificationRequest) -> ChangedNotification:
        from muster.service.notifications import create

        return create(self.context, request)

    @requires(Permission.EVENT_RULE_INSPECT, "see notifications", some=True)
    def notifications(
        self, *, limit: int | None = None, after: str | None = None
    ) -> list[NotificationRecord]:
        from muster.service.notifications import shown

        project, listing = self._caller.project, self.store.notifications.listing

        def page(last: NotificationRecord | None) -> list[NotificationRecord]:
            return listing(project, limit=limit, after=after if last is None else last.name)

        needed = Permission.EVENT_RULE_INSPECT
        found = self._visible(needed, resources.of_notifications, page, limit)
        return [shown(one) for one in found]

    @of_one(notification_of, Permission.EVENT_RULE_READ, "see notifications")
    def notification(self, text: str) -> NotificationRecord:
        from muster.service.notifications import shown

        return shown(self._own_notification(text))

    @of_one(
        notification_of,
        Permission.EVENT_RULE_UPDATE,
        "edit notifications",
        action="notifications.edit",
    )
    def edit_notification(
        self, notification_id: str, change: NotificationChange
    ) -> ChangedNotification:
        from muster.service.notifications import edit

        return edit(self.context, self._own_notification(notification_id), change)

    @of_one(
        notification_of,
        Permission.EVENT_RULE_UPDATE,
        "pause notifications",
        action="notifications.pause",
    )
    def pause_notification(self, notification_id: str) -> NotificationRecord:
        from muster.service.notifications import set_paused

        return set_paused(self.context, self._own_notification(notification_id), True)

    @of_one(
        notification_of,
        Permission.EVENT_RULE_UPDATE,
        "resume notifications",
        action="notifications.resume",
    )
    def resume_notification(self, notification_id: str) -> NotificationRecord:
        from muster.service.notifications import set_paused

        return set_paused(self.context, self._own_notification(notification_id), False)

    @of_one(
        notification_of,
        Permission.EVENT_RULE_DELETE,
        "delete notifications",
        action="notifications.delete",
    )
    def delete_notification(self, notification_id: str) -> None:
        self.store.notifications.delete(self._own_notification(notification_id).id)

    @of_one(
        notification_of,
        Permission.EVENT_RULE_UPDATE,
        "test notifications",
        action="notifications.test",
    )
    def test_notification(self, notification_id: str) -> TestAnswer:
        from muster.service.notifications import test

        return test(self.context, self._own_notification(notification_id))

    @of_one(notification_of, Permission.EVENT_RULE_READ, "see notifications")
    def deliveries(
        self, notification_id: str, *, limit: int | None = None, before: int | None = None
    ) -> list[DeliveryRecord]:
        found = self._own_notification(notification_id)
        return self.store.notifications.deliveries(
            found.project, notification_id=found.id, limit=limit, before=before
        )

    @requires(Permission.EVENT_RULE_READ, "see notifications")
    def failed_deliveries(self, *, limit: int | None = None) -> list[DeliveryRecord]:
        from muster.store.notification_records import DeliveryState

        return self.store.notifications.deliveries(
            self._caller.project, state=DeliveryState.FAILED, limit=limit
        )

    @requires(
        Permission.EVENT_RULE_UPDATE, "send events again", action="notifications.retry", some=True
    )
    def retry_deliveries(self, notification: str | None = None) -> int:
        store, project, needed = self.store, self._caller.project, Permission.EVENT_RULE_UPDATE
        if notification is None:
            listing = store.notifications.listing
            page = lambda _: listing(project)  # noqa: E731
            chosen = self._visible(needed, resources.of_notifications, page, None)
        else:
            chosen = [self._own_notification(notification)]
            one = resource_of_notification(chosen[0])
            what = "send events again"
            require(self._caller, needed, what, one)
        now, retry = store.leases.now(), store.notifications.retry
        return sum(retry(project, now, notification_id=one.id) for one in chosen)
