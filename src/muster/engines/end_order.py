"""The order in which ends of nodes are reported: a failure after what caused it."""

from __future__ import annotations

from muster.lifecycle.events import NodeEnded
from muster.lifecycle.status import NodeRef


class EndOrder:
    """Holds failures back that a successful end of another node may have caused.

    When the program of a main node succeeds, its services stop, and programs connected to them
    fail. The main node ends only when all its processes have, which may be after those failures.
    They are reported after its end, so that they are not taken for its cause.

    The messages of all agents have to be received before an end is passed to `next`.
    """

    def __init__(self) -> None:
        self._succeeded: set[NodeRef] = set()  # program succeeded, node has not ended
        self._held: list[NodeEnded] = []

    def program_succeeded(self, ref: NodeRef) -> None:
        """The node's program has succeeded, and its services are about to stop
        (`messages.ProgramDone`)."""
        self._succeeded.add(ref)

    def next(self, event: NodeEnded) -> list[NodeEnded]:
        """The ends to report now that a node has ended, in order."""
        ref = NodeRef(event.rank, event.incarnation)
        if ref in self._succeeded:
            self._succeeded.remove(ref)
            if self._succeeded:
                return [event]
            held, self._held = self._held, []
            return [event, *held]
        if self._succeeded and event.exit_code != 0:
            self._held.append(event)
            return []
        return [event]
