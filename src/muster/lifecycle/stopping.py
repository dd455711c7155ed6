"""Stop nodes and end runs: SIGTERM, a grace period, SIGKILL.

The run takes its outcome when every node has ended. Before a suspension, and when the maximum
runtime is exceeded, nodes are first signaled to save (`Policy.checkpoint`). The first reason to end
a run stays, except that a run that is being suspended can still be canceled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from muster.lifecycle import cause, suspension
from muster.lifecycle.effects import KillNodes, SignalNodes, StopNodes
from muster.lifecycle.failure_details import describe
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Failure, NodeStatus, Reason, Stopping
from muster.lifecycle.transition import Transition


def begin(
    transition: Transition, outcome: RunState, details: str, *, note: str = "", save: bool = False
) -> None:
    """Begin to end the run with `outcome`; no effect if it is ending already.

    note: text that follows the cause of a failure in the details. save: signal the nodes to save
    first.
    """
    ending = transition.run.stopping
    if ending is not None and not (
        ending.outcome is RunState.SUSPENDED and outcome is RunState.CANCELED
    ):
        return
    transition.update(stopping=Stopping(outcome, details, note))
    if outcome is RunState.FAILED and transition.run.failures:
        transition.update(cause=cause.first(transition.run.failures))
    transition.log("stopping", towards=outcome, why=details)
    if outcome is RunState.CANCELED:
        transition.set_state(RunState.CANCELING, details)
    checkpoint = transition.policy.checkpoint
    if checkpoint is not None and (save or outcome is RunState.SUSPENDED):
        _save(transition, checkpoint.signal, checkpoint.grace)
    elif outcome is RunState.SUSPENDED:
        stop_nodes(transition, _alive(transition))
    else:
        stop_nodes(transition, range(transition.policy.size), details)


def stop_nodes(transition: Transition, ranks: Iterable[int], why: str = "") -> None:
    """Stop nodes for good: those that are alive are sent SIGTERM, pending ones are STOPPED at once.
    why: logged for pending nodes."""
    leaving: dict[int, NodeStatus] = {}
    for rank in ranks:
        node = transition.nodes[rank]
        if node.state is NodeState.PENDING:
            transition.set_node(rank, replace(node, state=NodeState.STOPPED, not_before=None), why)
        elif node.alive:
            leaving[rank] = replace(_without_restart(node), term_at=None)
    terminate(transition, leaving)


def terminate(transition: Transition, leaving: Mapping[int, NodeStatus]) -> None:
    """Set the status of nodes that are alive, and send SIGTERM to those that have not been sent it,
    whose grace period starts now. leaving: the new status by rank."""
    signaled: list[int] = []
    kill_at = transition.now + transition.policy.grace_period
    for rank, node in leaving.items():
        if node.kill_at is not None:
            transition.set_node(rank, node)
        else:
            transition.set_node(rank, replace(node, kill_at=kill_at))
            signaled.append(rank)
    if signaled:
        transition.wake(kill_at)
        transition.emit(StopNodes(transition.refs(signaled)))


def _save(transition: Transition, signal: int, grace: float) -> None:
    signaled: list[int] = []
    for rank in _alive(transition):
        node = _without_restart(transition.nodes[rank])
        if node.kill_at is None:
            node = replace(node, term_at=transition.now + grace)
            signaled.append(rank)
        transition.set_node(rank, node)
    if signaled:
        transition.wake(transition.now + grace)
        transition.emit(SignalNodes(transition.refs(signaled), signal))


def _without_restart(node: NodeStatus) -> NodeStatus:
    """The node without a planned restart. A node that is being scaled down has none, and keeps the
    number for the case that it is scaled up again."""
    return node if node.scaling_down else replace(node, next_incarnation=None, not_before=None)


def _alive(transition: Transition) -> list[int]:
    return [rank for rank, node in enumerate(transition.nodes) if node.alive]


def apply(transition: Transition) -> None:
    """Send SIGTERM and SIGKILL where they are due; take the outcome once every node has ended."""
    if transition.alarm_reached:
        _expire_deadlines(transition)
    if transition.run.stopping is not None and transition.policy.checkpoint is not None:
        _stop_serving_groups(transition)
    if transition.run.stopping is not None and not transition.counts.alive:
        _finish(transition, transition.run.stopping)


def _stop_serving_groups(transition: Transition) -> None:
    """Stop groups that only serve once all nodes that save have ended: they have nothing to save
    themselves."""
    served = [rank for group in transition.policy.groups if group.serves for rank in group.ranks]
    left = [
        rank for rank in served if transition.nodes[rank].alive and transition.nodes[rank].term_at
    ]
    if not left:
        return
    groups = (group for group in transition.policy.groups if not group.serves)
    if not any(transition.nodes[rank].alive for group in groups for rank in group.ranks):
        stop_nodes(transition, left)


def _expire_deadlines(transition: Transition) -> None:
    killed: list[int] = []
    saved: list[int] = []
    for rank, node in enumerate(transition.nodes):
        if not node.alive or node.killed:
            continue
        if node.kill_at is not None and transition.is_due(node.kill_at):
            transition.set_node(rank, replace(node, killed=True))
            killed.append(rank)
        elif node.term_at is not None and transition.is_due(node.term_at):
            saved.append(rank)
    stop_nodes(transition, saved)
    if killed:
        transition.emit(KillNodes(transition.refs(killed)))


def _finish(transition: Transition, ending: Stopping) -> None:
    if ending.outcome is RunState.SUSPENDED:
        suspension.reset_replicas(transition, ending.details)
        return
    outcome, details = ending.outcome, ending.details
    code = 0 if outcome is RunState.SUCCEEDED else None
    blamed = _final_failure(transition, outcome)
    if blamed is not None:
        transition.update(cause=blamed)
        outcome, details, code = RunState.FAILED, describe(blamed), blamed.exit_code
        if ending.note:
            details = f"{details}\n{ending.note}"
    for rank, node in enumerate(transition.nodes):
        if node.state is NodeState.PENDING:
            transition.set_node(rank, replace(node, state=NodeState.STOPPED, not_before=None))
    transition.set_state(outcome, details, exit_code=code, finished_at=transition.now)


def _final_failure(transition: Transition, outcome: RunState) -> Failure | None:
    failures = transition.run.failures
    if outcome is RunState.SUCCEEDED:  # lost output still fails a run that has succeeded
        return next((f for f in failures if f.reason is Reason.OUTPUT_LOST), None)
    return cause.first(failures) if outcome is RunState.FAILED and failures else None
