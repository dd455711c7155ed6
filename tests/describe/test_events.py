"""Entries of the event log, in words."""

from __future__ import annotations

from typing import Any

import pytest

from muster.describe.events import brief_sentence, in_log, sentence
from muster.lifecycle.states import NodeState, RunState

SENTENCES: list[tuple[str, dict[str, Any], str]] = [
    ("run", {"state": "ACCEPTED", "details": ""}, "the run was accepted"),
    (
        "run",
        {"state": "QUEUED", "details": "waiting for GPUs: needs 1, 0 of 2 free"},
        "the run is queued: waiting for GPUs: needs 1, 0 of 2 free",
    ),
    (
        "run",
        {"state": "ACCEPTED", "details": "", "admitted": True},
        "the run no longer waits, and can start",
    ),
    ("run", {"state": "ACCEPTED", "details": "resumed by user"},
     "the run was accepted again: resumed by user"),
    ("run", {"state": "CANCELING", "details": "enough"}, "the run is being canceled: enough"),
    ("run", {"state": "FAILED", "details": "node-1 failed:\nTraceback\nValueError: 1"},
     "the run failed: node-1 failed: ValueError: 1"),
    ("run", {"state": "LATER"}, "the run is LATER"),
    ("nodes", {"ranks": "2", "state": "READY"}, "node 2 is ready"),
    ("nodes", {"ranks": "0-1,4", "state": "READY", "restart": 2},
     "nodes 0-1,4 are ready, restart 2"),
    ("nodes", {"ranks": "2", "state": "FAILED", "exit_code": 3, "signal": 0},
     "node 2 failed with exit code 3"),
    ("nodes", {"ranks": "2", "state": "STOPPED", "exit_code": 0, "why": "canceled"},
     "node 2 was stopped: canceled"),
    ("nodes", {"ranks": "2", "state": "QUEUED", "why": "Resources"},
     "node 2 is waiting: Resources"),
    ("scheduled", {"ranks": "2", "group": "g", "where": "n17", "seconds": 7260.0},
     "node 2 (group g) was scheduled on n17 after 2h1m"),
    ("scheduled", {"ranks": "2-3", "group": "g", "where": "", "seconds": 4},
     "nodes 2-3 (group g) were scheduled after 4.0s"),
    ("unreachable", {"ranks": "0-7", "group": "g", "why": "no answer for 30 s"},
     "nodes 0-7 (group g) cannot be reached: no answer for 30 s"),
    ("reachable", {"ranks": "7", "group": "g", "seconds": 65.2},
     "node 7 (group g) can be reached again after 1m5s"),
    ("restart", {"restart": 1, "what": "the run", "why": "node-2 was lost", "wait": 10.0},
     "restart 1 of the run in 10.0 s: node-2 was lost"),
    ("attempt", {"attempt": 1, "why": "restart 1"}, "attempt 1 starts: restart 1"),
    ("restart", {"restart": 1000000, "what": "the run", "by": "engine", "why": "preempted"},
     "the engine restarts the run by itself: preempted"),
    ("attempt", {"attempt": 3, "by": "engine"}, "attempt 3, begun by the engine"),
    ("nodes", {"ranks": "2", "state": "READY", "restart": 2000000},
     "node 2 is ready, restart 2 by the engine"),
    ("nodes", {"ranks": "2", "state": "PENDING", "restart": 2000003},
     "node 2 waits for restart 3 after 2 by the engine"),
    ("resumed", {"attempt": 1, "why": "resumed by user"},
     "attempt 1 starts: resumed by user"),
    ("cancel_requested", {"why": "by me"}, "cancel requested: by me"),
    ("suspend_requested", {"why": "by me"}, "suspend requested: by me"),
    ("scaled", {"group": "workers", "from": 1, "to": 3, "why": "by user"},
     "workers scaled from 1 to 3 by user"),
    ("disk", {"rank": 1, "group": "workers", "used": 5 << 29, "allowed": 2 << 30},
     "node-1 (group workers) uses more disk (2.5GiB or more) than its resources.disk of 2GiB, "
     "which is not enforced here"),
    ("disk", {"rank": 1, "group": "workers"},
     "node-1 (group workers) uses more disk than its resources.disk, which is not enforced here"),
    ("stopping", {"towards": "FAILED", "why": "x"}, "the run is ending as FAILED: x"),
    ("supervisor_lost", {"why": "it was killed"}, "it was killed"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "data", "text"), SENTENCES)
def test_an_entry_is_a_sentence(kind: str, data: dict[str, Any], text: str) -> None:
    assert sentence(kind, data) == text


SIGNALED = "the run's supervisor received SIGTERM, stopped all nodes and exited"
LOST = f"node-0 (group workers, rank 0) was lost:\n{SIGNALED}"
BRIEF: list[tuple[str, dict[str, Any], str]] = [
    ("handed_over", {"why": SIGNALED},
     "the supervisor received SIGTERM and leaves the run to the next command"),
    ("supervisor_lost", {"why": SIGNALED}, SIGNALED),
    ("failure", {"rank": 0, "group": "workers", "reason": "NODE_LOST", "message": SIGNALED},
     "node-0 (group workers) failed, reason NODE_LOST"),
    ("failure", {"rank": 0, "group": "workers", "reason": "NODE_LOST", "message": "it was killed"},
     "node-0 (group workers) failed, reason NODE_LOST: it was killed"),
    ("restart", {"restart": 1, "what": "the run", "why": LOST},
     "restart 1 of the run: node-0 (group workers, rank 0) was lost"),
    ("stopping", {"towards": "FAILED", "why": LOST},
     "the run is ending as FAILED: node-0 (group workers, rank 0) was lost"),
    ("run", {"state": "FAILED", "details": LOST},
     f"the run failed: node-0 (group workers, rank 0) was lost: {SIGNALED}"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "data", "text"), BRIEF)
def test_a_list_says_once_why_a_supervisor_was_lost(
    kind: str, data: dict[str, Any], text: str
) -> None:
    assert brief_sentence(kind, data) == text


def test_every_state_has_a_different_sentence() -> None:
    nodes = [sentence("nodes", {"ranks": "0", "state": state}) for state in NodeState]
    runs = [
        sentence("run", {"state": s}) for s in RunState if s not in ("DELETED", "NEEDS_ATTENTION")
    ]
    for sentences in (nodes, runs):
        assert len(set(sentences)) == len(sentences)
        assert not any(state in text for text in sentences for state in (*NodeState, *RunState))


@pytest.mark.parametrize(
    ("kind", "data", "shown"),
    [
        ("run", {"state": "SUCCEEDED"}, True),
        ("nodes", {"state": "STARTING"}, True),
        ("nodes", {"state": "SUCCEEDED"}, False),
        ("nodes", {}, False),
        ("failure", {}, True),
        ("stopping", {"towards": "CANCELED"}, False),
    ],
)
def test_some_entries_are_messages_of_the_log(kind: str, data: dict[str, Any], shown: bool) -> None:
    assert in_log(kind, data) is shown
