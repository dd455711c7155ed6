"""Which of several failures came first, and which are its consequences.

When one node of a gang fails, the others see their connections break and fail a moment later; the
order in which we hear of it is not always the order in which it happened.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from muster.lifecycle.status import Failure, Reason

#: Reasons that no peer can bring about.
_OWN = (Reason.OUT_OF_MEMORY, Reason.NODE_LOST, Reason.NOT_STARTED, Reason.OUTPUT_LOST)


def first(failures: Sequence[Failure]) -> Failure:
    """The one that most likely caused the others.

    A program that noted when it saw its error (torchelastic error files) is believed; then comes
    who does not merely complain of a broken connection; then who was told of first.
    """
    if len(failures) == 1:
        return failures[0]  # nothing to compare: a restart need not wait for its message to be read
    return min(failures, key=order)


def consequences(failures: Sequence[Failure], cause: Failure | None) -> tuple[Failure, ...]:
    """All but the cause."""
    return tuple(failure for failure in failures if failure != cause)


def order(failure: Failure) -> tuple[bool, float]:
    """Sorts the cause before its consequences."""
    return echo(failure), failure.at if failure.raised_at is None else failure.raised_at


def echo(failure: Failure) -> bool:
    """Whether it looks like the consequence of another node's failure."""
    if failure.reason in _OWN:
        return False
    ended_by = failure.signal if failure.reason is Reason.EXIT else 0
    if ended_by in (signal.SIGPIPE, signal.SIGTERM) and not raised(failure.message):
        return True
    if failure.reason in (Reason.HANG, Reason.STARTUP_TIMEOUT):
        return True  # who waits for a peer that has gone looks just like this
    from muster.node.failure_text import is_echo  # most runs never need it

    return is_echo(failure.message)


def raised(message: str) -> bool:
    """Whether its program ended of an exception."""
    return "Traceback (most recent call last)" in message
