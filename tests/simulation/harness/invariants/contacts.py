"""Invariants of nodes that outlive their controller, and with whose agents contact may be lost."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from muster.lifecycle.effects import KillNodes, StartNodes
from muster.lifecycle.events import (
    NodeEnded,
    NodeLocated,
    NodeQueued,
    NodeReachable,
    NodeReady,
    NodeScheduled,
    NodeStarted,
    NodeUnreachable,
)
from muster.lifecycle.incarnations import BLOCK, of_native_restart
from muster.lifecycle.ranks import parse_ranks
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef, Reason, alive_nodes
from simulation.harness.faults import ContactIsLost, LateCommand, LateEvent, StoreIsBusy
from simulation.harness.trace import Command, Fact, Loaded, Note, Received, Restarted, Step
from simulation.harness.view import View

_TOLERANCE = 0.005  # seconds; waits take a little longer, and there may be several
_FOUND_BY_MUSTER = (Reason.DEADLINE, Reason.STARTUP_TIMEOUT)


def failures_are_real(view: View) -> Iterator[str]:
    """Where nodes outlive their controller, a failure is that of a node that has really ended in
    that way, or that has missed a deadline: nothing fails, and restarts, because a controller or a
    contact is lost."""
    if not view.trace.detached:
        return
    ended: dict[NodeRef, Fact] = {}
    for line in view.trace.lines:
        if isinstance(line, Fact) and line.what == "ended":
            ended[NodeRef(line.rank, line.incarnation)] = line
        for entry in line.entries if isinstance(line, Step) else ():
            if entry.kind != "failure" or entry.data["reason"] in _FOUND_BY_MUSTER:
                continue
            fact = ended.get(NodeRef(entry.data["rank"], entry.data.get("restart", 0)))
            end = None if fact is None else fact.end
            if end is None or (end.reason, end.exit_code) != (
                entry.data["reason"],
                entry.data["exit_code"],
            ):
                yield f"{line.at:.3f}: {dict(entry.data)}, what happened: {end}"


def every_end_is_recorded_once(view: View) -> Iterator[str]:
    """Where nodes outlive their controller, the end of each incarnation is recorded, and once,
    after it has happened."""
    if not view.trace.detached:
        return
    launched: set[NodeRef] = set()
    ended: set[NodeRef] = set()
    recorded: set[NodeRef] = set()
    for line in view.trace.lines:
        if isinstance(line, Fact):
            ref = NodeRef(line.rank, line.incarnation)
            if line.what == "launched":
                launched.add(ref)
            elif line.what == "ended":
                ended.add(ref)
        if not isinstance(line, Step) or line.before.nodes is line.after.nodes:
            continue
        for rank, (old, new) in enumerate(zip(line.before.nodes, line.after.nodes, strict=True)):
            same = new.incarnation == old.incarnation
            gone = (
                [NodeRef(rank, old.incarnation)] if old.alive and not (same and new.alive) else []
            )
            if not same and new.state.ended:  # the engine has started it by itself
                gone.append(NodeRef(rank, new.incarnation))
            for ref in gone:
                if ref in recorded:
                    yield f"step {line.number}: {ref} again"
                if ref in launched - ended:
                    yield f"step {line.number}: {ref}, which is alive"
                recorded.add(ref)
    # no controller has adopted them
    unknown = {ref for ref in ended if ref.incarnation % BLOCK == 0 < ref.incarnation}
    unknown -= {
        NodeRef(rank, node.incarnation)
        for step in view.steps
        for rank, node in enumerate(step.after.nodes)
    }
    if missing := ended - recorded - unknown:
        yield f"never: {sorted(missing)}"


def contacts_are_recorded(view: View) -> Iterator[str]:
    """A node that is alive is recorded as unreachable exactly if the last report on its contact
    says so; and the log names it."""
    unreachable: set[NodeRef] = set()
    for line in view.trace.lines:
        if isinstance(line, Loaded):  # an earlier controller may not have recorded its last reports
            alive = alive_nodes(line.status).items()
            unreachable = {ref for ref, node in alive if node.unreachable_since is not None}
        if isinstance(line, Received):
            ref = NodeRef(line.event.rank, line.event.incarnation)
            if isinstance(line.event, NodeUnreachable):
                unreachable.add(ref)
            elif isinstance(line.event, NodeReachable):
                unreachable.discard(ref)
        if not isinstance(line, Step) or not line.by.startswith("controller") or line.hands_over:
            continue
        named: dict[str, set[int]] = {"unreachable": set(), "reachable": set()}
        for entry in line.entries:
            if entry.kind in named:
                named[entry.kind] |= {*parse_ranks(entry.data["ranks"])}
        for rank, node in enumerate(line.after.nodes):
            recorded = node.unreachable_since is not None
            if recorded != (node.alive and NodeRef(rank, node.incarnation) in unreachable):
                yield f"step {line.number}: node-{rank} since {node.unreachable_since}"
            before = line.before.nodes[rank]
            if before.incarnation != node.incarnation or not node.alive:
                continue
            was = before.unreachable_since is not None
            if was != recorded and rank not in named["unreachable" if recorded else "reachable"]:
                yield f"step {line.number}: node-{rank} is not in the log"


def queues_are_recorded(view: View) -> Iterator[str]:
    """A node is recorded as queued, with what it waits for, exactly if the last report says so; and
    the log says when it was scheduled."""
    waiting: dict[NodeRef, str] = {}
    for line in view.trace.lines:
        if isinstance(line, Loaded):  # as above
            alive = alive_nodes(line.status).items()
            waiting = {ref: n.waits_for for ref, n in alive if n.state is NodeState.QUEUED}
        if isinstance(line, Received):
            ref = NodeRef(line.event.rank, line.event.incarnation)
            if isinstance(line.event, NodeQueued):
                waiting[ref] = line.event.why
            elif isinstance(line.event, NodeScheduled | NodeStarted | NodeReady):
                waiting.pop(ref, None)
        if not isinstance(line, Step) or not line.by.startswith("controller") or line.hands_over:
            continue
        texts = [entry.data["ranks"] for entry in line.entries if entry.kind == "scheduled"]
        scheduled = {rank for ranks in texts for rank in parse_ranks(ranks)}
        for rank, (old, node) in enumerate(zip(line.before.nodes, line.after.nodes, strict=True)):
            queued = node.state is NodeState.QUEUED
            reported = waiting.get(NodeRef(rank, node.incarnation)) if node.alive else None
            if queued != (reported is not None) or node.waits_for != (reported or ""):
                yield f"step {line.number}: node-{rank} waits for {node.waits_for!r}"
            was = old.state is NodeState.QUEUED and old.incarnation == node.incarnation
            if was and node.alive and not queued and rank not in scheduled:
                yield f"step {line.number}: node-{rank} is not in the log"


def places_are_recorded(view: View) -> Iterator[str]:
    """Where a node is, is recorded as last reported."""
    places: dict[NodeRef, tuple[str, str]] = {}
    for line in view.trace.lines:
        if isinstance(line, Loaded):  # as above
            alive = alive_nodes(line.status).items()
            places = {ref: (node.host, node.address) for ref, node in alive}
        if isinstance(line, Received) and isinstance(line.event, NodeLocated):
            event = line.event
            places[NodeRef(event.rank, event.incarnation)] = event.host, event.address
        if not isinstance(line, Step) or not line.by.startswith("controller") or line.hands_over:
            continue
        for rank, node in enumerate(line.after.nodes):
            place = node.host, node.address
            if node.alive and place != places.get(NodeRef(rank, node.incarnation), ("", "")):
                yield f"step {line.number}: node-{rank} is on {place}"


def no_deadline_counts_time_in_a_queue(view: View) -> Iterator[str]:
    """The `ready_timeout` of a node and the `timeout` of its replica count from when it is known to
    be scheduled, and none fails by them while all nodes of the replica wait."""
    for step in view.steps:
        before, after = step.before.nodes, step.after.nodes
        for rank, (old, node) in enumerate(zip(before, after, strict=True)):
            same = old.state is NodeState.QUEUED and old.incarnation == node.incarnation
            counts = same and node.alive and node.state is not NodeState.QUEUED
            ended = same and node.state.ended and node.since is not None
            if (ended or counts) and node.since != step.now:
                yield f"step {step.number}: node-{rank} since {node.since}"
        for entry in step.entries:
            if entry.kind != "failure" or entry.data["reason"] not in _FOUND_BY_MUSTER:
                continue
            rank = entry.data["rank"]
            group = view.policy.group_of(rank)
            replica = [before[one].state for one in group.replica_ranks(group.replica_of(rank))]
            startup = entry.data["reason"] == Reason.STARTUP_TIMEOUT
            states = [before[rank].state] if startup else replica
            of_attempt = str(entry.data["message"]).startswith("the attempt")
            if {*states} == {NodeState.QUEUED} and not of_attempt:
                yield f"step {step.number}: {dict(entry.data)}"


def unreachable_nodes_are_not_killed(view: View) -> Iterator[str]:
    """No SIGKILL, and no SIGTERM at the end of the time for saving, is decided for a node that
    cannot be reached."""
    for command in view.commands:
        if isinstance(command.effect, KillNodes) and not command.again and command.step:
            nodes = view.step(command.step).after.nodes
            for rank, _ in command.effect.nodes:
                if nodes[rank].unreachable_since is not None:
                    yield f"after step {command.step}: node-{rank}"
    for step in view.steps:
        if {"stopping", "restart", "scaled", "failure", "nodes"} & {e.kind for e in step.entries}:
            continue
        for rank, (old, new) in enumerate(zip(step.before.nodes, step.after.nodes, strict=True)):
            saved = old.term_at is not None and old.kill_at is None and new.kill_at is not None
            if saved and None not in (old.unreachable_since, new.unreachable_since):
                yield f"step {step.number}: node-{rank} is stopped"


def grace_periods_count_from_contact(view: View) -> Iterator[str]:
    """Where nodes outlive their controller, a node is killed no earlier than `grace_period` after
    SIGTERM has reached it. (Less the time in which a lost contact was not noticed.)"""
    trace = view.trace
    delayed = any(isinstance(f, LateCommand | LateEvent | StoreIsBusy) for f in trace.plan)
    if not trace.detached or delayed or trace.jumps:
        return
    unnoticed = sum(f.noticed_after for f in trace.plan if isinstance(f, ContactIsLost))
    least = view.policy.grace_period - unnoticed - _TOLERANCE
    told: dict[NodeRef, float] = {}
    for fact in view.facts:
        ref = NodeRef(fact.rank, fact.incarnation)
        if fact.what == "told to end":
            told[ref] = fact.at
        elif fact.what == "killed" and ref in told and fact.at < told[ref] + least:
            yield f"{fact.at:.3f}: {ref}, told at {told[ref]:.3f}"
        elif fact.what == "killed" and ref not in told and not unnoticed:
            yield f"{fact.at:.3f}: {ref}, which was not told to end"


def startup_timeouts_count_time_with_contact(view: View) -> Iterator[str]:
    """Where nodes outlive their controller, one that misses its `ready_timeout` had so much time in
    which a controller had contact with it, and it did not wait in a queue."""
    busy = any(isinstance(fault, StoreIsBusy) for fault in view.trace.plan)  # it learns late
    if view.trace.jumps or busy or not view.trace.detached:
        return
    clock = _StartupClock()
    for line in view.trace.lines:
        match line:
            case Note() if line.kind.startswith("controller dies") or line.kind == "handed over":
                clock.stop_all(line.at)
            case Command(at, effect=StartNodes(_, refs)):
                for ref in refs:
                    clock.start(ref, at)
            case Restarted(at, event):
                for rank in event.ranks or ():
                    clock.start(NodeRef(rank, of_native_restart(event.restarts)), at)
            case Received():
                clock.receive(line)
            case Step() if line.by.startswith("controller"):
                yield from _late(view, line, clock)


class _StartupClock:
    """For how long a controller had contact with nodes that were starting."""

    def __init__(self) -> None:
        self._counted: dict[NodeRef, float] = {}
        self._since: dict[NodeRef, float] = {}
        self._unreachable: set[NodeRef] = set()
        self._scheduled: set[NodeRef] = set()

    def start(self, ref: NodeRef, at: float) -> None:
        """It is started, perhaps again."""
        self._counted[ref] = 0.0
        self._since.pop(ref, None)
        if ref not in self._unreachable:
            self._since[ref] = at

    def stop_all(self, at: float) -> None:
        """There is no controller."""
        for ref in [*self._since]:
            self._stop(ref, at)

    def _stop(self, ref: NodeRef, at: float) -> None:
        self._counted[ref] = self.had(ref, at)
        self._since.pop(ref, None)

    def had(self, ref: NodeRef, now: float) -> float:
        """Seconds so far."""
        return self._counted.get(ref, 0.0) + now - self._since.get(ref, now)

    def receive(self, line: Received) -> None:
        """A controller gets an event."""
        ref = NodeRef(line.event.rank, line.event.incarnation)
        match line.event:
            case NodeUnreachable():
                self._stop(ref, line.at)
                self._unreachable.add(ref)
            case NodeReachable():
                self._since.setdefault(ref, line.at)
                self._unreachable.discard(ref)
            case NodeScheduled() if ref not in self._scheduled:
                self._scheduled.add(ref)
                self._counted[ref], self._since[ref] = 0.0, line.at
            case NodeQueued() | NodeReady() | NodeEnded():
                self._since.pop(ref, None)


def _late(view: View, step: Step, clock: _StartupClock) -> Iterator[str]:
    for entry in step.entries:
        if entry.kind == "failure" and entry.data["reason"] == Reason.STARTUP_TIMEOUT:
            ref = NodeRef(entry.data["rank"], entry.data.get("restart", 0))
            had = clock.had(ref, step.at)
            limit = view.policy.group_of(ref.rank).ready_timeout or inf
            if had < limit - _TOLERANCE:
                yield f"step {step.number}: {ref} had {had:g} of {limit:g} s"


def nodes_are_left_alone(view: View) -> Iterator[str]:
    """A controller that hands over a run whose nodes outlive it sends them nothing any more, and
    records nothing of them."""
    if not view.trace.detached:
        return
    for command in view.commands:
        if command.leaving and not command.again:
            yield f"{command.at:.3f}: {command.effect}"
    for step in view.steps:
        if step.hands_over and step.before != step.after:
            yield f"step {step.number} changes the status"
