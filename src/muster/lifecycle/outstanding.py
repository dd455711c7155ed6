"""The effects that a controller carries out again when it takes over a run.

Effects are not stored. Each follows from an intention in the status, which was recorded before the
effect was carried out.
"""

from __future__ import annotations

from muster.lifecycle.effects import (
    Effect,
    KillNodes,
    ReleaseNodes,
    SignalNodes,
    StartNodes,
    StopNodes,
)
from muster.lifecycle.policy import Policy
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef, RunStatus


def effects(policy: Policy, status: RunStatus) -> tuple[Effect, ...]:
    """All effects that may not have been carried out, in their original order."""
    starting, saving, stopping, killing, scaled_down = [], [], [], [], []
    for rank, node in enumerate(status.nodes):
        ref = NodeRef(rank, node.incarnation)
        if not node.alive:
            if node.state is NodeState.SCALED_DOWN:
                scaled_down.append(ref)
        elif node.killed:
            killing.append(ref)
        elif node.kill_at is not None:
            stopping.append(ref)
        elif node.term_at is not None:
            saving.append(ref)
        elif node.state is NodeState.STARTING:
            starting.append(ref)
    made: list[Effect] = []
    if scaled_down:  # first: starting nodes do not wait for them
        made.append(ReleaseNodes(tuple(scaled_down)))
    if starting:
        made.append(StartNodes(status.attempt, tuple(starting)))
    if saving and policy.checkpoint is not None:
        made.append(SignalNodes(tuple(saving), policy.checkpoint.signal))
    if stopping:
        made.append(StopNodes(tuple(stopping)))
    if killing:
        made.append(KillNodes(tuple(killing)))
    return tuple(made)
