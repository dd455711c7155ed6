"""What is sent to add and to edit notifications, and what is answered."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from muster.store.notification_records import NotificationRecord

#: What is sent if nothing else is requested: how runs end, and what waits for a person.
DEFAULT_EVENTS = ("run.succeeded", "run.failed", "run.needs_attention")


class NotificationRequest(Struct, frozen=True):
    """A notification to add."""

    name: str
    #: `https://...`, `mailto:...`, `file:/...`, `command:NAME`, `nats://...` or `kafka://...`.
    target: str
    #: Types of events, or patterns such as `run.*`.
    on: tuple[str, ...] = DEFAULT_EVENTS
    #: Only about runs of the Job with this name; "" for any.
    job: str = ""
    #: Only about what has these tags; None for any value.
    tags: Mapping[str, str | None] = {}
    #: `cloudevents`, `cloudevents-binary`, `slack`, `oci` or `text`; None: what fits the target.
    format: str | None = None


class NotificationChange(Struct, frozen=True):
    """What to change of a notification; None: nothing. See `NotificationRequest`."""

    target: str | None = None
    on: tuple[str, ...] | None = None
    job: str | None = None
    tags: Mapping[str, str | None] | None = None
    format: str | None = None
    #: Whether to sign with a new key from now on.
    new_key: bool = False


class ChangedNotification(Struct, frozen=True):
    """A notification as it is now, with its key if that is new: nobody can read it again."""

    notification: NotificationRecord
    #: What receivers verify signatures with, `whsec_...`; "" if it is not new.
    key: str = ""


class TestAnswer(Struct, frozen=True):
    """What came of an event that was sent as a test."""

    #: Not a test of pytest.
    __test__ = False

    delivered: bool
    #: What the receiver has answered, or why there is no answer.
    answer: str
