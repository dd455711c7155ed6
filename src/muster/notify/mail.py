"""E-mail about an event."""

from __future__ import annotations

import smtplib
from email.message import EmailMessage
from email.utils import format_datetime

from muster.describe.times import moment
from muster.escapes import visible_line
from muster.notify.formats import Message, text_of
from muster.notify.retries import Answer
from muster.notify.settings import SmtpSettings
from muster.store.outbox_records import OutboxEntry

_TIMEOUT = 10.0
_LONGEST_SUBJECT = 200


def send_mail(
    settings: SmtpSettings | None, addresses: list[str], entry: OutboxEntry, message: Message
) -> Answer:
    """Send an event to addresses, all of which see each other."""
    if settings is None:
        text = "not sent: the server has no [notifications.smtp] in server.toml"
        return Answer(False, text)
    if refused := settings.refused(addresses):
        text = f"not sent: recipients in server.toml do not allow {', '.join(refused)}"
        return Answer(False, text, final=True)
    try:
        _send(settings, write_mail(settings.sender, addresses, entry, message))
    except (smtplib.SMTPException, OSError) as error:
        return Answer(False, _reason(error))
    return Answer(True, f"accepted by {settings.host}")


def write_mail(
    sender: str, addresses: list[str], entry: OutboxEntry, message: Message
) -> EmailMessage:
    """The mail about an event: a sentence, and the event as it is sent elsewhere."""
    mail = EmailMessage()
    mail["From"], mail["To"] = sender, ", ".join(addresses)
    mail["Subject"] = f"[muster {entry.project}] {visible_line(message.title)}"[:_LONGEST_SUBJECT]
    mail["Date"] = format_datetime(moment(entry.time))
    mail["Message-ID"] = f"<{entry.id}@{sender.rpartition('@')[2]}>"  # the same in each attempt
    mail["Auto-Submitted"] = "auto-generated"  # no automatic answers (RFC 3834)
    details = str(entry.data.get("details") or "")
    mail.set_content(f"{text_of(entry)}\n\n{details}\n" if "\n" in details else text_of(entry))
    if not message.content_type.startswith("text/"):
        name = f"{entry.id}.json"
        mail.add_attachment(message.body, maintype="application", subtype="json", filename=name)
    return mail


def _send(settings: SmtpSettings, mail: EmailMessage) -> None:
    kind = smtplib.SMTP_SSL if settings.tls == "tls" else smtplib.SMTP
    with kind(settings.host, settings.port, timeout=_TIMEOUT) as server:
        if settings.tls == "starttls":
            import ssl

            server.starttls(context=ssl.create_default_context())
        if settings.user:
            server.login(settings.user, settings.password())
        refused = server.send_message(mail)
    if refused:
        raise smtplib.SMTPRecipientsRefused(refused)


def _reason(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPResponseException):
        answer = error.smtp_error
        text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
        return visible_line(f"SMTP {error.smtp_code}: {text}")[:200]
    return visible_line(f"mail was not accepted: {error}")[:200]
