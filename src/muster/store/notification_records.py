"""Records of notifications, and of their deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from muster.store.outbox_records import OutboxEntry
from muster.store.records import Moment

#: Deliveries that have arrived are kept of the last events of each notification.
KEPT_DELIVERIES = 100


class NotificationRecord(Struct, frozen=True):
    """A rule: which events are sent where."""

    id: str
    name: str
    """Unique in its project."""
    project: str
    kind: str
    """What the target is: `webhook`, `email`, `file`, `command`, `nats` or `kafka`."""
    target: str
    """What is shown of the target: no password, and no path of a URL."""
    on: tuple[str, ...]
    """Types of events, or patterns: `run.failed`, `run.*`."""
    job: str
    """The name of the Job that events are about; "" for any."""
    tags: Mapping[str, str | None]
    """Tags of what events are about; None for any value."""
    format: str
    """`cloudevents`, `cloudevents-binary`, `slack`, `oci` or `text`."""
    condition: Mapping[str, Any] | None
    """The condition of a rule of OCI's Events service; None if it was not created there."""
    created_by: str
    """Whose rights in the project allow it."""
    created_at: Moment
    updated_at: Moment
    local: bool = False
    """Whether it was made on the server's machine by a user of its MUSTER_HOME, who needs no
    account, and whose targets may be in the server's network."""
    paused: bool = False
    """While it is, events are not kept for it."""
    version: int = 1
    """One more with each change."""
    sealed: Mapping[str, str] = {}
    """The encrypted `target` and signing `key`; empty in what is shown."""


class DeliveryState(StrEnum):
    """What has become of an event for one notification."""

    PENDING = "pending"
    """It is to be sent, perhaps again."""
    DELIVERED = "delivered"
    FAILED = "failed"
    """It was tried often enough: `muster notify retry` tries again."""


class DeliveryRecord(Struct, frozen=True):
    """An event for one notification."""

    notification: str
    """Its name."""
    event_id: str
    type: str
    subject: str
    time: Moment
    """When the event happened."""
    state: DeliveryState
    attempts: int
    due_at: Moment
    """When it is tried next, if it is pending."""
    answer: str
    """What the receiver answered last, or why it could not be reached."""
    settled_at: Moment | None
    """When it was delivered, or given up."""
    seq: int


class ClaimedDelivery(Struct, frozen=True):
    """A delivery that one server attempts. No other one does, until the claim expires."""

    notification: NotificationRecord
    entry: OutboxEntry
    attempts: int
    """Those before."""
    first_at: Moment
    """When the first attempt began."""
    claim: str
