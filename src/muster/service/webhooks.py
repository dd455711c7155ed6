"""Secrets of the webhooks of schedules. A server receives the requests: see `server.webhooks`."""

from __future__ import annotations

import time

from muster.api.schedules import WebhookAddress
from muster.errors import InvalidInput, Problem
from muster.iam.webhook_signatures import new_secret
from muster.lifecycle.trigger import Webhook
from muster.service.context import Context
from muster.storage.sealing import seal_file
from muster.store.schedule_records import ScheduleRecord, WebhookRecord


def address_of(context: Context, schedule: ScheduleRecord) -> WebhookAddress:
    """See `MusterAPI.webhook`."""
    _check(schedule)
    known = context.store.schedules.webhook(schedule.id)
    return WebhookAddress(_path(schedule), None if known is None else known.set_at)


def rotate(context: Context, schedule: ScheduleRecord) -> WebhookAddress:
    """See `MusterAPI.rotate_webhook`."""
    _check(schedule)
    secret, now = new_secret(), round(time.time(), 6)
    sealed = seal_file(context.home, secret.encode()).decode()
    context.store.schedules.set_webhook(WebhookRecord(schedule.id, sealed, now))
    return WebhookAddress(_path(schedule), now, secret)


def _path(schedule: ScheduleRecord) -> str:
    return f"/hooks/{schedule.id}"


def _check(schedule: ScheduleRecord) -> None:
    if not isinstance(schedule.trigger, Webhook):
        text = f"schedule {schedule.name} has no webhook"
        raise InvalidInput(Problem("", text, "`muster schedules create --webhook` makes one"))
