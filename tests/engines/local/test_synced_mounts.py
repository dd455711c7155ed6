"""Mounts by URL: which nodes wait for which copy, and what a failed copy does."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.engines.local.mounts import source_folders
from muster.engines.local.synced_mounts import Released, SyncedMounts
from muster.lifecycle.events import NodeEnded
from muster.lifecycle.status import NodeRef, Reason
from muster.plan.model import RunPlan
from muster.storage.home import Home
from muster.storage.sync_process import SYNC_URL, Access

A, B = NodeRef(0, 0), NodeRef(1, 0)


class Copies:
    """Replaces the processes that copy; the test reports their ends."""

    def __init__(self) -> None:
        self.started: list[tuple[str, str]] = []  # direction and source
        self.killed: list[int] = []

    def spawn(self, program: str, argv: list[str], environ: Any) -> int:
        assert environ[SYNC_URL] not in argv, "other users can read a command line"
        self.started.append((argv[4], environ[SYNC_URL]))
        return len(self.started)

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
    folders = source_folders(plan, Home(tmp_path), Home(tmp_path))
    return SyncedMounts(plan, folders, Access(os.environ))


def ended(node: NodeRef, code: int = 0) -> NodeEnded:
    return NodeEnded(node.rank, code, incarnation=node.incarnation)


def test_nodes_wait_for_the_first_copy_only(synced: SyncedMounts, copies: Copies) -> None:
    assert copies.started == [("in", "file:///there")]
    assert synced.hold_start([A])
    assert synced.hold_start([A, B])
    assert synced.reaped(1, 0) == Released((A, B))
    assert synced.reaped(77, 0) is None, "not a process that copies"
    assert not synced.hold_start([NodeRef(0, 1)]), "a restart uses the copy"
    assert len(copies.started) == 1


def test_the_end_of_the_last_node_waits_for_the_copy_back(
    synced: SyncedMounts, copies: Copies
) -> None:
    synced.reaped(1, 0)
    assert synced.hold_end(ended(NodeRef(1, 4)))
    assert copies.started[1:] == [("out", "file:///there")]
    assert synced.holds_end_of([A, NodeRef(1, 4)])
    assert not synced.holds_end_of([NodeRef(1, 3)])
    assert synced.reaped(2, 0) == Released(ends=(ended(NodeRef(1, 4)),))


def test_a_failed_copy_is_repeated_for_the_next_incarnation(
    synced: SyncedMounts, copies: Copies
) -> None:
    synced.hold_start([A])
    released = synced.reaped(1, 256)
    assert released is not None
    (end,) = released.ends
    assert (end.rank, end.incarnation, end.reason) == (0, 0, Reason.NOT_STARTED)
    assert "cannot synchronize file:///there" in end.message
    assert synced.hold_start([NodeRef(0, 1)]), "no node starts without the copy"
    assert copies.started[1:] == [("in", "file:///there")]
    assert synced.reaped(2, 0) == Released((NodeRef(0, 1),))


def test_a_copy_that_policies_refuse_says_so(
    copies: Copies, plan_of: Callable[..., RunPlan], tmp_path: Path
) -> None:
    plan = plan_of(nodes=1, mounts=[{"source": "file:///there"}])
    folders = source_folders(plan, Home(tmp_path), Home(tmp_path))
    asked: list[tuple[str, bool]] = []

    def why_denied(url: str, written: bool) -> str:
        asked.append((url, written))
        return "ask for a policy"

    synced = SyncedMounts(plan, folders, Access(os.environ, why_denied=why_denied))
    synced.hold_start([A])
    released = synced.reaped(1, 256)
    assert released is not None
    assert released.ends[0].message.endswith("cannot synchronize file:///there: ask for a policy")
    assert asked == [("file:///there", True)]


def test_a_copy_is_killed_when_no_node_waits_for_it(synced: SyncedMounts, copies: Copies) -> None:
    synced.hold_start([A, B])
    assert [e.rank for e in synced.cancel_start([A])] == [0]
    assert copies.killed == []
    assert [e.reason for e in synced.cancel_start([A, B])] == [Reason.NOT_STARTED]
    assert copies.killed == [1]
    assert synced.reaped(1, 9) == Released()


def test_a_node_that_starts_while_a_copy_is_being_killed_gets_a_new_copy(
    synced: SyncedMounts, copies: Copies
) -> None:
    synced.hold_start([A])
    synced.cancel_start([A])
    again = NodeRef(0, 1)
    assert synced.hold_start([again])
    assert synced.reaped(1, 9) == Released()
    assert copies.started[1:] == [("in", "file:///there")]
    assert synced.reaped(2, 0) == Released((again,))


def test_a_failed_copy_back_fails_the_ended_node_and_not_the_starting_one(
    synced: SyncedMounts, copies: Copies
) -> None:
    synced.reaped(1, 0)
    synced.hold_end(ended(A))
    assert synced.hold_start([NodeRef(0, 1)])
    released = synced.reaped(2, 256)
    assert released is not None
    assert released.nodes == (NodeRef(0, 1),)
    assert [(e.exit_code, e.reason) for e in released.ends] == [(1, Reason.OUTPUT_LOST)]


def test_a_canceled_start_does_not_stop_the_copy_back(synced: SyncedMounts, copies: Copies) -> None:
    synced.reaped(1, 0)
    synced.hold_end(ended(A))
    again = NodeRef(0, 1)
    synced.hold_start([again])
    assert [e.incarnation for e in synced.cancel_start([again])] == [1]
    assert copies.killed == []
    assert synced.reaped(2, 0) == Released(ends=(ended(A),))
