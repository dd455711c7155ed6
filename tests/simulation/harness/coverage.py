"""Counts what happened in simulated runs, which shows that they cover rare situations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from muster.lifecycle.effects import KillNodes, SignalNodes
from muster.lifecycle.policy import Strategy
from muster.lifecycle.ranks import parse_ranks
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus, Reason
from simulation.harness.faults import Moment
from simulation.harness.trace import Received, Step, Trace
from simulation.harness.view import Restart, View

_AFTERMATHS = ("live", "die", "die_unknown", "broken")
_SCOPES = ("node", "replica", "the failed", "group", "run")

#: Everything that has to happen at least once in enough seeds.
EXPECTED: tuple[str, ...] = (
    *(f"outcome {state}" for state in ("SUCCEEDED", "FAILED", "CANCELED", "SUSPENDED")),
    *(f"restart of a {scope}" for scope in _SCOPES),
    *(f"restart with {strategy}" for strategy in Strategy),
    *(f"failure: {reason}" for reason in Reason),
    *(
        f"controller dies {moment}, nodes {after}"
        for moment in Moment
        for after in (_AFTERMATHS if moment is not Moment.CLOSING else ("live",))
    ),
    *(f"node {state}" for state in NodeState),
    "restart by a rule",
    "restart by a rule before retries",
    "restart that does not count",
    "restart that waits",
    "retry",
    "two restarts in one step",
    "budget used up: run",
    "budget used up: group",
    "budget used up: rule",
    "rule that gives up",
    "failure that is tolerated",
    "maximum runtime over",
    "checkpoint requested",
    "SIGKILL",
    "resume",
    "attempt above 2",
    "given up as broken",
    "given up: supervisors lost repeatedly",
    "nothing left to succeed with",
    "array falls short",
    "array succeeds early",
    "array fails: max_failed",
    "array fails: total_retries",
    "restart by a rule about groups",
    "output lost after all",
    "node crashes",
    "node lost",
    "several fail",
    "slow start",
    "late event",
    "repeated event",
    "late command",
    "repeated command",
    "store busy",
    "cancel requested",
    "suspend requested",
    "resumed",
    "request during a step",
    "request after a step",
    "scale requested",
    "scaled during a step",
    "scaled up",
    "scaled down",
    "scaled down to nothing",
    "scaled while suspended",
    "added again before it had ended",
    "clock jumps",
    "attached",
    "node waits",
    "node scheduled",
    "contact lost",
    "all contacts lost",
    "contact breaks with a command",
    "node unreachable",
    "node reachable",
    "unreachable node ends",
    "unreachable node is stopped",
    "handed over",
    "the engine restarts the run",
    "the engine restarts a run with a controller",
    "native restart adopted",
    "several native restarts adopted at once",
    "native restart that does not count",
    "native restart that replaces a restart",
    "native restart of a run that is ending",
    "native restart beyond the budget",
)


def count(trace: Trace) -> Counter[str]:
    """What happened in a run, and how often."""
    view = View(trace)
    seen: Counter[str] = Counter(note.kind for note in view.notes)
    seen["runs"], seen["steps"] = 1, len(view.steps)
    seen["events received"] = sum(type(line) is Received for line in trace.lines)
    seen["commands to nodes"] = sum(len(command.effect.nodes) for command in view.commands)
    seen["incarnations"] = len(view.incarnations)
    seen["faults planned"] = len(trace.plan)
    seen["virtual seconds"] = int(max((line.at for line in trace.lines), default=0.0))
    for restart in view.restarts:
        seen.update(_of_restart(view, restart))
    for command in view.commands:
        seen["SIGKILL"] += isinstance(command.effect, KillNodes)
        seen["checkpoint requested"] += isinstance(command.effect, SignalNodes)
    for step in view.steps:
        seen.update(_of_step(step))
    seen[f"outcome {trace.recorded}"] += 1
    return seen


def _of_restart(view: View, restart: Restart) -> Iterator[str]:
    yield f"restart of a {restart.what}"
    yield f"restart with {view.policy.strategy}"
    if restart.wait:
        yield "restart that waits"
    if restart.retry:
        yield "retry"
    if restart.rule is not None:
        yield "restart by a rule"
        if restart.rule.group_failed:
            yield "restart by a rule about groups"
        if restart.rule.before_retries:
            yield "restart by a rule before retries"
        if not restart.rule.counted:
            yield "restart that does not count"


def _of_step(step: Step) -> Iterator[str]:
    kinds = [entry.kind for entry in step.entries]
    if kinds.count("restart") > 1:
        yield "two restarts in one step"
    followed = {"restart", "stopping"} & set(kinds) or step.before.stopping
    if "failure" in kinds and not followed:
        yield "failure that is tolerated"
    if step.before.nodes is not step.after.nodes:
        nodes = [*zip(step.before.nodes, step.after.nodes, strict=True)]
        if any(old.scaling_down and new.alive and not new.scaling_down for old, new in nodes):
            yield "added again before it had ended"
        found = [entry.data["ranks"] for entry in step.entries if entry.kind == "reachable"]
        reached = {rank for ranks in found for rank in parse_ranks(ranks)}
        for rank, (old, new) in enumerate(nodes):
            if rank not in reached:
                yield from _of_contact(old, new)
    yield from _of_native_restart(step)
    if step.after.attempt > 2 and step.before.attempt <= 2:
        yield "attempt above 2"
    for entry in step.entries:
        yield from _of_entry(entry.kind, entry.data, step)


def _of_native_restart(step: Step) -> Iterator[str]:
    before, after = step.before, step.after
    number = after.native_restarts - before.native_restarts
    if not number:
        return
    yield "native restart adopted"
    if number > 1:
        yield "several native restarts adopted at once"
    counted = after.spent.native - before.spent.native
    if counted < number:
        yield "native restart that does not count"
    if after.spent.run - before.spent.run < counted:
        yield "native restart that replaces a restart"
    if before.stopping is not None:
        yield "native restart of a run that is ending"
    elif after.stopping is not None and after.stopping.details.startswith("the engine"):
        yield "native restart beyond the budget"


def _of_contact(old: NodeStatus, new: NodeStatus) -> Iterator[str]:
    if old.unreachable_since is None:
        return
    if not new.alive or new.incarnation != old.incarnation:
        yield "unreachable node ends"
    if new.kill_at is not None and old.kill_at is None and new.unreachable_since is not None:
        yield "unreachable node is stopped"


def _of_entry(kind: str, data: Mapping[str, Any], step: Step) -> Iterator[str]:
    if kind == "failure":
        yield f"failure: {data['reason']}"
    elif kind in ("reachable", "unreachable", "scheduled"):
        yield f"node {kind}"
    elif kind == "nodes":
        yield f"node {data['state']}"
        if data.get("why") == "enough replicas have succeeded":
            yield "array succeeds early"
    elif kind == "scaled":
        yield "scaled up" if data["to"] > data["from"] else "scaled down"
        if data["to"] == 0:
            yield "scaled down to nothing"
        if step.before.state is RunState.SUSPENDED:
            yield "scaled while suspended"
    elif kind == "resumed":
        yield "resume"
    elif kind == "stopping":
        yield from _of_stopping(data, step)
    elif kind == "run" and data["state"] == RunState.FAILED and _was_to_succeed(step):
        yield "output lost after all"


def _was_to_succeed(step: Step) -> bool:
    ending = step.before.stopping
    return ending is not None and ending.outcome is RunState.SUCCEEDED


def _of_stopping(data: Mapping[str, Any], step: Step) -> Iterator[str]:
    note = "" if step.after.stopping is None else step.after.stopping.note
    if not note:
        note = step.after.details.rpartition("\n")[2]
    if data["why"].startswith("maximum runtime"):
        yield "maximum runtime over"
    if data["why"].startswith("too few replicas succeeded"):
        yield "nothing left to succeed with"
    if data["why"].startswith("too few replicas of group"):
        yield "array falls short"
    if "(max_failed)" in note:
        yield "array fails: max_failed"
    if "retries of group" in note:
        yield "array fails: total_retries"
    if data["why"].startswith("its supervisor broke"):
        yield "given up as broken"
    if data["why"].startswith("its supervisors were lost"):
        yield "given up: supervisors lost repeatedly"
    if note.startswith("rule "):
        yield "rule that gives up"
    for where, what in (
        ("failure.max_restarts", "run"),
        ("max_restarts of group", "group"),
        ("max_restarts of rule", "rule"),
    ):
        if f"{where}" in note and not (what == "run" and "of " in note):
            yield f"budget used up: {what}"
