"""What became of a node, from what its agent said last, or did not."""

from __future__ import annotations

import signal
from typing import Any

from muster.engines.local.starting import LocalNode
from muster.lifecycle.events import NodeEnded
from muster.lifecycle.status import NodeRef, Reason

Word = dict[str, Any]


def _word(code: int | None, number: int, reason: Reason, message: str) -> Word:
    return {"exit_code": code, "signal": number, "reason": reason, "message": message}


def never_begun() -> Word:
    """What an agent would have said of a node that was told to end before its program began."""
    return _word(128 + signal.SIGTERM, int(signal.SIGTERM), Reason.EXIT, "")


def cannot_begin(message: str) -> Word:
    """What an agent would have said of a node that we could not bring up."""
    return _word(None, 0, Reason.NOT_STARTED, message)


def not_started(ref: NodeRef, message: str) -> NodeEnded:
    """The end of a life that never was."""
    return _told(ref, cannot_begin(message))


def verdict(node: LocalNode) -> NodeEnded:
    """The end of the life this node is in."""
    lost = _word(128 + signal.SIGKILL, int(signal.SIGKILL), Reason.NODE_LOST, _LOST)
    said = node.said or lost
    if said["signal"] == signal.SIGKILL and node.ran_out_of_memory:
        said = said | {"reason": Reason.OUT_OF_MEMORY}
    return _told(node.ref, said)


_LOST = "its agent was killed"


def _told(ref: NodeRef, said: Word) -> NodeEnded:
    return NodeEnded(
        ref.rank,
        said["exit_code"],
        said["signal"],
        Reason(said["reason"]),
        said["message"],
        ref.incarnation,
        said.get("raised_at"),
    )
