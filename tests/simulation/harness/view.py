"""Indexes of a trace, for the invariants."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct

from muster.lifecycle.effects import StartNodes
from muster.lifecycle.events import RunRestarted
from muster.lifecycle.incarnations import of_native_restart
from muster.lifecycle.policy import GroupPolicy, Policy, Rule
from muster.lifecycle.ranks import parse_ranks
from muster.lifecycle.status import NodeRef, Reason
from simulation.harness.behavior import Exit
from simulation.harness.trace import Command, Fact, Loaded, Note, Restarted, Step, Trace


class IncarnationHistory(Struct):
    """What really happened to an incarnation."""

    #: The times of its launches.
    launched: list[float]
    #: The times at which its program started.
    runs: list[float]
    ready: float | None = None
    ended: float | None = None
    end: Exit | None = None


#: What is restarted, if it is not the whole run.
_SCOPES = ("node", "replica", "the failed", "group")


class Restart(Struct, frozen=True):
    """A restart, from the event log."""

    number: int
    ranks: Sequence[int]
    group: GroupPolicy
    rank: int
    #: The rule that decided; None for a retry, or if no rule matched.
    rule: Rule | None
    retry: bool
    wait: float
    step: Step
    policy: Policy
    #: What it restarts: "node", "replica", "the failed", "group" or "run".
    what: str
    #: Whether it is due to a preemption.
    preempted: bool

    @property
    def counted(self) -> bool:
        if self.preempted and (self.rule is None or Reason.PREEMPTED not in self.rule.reasons):
            return False
        return not self.retry and (self.rule is None or self.rule.counted)


class View:
    """An indexed trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.policy: Policy = trace.policy
        self.steps: list[Step] = []
        self.commands: list[Command] = []
        self.facts: list[Fact] = []
        self.notes: list[Note] = []
        self.read_back: list[tuple[Step, Loaded]] = []
        for line in trace.lines:
            match line:
                case Fact():
                    self.facts.append(line)
                case Step():
                    self.steps.append(line)
                case Command():
                    self.commands.append(line)
                case Note():
                    self.notes.append(line)
                case Loaded() if self.steps:
                    self.read_back.append((self.steps[-1], line))

    @cached_property
    def incarnations(self) -> dict[NodeRef, IncarnationHistory]:
        """Every incarnation that was ever launched."""
        found: dict[NodeRef, IncarnationHistory] = {}
        for fact in self.facts:
            ref = NodeRef(fact.rank, fact.incarnation)
            seen = found.setdefault(ref, IncarnationHistory([], []))
            match fact.what:
                case "launched":
                    seen.launched.append(fact.at)
                    seen.ready = seen.ended = None
                case "runs":
                    seen.runs.append(fact.at)
                case "ready":
                    seen.ready = fact.at
                case "ended":
                    seen.ended, seen.end = fact.at, fact.end
        return found

    @cached_property
    def controllers(self) -> list[float]:
        """When controllers started."""
        return [note.at for note in self.notes if note.kind == "controller starts"]

    @cached_property
    def restarts(self) -> list[Restart]:
        """Every restart, in order."""
        return [
            _restart(self.policy, step, entry.data)
            for step in self.steps
            for entry in step.entries
            if entry.kind == "restart" and "by" not in entry.data
        ]

    @cached_property
    def native_restarts(self) -> list[RunRestarted]:
        """What controllers heard of restarts by the engine itself."""
        return [line.event for line in self.trace.lines if isinstance(line, Restarted)]

    @cached_property
    def starts(self) -> list[tuple[Command, StartNodes]]:
        """Every command to start nodes."""
        return [
            (command, command.effect)
            for command in self.commands
            if isinstance(command.effect, StartNodes)
        ]

    def begun_by_engine(self, step: Step) -> set[NodeRef]:
        """The nodes that the engine has started by itself, as is adopted in a step."""
        known = step.after.native_restarts
        if known == step.before.native_restarts:
            return set()
        heard = next(e for e in self.native_restarts if e.restarts == known)
        return {NodeRef(rank, of_native_restart(known)) for rank in heard.ranks or ()}

    def step(self, number: int) -> Step:
        return self.steps[number - 1]


def _rank(policy: Policy, why: str) -> int:
    """The rank of the node that a sentence on a failure is about."""
    if found := re.search(r"node-(\d+) \(group", why):
        return int(found[1])
    found = re.search(r"replica (\d+)(?:, node (\d+))? \(group ([^,()]+)\)", why)
    assert found is not None
    group = next(group for group in policy.groups if group.name == found[3])
    return group.replica_ranks(int(found[1]))[int(found[2] or 0)]


def _restart(policy: Policy, step: Step, data: object) -> Restart:
    assert isinstance(data, dict)
    why, what = str(data["why"]), str(data["what"])
    rank = _rank(policy, why)
    tail = why.rpartition("; ")[2] if "; " in why else ""
    rule = None
    if tail.startswith("rule "):
        rule = next(rule for rule in policy.rules if rule.name == tail.removeprefix("rule "))
    group = policy.group_of(rank)
    return Restart(
        data["restart"],
        _scope(policy, group, what, rank),
        group,
        rank,
        rule,
        tail.startswith("retry "),
        data["wait"],
        step,
        policy,
        next((scope for scope in _SCOPES if what.startswith(scope)), "run"),
        ") was preempted" in why,
    )


def _scope(policy: Policy, group: GroupPolicy, what: str, rank: int) -> Sequence[int]:
    if what == "the run":
        return range(policy.size)
    if what.startswith("group "):
        return group.ranks
    if what.startswith(("replica", "the failed")):
        numbers = what.removeprefix("the failed ").split(" ", 1)[1].rpartition(" of group ")[0]
        assert "more" not in numbers, "an array with so many failed replicas is not simulated"
        replicas = parse_ranks(numbers.replace(", ", ","))
        return [rank for replica in replicas for rank in group.replica_ranks(replica)]
    return range(rank, rank + 1)
