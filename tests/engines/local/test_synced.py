"""Mounts by URL, over restarts: who waits for which copy, and what a failed one means."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.engines.local.mounting import place
from muster.engines.local.synced import Released, SyncedMounts
from muster.lifecycle.events import NodeEnded
from muster.lifecycle.status import NodeRef, Reason
from muster.plan.model import RunPlan
from muster.storage.home import Home
from muster.storage.mounts import SYNC_URL

A, B = NodeRef(0, 0), NodeRef(1, 0)


class Copies:
    """Stands in for the processes that copy: they end when the test says so."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str]] = []  # direction and source
        self.killed: list[int] = []

    def spawn(self, program: str, argv: list[str], environ: Any) -> int:
        assert environ[SYNC_URL] not in argv, "other users can read a command line"
        self.begun.append((argv[3], environ[SYNC_URL]))
        return len(self.begun)

    def kill(self, pid: int, number: int) -> None:
        self.killed.append(pid)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Copies:
    copies = Copies()
    monkeypatch.setattr(os, "posix_spawn", copies.spawn)
    monkeypatch.setattr(os, "kill", copies.kill)
    return copies


@pytest.fixture
def synced(copies: Copies, plan_of: Callable[..., RunPlan], tmp_path: Path) -> SyncedMounts:
    plan = plan_of(nodes=2, mounts=[{"source": "file:///there"}])
    return SyncedMounts(plan, place(plan, Home(tmp_path)))


def ended(node: NodeRef, code: int = 0) -> NodeEnded:
    return NodeEnded(node.rank, code, incarnation=node.incarnation)


def test_nodes_wait_for_the_first_copy_only(synced: SyncedMounts, copies: Copies) -> None:
    assert copies.begun == [("in", "file:///there")]
    assert synced.hold_start([A])
    assert synced.hold_start([A, B])
    assert synced.reaped(1, 0) == Released((A, B))
    assert synced.reaped(77, 0) is None, "somebody else's process"
    assert not synced.hold_start([NodeRef(0, 1)]), "a restart goes on with what is there"
    assert len(copies.begun) == 1


def test_the_last_end_waits_for_what_is_written_back(synced: SyncedMounts, copies: Copies) -> None:
    synced.reaped(1, 0)
    assert synced.hold_end(ended(NodeRef(1, 4)))
    assert copies.begun[1:] == [("out", "file:///there")]
    assert synced.holds_end_of([A, NodeRef(1, 4)])
    assert not synced.holds_end_of([NodeRef(1, 3)])
    assert synced.reaped(2, 0) == Released(ends=(ended(NodeRef(1, 4)),))


def test_a_copy_that_failed_is_tried_again_for_the_next_attempt(
    synced: SyncedMounts, copies: Copies
) -> None:
    synced.hold_start([A])
    released = synced.reaped(1, 256)
    assert released is not None
    (end,) = released.ends
    assert (end.rank, end.incarnation, end.reason) == (0, 0, Reason.NOT_STARTED)
    assert "cannot synchronise file:///there" in end.message
    assert synced.hold_start([NodeRef(0, 1)]), "nobody starts without what it needs"
    assert copies.begun[1:] == [("in", "file:///there")]
    assert synced.reaped(2, 0) == Released((NodeRef(0, 1),))


def test_nothing_is_copied_for_nobody(synced: SyncedMounts, copies: Copies) -> None:
    synced.hold_start([A, B])
    assert [e.rank for e in synced.give_up([A])] == [0]
    assert copies.killed == []
    assert [e.reason for e in synced.give_up([A, B])] == [Reason.NOT_STARTED]
    assert copies.killed == [1]
    assert synced.reaped(1, 9) == Released()


def test_who_comes_while_a_copy_is_being_given_up_gets_one_of_its_own(
    synced: SyncedMounts, copies: Copies
) -> None:
    synced.hold_start([A])
    synced.give_up([A])
    again = NodeRef(0, 1)
    assert synced.hold_start([again])
    assert synced.reaped(1, 9) == Released()
    assert copies.begun[1:] == [("in", "file:///there")]
    assert synced.reaped(2, 0) == Released((again,))


def test_what_cannot_be_written_back_fails_who_ended_and_not_who_comes(
    synced: SyncedMounts, copies: Copies
) -> None:
    synced.reaped(1, 0)
    synced.hold_end(ended(A))
    assert synced.hold_start([NodeRef(0, 1)])
    released = synced.reaped(2, 256)
    assert released is not None
    assert released.nodes == (NodeRef(0, 1),)
    assert [(e.exit_code, e.reason) for e in released.ends] == [(1, Reason.OUTPUT_LOST)]


def test_a_start_that_is_taken_back_does_not_end_the_writing_back(
    synced: SyncedMounts, copies: Copies
) -> None:
    synced.reaped(1, 0)
    synced.hold_end(ended(A))
    again = NodeRef(0, 1)
    synced.hold_start([again])
    assert [e.incarnation for e in synced.give_up([again])] == [1]
    assert copies.killed == []
    assert synced.reaped(2, 0) == Released(ends=(ended(A),))
