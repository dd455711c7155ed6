"""The real controller, on a stage: simulated nodes, a ledger of its own, virtual time, and faults
where the plan wants them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from muster.control.controller import Controller
from muster.engines.simulated.agenda import Agenda
from muster.engines.simulated.clock import VirtualClock
from muster.engines.simulated.life import Life
from muster.engines.simulated.session import Standstill
from muster.engines.simulated.world import Process, World
from muster.lifecycle.decide import decide
from muster.lifecycle.events import (
    CancelRequested,
    Event,
    ResumeRequested,
    RunBroken,
    ScaleRequested,
    SupervisorLost,
)
from muster.lifecycle.policy import Policy, Strategy
from muster.lifecycle.states import RunState
from muster.lifecycle.status import NodeRef
from muster.plan.model import RunPlan
from muster.simulation.book import Book
from muster.simulation.faults import (
    Asked,
    ControllerDies,
    NodeFails,
    Plan,
    Scaled,
    SeveralFail,
    SlowStart,
)
from muster.simulation.plans import plan_of
from muster.simulation.stage import Crash, StagedLedger, StagedSession
from muster.simulation.story import Fact, Loaded, Note, Step, Story
from muster.simulation.wire import Wire, WiredSession

#: When every simulated run is accepted (epoch seconds).
EPOCH = 1_000_000_000.0
#: Seconds after the last fault within which a run has to have ended, whatever its policy is.
_PATIENCE = 200_000.0
_LOOKS = 10_000
#: As in `control.recover`: so many supervisors lost in a row with nothing started are enough.
_HOPELESS = 3

Opening = Callable[[RunPlan, float, bool], Book]


class Case(Struct, frozen=True):
    """What is to be simulated. Times are virtual seconds.

    script: what programs do; told the time besides. settled: from then on there are no faults, and
    programs mean well. resumed: a run that is left suspended is resumed then. suspended: it begins
    so. thorough: what was recorded is read back each time.
    """

    seed: int
    policy: Policy
    script: Callable[[NodeRef, int, bool, float], Life]
    plan: Plan = ()
    settled: float = 0.0
    resumed: bool = True
    suspended: bool = False
    thorough: bool = True


class Endless(Exception):  # noqa: N818
    """More happens than ever should."""


class Simulation:
    """One simulated run."""

    def __init__(self, case: Case, opening: Opening) -> None:
        self.case = case
        self.policy = case.policy
        self.agenda = Agenda()
        self.story = Story(case.seed, case.policy, case.plan, case.settled, [])
        self.book = opening(plan_of(case.seed, case.policy), EPOCH, case.suspended)
        self.steps = 0
        self._looks = 0
        self.session: WiredSession | None = None
        self._jump = 0.0
        self._lives = 0
        self._resumable = case.resumed
        self._slow = {(f.rank, f.nth): f.seconds for f in case.plan if isinstance(f, SlowStart)}
        self._starts: dict[int, int] = {}
        self.wire = Wire(self.agenda, case.plan, self.note)
        keep = case.policy.strategy is Strategy.IN_PLACE and case.policy.restarts
        self.world = World(self.agenda, self._script, keep=keep, witness=self._saw, epoch=EPOCH)
        for fault in case.plan:
            if isinstance(fault, NodeFails):
                self.agenda.at(fault.at, self._node_fails, fault)
            elif isinstance(fault, SeveralFail):
                self.agenda.at(fault.at, self._several_fail, fault)
            elif isinstance(fault, Asked):
                self.agenda.at(fault.at, self.ask, fault.what)
            elif isinstance(fault, Scaled) and fault.step is None:
                self.agenda.at(fault.at, self.scale, fault)

    def play(self) -> Story:
        """Simulate to the end."""
        story = self.story
        self._ledger = StagedLedger(self)
        try:
            while not self.book.state().terminal:
                if self.book.state() is not RunState.SUSPENDED:
                    self._live()
                elif not self._resumed():
                    break
            story.verdict = "ended" if self.book.state().terminal else "suspended"
        except Standstill:
            story.verdict = "stands still: everybody waits for what will never happen"
        except Endless as error:
            story.verdict = str(error)
        except Exception:  # noqa: BLE001  a defect is a finding like others
            story.verdict = f"defect: {traceback.format_exc()}"
        story.final = self.book.load()
        story.recorded, story.asked, story.log = (
            self.book.state(),
            self.book.asked(),
            self.book.log(),
        )
        return story

    # --- controllers

    def _live(self) -> None:
        """One controller's life."""
        self._lives += 1
        self.note("controller begins", str(self._lives))
        clock = self._clock()
        self.session = WiredSession(self.world, self.wire)
        ledger = self._ledger.of(clock, self.by)
        staged = StagedSession(self, self.session, ledger)
        try:
            Controller(self.policy, ledger, staged, clock, -1, list).run()
            staged.close()
        except Crash as crash:
            self.session = None
            self.wire.connect(None)
            self._aftermath(crash.fault)
        finally:
            self.session = None
            self.wire.connect(None)

    @property
    def by(self) -> str:
        return f"controller {self._lives}"

    def _aftermath(self, fault: ControllerDies) -> None:
        self.note(f"controller dies {fault.moment}, nodes {fault.aftermath}")
        before = self.book.load()
        refs = [NodeRef(r, node.incarnation) for r, node in enumerate(before.nodes) if node.alive]
        begun = self.world.begun(refs)
        if fault.aftermath != "live":
            self.wire.cut()
            self.world.forget()
        until = self.agenda.now + fault.down
        while self.agenda.now < until:
            self.agenda.advance(until)
        if fault.jump:
            self._jump += fault.jump
            self.world.epoch += fault.jump
            self.note("clock jumps", f"{fault.jump:g} s")
        state = self.book.state()
        suspended = state is RunState.SUSPENDED
        if state.terminal or (fault.aftermath == "live" and not suspended):
            return
        if suspended and not self.book.asked().cancel:
            return
        lost: Event = SupervisorLost("its supervisor died", begun)
        if fault.aftermath == "die_unknown":
            lost = SupervisorLost("its supervisor died")
        elif fault.aftermath == "broken":
            lost = RunBroken("its supervisor broke")
        if fault.aftermath == "die" and not begun and self._hopeless():
            lost = RunBroken("its supervisors never last")
        self._settle([*self.book.requests(), lost], "recovery")

    def _hopeless(self) -> bool:
        lost = 0
        for entry in self.book.log():
            lost = 0 if entry.kind == "nodes" else lost + (entry.kind == "supervisor_lost")
        return lost >= _HOPELESS

    def _settle(self, events: Sequence[Event], by: str) -> None:
        """What `control.recover` and `control.request` do where there is no controller."""
        before, now = self.book.load(), self._clock().now()
        self.story.lines.append(Loaded(self.agenda.now, by, before))
        decision = decide(self.policy, before, events, now)
        self.book.record(before, decision.status, decision.entries, now)
        self.recorded(Step(self.agenda.now, now, 0, by, before, decision.status, decision.entries))

    def _clock(self) -> VirtualClock:
        latest = max((entry.time for entry in self.book.log()), default=0.0)
        return VirtualClock(self.agenda, EPOCH + self._jump, latest)

    def recorded(self, step: Step) -> None:
        """Take note of a step. Raises Endless."""
        self.steps += 1
        step.number = self.steps
        self.story.lines.append(step)
        if self.case.thorough:
            self.story.lines.append(Loaded(self.agenda.now, step.by, self.book.load()))
        self.bounded()

    def bounded(self) -> None:
        """Raises Endless."""
        self._looks += 1
        if self._looks > _LOOKS:
            raise Endless(f"goes on and on: {self.steps} steps")
        if self.agenda.now > self.case.settled + _PATIENCE:
            raise Endless(f"has not ended {_PATIENCE:g} s after the last fault")

    # --- people

    def ask(
        self, what: Literal["cancel", "suspend", "resume"], looked: RunState | None = None
    ) -> None:
        """What `muster.service` does for a person. looked: the state they have seen."""
        state = looked or self.book.state()
        if what == "resume":
            if state is RunState.SUSPENDED and self.session is None:
                self.note("resumed")
                self._settle([ResumeRequested("resumed by its owner")], "a person")
            return
        if state.terminal or (what == "suspend" and state is RunState.SUSPENDED):
            return
        now = self._clock().now()
        if not self.book.ask(what, f"{what} asked by its owner", now):
            return
        self.note(f"{what} asked", state)
        if self.session is not None:
            self.session.ring()
        elif what == "cancel" and state is RunState.SUSPENDED:
            self._settle([CancelRequested("cancel asked by its owner")], "a person")

    def scale(self, wish: Scaled) -> None:
        """The same for one who wants another number of replicas, which no service looks at."""
        why = "scaled by its owner"
        if not self.book.ask_scale(wish.group, wish.replicas, why, self._clock().now()):
            return
        self.note("scale asked", f"{wish.group} {wish.replicas}")
        if self.session is not None:
            self.session.ring()
        elif self.book.state() is RunState.SUSPENDED:
            self._settle([ScaleRequested(wish.group, wish.replicas, why)], "a person")

    def _resumed(self) -> bool:
        """Wait until somebody takes a suspended run up; False if nobody ever does."""
        while self.book.state() is RunState.SUSPENDED:
            if self.agenda.next() is not None:
                self.agenda.advance(float("inf"))
            elif self._resumable and not any(self.book.asked()[:2]):
                self._resumable = False
                self.agenda.advance(max(self.case.settled, self.agenda.now))
                self.ask("resume")
            else:
                return False
        return True

    # --- nodes

    def _script(self, ref: NodeRef, attempt: int, kept: bool) -> Life:
        life = self.case.script(ref, attempt, kept, self.agenda.now)
        self._starts[ref.rank] = nth = self._starts.get(ref.rank, 0) + 1
        if (ref.rank, nth) not in self._slow:
            return life
        self.note("slow start", f"node-{ref.rank}")
        return replace(life, start=life.start + self._slow[ref.rank, nth])

    def _node_fails(self, fault: NodeFails) -> None:
        process = self.world.processes.get(fault.rank)
        if process is None or not any(p is process for p in self.world.alive()):
            return
        self.note("node lost" if fault.end.exit_code is None else "node crashes", str(fault))
        process.life = replace(process.life, tell=fault.told_after)
        self.world.fail([fault.rank], fault.end)

    def _several_fail(self, fault: SeveralFail) -> None:
        alive = [p for p in self.world.alive() if p.begun]
        alive.sort(key=lambda process: process.rank)
        self.note("several fail", str(fault))
        for process, end in zip(alive, fault.ends, strict=False):
            process.life = replace(process.life, tell=0.0)
            self.world.fail([process.rank], end)

    def _saw(self, what: str, process: Process) -> None:
        self.story.lines.append(
            Fact(self.agenda.now, what, process.rank, process.incarnation, process.end)
        )

    def note(self, kind: str, text: str = "") -> None:
        """Something to tell that is no step, fact or act."""
        self.story.lines.append(Note(self.agenda.now, kind, text))
