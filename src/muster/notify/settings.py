"""What notifications may use on the server's machine: the table `notifications` of server.toml.

[notifications]
folders = ["/var/log/muster"]            # files may be written below; MUSTER_HOME/events always

[notifications.smtp]
host = "mail.example.com"
port = 587
tls = "starttls"                         # or "tls", or "none"
user = "muster"
password_file = "/etc/muster/smtp"
sender = "muster@example.com"
recipients = ["*@example.com"]           # who may get mail

[notifications.commands]
page = ["/usr/local/bin/page", "--quiet"]   # command:page; the event is on its standard input
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from muster.errors import InvalidInput, Problem
from muster.spec.decode import decode_partial
from muster.spec.toml_file import read_toml
from muster.storage.home import Home


class SmtpSettings(Struct, frozen=True):
    """How e-mail is sent."""

    host: str
    sender: str
    port: int = 587
    tls: Literal["starttls", "tls", "none"] = "starttls"
    user: str = ""
    password_file: str = ""
    recipients: tuple[str, ...] = ("*",)
    """Patterns of the addresses that mail may be sent to."""

    def password(self) -> str:
        """Raises OSError."""
        return Path(self.password_file).read_text().strip()

    def refused(self, addresses: list[str]) -> list[str]:
        """Those of these addresses that may get no mail."""
        patterns = [one.lower() for one in self.recipients]
        return [one for one in addresses if not any(fnmatch(one.lower(), p) for p in patterns)]


class NotificationSettings(Struct, frozen=True):
    """See the module."""

    folders: tuple[str, ...] = ()
    smtp: SmtpSettings | None = None
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    """The id of a function of OCI -> the URL that is called instead."""


def read_settings(home: Home) -> NotificationSettings:
    """The settings as they are now. Raises InvalidInput."""
    found = read_toml(home.server)
    if found is None:
        return NotificationSettings()
    problems: list[Problem] = []
    table = found.data.get("notifications") or {}
    settings = decode_partial(NotificationSettings, table, problems, "notifications")
    if problems or settings is None:
        raise InvalidInput(*map(found.placed, problems))
    return settings
