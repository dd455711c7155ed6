"""Ending: SIGTERM, a grace period, SIGKILL; the outcome is taken when every node has ended.

Where a run is to go on later, or its time is over, its nodes are first told to save what they have
(`Policy.checkpoint`). The first reason to end wins, since what happened, happened; but a run that
is being suspended can still be canceled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from muster.lifecycle import cause, suspension
from muster.lifecycle.describe import describe
from muster.lifecycle.effects import KillNodes, SignalNodes, StopNodes
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Failure, NodeStatus, Reason, Stopping
from muster.lifecycle.turn import Turn


def begin(
    turn: Turn, outcome: RunState, details: str, *, note: str = "", save: bool = False
) -> None:
    """Start ending the run towards `outcome`; nothing if it is ending already.

    note: what is said after the cause of a failure. save: tell the nodes to save first.
    """
    ending = turn.run.stopping
    if ending is not None and not (
        ending.outcome is RunState.SUSPENDED and outcome is RunState.CANCELED
    ):
        return
    turn.update(stopping=Stopping(outcome, details, note))
    if outcome is RunState.FAILED and turn.run.failures:
        turn.update(cause=cause.first(turn.run.failures))
    turn.note("stopping", towards=outcome, why=details)
    if outcome is RunState.CANCELED:
        turn.become(RunState.CANCELING, details)
    checkpoint = turn.policy.checkpoint
    if checkpoint is not None and (save or outcome is RunState.SUSPENDED):
        _save(turn, checkpoint.signal, checkpoint.grace)
    elif outcome is RunState.SUSPENDED:
        stop_nodes(turn, _alive(turn))
    else:
        stop_nodes(turn, range(turn.policy.size), details)


def stop_nodes(turn: Turn, ranks: Iterable[int], why: str = "") -> None:
    """Tell the living among `ranks` to end; those never started simply never are, which is told
    with `why`. None of them starts again."""
    leaving: dict[int, NodeStatus] = {}
    for rank in ranks:
        node = turn.nodes[rank]
        if node.state is NodeState.PENDING:
            turn.set(rank, replace(node, state=NodeState.STOPPED, not_before=None), why)
        elif node.alive:
            leaving[rank] = replace(_for_good(node), term_at=None)
    tell_to_end(turn, leaving)


def tell_to_end(turn: Turn, leaving: Mapping[int, NodeStatus]) -> None:
    """Nodes that are alive are to end, and are from now on as they are given here. Each is told
    once, and has the grace period from then on."""
    told: list[int] = []
    kill_at = turn.now + turn.policy.grace_period
    for rank, node in leaving.items():
        if node.kill_at is not None:
            turn.set(rank, node)
        else:
            turn.set(rank, replace(node, kill_at=kill_at))
            told.append(rank)
    if told:
        turn.wake(kill_at)
        turn.act(StopNodes(turn.refs(told)))


def _save(turn: Turn, signal: int, grace: float) -> None:
    told: list[int] = []
    for rank in _alive(turn):
        node = _for_good(turn.nodes[rank])
        if node.kill_at is None:
            node = replace(node, term_at=turn.now + grace)
            told.append(rank)
        turn.set(rank, node)
    if told:
        turn.wake(turn.now + grace)
        turn.act(SignalNodes(turn.refs(told), signal))


def _for_good(node: NodeStatus) -> NodeStatus:
    """The node, not to start again. One that is to be parked does not, but keeps the number of
    the life it might have."""
    return node if node.parking else replace(node, again=None, not_before=None)


def _alive(turn: Turn) -> list[int]:
    return [rank for rank, node in enumerate(turn.nodes) if node.alive]


def apply(turn: Turn) -> None:
    """Go on with those whose time to end is over; take the outcome when nothing is left."""
    if turn.due:
        _overdue(turn)
    if turn.run.stopping is not None and turn.policy.checkpoint is not None:
        _dismiss(turn)
    if turn.run.stopping is not None and not turn.census.alive:
        _finish(turn, turn.run.stopping)


def _dismiss(turn: Turn) -> None:
    """Those that serve have nothing to save: they are needed as long as others do."""
    served = [rank for group in turn.policy.groups if group.serves for rank in group.ranks]
    left = [rank for rank in served if turn.nodes[rank].alive and turn.nodes[rank].term_at]
    if not left:
        return
    groups = (group for group in turn.policy.groups if not group.serves)
    if not any(turn.nodes[rank].alive for group in groups for rank in group.ranks):
        stop_nodes(turn, left)


def _overdue(turn: Turn) -> None:
    killed: list[int] = []
    saved: list[int] = []
    for rank, node in enumerate(turn.nodes):
        if not node.alive or node.killed:
            continue
        if node.kill_at is not None and turn.past(node.kill_at):
            turn.set(rank, replace(node, killed=True))
            killed.append(rank)
        elif node.term_at is not None and turn.past(node.term_at):
            saved.append(rank)
    stop_nodes(turn, saved)
    if killed:
        turn.act(KillNodes(turn.refs(killed)))


def _finish(turn: Turn, ending: Stopping) -> None:
    if ending.outcome is RunState.SUSPENDED:
        suspension.take(turn, ending.details)
        return
    outcome, details = ending.outcome, ending.details
    code = 0 if outcome is RunState.SUCCEEDED else None
    blamed = _blamed(turn, outcome)
    if blamed is not None:
        turn.update(cause=blamed)
        outcome, details, code = RunState.FAILED, describe(blamed), blamed.exit_code
        if ending.note:
            details = f"{details}\n{ending.note}"
    for rank, node in enumerate(turn.nodes):
        if node.state is NodeState.PENDING:
            turn.set(rank, replace(node, state=NodeState.STOPPED, not_before=None))
    turn.become(outcome, details, exit_code=code, finished_at=turn.now)


def _blamed(turn: Turn, outcome: RunState) -> Failure | None:
    failures = turn.run.failures
    if outcome is RunState.SUCCEEDED:  # but for what it was to leave behind
        return next((f for f in failures if f.reason is Reason.OUTPUT_LOST), None)
    return cause.first(failures) if outcome is RunState.FAILED and failures else None
