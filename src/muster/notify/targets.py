"""Where notifications are sent: what users write, and what it means. Pure.

https://hooks.example.com/muster    POST
mailto:ana@example.com,ops@example.com
file:/var/log/muster/events.jsonl   a line of JSON for each event
command:page                        a command that server.toml allows, with the event on stdin
nats://broker:4222/muster.events    a subject of NATS
kafka://broker:9092/muster-events   a topic of Kafka
"""

from __future__ import annotations

import re
from enum import StrEnum
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.spec.wording import short

_HINT = "write https://..., mailto:ADDRESS, file:/PATH, command:NAME, nats:// or kafka://"
#: What may be in an address of e-mail: no more than one can be typed by mistake.
_ADDRESS = re.compile(r"[^@\s,;:<>\"\\\x00-\x1f\x7f]+@[A-Za-z0-9._-]+")
_LONGEST = 2000


class TargetKind(StrEnum):
    """How an event gets to a target."""

    WEBHOOK = "webhook"
    EMAIL = "email"
    FILE = "file"
    COMMAND = "command"
    NATS = "nats"
    KAFKA = "kafka"
    JOB = "job"
    """A job of the OCI API: each event starts a job run. Only rules of OCI's Events service have
    it."""


#: Those that do on the server's machine, or in its network, what no role of a project allows.
OF_THE_SERVER = frozenset(
    (TargetKind.FILE, TargetKind.COMMAND, TargetKind.NATS, TargetKind.KAFKA),
)


class Target(Struct, frozen=True):
    """Where events are sent."""

    kind: TargetKind
    address: str
    """A URL; addresses of e-mail, separated by commas; a path; or the name of a command."""
    shown: str
    """What may be shown of it: the path of a URL is often its only secret."""

    @property
    def text(self) -> str:
        """What `parse_target` makes this of."""
        return self.address if "://" in self.address else self.shown

    @property
    def url(self) -> SplitResult:
        """The parts of the address, which is a URL."""
        return urlsplit(self.address)

    @property
    def addresses(self) -> list[str]:
        """Those of e-mail."""
        return self.address.split(",")

    @property
    def topic(self) -> str:
        """The subject of NATS, or the topic of Kafka."""
        return unquote(self.url.path.lstrip("/"))


def parse_target(text: str) -> Target:
    """The target that a user names. Raises InvalidInput."""
    scheme, _, rest = text.partition(":")
    scheme = scheme.lower()
    if len(text) > _LONGEST or not text.isprintable():
        raise _refused(f"is longer than {_LONGEST:,} characters, or cannot be printed")
    if scheme in ("https", "http"):
        return _of_url(TargetKind.WEBHOOK, text)
    if scheme in ("nats", "kafka"):
        return _broker(TargetKind(scheme), text)
    if scheme == "mailto":
        return _mail(rest)
    if scheme == "file":
        return _file(rest.removeprefix("//"))
    if scheme == "job":
        return Target(TargetKind.JOB, rest, text)
    if scheme == "command":
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", rest):
            raise _refused(f"{short(rest)} is not the name of a command")
        return Target(TargetKind.COMMAND, rest, text)
    raise _refused(f"{short(text)} is not a target")


def _of_url(kind: TargetKind, text: str) -> Target:
    if not text.isascii() or " " in text:
        raise _refused("has characters that a URL cannot have", "write them percent-encoded: %20")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _refused(f"is not a URL: {error}") from None
    if not host:
        raise _refused("names no host")
    if parts.fragment:
        raise _refused("has a fragment, which is not sent")
    shown_host = f"[{host}]" if ":" in host else host
    place = f"{shown_host}:{port}" if port is not None else shown_host
    path = f"/{parts.path.lstrip('/')}" if kind != TargetKind.WEBHOOK else _hidden(parts)
    return Target(kind, text, f"{parts.scheme.lower()}://{place}{path}")


def _hidden(parts: SplitResult) -> str:
    return "/..." if parts.path.strip("/") or parts.query else "/"


def _broker(kind: TargetKind, text: str) -> Target:
    target = _of_url(kind, text)
    what = "subject" if kind == TargetKind.NATS else "topic"
    if not re.fullmatch(r"[A-Za-z0-9._-]+", target.topic):
        raise _refused(f"names no {what}", f"write {kind}://HOST:PORT/{what.upper()}")
    return target


def _mail(text: str) -> Target:
    addresses = [unquote(one.strip()) for one in text.partition("?")[0].split(",")]
    wrong = [one for one in addresses if not _ADDRESS.fullmatch(one)]
    if wrong or "?" in text:
        raise _refused(f"{short(wrong[0] if wrong else text)} is not an address of e-mail")
    return Target(TargetKind.EMAIL, ",".join(addresses), f"mailto:{','.join(addresses)}")


def _file(path: str) -> Target:
    if not path.startswith("/") or path.endswith("/") or ".." in path.split("/"):
        raise _refused(f"{short(path)} is not the absolute path of a file")
    return Target(TargetKind.FILE, path, f"file:{path}")


def _refused(text: str, hint: str = _HINT) -> InvalidInput:
    return InvalidInput(Problem("target", text, hint))
