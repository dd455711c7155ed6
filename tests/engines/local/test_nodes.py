"""The nodes of a session."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from muster.engines.local.nodes import LocalNode, Nodes, QueuedStart, started_ranks
from muster.lifecycle.status import NodeRef
from muster.node.channel import Channel
from muster.plan.model import NodePlan
from muster.storage.home import RunDir

ranks = st.integers(0, 2)


class NodesMachine(RuleBasedStateMachine):
    """Compared with a simple model: what each agent is doing."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = Nodes(3)
        self.doing: dict[
            int, tuple[NodeRef, bool]
        ] = {}  # pid -> incarnation, whether it is running
        self.started: set[NodeRef] = set()
        self.pid = 100

    def of(self, rank: int) -> list[int]:
        return [pid for pid, (ref, _) in self.doing.items() if ref.rank == rank]

    @rule(rank=ranks, incarnation=st.integers(0, 6))
    def start(self, rank: int, incarnation: int) -> None:
        ref = NodeRef(rank, incarnation)
        up = any(self.doing[pid][1] for pid in self.of(rank))
        newer = all(ref.incarnation > old.incarnation for old in self.started if old.rank == rank)
        queued = self.nodes.queue(ref, 0)
        assert queued == (newer and not up)
        if not queued:
            return
        self.started.add(ref)
        assert self.nodes.any_running
        assert self.nodes.kept_nodes_of([rank]) == [], "the kept node is queued"
        assert not self.nodes.queue(NodeRef(rank, incarnation + 1), 0), "one incarnation at a time"
        assert self.nodes.next_queued() == QueuedStart(ref, 0)
        node = self.nodes.kept(rank)
        if node is None:
            assert not self.of(rank), "there are never two nodes of a rank"
            self.pid += 1
            plan = NodePlan(rank, "workers", 0, rank, f"id-{rank}", f"node-{rank}", "", "")
            node = LocalNode(ref, 0, plan, rank, self.pid, Channel(socket.socket()), None, ())
        else:
            assert self.of(rank) == [node.pid]
            node.ref = ref
        self.nodes.add(node)
        self.doing[node.pid] = (ref, True)

    @rule(rank=ranks, incarnation=st.integers(0, 6))
    def cancel(self, rank: int, incarnation: int) -> None:
        """An incarnation that is canceled in the queue is not started later either."""
        ref = NodeRef(rank, incarnation)
        queued = self.nodes.queue(ref, 1)
        other = NodeRef(rank, incarnation + 1)
        assert self.nodes.cancel(other) is None
        assert self.nodes.cancel(ref) == (QueuedStart(ref, 1) if queued else None)
        assert not self.nodes.any_queued
        assert not self.nodes.queue(ref, 1)
        if queued:
            self.started.add(ref)

    @rule(rank=ranks)
    def end(self, rank: int) -> None:
        for pid in self.of(rank):
            ref, running = self.doing[pid]
            if running:
                self.nodes.keep(self.nodes.by_pid[pid])
                self.doing[pid] = (ref, False)

    @rule(rank=ranks)
    def lose(self, rank: int) -> None:
        for pid in self.of(rank):
            node = self.nodes.by_pid[pid]
            assert self.nodes.remove(node) == self.doing.pop(pid)[1]
            node.channel.close()

    @invariant()
    def agrees(self) -> None:
        assert set(self.nodes.by_pid) == set(self.doing)
        running_refs = {ref: pid for pid, (ref, running) in self.doing.items() if running}
        assert self.nodes.any_running == bool(running_refs)
        refs = [NodeRef(rank, incarnation) for rank in range(3) for incarnation in range(7)]
        found = self.nodes.running(refs)
        assert {node.ref: node.pid for node in found} == running_refs
        kept = {ref.rank: pid for pid, (ref, running) in self.doing.items() if not running}
        for ranks in ((), (0,), (0, 2), range(3)):
            pids = {node.pid for node in self.nodes.kept_nodes_of(ranks)}
            assert pids == {pid for rank, pid in kept.items() if rank in ranks}

    def teardown(self) -> None:
        for node in self.nodes.clear():
            node.channel.close()
        assert not self.nodes.any_running


TestNodes = NodesMachine.TestCase


@pytest.mark.parametrize(
    ("content", "found"),
    [(b"12\n", True), (b"1\n", False), (b"123\n", False), (b"12", False), (b"", False)],
)
def test_a_mark_belongs_to_one_incarnation(tmp_path: Path, content: bytes, found: bool) -> None:
    """An incomplete mark does not count: the program starts after the mark is complete."""
    run = RunDir(tmp_path)
    run.node(3).mkdir(parents=True)
    (run.node(3) / "begun").write_bytes(content)
    (run.node(4) / "begun").mkdir(parents=True)
    refs = [NodeRef(rank, 12) for rank in range(5)]
    assert started_ranks(run, refs) == ({3} if found else set())


def test_a_run_without_a_folder_has_no_started_ranks(tmp_path: Path) -> None:
    assert started_ranks(RunDir(tmp_path / "missing"), [NodeRef(0, 0)]) == frozenset()
