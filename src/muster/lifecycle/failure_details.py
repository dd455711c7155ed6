"""The texts on failures that the lifecycle stores: `details` of a run, and why it restarts."""

from __future__ import annotations

from collections.abc import Mapping
from signal import Signals

from muster.lifecycle.policy import GroupPolicy
from muster.lifecycle.status import Failure, Reason


def describe(failure: Failure, group: GroupPolicy | None = None) -> str:
    """The headline, then the message of the program or the engine on the lines below. group: of the
    node; None: of no array."""
    head = headline(failure, group)
    return f"{head}:\n{failure.message}" if failure.message else head


def replica_and_node(group: GroupPolicy, rank: int) -> dict[str, int]:
    """The numbers that a node of an array is known by: of its replica and, if that has several
    nodes, its own in it. Empty for other nodes, which are known by their ranks."""
    if not group.is_array:
        return {}
    replica = group.replica_of(rank)
    index = rank - group.replica_ranks(replica).start
    return {"replica": replica} | ({"node": index} if group.nodes > 1 else {})


def name_of(rank: int | str, numbers: Mapping[str, int | str]) -> str:
    """What a node is called: `node-3`; of an array `replica 3`, or `replica 1, node 1`. numbers:
    those of `replica_and_node`, and perhaps others."""
    if "replica" not in numbers:
        return f"node-{rank}"
    return f"replica {numbers['replica']}" + (
        f", node {numbers['node']}" if "node" in numbers else ""
    )


def headline(failure: Failure, group: GroupPolicy | None = None) -> str:
    """One sentence, with `exit code N` (OCI clients read the number from it). group: as for
    `describe`."""
    numbers = {} if group is None else replica_and_node(group, failure.rank)
    rank = "" if numbers else f", rank {failure.rank}"
    name = name_of(failure.rank, numbers)
    where = f"{name} (group {failure.group}{rank})"
    match failure.reason:
        case Reason.NOT_STARTED:
            text = f"{where} could not be started"
        case Reason.NODE_LOST:
            text = f"{where} was lost"
        case Reason.PREEMPTED:
            text = f"{where} was preempted"
        case Reason.CANCELED:
            text = f"{where} was canceled from outside"
        case Reason.STARTUP_TIMEOUT:
            text = f"{where} did not become ready"
        case Reason.DEADLINE:
            text = f"{where} took too long"
        case Reason.HANG:
            text = f"{where} hung and was ended"
        case Reason.UNHEALTHY:
            text = f"{where} did not answer its liveness probe and was ended"
        case Reason.OUTPUT_LOST:
            text = f"the files that {where} wrote could not be copied back"
        case Reason.OUT_OF_MEMORY:
            text = f"{where} ran out of memory and was ended, exit code {failure.exit_code}"
        case _:
            text = f"{where} failed with exit code {failure.exit_code}"
            if failure.signal:
                text += f" ({_signal_text(failure.signal)})"
    return text


def _signal_text(number: int) -> str:
    try:
        return f"signal {number}, {Signals(number).name}"
    except ValueError:  # a real-time signal
        return f"signal {number}"


def reason_of(message: str) -> str:
    """The line of a failure's message that names the error; empty if the message is.

    A first line that Muster wrote, such as the name of the service that failed, stays before it.
    """
    first, newline, rest = message.strip().partition("\n")
    if not newline:
        return first
    from muster.node.failure_text import LAST_LINE, LAST_LINES, TRACEBACK, explain

    if first in (LAST_LINE, LAST_LINES):
        return f"{LAST_LINE} {explain(rest).lines[-1]}"
    found = explain(message)
    reason = next(iter(found.reasons), found.lines[-1])
    is_ours = first not in found.lines and TRACEBACK not in first
    return f"{first.rstrip(':')}: {reason}" if is_ours else reason
