"""Which lives are taken for which, whatever is asked twice, late or of the wrong one."""

from __future__ import annotations

import socket

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from muster.engines.local.crew import Crew
from muster.engines.local.starting import LocalNode
from muster.lifecycle.status import NodeRef
from muster.node.channel import Channel

ranks = st.integers(0, 2)


class CrewMachine(RuleBasedStateMachine):
    """Held against the plainest account of it: what each agent is doing."""

    def __init__(self) -> None:
        super().__init__()
        self.crew = Crew()
        self.doing: dict[int, tuple[NodeRef, bool]] = {}  # pid -> its life, whether that goes on
        self.begun: set[NodeRef] = set()
        self.pid = 100

    def of(self, rank: int) -> list[int]:
        return [pid for pid, (ref, _) in self.doing.items() if ref.rank == rank]

    @rule(rank=ranks, incarnation=st.integers(0, 6))
    def start(self, rank: int, incarnation: int) -> None:
        ref = NodeRef(rank, incarnation)
        up = any(self.doing[pid][1] for pid in self.of(rank))
        newer = all(ref.incarnation > old.incarnation for old in self.begun if old.rank == rank)
        claimed = self.crew.claim(ref)
        assert claimed == (newer and not up)
        if not claimed:
            return
        self.begun.add(ref)
        node = self.crew.kept(rank)
        if node is None:
            assert not self.of(rank), "there are never two nodes of a rank"
            self.pid += 1
            node = LocalNode(ref, 0, self.pid, Channel(socket.socket()), None, ())
        else:
            assert self.of(rank) == [node.pid]
            node.ref = ref
        self.crew.begin(node)
        self.doing[node.pid] = (ref, True)

    @rule(rank=ranks)
    def end(self, rank: int) -> None:
        for pid in self.of(rank):
            ref, goes_on = self.doing[pid]
            if goes_on:
                self.crew.rest(self.crew.agents[pid])
                self.doing[pid] = (ref, False)

    @rule(rank=ranks)
    def lose(self, rank: int) -> None:
        for pid in self.of(rank):
            node = self.crew.agents[pid]
            assert self.crew.remove(node) == self.doing.pop(pid)[1]
            node.channel.close()

    @invariant()
    def agrees(self) -> None:
        assert set(self.crew.agents) == set(self.doing)
        living = {ref: pid for pid, (ref, goes_on) in self.doing.items() if goes_on}
        assert self.crew.busy == bool(living)
        asked = [NodeRef(rank, incarnation) for rank in range(3) for incarnation in range(7)]
        found = self.crew.living(asked)
        assert {node.ref: node.pid for node in found} == living

    def teardown(self) -> None:
        for node in self.crew.clear():
            node.channel.close()
        assert not self.crew.busy


TestCrew = CrewMachine.TestCase
