"""Send an event to its target."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.notify.formats import Format, Message, write
from muster.notify.oci_events import OciNames
from muster.notify.retries import Answer
from muster.notify.settings import NotificationSettings
from muster.notify.signatures import signature_headers
from muster.notify.targets import Target, TargetKind

if TYPE_CHECKING:
    from muster.store.outbox_records import OutboxEntry

_USER_AGENT = "muster-notify"


class Route(Struct, frozen=True):
    """Where an event goes, and how."""

    target: Target
    format: Format
    key: str
    """What webhooks are signed with."""
    settings: NotificationSettings
    folders: tuple[Path, ...]
    """Where files may be written."""
    names: OciNames
    allow_private: bool
    """Whether the target may be in the server's own network."""


def send(route: Route, entry: OutboxEntry) -> Answer:
    """Attempt a delivery, to any target but a job. Raises nothing that a receiver can cause."""
    message, target = write(entry, route.format, route.names), route.target
    if target.kind == TargetKind.WEBHOOK:
        return _post(route, entry, message)
    if target.kind == TargetKind.EMAIL:
        from muster.notify.mail import send_mail

        return send_mail(route.settings.smtp, target.addresses, entry, message)
    if target.kind == TargetKind.FILE:
        from muster.notify.local import append_line

        return append_line(Path(target.address), route.folders, message)
    if target.kind == TargetKind.COMMAND:
        from muster.notify.local import run_command

        argv = route.settings.commands.get(target.address)
        if not argv:
            text = f"not started: server.toml has no command {target.address} in "
            return Answer(False, f"{text}[notifications.commands]")
        return run_command(argv, entry, message)
    from muster.notify.brokers import publish

    return publish(target, entry, message)


def _post(route: Route, entry: OutboxEntry, message: Message) -> Answer:
    from muster.notify.http import post

    headers = {
        "content-type": message.content_type,
        "user-agent": _USER_AGENT,
        **message.headers,
        **signature_headers(route.key, entry.id, int(time.time()), message.body),
    }
    url = route.target.url
    if url.username is not None:
        import base64
        from urllib.parse import unquote

        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return post(url, message.body, headers, allow_private=route.allow_private)
