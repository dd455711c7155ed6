"""Indexes of a trace, for the invariants."""

from __future__ import annotations

import re
from functools import cached_property

from msgspec import Struct

from muster.lifecycle.effects import StartNodes
from muster.lifecycle.policy import GroupPolicy, Policy, Rule
from muster.lifecycle.status import NodeRef
from simulation.harness.behavior import Exit
from simulation.harness.trace import Command, Fact, Loaded, Note, Step, Trace


class IncarnationHistory(Struct):
    """What really happened to an incarnation."""

    #: The times of its launches.
    launched: list[float]
    #: The times at which its program started.
    runs: list[float]
    ready: float | None = None
    ended: float | None = None
    end: Exit | None = None


class Restart(Struct, frozen=True):
    """A restart, from the event log."""

    number: int
    ranks: range
    group: GroupPolicy
    rank: int
    #: The rule that decided; None for a retry, or if no rule matched.
    rule: Rule | None
    retry: bool
    wait: float
    step: Step
    policy: Policy

    @property
    def counted(self) -> bool:
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
    def restarts(self) -> list[Restart]:
        """Every restart, in order."""
        return [
            _restart(self.policy, step, entry.data)
            for step in self.steps
            for entry in step.entries
            if entry.kind == "restart"
        ]

    @cached_property
    def starts(self) -> list[tuple[Command, StartNodes]]:
        """Every command to start nodes."""
        return [
            (command, command.effect)
            for command in self.commands
            if isinstance(command.effect, StartNodes)
        ]

    def step(self, number: int) -> Step:
        return self.steps[number - 1]


def _restart(policy: Policy, step: Step, data: object) -> Restart:
    assert isinstance(data, dict)
    why, what = str(data["why"]), str(data["what"])
    found = re.search(r"node-(\d+) \(group", why)
    assert found is not None
    rank = int(found[1])
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
    )


def _scope(policy: Policy, group: GroupPolicy, what: str, rank: int) -> range:
    if what == "the run":
        return range(policy.size)
    if what.startswith("group "):
        return group.ranks
    if what.startswith("replica "):
        return group.replica_ranks(int(what.split(" ")[1]))
    return range(rank, rank + 1)
