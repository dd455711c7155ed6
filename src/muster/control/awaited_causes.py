"""Ends of nodes that wait until it is known what may have caused them.

When a node goes away, its peers fail within milliseconds, as their connections to it break. Why it
has gone is often known only later: a cluster first says that it evicts a pod, and that the pod has
ended once it has. Without that, the run would be ended or restarted for the failure of a peer,
which the failure rules treat differently, and which users take for the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from muster.lifecycle import cause
from muster.lifecycle.events import (
    ControllerStarted,
    Event,
    NodeEnded,
    NodeEvent,
    NodeReachable,
    NodeUnreachable,
    Tick,
)
from muster.lifecycle.observe import failed_by_itself
from muster.lifecycle.policy import Policy
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeStatus, RunStatus

#: The most seconds for which an end waits. A node whose machine is lost may be confirmed to be gone
#: only after minutes: by then, a restart has helped more than the right cause.
LONGEST_WAIT = 10.0


class AwaitedCauses:
    """Holds ends of nodes back that look like consequences of another node's end, while a node of
    the run cannot be reached that may be the cause: until that has ended or is reached again, at
    most for `LONGEST_WAIT`, and not beyond a deadline (`RunStatus.alarm`). Nodes of arrays, whose
    replicas know nothing of each other, do not wait.

    Nothing of this is recorded: what is held back, an engine reports again to the next controller.

    status: as recorded.
    """

    def __init__(self, policy: Policy, status: RunStatus) -> None:
        self._policy = policy
        self._held: list[NodeEnded] = []
        self._since = 0.0  # when the first of these came
        #: The incarnations, by rank, of nodes that were last said to be out of reach.
        self._lost = {
            rank: node.incarnation
            for rank, node in enumerate(status.nodes)
            if node.unreachable_since is not None
        }

    @property
    def due(self) -> float | None:
        """When what is held back is let go even if nothing happens (epoch seconds)."""
        return self._since + LONGEST_WAIT if self._held else None

    def let_go(self) -> list[NodeEnded]:
        """What is held back: it is not any more."""
        held, self._held = self._held, []
        return held

    def take(self, status: RunStatus, events: Sequence[Event], now: float) -> list[Event]:
        """The events that count now, of those that have come and were held back before. status:
        without them."""
        self._follow(events)
        if not (self._held or self._lost):  # the usual case: thousands of nodes may end together
            return list(events)
        ends = [one for one in events if isinstance(one, NodeEnded) and _is_failure(status, one)]
        if not (self._held or ends):
            return list(events)
        # texts are searched once, when they come: there may be thousands, and as many steps
        if not self._may_wait(status, events, now) or not all(map(cause.is_consequence, ends)):
            return [*self.let_go(), *events]
        # the session gives the slot of an array's node to another one once its end was reported
        held = [end for end in ends if not self._policy.group_of(end.rank).is_array]
        self._since = self._since if self._held else now
        self._held += held
        ids = set(map(id, held))
        return [event for event in events if id(event) not in ids]

    def _follow(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, NodeUnreachable):
                self._lost[event.rank] = event.incarnation
            elif self._lost and isinstance(event, NodeReachable | NodeEnded):
                self._lost.pop(event.rank, None)

    def _may_wait(self, status: RunStatus, events: Iterable[Event], now: float) -> bool:
        """Whether a node may have ended whose end is not known, and nothing is to be decided before
        that."""
        if not any(_runs(status.nodes[rank], number) for rank, number in self._lost.items()):
            return False
        # a deadline may be that of a node whose end is held back
        times = (status.alarm, self.due)
        if any(at is not None and now >= at for at in times) or status.stopping is not None:
            return False
        return all(isinstance(event, _MAY_WAIT) for event in events)


#: Others, such as a request to cancel the run, are decided together with all that is known.
_MAY_WAIT = (NodeEvent, ControllerStarted, Tick)


def _runs(node: NodeStatus, incarnation: int) -> bool:
    """Whether an incarnation may be running, and is not to end."""
    waits = node.state is NodeState.QUEUED
    return node.incarnation == incarnation and node.alive and not (waits or node.leaving)


def _is_failure(status: RunStatus, end: NodeEnded) -> bool:
    """Whether a node has failed that was not to end."""
    node = status.nodes[end.rank]
    return _runs(node, end.incarnation) and failed_by_itself(node, end)
