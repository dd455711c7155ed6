"""The numbers of incarnations.

They only grow, also while nobody can be asked for the next one: an infrastructure that restarts a
run by itself knows only how often it has done so. Each of its restarts therefore begins a new block
of numbers. Its nodes have the first one; restarts by the controller take the next ones.
"""

from __future__ import annotations

#: Numbers in a block.
BLOCK = 1_000_000


def of_native_restart(restarts: int) -> int:
    """The incarnation of all nodes that the infrastructure has started with its latest restart.
    restarts: `events.RunRestarted.restarts`."""
    return restarts * BLOCK
