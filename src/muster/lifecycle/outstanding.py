"""What a run was in the middle of: the effects that whoever takes it over carries out again.

Effects are never stored. Each follows from an intention in the status, and was recorded with it
before anything was done.
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
    """Everything that is still to be true of the engine, in the order it was meant."""
    starting, saving, stopping, killing, parked = [], [], [], [], []
    for rank, node in enumerate(status.nodes):
        ref = NodeRef(rank, node.incarnation)
        if not node.alive:
            if node.state is NodeState.PARKED:
                parked.append(ref)
        elif node.killed:
            killing.append(ref)
        elif node.kill_at is not None:
            stopping.append(ref)
        elif node.term_at is not None:
            saving.append(ref)
        elif node.state is NodeState.STARTING:
            starting.append(ref)
    made: list[Effect] = []
    if parked:  # first: who starts does not wait for them
        made.append(ReleaseNodes(tuple(parked)))
    if starting:
        made.append(StartNodes(status.attempt, tuple(starting)))
    if saving and policy.checkpoint is not None:
        made.append(SignalNodes(tuple(saving), policy.checkpoint.signal))
    if stopping:
        made.append(StopNodes(tuple(stopping)))
    if killing:
        made.append(KillNodes(tuple(killing)))
    return tuple(made)
