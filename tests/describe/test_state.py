"""Why a run is in its state."""

from __future__ import annotations

from muster.describe.state import _consequences
from muster.lifecycle.status import Failure, Reason, RunStatus


def test_only_broken_connections_are_counted_as_such() -> None:
    messages = ["ValueError: bad", "Connection reset by peer", "", "KeyboardInterrupt"]
    failures = tuple(
        Failure(rank, "workers", Reason.EXIT, 1, 0, message, float(rank))
        for rank, message in enumerate(messages)
    )
    status = RunStatus((), failures=failures, cause=failures[0])
    assert _consequences(status) == (
        "consequences: node-1, node-2, node-3 ended within 3.0 s, "
        "1 of them from a broken connection"
    )
