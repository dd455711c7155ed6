"""Random events on random policies: no invariant is broken, and each run can be ended."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from muster.lifecycle.decide import decide, wake_at
from muster.lifecycle.events import (
    CancelRequested,
    ControllerStarted,
    Event,
    NodeEnded,
    NodeReady,
    NodeStarted,
    ResumeRequested,
    RunBroken,
    ScaleRequested,
    SupervisorLost,
    SuspendRequested,
    Tick,
)
from muster.lifecycle.policy import Policy
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Reason, new_status
from support.invariants import InvariantChecker
from support.policies import CODES, REASONS, policies

AFTER = st.sampled_from([0.0, 0.0, 0.5, 1.0, 4.0, 20.0])


class RandomRuns(RuleBasedStateMachine):
    #: False if the last call of `decide` has raised.
    decided = False

    @initialize(policy=policies(), suspended=st.sampled_from([False, False, True]))
    def start(self, policy: Policy, suspended: bool) -> None:
        self.policy = policy
        self.now = 1000.0
        self.status = new_status(policy.first_nodes(), suspended=suspended)
        self.checker = InvariantChecker(policy, self.status)
        self.receive(ControllerStarted())

    def receive(self, *events: Event, after: float = 0.0) -> None:
        self.decided, self.now = False, self.now + after
        made = decide(self.policy, self.status, events, self.now)
        self.checker.step(self.status, events, self.now, made)
        self.decided, self.status = True, made.status

    def alive(self, *states: NodeState) -> list[int]:
        nodes = enumerate(self.status.nodes)
        return [r for r, node in nodes if node.alive and (not states or node.state in states)]

    def ref(self, rank: int) -> tuple[int, int]:
        return rank, self.status.nodes[rank].incarnation

    # --- events of nodes

    @rule(data=st.data(), after=AFTER)
    def nodes_do_something(self, data: st.DataObject, after: float) -> None:
        """One or several events in one step."""
        events: list[Event] = []
        for _ in range(data.draw(st.integers(1, 3))):
            left = [rank for rank in self.alive() if all(rank != e.rank for e in events)]
            if not left:
                break
            rank, incarnation = self.ref(data.draw(st.sampled_from(left)))
            kind = data.draw(st.sampled_from(["up", "up", "end", "fail"]))
            if kind == "up":
                is_running = self.status.nodes[rank].state is NodeState.RUNNING
                make = NodeReady if is_running or data.draw(st.booleans()) else NodeStarted
                events.append(make(rank, incarnation))
            elif kind == "end":
                events.append(NodeEnded(rank, 0, incarnation=incarnation))
            else:
                reason = data.draw(st.sampled_from(REASONS))
                code = data.draw(st.sampled_from(CODES)) if reason is Reason.EXIT else None
                events.append(NodeEnded(rank, code, reason=reason, incarnation=incarnation))
        self.receive(*events, after=after)

    @precondition(lambda self: self.alive(NodeState.STARTING))
    @rule()
    def all_become_ready(self) -> None:
        self.receive(*(NodeReady(*self.ref(rank)) for rank in self.alive(NodeState.STARTING)))

    @rule(code=st.sampled_from([0, 0, 143, 137]))
    def stopping_nodes_end(self, code: int) -> None:
        leaving = [rank for rank in self.alive() if self.status.nodes[rank].leaving]
        self.receive(*(NodeEnded(r, code, incarnation=i) for r, i in map(self.ref, leaving)))

    @rule(data=st.data())
    def old_events(self, data: st.DataObject) -> None:
        """Repeated events and events of earlier incarnations change nothing."""
        events: list[Event] = [ResumeRequested("continue")] * (not self.is_suspended())
        for rank, node in enumerate(self.status.nodes):
            if node.incarnation > 0 or not node.alive:
                number = data.draw(st.integers(0, max(0, node.incarnation - node.alive)))
                events += NodeEnded(rank, 1, incarnation=number), NodeStarted(rank, number)
        made = decide(self.policy, self.status, events, self.now)
        assert made == decide(self.policy, self.status, [Tick()], self.now)

    def is_suspended(self) -> bool:
        return self.status.state is RunState.SUSPENDED

    # --- requests and failures of the machine

    @rule(after=AFTER)
    def time_passes(self, after: float) -> None:
        self.receive(Tick(), after=after)

    @precondition(lambda self: wake_at(self.status) is not None)
    @rule()
    def alarm_is_reached(self) -> None:
        self.receive(Tick(), after=max(0.0, (wake_at(self.status) or 0.0) - self.now))

    @rule(event=st.sampled_from([SuspendRequested("wait"), ResumeRequested("continue")]))
    def suspend_or_resume(self, event: Event) -> None:
        self.receive(event)

    @rule(data=st.data())
    def scale(self, data: st.DataObject) -> None:
        """A supervisor passes the desired sizes with each step, so they arrive often."""
        group = data.draw(st.sampled_from(self.policy.groups))
        request = ScaleRequested(
            group.name, data.draw(st.integers(0, group.replicas + 1)), "by user"
        )
        self.receive(request)
        made = decide(self.policy, self.status, [request], self.now)
        assert made == decide(self.policy, self.status, [Tick()], self.now)

    @rule(data=st.data())
    def supervisor_dies(self, data: st.DataObject) -> None:
        started = data.draw(st.none() | st.just(frozenset(self.alive(NodeState.READY))))
        self.receive(SupervisorLost("killed", started))

    @rule()
    def next_supervisor_starts(self) -> None:
        self.receive(ControllerStarted())

    @precondition(lambda self: self.now > 1100)
    @rule(event=st.sampled_from([CancelRequested("enough"), RunBroken("broken")]))
    def end_run(self, event: Event) -> None:
        self.receive(event)

    # --- the end

    def teardown(self) -> None:
        for _ in range(200):
            if not self.decided or self.status.state.terminal:
                return
            if self.status.state is RunState.SUSPENDED:
                self.receive(ResumeRequested("continue"), ControllerStarted())
            elif alive := self.alive():
                ends = (NodeEnded(r, 0, incarnation=i) for r, i in map(self.ref, alive))
                self.receive(*ends)
            else:
                self.alarm_is_reached()
        raise AssertionError(f"no end: {self.status}")


TestRandomRuns = RandomRuns.TestCase
TestRandomRuns.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
