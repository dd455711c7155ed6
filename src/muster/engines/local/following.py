"""Ends that follow from another's: told after it, so that they are not taken for its cause.

When the program of a main node has ended well, its services end, and those who were connected to
them fail of that. Its node has not ended before all of its processes have, which may be later.
"""

from __future__ import annotations

from muster.engines.local.starting import LocalNode
from muster.lifecycle.events import NodeEnded


class Following:
    """Which nodes are done but not gone, and what failed meanwhile."""

    def __init__(self) -> None:
        self._done: list[LocalNode] = []
        self._held: list[NodeEnded] = []

    def begin(self, node: LocalNode) -> None:
        """The node's program has ended well, and its services are about to."""
        self._done.append(node)

    def sort(self, node: LocalNode, event: NodeEnded) -> list[NodeEnded]:
        """What can be told now that this node has ended."""
        if node in self._done:
            self._done.remove(node)
            if self._done:
                return [event]
            held, self._held = self._held, []
            return [event, *held]
        if self._done and event.exit_code != 0:
            self._held.append(event)
            return []
        return [event]
