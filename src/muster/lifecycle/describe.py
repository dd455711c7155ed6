"""A failure, in words."""

from __future__ import annotations

from muster.lifecycle.status import Failure, Reason


def describe(failure: Failure) -> str:
    """The headline, then what its program or the engine said."""
    head = headline(failure)
    return f"{head}:\n{failure.message}" if failure.message else head


def in_a_line(details: str) -> str:
    """The same as one line: what was done or happened, and the line that names what went wrong."""
    head, colon, message = details.partition(":\n")
    if not colon:
        return details.partition("\n")[0]
    reason = reason_of(message)
    return f"{head}: {reason}" if reason else head


def reason_of(message: str) -> str:
    """The line of a failure's message that names what went wrong; empty if there is none. What
    Muster says of it, such as which service failed, stays before it."""
    first, newline, _ = message.strip().partition("\n")
    if not newline:
        return first
    from muster.node.failure_text import TRACEBACK, explain

    found = explain(message)
    reason = next(iter(found.reasons), found.lines[-1])
    said = first not in found.lines and TRACEBACK not in first
    return f"{first.rstrip(':')}: {reason}" if said else reason


def headline(failure: Failure) -> str:
    """One sentence, with `exit code N` (OCI clients read the number out of it)."""
    where = f"node-{failure.rank} (group {failure.group}, rank {failure.rank})"
    match failure.reason:
        case Reason.NOT_STARTED:
            text = f"{where} could not be started"
        case Reason.NODE_LOST:
            text = f"{where} was lost"
        case Reason.STARTUP_TIMEOUT:
            text = f"{where} did not become ready"
        case Reason.DEADLINE:
            text = f"{where} took too long"
        case Reason.HANG:
            text = f"{where} hung and was ended"
        case Reason.OUTPUT_LOST:
            text = f"what {where} wrote is not where it belongs"
        case Reason.OUT_OF_MEMORY:
            text = f"{where} ran out of memory and was ended, exit code {failure.exit_code}"
        case _:
            text = f"{where} failed with exit code {failure.exit_code}"
            if failure.signal:
                text += f" (signal {failure.signal})"
    return text
