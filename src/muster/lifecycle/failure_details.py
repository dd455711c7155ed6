"""The texts on failures that the lifecycle stores: `details` of a run, and why it restarts."""

from __future__ import annotations

from collections.abc import Mapping
from signal import Signals

from muster.lifecycle.policy import GroupPolicy
from muster.lifecycle.status import Failure, Reason

#: Headlines of failures whose program did not end by itself.
_SENTENCES: Mapping[Reason, str] = {
    Reason.NOT_STARTED: "{where} could not be started",
    Reason.NODE_LOST: "{where} was lost",
    Reason.PREEMPTED: "{where} was preempted",
    Reason.CANCELED: "{where} was canceled from outside",
    Reason.STARTUP_TIMEOUT: "{where} did not become ready",
    Reason.DEADLINE: "{where} took too long",
    Reason.HANG: "{where} hung and was ended",
    Reason.UNHEALTHY: "{where} did not answer its liveness probe and was ended",
    Reason.PREFLIGHT: "{where} did not pass its preflight checks",
    Reason.OUTPUT_LOST: "the files that {where} wrote could not be copied back",
    Reason.OUT_OF_MEMORY: "{where} ran out of memory and was ended",
}
#: Those whose message is from the engine if there is no exit code: the program cannot know.
_OF_ENGINE = frozenset(
    {
        Reason.NOT_STARTED,
        Reason.NODE_LOST,
        Reason.PREEMPTED,
        Reason.CANCELED,
        Reason.OUT_OF_MEMORY,
    }
)


def describe(failure: Failure, group: GroupPolicy | None = None) -> str:
    """The headline, then the message of the program or the engine on the lines below. group: of the
    node; None: of no array."""
    head = headline(failure, group)
    return f"{head}:\n{failure.message}" if failure.message else head


def cause_of_restart(failure: Failure, group: GroupPolicy) -> str:
    """One line: the headline and, where nothing that the program has written tells it, what the
    engine says."""
    head = headline(failure, group)
    of_engine = failure.exit_code is None and failure.reason in _OF_ENGINE
    reason = reason_of(failure.message) if of_engine else ""
    return f"{head}: {reason}" if reason else head


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
    if (template := _SENTENCES.get(failure.reason)) is not None:
        text = template.format(where=where)
        # of a pod that was killed with its node program there is no exit code
        with_code = failure.reason is Reason.OUT_OF_MEMORY and failure.exit_code is not None
        return f"{text}, exit code {failure.exit_code}" if with_code else text
    text = f"{where} failed with exit code {failure.exit_code}"
    return f"{text} ({_signal_text(failure.signal)})" if failure.signal else text


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
    from muster.node.failure_text import LAST_LINE, LAST_LINES, LAST_LOG_LINES, TRACEBACK, explain

    if first in (LAST_LINE, LAST_LINES):
        return f"{LAST_LINE} {explain(rest).lines[-1]}"
    if rest.startswith(LAST_LOG_LINES):
        return first
    found = explain(message)
    reason = next(iter(found.reasons), found.lines[-1])
    is_ours = first not in found.lines and TRACEBACK not in first
    return f"{first.rstrip(':')}: {reason}" if is_ours else reason
