"""The checker of what sessions report finds what the contract forbids."""

from __future__ import annotations

import pytest

from muster.lifecycle.events import (
    DiskExceeded,
    EngineEvent,
    NodeEnded,
    NodeLocated,
    NodeQueued,
    NodeReachable,
    NodeReady,
    NodeScheduled,
    NodeStarted,
    NodeUnreachable,
    RunAdmitted,
    RunQueued,
    RunRestarted,
    SessionClosed,
)
from muster.lifecycle.incarnations import of_native_restart
from muster.lifecycle.status import NodeRef, Reason
from support.session_rules import SessionRules

Step = EngineEvent | NodeRef | str
#: A call of `start`.
FIRST, SECOND = NodeRef(0, 0), NodeRef(0, 1)
#: The session has been opened.
OPENED = "opened"

STARTED, READY, ENDED = NodeStarted(0), NodeReady(0), NodeEnded(0, 0)
LOST, FOUND = NodeUnreachable(0, 0, "no answer"), NodeReachable(0)
WAITS, WAITS_MORE = NodeQueued(0, 0, "Priority"), NodeQueued(0, 0, "Resources")
SCHEDULED, LOCATED = NodeScheduled(0, 0, "host"), NodeLocated(0, 0, "host", "10.0.0.1")
RUN_WAITS = RunQueued("for 2 GPUs")
CLOSED = SessionClosed()
RESTARTED, NUMBER = RunRestarted(1, (0,)), of_native_restart(1)
RESTARTED_NODE = NodeStarted(0, NUMBER)


def wrong(*steps: Step, alive: tuple[NodeRef, ...] = ()) -> list[str]:
    """What is wrong with these calls and events of one session."""
    rules = SessionRules(alive)
    found: list[str] = []
    for step in steps:
        if isinstance(step, NodeRef):
            rules.start([step])
        elif isinstance(step, str):
            found += rules.opened()
        else:
            found += rules.report([step])
    return found


@pytest.mark.parametrize(
    "steps",
    [
        (FIRST, STARTED, READY, ENDED, CLOSED),
        (FIRST, ENDED, SECOND, NodeStarted(0, 1), CLOSED),
        (FIRST, WAITS, WAITS_MORE, SCHEDULED, LOCATED, STARTED, LOCATED, ENDED),
        (FIRST, WAITS, SCHEDULED, WAITS, SCHEDULED, STARTED),
        (FIRST, STARTED, RESTARTED, RESTARTED_NODE, NodeEnded(0, 1, incarnation=NUMBER)),
        (FIRST, WAITS, ENDED),
        (FIRST, LOST, FOUND, STARTED, LOST, NodeUnreachable(0, 0, "refused"), FOUND, READY),
        (FIRST, STARTED, LOST, ENDED),
        (RunAdmitted(), FIRST, STARTED),
        (RUN_WAITS, FIRST, RunQueued("for 1 GPU"), RunAdmitted(), FIRST, STARTED),
    ],
)
def test_what_a_session_may_report(steps: tuple[Step, ...]) -> None:
    assert wrong(*steps) == []


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((STARTED,), "the session did not accept its start"),
        ((FIRST, NodeStarted(0, 1)), "the session did not accept its start"),
        ((FIRST, SECOND, NodeStarted(0, 1)), "the session did not accept its start"),
        ((SECOND, NodeEnded(0, 0, incarnation=1), FIRST, STARTED), "did not accept its start"),
        ((FIRST, STARTED, STARTED), "it has started"),
        ((FIRST, READY), "it has not started"),
        ((FIRST, STARTED, READY, READY), "it is ready"),
        ((FIRST, ENDED, ENDED), "it has ended"),
        ((FIRST, ENDED, STARTED), "it has ended"),
        ((FIRST, STARTED, NodeEnded(0, None, reason=Reason.NOT_STARTED)), "it has started"),
        ((FIRST, NodeEnded(0, 256)), "that is not an exit code"),
        ((FIRST, STARTED, WAITS), "it has started"),
        ((FIRST, WAITS, WAITS), "it waits for that already"),
        ((FIRST, WAITS, STARTED), "it waits"),
        ((FIRST, SCHEDULED), "it does not wait"),
        ((FIRST, WAITS, SCHEDULED, STARTED, SCHEDULED), "it has started"),
        ((FIRST, STARTED, LOCATED), "it has started, and was not located before"),
        ((FIRST, FOUND), "it is reachable"),
        ((FIRST, LOST, LOST), "it is unreachable for that reason already"),
        ((FIRST, NodeUnreachable(0)), "it does not say why"),
        ((FIRST, LOST, STARTED), "its agent cannot be reached"),
        ((FIRST, STARTED, LOST, DiskExceeded(0, 2, 1)), "its agent cannot be reached"),
        ((FIRST, STARTED, RUN_WAITS), "it has to be the first event"),
        ((RUN_WAITS, RUN_WAITS), "it waits for that already"),
        ((RUN_WAITS, FIRST, STARTED), "the session did not accept its start"),
        ((FIRST, STARTED, RunAdmitted()), "the run does not wait"),
        ((RunAdmitted(), RunAdmitted()), "the run does not wait"),
        ((RUN_WAITS, RunAdmitted(), RunQueued("again")), "the run was admitted"),
        ((FIRST, CLOSED, ENDED), "the session has closed"),
        ((CLOSED, CLOSED), "the session has closed"),
    ],
)
def test_what_it_may_not(steps: tuple[Step, ...], why: str) -> None:
    (found,) = wrong(*steps)
    assert why in found


@pytest.mark.parametrize(
    "steps",
    [
        (FOUND, OPENED, STARTED, READY),
        (LOST, OPENED, FOUND, LOCATED, STARTED, READY, ENDED),
        (LOST, OPENED, WAITS, SCHEDULED, FOUND, STARTED),
        (LOST, OPENED, FOUND, SCHEDULED, STARTED),
        (LOST, OPENED, FIRST, FOUND, STARTED),
        (LOST, OPENED, ENDED, SECOND, NodeStarted(0, 1)),
    ],
)
def test_what_a_session_that_attaches_may_report(steps: tuple[Step, ...]) -> None:
    assert wrong(*steps, alive=(FIRST,)) == []


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((OPENED,), "neither reached nor reported as unreachable"),
        ((STARTED,), "its agent cannot be reached"),
        ((LOST, OPENED, STARTED), "its agent cannot be reached"),
        ((LOST, OPENED, SECOND, NodeStarted(0, 1)), "the session did not accept its start"),
        ((LOST, OPENED, FOUND, NodeReady(0)), "it has not started"),
    ],
)
def test_what_a_session_that_attaches_may_not(steps: tuple[Step, ...], why: str) -> None:
    (found,) = wrong(*steps, alive=(FIRST,))
    assert why in found
