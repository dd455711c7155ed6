"""The Python API of a notification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from muster.client.item import Item, ItemRecord
from muster.describe.times import minute, moment, optional_moment
from muster.store.notification_records import DeliveryRecord, DeliveryState, NotificationRecord

if TYPE_CHECKING:
    from muster.api.notifications import TestAnswer
    from muster.client.client import Client
    from muster.client.table import Table


class Delivery(ItemRecord, frozen=True):
    """An event for one notification."""

    #: The name of the notification.
    notification: str
    #: The id of the event, the same in each attempt.
    event: str
    #: `run.failed`, `job.created`, ...
    type: str
    #: What the event is about: `runs/ID`.
    subject: str
    #: When the event happened, in UTC.
    time: datetime
    #: `pending`, `delivered` or `failed`.
    state: str
    attempts: int
    #: When it is tried next, in UTC; None unless it is pending.
    due_at: datetime | None
    #: What the receiver answered last, or why there was no answer.
    answer: str

    def _cells(self) -> dict[str, str]:
        return {
            "TIME": minute(self.time),
            "NOTIFICATION": self.notification,
            "EVENT": self.type,
            "ABOUT": self.subject,
            "STATE": self.state,
            "ATTEMPTS": str(self.attempts),
            "ANSWER": self.answer or "-",
        }


class Notification(Item):
    """A notification: events are sent to its target, while a server runs."""

    def __init__(self, client: Client, record: NotificationRecord, key: str = "") -> None:
        self._client = client
        self._record = record
        #: What receivers verify signatures with, if it was just made; else "".
        self.key = key

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def name(self) -> str:
        """Unique in its project."""
        return self._record.name

    @property
    def target(self) -> str:
        """Where events are sent, without what may be secret: the path of a URL."""
        return self._record.target

    @property
    def on(self) -> list[str]:
        """Types of events, or patterns."""
        return [*self._record.on]

    @property
    def job(self) -> str:
        """The name of the Job that events are about; "" for any."""
        return self._record.job

    @property
    def tags(self) -> dict[str, str | None]:
        """Tags of what events are about; None for any value."""
        return dict(self._record.tags)

    @property
    def format(self) -> str:
        """`cloudevents`, `cloudevents-binary`, `slack`, `oci` or `text`."""
        return self._record.format

    @property
    def paused(self) -> bool:
        """Whether nothing is sent."""
        return self._record.paused

    @property
    def created_by(self) -> str:
        """The user who created it, with whose rights events are sent."""
        return self._record.created_by

    @property
    def created_at(self) -> datetime:
        """When it was created, in UTC."""
        return moment(self._record.created_at)

    def deliveries(self, *, limit: int | None = 10) -> Table[Delivery]:
        """What was sent last, newest first. limit: None for all that is kept."""
        from muster.client.table import Table

        return Table(map(delivery_of, self._client.api.deliveries(self.id, limit=limit)))

    def edit(
        self,
        *,
        target: str | None = None,
        on: str | Sequence[str] | None = None,
        job: str | None = None,
        tags: Mapping[str, str | None] | None = None,
        format: str | None = None,
        new_key: bool = False,
    ) -> Notification:
        """Change it: None changes nothing. new_key: sign with another key from now on, which `key`
        is then. Returns itself. Raises InvalidInput."""
        from muster.api.notifications import NotificationChange

        events = None if on is None else patterns(on)
        change = NotificationChange(target, events, job, tags, format, new_key)
        changed = self._client.api.edit_notification(self.id, change)
        self._record, self.key = changed.notification, changed.key
        return self

    def pause(self) -> Notification:
        """Send nothing more. Events that happen meanwhile are not sent later. Returns itself."""
        self._record = self._client.api.pause_notification(self.id)
        return self

    def resume(self) -> Notification:
        """Send events again, from now on. Returns itself."""
        self._record = self._client.api.resume_notification(self.id)
        return self

    def test(self) -> TestAnswer:
        """Send a sample event now, and wait for the answer."""
        return self._client.api.test_notification(self.id)

    def retry(self) -> int:
        """Try again to send what could not be sent. Returns the number of events."""
        return self._client.api.retry_deliveries(self.id)

    def delete(self) -> None:
        """Delete it, with what it has not sent."""
        self._client.api.delete_notification(self.id)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data; times as RFC 3339 text."""
        return super().to_dict() | ({"key": self.key} if self.key else {})

    def _facts(self) -> dict[str, Any]:
        names = ("id", "name", "target", "on", "job", "tags", "format", "paused", "created_by")
        return {name: getattr(self, name) for name in (*names, "created_at")}

    def _cells(self) -> dict[str, str]:
        return {
            "NOTIFICATION": self.name,
            "TARGET": self.target,
            "ON": ",".join(self.on),
            "ABOUT": about(self._record),
            "FORMAT": self.format,
            "STATE": "paused" if self.paused else "active",
            "BY": self.created_by or "-",
        }

    def __repr__(self) -> str:
        return f"<Notification {self.name} {self.target}>"


def about(record: NotificationRecord) -> str:
    """What events are about, in words."""
    tags = [key if value is None else f"{key}={value}" for key, value in record.tags.items()]
    given = [*([f"job {record.job}"] if record.job else []), *tags]
    if record.condition is not None:
        given.append("a condition of OCI")
    return ", ".join(given) or "-"


def patterns(given: str | Sequence[str]) -> tuple[str, ...]:
    """Types of events from text with commas, or from a list."""
    texts = given.split(",") if isinstance(given, str) else given
    return tuple(text.strip() for text in texts if text.strip())


def delivery_of(record: DeliveryRecord) -> Delivery:
    """A delivery as it is shown."""
    pending = record.state == DeliveryState.PENDING
    return Delivery(
        notification=record.notification,
        event=record.event_id,
        type=record.type,
        subject=record.subject,
        time=moment(record.time),
        state=str(record.state),
        attempts=record.attempts,
        due_at=optional_moment(record.due_at if pending else None),
        answer=record.answer,
    )
