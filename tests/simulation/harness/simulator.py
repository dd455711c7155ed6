"""Simulates one run: the real controller with simulated nodes, a fake ledger, virtual time, and the
faults of a plan."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from muster.control.controller import Record
from muster.control.drive import DrivenRun, Driver, RunParts
from muster.engines.base import Report, Session
from muster.engines.loop import RunLoop
from muster.forecast.event_queue import EventQueue
from muster.lifecycle.decide import decide
from muster.lifecycle.effects import Entry
from muster.lifecycle.events import (
    CancelRequested,
    Event,
    HandOverRequested,
    ResumeRequested,
    RunBroken,
    ScaleRequested,
    SupervisorLost,
)
from muster.lifecycle.policy import Policy, Strategy
from muster.lifecycle.states import RunState
from muster.lifecycle.status import NodeRef, alive_nodes
from muster.plan.model import RunPlan
from simulation.harness.agents import AgentSession, Contacts
from simulation.harness.behavior import Behavior
from simulation.harness.fake_ledger import FakeLedger
from simulation.harness.faults import (
    ControllerDies,
    ControllerLeaves,
    FaultPlan,
    NodeFails,
    NodeWaits,
    SeveralFail,
    SlowStart,
    UserRequests,
    UserScales,
)
from simulation.harness.infrastructure import Infrastructure
from simulation.harness.injection import ControllerCrash, FaultyLedger, FaultySession
from simulation.harness.run_plan import run_plan
from simulation.harness.session import Deadlock, VirtualClock, VirtualLoop
from simulation.harness.trace import Fact, Loaded, Note, Step, Trace
from simulation.harness.wire import Wire, WiredSession
from simulation.harness.world import Incarnation, World
from support.session_rules import SessionRules, checked

#: When every simulated run is accepted (epoch seconds).
EPOCH = 1_000_000_000.0
#: Seconds after the last fault within which a run has to end, under any policy.
_MAX_DURATION = 200_000.0
_CLOSING = (0.0, 0.0, 0.3, 40.0)
_MAX_WAITS = 10_000
#: As in `control.recover`: a run fails after this many lost supervisors without any started node;
#: if nodes outlive them, with the next one within so many seconds.
_MAX_LOST_SUPERVISORS = 3
_SOON = 600.0

LedgerFactory = Callable[[RunPlan, float, bool], FakeLedger]


class Case(Struct, frozen=True):
    """A run to simulate. Times are virtual seconds."""

    seed: int
    policy: Policy
    #: The behavior of nodes; see `behavior.Script`. The last argument is the time.
    script: Callable[[NodeRef, int, bool, float], Behavior]
    plan: FaultPlan = ()
    #: From then on there are no faults, and programs behave well.
    settled: float = 0.0
    #: Whether a run that stays suspended is resumed at that time.
    resumed: bool = True
    #: Whether the run is submitted suspended.
    suspended: bool = False
    #: Whether each recorded step is read back and compared.
    thorough: bool = True
    #: Whether nodes outlive their controller.
    detached: bool = False
    #: If what has started the nodes restarts the run by itself: seconds after which the agent of a
    #: failed node that nobody answers exits.
    decision_window: float | None = None


class NeverEnds(Exception):  # noqa: N818
    """The run does not end."""


class Simulation:
    """One simulated run."""

    def __init__(self, case: Case, open_ledger: LedgerFactory) -> None:
        self.case = case
        self.policy = case.policy
        self.queue = EventQueue()
        self.trace = Trace(case.seed, case.policy, case.plan, case.settled, [], case.detached)
        self.ledger = open_ledger(run_plan(case.seed, case.policy), EPOCH, case.suspended)
        self.steps = 0
        self._waits = 0
        self.driven: DrivenRun | None = None
        #: What the present session may report.
        self.rules = SessionRules()
        #: Seconds that a session takes to close.
        self._closing = _CLOSING[case.seed % len(_CLOSING)]
        self._jump = 0.0
        self._controllers = 0
        self._resumable = case.resumed
        #: Whether the process of the controller was asked to end.
        self._leaves: ControllerLeaves | None = None
        self._slow = {(f.rank, f.nth): f.seconds for f in case.plan if isinstance(f, SlowStart)}
        self._queued = {(f.rank, f.nth): f.seconds for f in case.plan if isinstance(f, NodeWaits)}
        self._starts: dict[int, int] = {}
        self.wire = Wire(self.queue, case.plan, self.note, ordered=case.detached)
        #: The session with nodes that outlive it.
        self._agents: AgentSession | None = None
        keep = case.policy.strategy is Strategy.IN_PLACE and case.policy.restarts
        self.world = World(
            self.queue,
            self._script,
            keep=keep,
            observer=self._observe,
            epoch=EPOCH,
            elsewhere=case.detached,
        )
        if case.detached:
            self.contacts = Contacts(self.queue, case.plan, case.policy.size, self.note)
            if case.decision_window is not None:
                self.contacts.infrastructure = Infrastructure(
                    self.queue,
                    self.world,
                    self.contacts,
                    case.plan,
                    case.decision_window,
                    case.policy.max_restarts,
                    self._desired,
                    self.note,
                )
        for fault in case.plan:
            if isinstance(fault, NodeFails):
                self.queue.at(fault.at, self._node_fails, fault)
            elif isinstance(fault, SeveralFail):
                self.queue.at(fault.at, self._several_fail, fault)
            elif isinstance(fault, ControllerLeaves):
                self.queue.at(fault.at, self._leave, fault)
            elif isinstance(fault, UserRequests):
                self.queue.at(fault.at, self.request, fault.what)
            elif isinstance(fault, UserScales) and fault.step is None:
                self.queue.at(fault.at, self.request_scale, fault)

    def play(self) -> Trace:
        """Run the simulation."""
        trace = self.trace
        self._ledger = FaultyLedger(self)
        try:
            while not self.ledger.state().terminal:
                if self.ledger.state() is not RunState.SUSPENDED:
                    self._run_controller()
                elif not self._resumed():
                    break
            trace.result = "ended" if self.ledger.state().terminal else "suspended"
        except Deadlock:
            trace.result = "deadlock: the driver waits for an event that never comes"
        except NeverEnds as error:
            trace.result = str(error)
        except Exception:  # noqa: BLE001  a defect is a finding like others
            trace.result = f"defect: {traceback.format_exc()}"
        if trace.wrong_reports:
            trace.result = f"defect: a session has reported what it may not: {trace.wrong_reports}"
        trace.final = self.ledger.load()
        trace.recorded, trace.pending, trace.log = (
            self.ledger.state(),
            self.ledger.pending(),
            self.ledger.log(),
        )
        return trace

    # --- controllers

    def _run_controller(self) -> None:
        """Run a controller until the run ends or is suspended, or the controller dies."""
        self._controllers += 1
        self.note("controller starts", str(self._controllers))
        clock = self._clock()
        ledger = self._ledger.of(clock, self.by)
        sessions: list[FaultySession] = []

        def open_session(_: RunLoop, report: Report) -> FaultySession:
            sessions.append(FaultySession(self, ledger, report, self._open_session))
            return sessions[0]

        loop = VirtualLoop(self.queue)
        driver = Driver(loop)
        try:
            parts = RunParts(
                self.policy,
                ledger,
                clock,
                open_session,
                self._asked_to_leave,
                detached=self.case.detached,
            )
            run = self.driven = driver.add(parts)
            (session,) = sessions
            session.after_wait()
            loop.before_wait, loop.after_wait = session.before_wait, session.after_wait
            while driver.runs:
                loop.run_once()
            if run.outcome is not None and run.outcome.error is not None:
                raise run.outcome.error
            if run.outcome is not None and run.outcome.handed_over:
                self._take_over()
        except ControllerCrash as crash:
            self._disconnect()
            self._recover(crash.fault)
        finally:
            self._disconnect()
            self._leaves = None
            loop.close()

    def _disconnect(self) -> None:
        """The process of the controller has ended."""
        self.driven = None
        self.wire.connect(None)
        if self._agents is not None:
            self._agents.end()
            self._agents = None

    def _open_session(self, report: Report) -> Session:
        """Open a session. What it reports is checked before the wire delays or repeats it."""
        detached = self.case.detached
        self.rules = rules = SessionRules(alive_nodes(self.ledger.load()) if detached else ())
        if not detached:  # it reports the present state of all
            newest = self.world.incarnations.values()
            rules.start(NodeRef(node.rank, node.incarnation) for node in newest)
        wrong = self.trace.wrong_reports.extend
        self.wire.check = lambda events: wrong(rules.report(events))
        direct = checked(rules, report, wrong)
        session: Session
        if detached:
            session = self._open_agents(direct)
        else:
            session = WiredSession(self.world, self.wire, direct, self._closing)
        self.wire.connect(report)
        wrong(rules.opened())
        return session

    def _open_agents(self, report: Report) -> AgentSession:
        rng = Random(f"{self.case.seed} {self._controllers}")
        self._agents = AgentSession(
            self.world,
            self.wire,
            self.contacts,
            report,
            self.ledger.load(),
            rng,
            self._closing,
        )
        return self._agents

    @property
    def by(self) -> str:
        return f"controller {self._controllers}"

    def _recover(self, fault: ControllerDies) -> None:
        aftermath = fault.aftermath
        if self.case.detached and aftermath != "broken":
            aftermath = "live"
        self.note(f"controller dies {fault.moment}, nodes {aftermath}")
        before = self.ledger.load()
        refs = [NodeRef(r, node.incarnation) for r, node in enumerate(before.nodes) if node.alive]
        started = self.world.ranks_that_ran(refs)
        if aftermath != "live":
            self._end_nodes()
        self._wait(fault.down)
        if fault.jump:
            self._jump += fault.jump
            self.world.epoch += fault.jump
            self.note("clock jumps", f"{fault.jump:g} s")
        state = self.ledger.state()
        suspended = state is RunState.SUSPENDED
        if self.case.detached and aftermath == "live" and not (state.terminal or suspended):
            self._replace_supervisor()
            return
        if state.terminal or (aftermath == "live" and not suspended):
            return
        if suspended and not self.ledger.pending().cancel:
            return
        lost: Event = SupervisorLost("its supervisor died", started)
        if aftermath == "die_unknown":
            lost = SupervisorLost("its supervisor died")
        elif aftermath == "broken":
            lost = RunBroken("its supervisor broke")
        if aftermath == "die" and not started and self._lost_repeatedly():
            lost = RunBroken("its supervisors were lost repeatedly")
        self._decide([*self.ledger.requests(), lost], "recovery")

    @property
    def leaving(self) -> bool:
        """Whether the controller was asked to leave."""
        return self._leaves is not None

    def _leave(self, fault: ControllerLeaves) -> None:
        if self.driven is not None:
            self.note("asked to leave")
            self._leaves = fault
            self.driven.wake()

    def _asked_to_leave(self) -> list[HandOverRequested]:
        return [] if self._leaves is None else [HandOverRequested("its supervisor was terminated")]

    def _take_over(self) -> None:
        """What `control.recover` does of a run that was handed over."""
        self.note("handed over")
        self._disconnect()
        if self.case.detached:
            self._wait(self._leaves.down if self._leaves is not None else 0.0)
            self._replace_supervisor()
            return
        before = self.ledger.load()
        refs = [NodeRef(r, node.incarnation) for r, node in enumerate(before.nodes) if node.alive]
        lost = SupervisorLost("its supervisor died", self.world.ranks_that_ran(refs))
        self._end_nodes()
        self._wait(self._leaves.down if self._leaves is not None else 0.0)
        self._decide([*self.ledger.requests(), lost], "recovery")

    def _desired(self) -> set[int]:
        nodes = self.ledger.load().nodes
        return {rank for rank, node in enumerate(nodes) if not node.scaled_down}

    def _end_nodes(self) -> None:
        """End all nodes, as `Engine.clean_up` does."""
        self.wire.cut()
        if self.case.detached and self.contacts.infrastructure is not None:
            self.contacts.infrastructure.release_all()
        self.world.clear()

    def _wait(self, seconds: float) -> None:
        """Nothing drives the run for a while."""
        until = self.queue.now + seconds
        while self.queue.now < until:
            self.queue.advance(until)

    def _replace_supervisor(self) -> None:
        """What `control.recover` does of a run whose nodes have outlived their supervisor."""
        before, now = self.ledger.load(), self._clock().now()
        if self._replaced_repeatedly(now):
            self._end_nodes()
            lost = RunBroken("its supervisors were lost repeatedly")
            self._decide([*self.ledger.requests(), lost], "recovery")
            return
        self.note("attached")
        entry = Entry("supervisor_replaced", {"why": "its supervisor died"})
        self.ledger.record(Record(before, before, (entry,), now))
        self.recorded(Step(self.queue.now, now, 0, "recovery", before, before, (entry,)))

    def _replaced_repeatedly(self, now: float) -> bool:
        replaced = 0
        for entry in self.ledger.log():
            by = (entry.kind == "supervisor_replaced") - (entry.kind == "handed_over")
            replaced += by if entry.time > now - _SOON else 0
            replaced = 0 if entry.kind == "nodes" else replaced
        return replaced >= _MAX_LOST_SUPERVISORS

    def _lost_repeatedly(self) -> bool:
        lost = 0
        for entry in self.ledger.log():
            lost += (entry.kind == "supervisor_lost") - (entry.kind == "handed_over")
            lost = 0 if entry.kind == "nodes" else lost
        return lost >= _MAX_LOST_SUPERVISORS

    def _decide(self, events: Sequence[Event], by: str) -> None:
        """Decide without a controller, as `control.recover` and `control.request` do."""
        before, now = self.ledger.load(), self._clock().now()
        self.trace.lines.append(Loaded(self.queue.now, by, before))
        decision = decide(self.policy, before, events, now)
        self.ledger.record(Record(before, decision.status, decision.entries, now))
        self.recorded(Step(self.queue.now, now, 0, by, before, decision.status, decision.entries))

    def _clock(self) -> VirtualClock:
        latest = max((entry.time for entry in self.ledger.log()), default=0.0)
        return VirtualClock(self.queue, EPOCH + self._jump, latest)

    def recorded(self, step: Step) -> None:
        """Record a step in the trace. Raises NeverEnds."""
        self.steps += 1
        step.number = self.steps
        self.trace.lines.append(step)
        if self.case.thorough:
            self.trace.lines.append(Loaded(self.queue.now, step.by, self.ledger.load()))
        self.check_bounds()

    def check_bounds(self) -> None:
        """Raises NeverEnds."""
        self._waits += 1
        if self._waits > _MAX_WAITS:
            raise NeverEnds(f"too many steps: {self.steps}")
        if self.queue.now > self.case.settled + _MAX_DURATION:
            raise NeverEnds(f"has not ended {_MAX_DURATION:g} s after the last fault")

    # --- the user

    def request(
        self, what: Literal["cancel", "suspend", "resume"], seen: RunState | None = None
    ) -> None:
        """Do what `muster.service` does for the user. seen: the state that the user has seen."""
        state = seen or self.ledger.state()
        if what == "resume":
            if state is RunState.SUSPENDED and self.driven is None:
                self.note("resumed")
                self._decide([ResumeRequested("resumed by user")], "the user")
            return
        if state.terminal or (what == "suspend" and state is RunState.SUSPENDED):
            return
        now = self._clock().now()
        if not self.ledger.request(what, f"{what} requested by user", now):
            return
        self.note(f"{what} requested", state)
        if self.driven is not None:
            self.driven.wake()
        elif what == "cancel" and state is RunState.SUSPENDED:
            self._decide([CancelRequested("cancel requested by user")], "the user")

    def request_scale(self, request: UserScales) -> None:
        """Request to scale a group, as `muster.service` does."""
        why = "scaled by user"
        if not self.ledger.request_scale(request.group, request.replicas, why, self._clock().now()):
            return
        self.note("scale requested", f"{request.group} {request.replicas}")
        if self.driven is not None:
            self.driven.wake()
        elif self.ledger.state() is RunState.SUSPENDED:
            self._decide([ScaleRequested(request.group, request.replicas, why)], "the user")

    def _resumed(self) -> bool:
        """Wait until a suspended run is resumed; False if that never happens."""
        while self.ledger.state() is RunState.SUSPENDED:
            if self.queue.next() is not None:
                self.queue.advance(float("inf"))
            elif self._resumable and not any(self.ledger.pending()[:2]):
                self._resumable = False
                self.queue.advance(max(self.case.settled, self.queue.now))
                self.request("resume")
            else:
                return False
        return True

    # --- nodes

    def _script(self, ref: NodeRef, attempt: int, kept: bool) -> Behavior:
        behavior = self.case.script(ref, attempt, kept, self.queue.now)
        self._starts[ref.rank] = nth = self._starts.get(ref.rank, 0) + 1
        if (ref.rank, nth) in self._queued and not kept:
            self.note("node waits", f"node-{ref.rank}")
            behavior = replace(behavior, queue=self._queued[ref.rank, nth])
        if (ref.rank, nth) not in self._slow:
            return behavior
        self.note("slow start", f"node-{ref.rank}")
        return replace(behavior, start=behavior.start + self._slow[ref.rank, nth])

    def _node_fails(self, fault: NodeFails) -> None:
        node = self.world.incarnations.get(fault.rank)
        if node is None or not any(p is node for p in self.world.alive()):
            return
        self.note("node lost" if fault.end.exit_code is None else "node crashes", str(fault))
        node.behavior = replace(node.behavior, report_delay=fault.noticed_after)
        self.world.fail([fault.rank], fault.end)

    def _several_fail(self, fault: SeveralFail) -> None:
        alive = [p for p in self.world.alive() if p.ran]
        alive.sort(key=lambda node: node.rank)
        self.note("several fail", str(fault))
        for node, end in zip(alive, fault.ends, strict=False):
            node.behavior = replace(node.behavior, report_delay=0.0)
            self.world.fail([node.rank], end)

    def _observe(self, what: str, node: Incarnation) -> None:
        if what == "launched" and not self.case.detached:
            # perhaps by a command of an earlier controller, which was late
            self.rules.start([NodeRef(node.rank, node.incarnation)])
        if what == "ended" and self.case.detached and self.contacts.infrastructure is not None:
            self.contacts.infrastructure.ended(node)
        self.trace.lines.append(Fact(self.queue.now, what, node.rank, node.incarnation, node.end))

    def note(self, kind: str, text: str = "") -> None:
        """Record what is not a step, fact or command."""
        self.trace.lines.append(Note(self.queue.now, kind, text))
