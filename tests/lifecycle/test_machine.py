"""Random stories on random policies: none breaks a promise, and each can be brought to an end."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from muster.lifecycle.decide import decide, wake_at
from muster.lifecycle.events import (
    CancelRequested,
    Event,
    NodeEnded,
    NodeReady,
    NodeStarted,
    ResumeRequested,
    RunBegan,
    RunBroken,
    ScaleRequested,
    SupervisorLost,
    SuspendRequested,
    Tick,
)
from muster.lifecycle.policy import Policy
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Reason, new_status
from support.policies import CODES, REASONS, policies
from support.promises import Witness

AFTER = st.sampled_from([0.0, 0.0, 0.5, 1.0, 4.0, 20.0])


class Stories(RuleBasedStateMachine):
    whole = False

    @initialize(policy=policies(), suspended=st.sampled_from([False, False, True]))
    def begin(self, policy: Policy, suspended: bool) -> None:
        self.policy = policy
        self.now = 1000.0
        self.status = new_status(policy.first_nodes(), suspended=suspended)
        self.witness = Witness(policy, self.status)
        self.tell(RunBegan())

    def tell(self, *events: Event, after: float = 0.0) -> None:
        self.whole, self.now = False, self.now + after
        made = decide(self.policy, self.status, events, self.now)
        self.witness.step(self.status, events, self.now, made)
        self.whole, self.status = True, made.status

    def alive(self, *states: NodeState) -> list[int]:
        nodes = enumerate(self.status.nodes)
        return [r for r, node in nodes if node.alive and (not states or node.state in states)]

    def ref(self, rank: int) -> tuple[int, int]:
        return rank, self.status.nodes[rank].incarnation

    # --- what nodes do

    @rule(data=st.data(), after=AFTER)
    def nodes_do_something(self, data: st.DataObject, after: float) -> None:
        """One or several, heard of in one step."""
        events: list[Event] = []
        for _ in range(data.draw(st.integers(1, 3))):
            left = [rank for rank in self.alive() if all(rank != e.rank for e in events)]
            if not left:
                break
            rank, incarnation = self.ref(data.draw(st.sampled_from(left)))
            kind = data.draw(st.sampled_from(["up", "up", "end", "fail"]))
            if kind == "up":
                wanted = self.status.nodes[rank].state is NodeState.RUNNING
                make = NodeReady if wanted or data.draw(st.booleans()) else NodeStarted
                events.append(make(rank, incarnation))
            elif kind == "end":
                events.append(NodeEnded(rank, 0, incarnation=incarnation))
            else:
                reason = data.draw(st.sampled_from(REASONS))
                code = data.draw(st.sampled_from(CODES)) if reason is Reason.EXIT else None
                events.append(NodeEnded(rank, code, reason=reason, incarnation=incarnation))
        self.tell(*events, after=after)

    @precondition(lambda self: self.alive(NodeState.STARTING))
    @rule()
    def all_come_up(self) -> None:
        self.tell(*(NodeReady(*self.ref(rank)) for rank in self.alive(NodeState.STARTING)))

    @rule(code=st.sampled_from([0, 0, 143, 137]))
    def they_obey(self, code: int) -> None:
        leaving = [rank for rank in self.alive() if self.status.nodes[rank].leaving]
        self.tell(*(NodeEnded(r, code, incarnation=i) for r, i in map(self.ref, leaving)))

    @rule(data=st.data())
    def old_news(self, data: st.DataObject) -> None:
        """What is told again, or of a life that is over, changes nothing."""
        events: list[Event] = [ResumeRequested("go on")] * (not self.at_rest())
        for rank, node in enumerate(self.status.nodes):
            if node.incarnation > 0 or not node.alive:
                number = data.draw(st.integers(0, max(0, node.incarnation - node.alive)))
                events += NodeEnded(rank, 1, incarnation=number), NodeStarted(rank, number)
        told = decide(self.policy, self.status, events, self.now)
        assert told == decide(self.policy, self.status, [Tick()], self.now)

    def at_rest(self) -> bool:
        return self.status.state is RunState.SUSPENDED

    # --- what people and the machine do

    @rule(after=AFTER)
    def time_passes(self, after: float) -> None:
        self.tell(Tick(), after=after)

    @precondition(lambda self: wake_at(self.status) is not None)
    @rule()
    def it_is_time(self) -> None:
        self.tell(Tick(), after=max(0.0, (wake_at(self.status) or 0.0) - self.now))

    @rule(event=st.sampled_from([SuspendRequested("wait"), ResumeRequested("go on")]))
    def pause(self, event: Event) -> None:
        self.tell(event)

    @rule(data=st.data())
    def scale(self, data: st.DataObject) -> None:
        """As often as it may come to a supervisor: what is wanted is told with each step."""
        group = data.draw(st.sampled_from(self.policy.groups))
        wish = ScaleRequested(group.name, data.draw(st.integers(0, group.replicas + 1)), "so many")
        self.tell(wish)
        told = decide(self.policy, self.status, [wish], self.now)
        assert told == decide(self.policy, self.status, [Tick()], self.now)

    @rule(data=st.data())
    def supervisor_dies(self, data: st.DataObject) -> None:
        begun = data.draw(st.none() | st.just(frozenset(self.alive(NodeState.READY))))
        self.tell(SupervisorLost("killed", begun))

    @rule()
    def somebody_takes_it_up(self) -> None:
        self.tell(RunBegan())

    @precondition(lambda self: self.now > 1100)
    @rule(event=st.sampled_from([CancelRequested("enough"), RunBroken("gone")]))
    def end_it(self, event: Event) -> None:
        self.tell(event)

    # --- the end

    def teardown(self) -> None:
        for _ in range(200):
            if not self.whole or self.status.state.terminal:
                return
            if self.status.state is RunState.SUSPENDED:
                self.tell(ResumeRequested("go on"), RunBegan())
            elif alive := self.alive():
                ends = (NodeEnded(r, 0, incarnation=i) for r, i in map(self.ref, alive))
                self.tell(*ends)
            else:
                self.it_is_time()
        raise AssertionError(f"no end: {self.status}")


TestStories = Stories.TestCase
TestStories.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
