"""A failure in one line, for lists and logs."""

from __future__ import annotations

from muster.lifecycle.failure_details import reason_of


def one_line(details: str) -> str:
    """Shorten stored details to the headline and the line that names the error.

    Details are a headline or, where a program or the engine left a message, a headline with ":" and
    the message on the lines below.
    """
    headline, colon, message = details.partition(":\n")
    if not colon:
        return details.partition("\n")[0]
    reason = reason_of(message)
    return f"{headline}: {reason}" if reason else headline
