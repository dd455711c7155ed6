"""Stop nodes and end runs: SIGTERM, a grace period, SIGKILL.

The run takes its outcome when every node has ended. Before a suspension, and when the maximum
runtime is exceeded, nodes are first signaled to save (`Policy.checkpoint`). The first reason to end
a run stays, except that a run that is being suspended can still be canceled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from muster.lifecycle import cause, contact, suspension
from muster.lifecycle.counts import count_nodes
from muster.lifecycle.effects import KillNodes, SignalNodes, StopNodes
from muster.lifecycle.failure_details import describe
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Failure, NodeStatus, Reason, Stopping
from muster.lifecycle.transition import Transition


def begin(
    transition: Transition,
    outcome: RunState,
    details: str,
    *,
    note: str = "",
    names_failed: bool = False,
    save: bool = False,
) -> None:
    """Begin to end the run with `outcome`; no effect if it is ending already.

    note, names_failed: see `Stopping`. save: signal the nodes to save first.
    """
    ending = transition.run.stopping
    if ending is not None and not (
        ending.outcome is RunState.SUSPENDED and outcome is RunState.CANCELED
    ):
        return
    failed = suspension.failed_for_good(transition) if outcome is RunState.SUSPENDED else {}
    transition.update(stopping=Stopping(outcome, details, note, names_failed, failed))
    if outcome is RunState.FAILED and transition.run.failures:
        transition.update(cause=cause.first(transition.run.failures))
    transition.log("stopping", towards=outcome, why=details)
    if outcome is RunState.CANCELED:
        transition.set_state(RunState.CANCELING, details)
    end_nodes(transition, outcome, details, save=save)


def end_nodes(
    transition: Transition, outcome: RunState, details: str, *, save: bool = False
) -> None:
    """Begin to end all nodes of a run that is ending. See `begin`."""
    checkpoint = transition.policy.checkpoint
    if checkpoint is not None and (save or outcome is RunState.SUSPENDED):
        _save(transition, checkpoint.signal, checkpoint.grace)
    elif outcome is RunState.SUSPENDED:
        stop_nodes(transition, _alive(transition))
    else:
        stop_nodes(transition, transition.all_ranks, details)


def stop_nodes(transition: Transition, ranks: Iterable[int], why: str = "") -> None:
    """Stop nodes for good: those that are alive are sent SIGTERM, pending ones are STOPPED at once.
    why: logged for pending nodes."""
    leaving: list[int] = []
    for node, alike in transition.alike(ranks):
        if node.state is NodeState.PENDING:
            stopped = replace(node, state=NodeState.STOPPED, not_before=None)
            transition.set_alike(alike, node, stopped, why)
        elif node.alive:
            leaving += alike
    terminate(transition, leaving, lambda node: replace(_without_restart(node), term_at=None))


def terminate(
    transition: Transition, ranks: Iterable[int], change: Callable[[NodeStatus], NodeStatus]
) -> None:
    """Change the status of nodes that are alive, and send SIGTERM to those that have not been sent
    it, whose grace period starts now."""
    signaled: list[int] = []
    grace = transition.policy.grace_period
    for node, alike in transition.alike(ranks):
        if node.kill_at is None:
            signaled += alike
        kill_at = contact.standing(node, transition.now) + grace
        ending = replace(change(node), kill_at=node.kill_at or kill_at)
        transition.set_alike(alike, node, ending)
    if signaled:
        transition.wake(transition.now + grace)
        transition.emit(StopNodes(transition.refs(sorted(signaled))))


def _save(transition: Transition, signal: int, grace: float) -> None:
    signaled: list[int] = []
    for node, alike in transition.alike(_alive(transition)):
        saving = _without_restart(node)
        if node.kill_at is None:
            term_at = contact.standing(node, transition.now) + grace
            saving = replace(saving, term_at=term_at)
            signaled += alike
        transition.set_alike(alike, node, saving)
    if signaled:
        transition.wake(transition.now + grace)
        transition.emit(SignalNodes(transition.refs(sorted(signaled)), signal))


def _without_restart(node: NodeStatus) -> NodeStatus:
    """The node without a planned restart. A node that is being scaled down has none, and keeps the
    number for the case that it is scaled up again."""
    return node if node.scaling_down else replace(node, next_incarnation=None, not_before=None)


def _alive(transition: Transition) -> list[int]:
    return list(transition.alive_ranks(transition.all_ranks))


def apply(transition: Transition, *, outcome_apart: bool) -> None:
    """Send SIGTERM and SIGKILL where they are due; take the outcome once every node has ended.
    outcome_apart: see `decide`."""
    if transition.alarm_reached:
        _expire_deadlines(transition)
    if transition.run.stopping is not None and transition.policy.checkpoint is not None:
        _stop_serving_groups(transition)
    if transition.run.stopping is not None and not transition.counts.alive:
        if outcome_apart and not _had_ended(transition):
            transition.wake(transition.now)
        else:
            _finish(transition, transition.run.stopping)


def _had_ended(transition: Transition) -> bool:
    """Whether all nodes of a run that is ending had ended before this step."""
    before = transition.before
    counts = before.counts or count_nodes(transition.policy, before.nodes)
    return before.stopping is not None and not counts.alive


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
    for rank in transition.alive_ranks(transition.all_ranks):
        node = transition.nodes[rank]
        if node.killed or node.unreachable_since is not None:
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
        suspension.reset_replicas(transition, ending)
        return
    outcome, details = ending.outcome, ending.details
    code = 0 if outcome is RunState.SUCCEEDED else None
    blamed = _final_failure(transition, outcome)
    if blamed is not None:
        transition.update(cause=blamed)
        outcome, code = RunState.FAILED, blamed.exit_code
        details = describe(blamed, transition.policy.group_of(blamed.rank))
        if ending.note:
            details = f"{details}\n{ending.note}"
    transition.change_nodes(
        transition.pending_ranks(transition.all_ranks),
        lambda node: replace(node, state=NodeState.STOPPED, not_before=None),
    )
    transition.set_state(outcome, details, exit_code=code, finished_at=transition.now)


def _final_failure(transition: Transition, outcome: RunState) -> Failure | None:
    failures = transition.run.failures
    if outcome is RunState.SUCCEEDED:  # lost output still fails a run that has succeeded
        return next((f for f in failures if f.reason is Reason.OUTPUT_LOST), None)
    return cause.first(failures) if outcome is RunState.FAILED and failures else None
