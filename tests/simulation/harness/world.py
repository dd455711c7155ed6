"""Simulated nodes: what really happens to them, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

from muster.forecast.event_queue import EventQueue
from muster.lifecycle.events import (
    NodeEnded,
    NodeEvent,
    NodeLocated,
    NodeQueued,
    NodeReady,
    NodeScheduled,
    NodeStarted,
)
from muster.lifecycle.status import NodeRef, Reason
from simulation.harness.behavior import KILLED, TERMINATED, Behavior, Exit, Script


class Phase(IntEnum):
    """The phase of an incarnation."""

    STARTING = 0
    RUNNING = 1
    READY = 2
    ENDED = 3


class Incarnation:
    """One incarnation of one node."""

    __slots__ = (
        "at",
        "behavior",
        "end",
        "incarnation",
        "kept",
        "phase",
        "ran",
        "rank",
        "stopping",
        "waits_for",
    )

    def __init__(self, ref: NodeRef, behavior: Behavior) -> None:
        self.rank, self.incarnation = ref
        self.behavior = behavior
        self.phase = Phase.STARTING
        #: What it waits for in a queue; "" if it does not.
        self.waits_for = ""
        #: Whether its program has run.
        self.ran = False
        #: Whether SIGTERM was sent to it.
        self.stopping = False
        #: Whether the next incarnation may start in place after it.
        self.kept = False
        self.end: Exit | None = None
        #: When it ended, by the machine's clock.
        self.at = 0.0


#: Called for everything that happens to an incarnation.
Observer = Callable[[str, Incarnation], None]
#: Takes the events that nodes report.
Receiver = Callable[[Sequence[NodeEvent]], None]


class World:
    """The nodes of a run. Changes of many nodes at one moment are one event in the queue.

    keep: ended nodes are kept, so that the next incarnation starts in place. grain: starts and
    stops are rounded up to multiples of this many seconds, so that there are fewer moments. epoch:
    what the machine's clock shows at virtual time 0. elsewhere: nodes tell where they are.
    """

    def __init__(
        self,
        queue: EventQueue,
        script: Script,
        *,
        keep: bool = False,
        grain: float = 0.0,
        epoch: float = 0.0,
        observer: Observer | None = None,
        elsewhere: bool = False,
    ) -> None:
        #: The newest incarnation of each rank.
        self.incarnations: dict[int, Incarnation] = {}
        #: Takes events; None = they are lost.
        self.deliver: Receiver | None = None
        self.epoch = epoch
        self._queue = queue
        self._script = script
        self._keep = keep
        self._grain = grain
        self._observer = observer
        self._elsewhere = elsewhere
        self._generation = 0
        self._first = 0  # older incarnations are not launched any more

    # --- commands, when they reach the nodes

    def start(self, attempt: int, refs: Iterable[NodeRef]) -> None:
        """Launch incarnations that are newer than the present one of their rank."""
        moments: dict[float, list[Incarnation]] = {}
        for ref in refs:
            before = self.incarnations.get(ref.rank)
            if before is not None and before.incarnation >= ref.incarnation:
                continue
            if ref.incarnation < self._first:
                continue  # asked for before the infrastructure has restarted the run
            if before is not None and before.phase is not Phase.ENDED:
                self._observe("refused", Incarnation(ref, Behavior()))  # one incarnation at a time
                continue
            kept = before is not None and before.kept and before.ran
            behavior = self._script(ref, attempt, kept)
            node = self.incarnations[ref.rank] = Incarnation(ref, behavior)
            node.kept = self._keep
            self._observe("launched", node)
            if behavior.queue is not None:
                self._wait(node, behavior.queue)
                continue
            moments.setdefault(self._moment(behavior.start), []).append(node)
        for moment, nodes in moments.items():
            self._queue.at(moment, self._start, nodes)

    def _wait(self, node: Incarnation, seconds: float) -> None:
        """Let a node wait in a queue, half of the time for something else."""
        self._queue_for(node, "Priority")
        self._queue.after(seconds / 2, self._queue_for, node, "Resources")
        self._queue.after(seconds, self._schedule, node)

    def _queue_for(self, node: Incarnation, why: str) -> None:
        if node.phase is Phase.STARTING:
            node.waits_for = why
            self._observe("queued", node)
            self._deliver([NodeQueued(node.rank, node.incarnation, why)])

    def _schedule(self, node: Incarnation) -> None:
        if node.phase is Phase.STARTING:
            node.waits_for = ""
            self._observe("scheduled", node)
            self._queue.at(self._moment(node.behavior.start), self._start, [node])
            self._deliver([NodeScheduled(node.rank, node.incarnation, f"host-{node.rank}")])

    def signal(self, refs: Iterable[NodeRef]) -> None:
        """Send a signal other than SIGTERM."""
        for node in self._alive_among(refs):
            if node.phase is not Phase.STARTING and node.behavior.save is not None:
                moment = self._moment(node.behavior.save)
                self._queue.at(moment, self._end, [node], node.behavior.save_exit)

    def stop(self, refs: Iterable[NodeRef]) -> None:
        """Send SIGTERM. A node that has not started its program ends at once."""
        moments: dict[tuple[float, Exit], list[Incarnation]] = {}
        for node in self._alive_among(refs):
            if node.stopping:
                continue
            node.stopping = True
            self._observe("told to end", node)
            behavior = node.behavior
            if node.phase is Phase.STARTING:
                moments.setdefault((self._moment(0.0), TERMINATED), []).append(node)
            elif behavior.stop is not None:
                moments.setdefault((self._moment(behavior.stop), behavior.stop_exit), []).append(
                    node
                )
        for (moment, end), nodes in moments.items():
            self._queue.at(moment, self._end, nodes, end)

    def kill(self, refs: Iterable[NodeRef]) -> None:
        """Send SIGKILL to every process of the nodes."""
        nodes = self._alive_among(refs)
        for node in nodes:
            self._observe("killed", node)
        self._queue.at(self._queue.now, self._end, nodes, KILLED)

    def release(self, refs: Iterable[NodeRef]) -> None:
        """No longer keep ended nodes for these incarnations."""
        for ref in refs:
            node = self.incarnations.get(ref.rank)
            if node is not None and node.incarnation < ref.incarnation:
                node.kept = False

    def end_unstarted(self, refs: Iterable[NodeRef]) -> None:
        """Report the end of incarnations that were never launched, and never are."""
        ended: list[NodeEvent] = []
        for ref in refs:
            before = self.incarnations.get(ref.rank)
            if before is None or before.incarnation < ref.incarnation:
                node = self.incarnations[ref.rank] = Incarnation(ref, Behavior())
                node.phase, node.end, node.at = (
                    Phase.ENDED,
                    TERMINATED,
                    self.epoch + self._queue.now,
                )
                ended.append(_ended(node))
        self._deliver(ended)

    # --- failures

    def fail(self, ranks: Iterable[int], end: Exit) -> None:
        """End nodes."""
        found = (self.incarnations.get(rank) for rank in ranks)
        self._end([node for node in found if node is not None], end)

    def lose_all(self) -> None:
        """End all nodes without a report."""
        for node in self.alive():
            self._close(node, Exit(None, 0, Reason.NODE_LOST))

    def replace_all(self, refs: Sequence[NodeRef]) -> None:
        """End all nodes without a report, and launch these, without being asked."""
        self.lose_all()
        for node in self.incarnations.values():
            node.kept = False
        self._first = min((ref.incarnation for ref in refs), default=self._first)
        self.start(0, refs)

    def clear(self) -> None:
        """End all nodes and forget them, with all reports that are on their way."""
        self.lose_all()
        self.incarnations.clear()
        self._generation += 1

    def report_all(self) -> list[NodeEvent]:
        """Events that describe the present state. Reports that are on their way are dropped."""
        self._generation += 1
        return self.current_events()

    def current_events(self, refs: Iterable[NodeRef] | None = None) -> list[NodeEvent]:
        """Events that describe the present state, for a new session. refs: of these incarnations
        only."""
        events: list[NodeEvent] = []
        nodes: Iterable[Incarnation] = self.incarnations.values()
        if refs is not None:
            chosen = set(refs)
            found = (self.incarnations.get(rank) for rank, _ in chosen)
            nodes = [n for n in found if n is not None and (n.rank, n.incarnation) in chosen]
        for node in nodes:
            rank, incarnation = node.rank, node.incarnation
            if node.phase is Phase.ENDED:
                events.append(_ended(node))
            elif node.waits_for:
                events.append(NodeQueued(rank, incarnation, node.waits_for))
            elif node.behavior.queue is not None:
                events.append(NodeScheduled(rank, incarnation, f"host-{rank}"))
            if node.phase is Phase.ENDED or node.waits_for:
                continue
            if node.phase is not Phase.STARTING:
                events += self._place(node)
                events.append(NodeStarted(rank, incarnation))
                if node.phase is Phase.READY:
                    events.append(NodeReady(rank, incarnation))
        return events

    def ranks_that_ran(self, refs: Iterable[NodeRef]) -> frozenset[int]:
        """The ranks of these incarnations whose program has run."""
        return frozenset(
            ref.rank
            for ref in refs
            if (node := self.incarnations.get(ref.rank)) is not None
            and node.incarnation == ref.incarnation
            and node.ran
        )

    def alive(self) -> list[Incarnation]:
        """The incarnations that have not ended."""
        return [p for p in self.incarnations.values() if p.phase is not Phase.ENDED]

    # --- the behavior of nodes

    def _start(self, nodes: list[Incarnation]) -> None:
        events: list[NodeEvent] = []
        later: dict[float, list[Incarnation]] = {}
        ends: dict[tuple[float, Exit], list[Incarnation]] = {}
        for node in nodes:
            behavior = node.behavior
            if node.phase is not Phase.STARTING:
                continue
            if behavior.start_error is not None:
                self._end([node], behavior.start_error)
                continue
            node.phase = Phase.RUNNING
            node.ran = True
            self._observe("runs", node)
            events += self._place(node)
            events.append(NodeStarted(node.rank, node.incarnation))
            if behavior.ready == 0.0:
                node.phase = Phase.READY
                self._observe("ready", node)
                events.append(NodeReady(node.rank, node.incarnation))
            elif behavior.ready is not None:
                later.setdefault(self._moment(behavior.ready), []).append(node)
            if behavior.run is not None:
                ends.setdefault((self._moment(behavior.run), behavior.end), []).append(node)
        for (moment, end), running in ends.items():
            self._queue.at(moment, self._end, running, end)
        for moment, waiting in later.items():
            self._queue.at(moment, self._ready, waiting)
        self._deliver(events)

    def _place(self, node: Incarnation) -> list[NodeEvent]:
        if not self._elsewhere:
            return []
        number = node.incarnation
        return [NodeLocated(node.rank, number, f"host-{node.rank}", f"10.0.0.{number}")]

    def _ready(self, nodes: list[Incarnation]) -> None:
        events: list[NodeEvent] = []
        for node in nodes:
            if node.phase is Phase.RUNNING:
                node.phase = Phase.READY
                self._observe("ready", node)
                events.append(NodeReady(node.rank, node.incarnation))
        self._deliver(events)

    def _end(self, nodes: list[Incarnation], end: Exit) -> None:
        """End the nodes that have not ended yet."""
        ended = [node for node in nodes if node.phase is not Phase.ENDED]
        slow: dict[float, list[NodeEvent]] = {}
        for node in ended:
            self._close(node, end)
            slow.setdefault(node.behavior.report_delay, []).append(_ended(node))
        for delay, events in slow.items():
            if delay:
                self._queue.after(delay, self._deliver_late, self._generation, events)
            else:
                self._deliver(events)

    def _close(self, node: Incarnation, end: Exit) -> None:
        node.phase, node.end, node.at = Phase.ENDED, end, self.epoch + self._queue.now
        self._observe("ended", node)

    # --- helpers

    def _moment(self, seconds: float) -> float:
        moment = self._queue.now + seconds
        return moment if not self._grain else -(-moment // self._grain) * self._grain

    def _alive_among(self, refs: Iterable[NodeRef]) -> list[Incarnation]:
        found = ((self.incarnations.get(ref.rank), ref.incarnation) for ref in refs)
        return [
            node
            for node, incarnation in found
            if node is not None
            and node.incarnation == incarnation
            and node.phase is not Phase.ENDED
        ]

    def _observe(self, what: str, node: Incarnation) -> None:
        if self._observer is not None:
            self._observer(what, node)

    def _deliver_late(self, generation: int, events: Sequence[NodeEvent]) -> None:
        if generation == self._generation:
            self._deliver(events)

    def _deliver(self, events: Sequence[NodeEvent]) -> None:
        if events and self.deliver is not None:
            self.deliver(events)


def _ended(node: Incarnation) -> NodeEnded:
    end = node.end or KILLED
    return NodeEnded(
        node.rank,
        end.exit_code,
        end.signal,
        end.reason,
        end.message,
        node.incarnation,
        None if end.raised_before is None else node.at - end.raised_before,
    )
