"""E-mail, to a real server of SMTP."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from msgspec.structs import replace

from muster.notify.formats import Format, write
from muster.notify.mail import send_mail
from muster.notify.oci_events import OciNames
from muster.notify.settings import SmtpSettings
from muster.store.outbox_records import OutboxEntry
from support.outbox_entries import run_entry
from support.ssh_hosts import free_port

NAMES = OciNames("ocid1.compartment.x", "vision")


class Mailbox:
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.recipients: list[str] = []
        #: What it answers to the next mails instead of accepting them.
        self.refusal = ""

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        if self.refusal:
            return self.refusal
        found = email.message_from_bytes(envelope.content, policy=email.policy.default)
        assert isinstance(found, EmailMessage)
        self.mails.append(found)
        self.recipients += envelope.rcpt_tos
        return "250 OK"


def _authenticate(_server: Any, _session: Any, _envelope: Any, _kind: str, data: Any) -> AuthResult:
    good = isinstance(data, LoginPassword) and data.password == b"the-password"
    return AuthResult(success=good, handled=False)


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def settings(mailbox: Mailbox) -> Iterator[SmtpSettings]:
    """How the mailbox is reached."""
    controller = Controller(
        mailbox,
        hostname="127.0.0.1",
        port=free_port(),
        authenticator=_authenticate,
        auth_require_tls=False,
    )
    controller.start()
    yield SmtpSettings("127.0.0.1", "muster@example.com", controller.port, "none")
    controller.stop()


def send(settings: SmtpSettings | None, entry: OutboxEntry, form: Format = Format.TEXT) -> Any:
    addresses = ["ana@example.com", "ops@example.com"]
    return send_mail(settings, addresses, entry, write(entry, form, NAMES))


def test_a_mail_says_what_has_happened(mailbox: Mailbox, settings: SmtpSettings) -> None:
    answer = send(settings, run_entry())
    assert (answer.delivered, answer.text) == (True, "accepted by 127.0.0.1")
    (mail,) = mailbox.mails
    assert mailbox.recipients == ["ana@example.com", "ops@example.com"]
    assert mail["Subject"] == "[muster vision] train-7 FAILED"
    assert mail["Message-ID"] == "<event1event1@example.com>"
    assert mail["Date"] == "Mon, 24 Nov 2025 16:00:11 +0000"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail.get_content().splitlines() == [
        "train-7 FAILED in project vision: node-1 failed: ValueError: <b> & more",
        "",
        "node-1 failed:",
        "ValueError: <b> & more",
    ]


def test_other_formats_are_attached(mailbox: Mailbox, settings: SmtpSettings) -> None:
    send(settings, run_entry(), Format.CLOUDEVENTS)
    (attached,) = mailbox.mails[0].iter_attachments()
    assert attached.get_filename() == "event1event1.json"
    assert attached.get_content() == write(run_entry(), Format.CLOUDEVENTS, NAMES).body


def test_nothing_of_an_event_becomes_a_header(mailbox: Mailbox, settings: SmtpSettings) -> None:
    send(settings, run_entry(name="x\r\nBcc: eve@example.com\r\n\r\nhello"))
    (mail,) = mailbox.mails
    assert mail["Bcc"] is None
    assert "\\nBcc: eve@example.com" in mail["Subject"]
    assert "eve@example.com" not in mailbox.recipients


def test_who_may_get_mail(mailbox: Mailbox, settings: SmtpSettings) -> None:
    some = replace(settings, recipients=("*@EXAMPLE.com",))
    assert send(some, run_entry()).delivered
    answer = send(replace(settings, recipients=("ana@*",)), run_entry())
    assert (answer.final, answer.text) == (
        *(True, "not sent: recipients in server.toml do not allow ops@example.com"),
    )
    assert send(None, run_entry()).text == (
        "not sent: the server has no [notifications.smtp] in server.toml"
    )
    assert len(mailbox.mails) == 1


def test_a_server_that_refuses(mailbox: Mailbox, settings: SmtpSettings) -> None:
    mailbox.refusal = "451 try again later"
    answer = send(settings, run_entry())
    assert (answer.delivered, answer.final, answer.text) == (
        *(False, False, "SMTP 451: try again later"),
    )
    assert send(replace(settings, tls="starttls"), run_entry()).text == (
        "mail was not accepted: STARTTLS extension not supported by server."
    )
    assert "mail was not accepted" in send(replace(settings, port=1), run_entry()).text


def test_a_password_is_read_from_its_file(
    mailbox: Mailbox, settings: SmtpSettings, tmp_path: Path
) -> None:
    file = tmp_path / "smtp"
    with_password = replace(settings, user="muster", password_file=str(file))
    assert "No such file" in send(with_password, run_entry()).text
    file.write_text("wrong\n")
    assert "SMTP 535" in send(with_password, run_entry()).text
    file.write_text("the-password\n")
    assert send(with_password, run_entry()).delivered
