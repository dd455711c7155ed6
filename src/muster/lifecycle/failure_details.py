"""The texts on failures that the lifecycle stores: `details` of a run, and why it restarts."""

from __future__ import annotations

from signal import Signals

from muster.lifecycle.status import Failure, Reason


def describe(failure: Failure) -> str:
    """The headline, then the message of the program or the engine on the lines below."""
    head = headline(failure)
    return f"{head}:\n{failure.message}" if failure.message else head


def headline(failure: Failure) -> str:
    """One sentence, with `exit code N` (OCI clients read the number from it)."""
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
            text = f"the files that {where} wrote could not be copied back"
        case Reason.OUT_OF_MEMORY:
            text = f"{where} ran out of memory and was ended, exit code {failure.exit_code}"
        case _:
            text = f"{where} failed with exit code {failure.exit_code}"
            if failure.signal:
                text += f" ({_signal_text(failure.signal)})"
    return text


def _signal_text(number: int) -> str:
    try:
        return f"signal {number}, {Signals(number).name}"
    except ValueError:  # a real-time signal
        return f"signal {number}"


def reason_of(message: str) -> str:
    """The line of a failure's message that names the error; empty if the message is.

    A first line that Muster wrote, such as the name of the service that failed, stays before it.
    """
    first, newline, rest = message.strip().partition("\n")
    if not newline:
        return first
    from muster.node.failure_text import LAST_LINE, LAST_LINES, TRACEBACK, explain

    if first in (LAST_LINE, LAST_LINES):
        return f"{LAST_LINE} {explain(rest).lines[-1]}"
    found = explain(message)
    reason = next(iter(found.reasons), found.lines[-1])
    is_ours = first not in found.lines and TRACEBACK not in first
    return f"{first.rstrip(':')}: {reason}" if is_ours else reason
