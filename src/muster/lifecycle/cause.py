"""Find the first cause among several failures, and tell it from its consequences.

When one node of a run fails, the connections of the others break and they fail a moment later. The
order in which failures are reported is not always the order in which they happened.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from muster.lifecycle.events import NodeEnded
from muster.lifecycle.status import Failure, Reason

#: Reasons that the failure of another node does not lead to.
_NEVER_CONSEQUENCES = (
    Reason.OUT_OF_MEMORY,
    Reason.NODE_LOST,
    Reason.PREEMPTED,
    Reason.CANCELED,
    Reason.NOT_STARTED,
    Reason.PREFLIGHT,
    Reason.OUTPUT_LOST,
)


def first(failures: Sequence[Failure]) -> Failure:
    """The failure that most likely caused the others.

    Failures that look like consequences come last; the others are ordered by the time at which
    their program raised the error (torchelastic error files), or at which they were reported.
    """
    if len(failures) == 1:
        return failures[0]  # searching its message would delay the restart
    return min(failures, key=order)


def consequences(failures: Sequence[Failure], cause: Failure | None) -> tuple[Failure, ...]:
    """All failures except the cause."""
    return tuple(failure for failure in failures if failure != cause)


def order(failure: Failure) -> tuple[bool, float]:
    """Sort key that puts the cause before its consequences."""
    return is_consequence(failure), failure.at if failure.raised_at is None else failure.raised_at


def is_consequence(failure: Failure | NodeEnded) -> bool:
    """Whether a failure looks like the consequence of another node's failure."""
    if failure.reason in _NEVER_CONSEQUENCES:
        return False
    ended_by = failure.signal if failure.reason is Reason.EXIT else 0
    if ended_by in (signal.SIGPIPE, signal.SIGTERM) and not has_traceback(failure.message):
        return True
    if failure.reason in (Reason.HANG, Reason.UNHEALTHY, Reason.STARTUP_TIMEOUT):
        return True  # a node that waits for a failed peer looks the same
    from muster.node.failure_text import looks_like_consequence  # few runs need it

    return looks_like_consequence(failure.message)


def is_end_by_signal(message: str) -> bool:
    """Whether a failure's message is the exception of a program that was signaled to end."""
    if not has_traceback(message):
        return False
    from muster.node.failure_text import names_signal

    return names_signal(message)


def has_traceback(message: str) -> bool:
    """Whether a failure's message has a Python traceback."""
    # as node.failure_text.TRACEBACK, whose import would delay a restart
    return "Traceback (most recent call last)" in message
