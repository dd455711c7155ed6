"""How an event is written for its receiver. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from muster.describe.failure import one_line
from muster.describe.times import time_text
from muster.notify.oci_events import OciNames, oci_event
from muster.store.outbox_records import OutboxEntry

#: Precedes the types of events, so that they are unique among those of other programs.
TYPE_PREFIX = "muster."
#: The type of the event that `muster notify test` sends.
TEST_TYPE = "test"
_JSON, _TEXT = "application/json", "text/plain; charset=utf-8"
_TIMES = ("created_at", "started_at", "finished_at")
#: Characters that CloudEvents allows in a header as they are.
_HEADER_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


class Format(StrEnum):
    """The form of what is sent."""

    CLOUDEVENTS = "cloudevents"
    """CloudEvents 1.0, a JSON object (structured mode)."""
    CLOUDEVENTS_BINARY = "cloudevents-binary"
    """CloudEvents 1.0, its attributes in the headers and the data in the body (binary mode)."""
    SLACK = "slack"
    """A message for incoming webhooks of Slack, Mattermost and others."""
    OCI = "oci"
    """An event of OCI's Events service."""
    TEXT = "text"
    """A sentence."""


class Message(Struct, frozen=True):
    """What is sent."""

    body: bytes
    content_type: str
    title: str
    """The event in one line."""
    headers: Mapping[str, str] = {}
    """Of a request over HTTP, besides its content type."""


def write(entry: OutboxEntry, form: Format, names: OciNames) -> Message:
    """An event in a format. names: what the format `oci` calls its project."""
    title = title_of(entry)
    if form == Format.TEXT:
        return Message(f"{text_of(entry)}\n".encode(), _TEXT, title)
    if form == Format.SLACK:
        return Message(_json({"text": _slack(text_of(entry))}), _JSON, title)
    if form == Format.OCI:
        return Message(_json(oci_event(entry, names)), _JSON, title)
    attributes = _attributes(entry)
    if form == Format.CLOUDEVENTS_BINARY:
        headers = {f"ce-{name}": quote(text, _HEADER_SAFE) for name, text in attributes.items()}
        return Message(_json(data_of(entry)), _JSON, title, headers)
    event = {**attributes, "datacontenttype": _JSON, "data": data_of(entry)}
    return Message(_json(event), "application/cloudevents+json", title)


def _attributes(entry: OutboxEntry) -> dict[str, str]:
    """The context of an event (CloudEvents: context attributes)."""
    return {
        "specversion": "1.0",
        "id": entry.id,
        "source": f"/projects/{quote(entry.project)}",
        "type": TYPE_PREFIX + entry.type,
        "subject": entry.subject,
        "time": time_text(entry.time) or "",
    }


def data_of(entry: OutboxEntry) -> dict[str, Any]:
    """What an event tells, with times as RFC 3339 text."""
    times = {name: time_text(entry.data[name]) for name in _TIMES if name in entry.data}
    return {**entry.data, **times}


def title_of(entry: OutboxEntry) -> str:
    """An event in one line: `train-7 FAILED`."""
    data, (about, _, what) = entry.data, entry.type.partition(".")
    if entry.type == TEST_TYPE:
        return "test of a notification"
    if about == "run":
        return f"{data['name']} {data['state']}"
    if about == "job":
        return f"job {data['name']}@{data['version']} {what}"
    return f"object {data.get('bucket')}/{data.get('name')} {what}"


def text_of(entry: OutboxEntry) -> str:
    """An event in a sentence."""
    title, data = f"{title_of(entry)} in project {entry.project}", entry.data
    why = one_line(str(data.get("details") or ""))
    by = data.get("by") or ("" if entry.type.startswith("job.") else data.get("created_by"))
    return f"{title}: {why}" if why else f"{title}, by {by}" if by else title


def _slack(text: str) -> str:
    """Text in which nothing is a link or a mention (Slack: escaping)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _json(data: Any) -> bytes:
    return msgspec.json.encode(data)
