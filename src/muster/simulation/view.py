"""A story, looked at in the ways invariants ask about it."""

from __future__ import annotations

import re
from functools import cached_property

from msgspec import Struct

from muster.engines.simulated.life import End
from muster.lifecycle.effects import StartNodes
from muster.lifecycle.policy import GroupPolicy, Policy, Rule
from muster.lifecycle.status import NodeRef
from muster.simulation.story import Act, Fact, Loaded, Note, Step, Story


class Seen(Struct):
    """What the world saw of an incarnation: when it was handed over and when it ran, each time,
    when it was ready, and how it ended."""

    handed: list[float]
    runs: list[float]
    ready: float | None = None
    ended: float | None = None
    end: End | None = None


class Restart(Struct, frozen=True):
    """A restart, as the log tells it. rule: whose it is, None where no rule or a retry decided."""

    number: int
    ranks: range
    group: GroupPolicy
    rank: int
    rule: Rule | None
    retry: bool
    wait: float
    step: Step
    policy: Policy

    @property
    def counted(self) -> bool:
        return not self.retry and (self.rule is None or self.rule.counted)


class View:
    """See `Story`."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.policy: Policy = story.policy
        self.steps: list[Step] = []
        self.acts: list[Act] = []
        self.facts: list[Fact] = []
        self.notes: list[Note] = []
        self.read_back: list[tuple[Step, Loaded]] = []
        for line in story.lines:
            match line:
                case Fact():
                    self.facts.append(line)
                case Step():
                    self.steps.append(line)
                case Act():
                    self.acts.append(line)
                case Note():
                    self.notes.append(line)
                case Loaded() if self.steps:
                    self.read_back.append((self.steps[-1], line))

    @cached_property
    def lives(self) -> dict[NodeRef, Seen]:
        """Every incarnation that was ever handed over."""
        lives: dict[NodeRef, Seen] = {}
        for fact in self.facts:
            ref = NodeRef(fact.rank, fact.incarnation)
            seen = lives.setdefault(ref, Seen([], []))
            match fact.what:
                case "handed over":
                    seen.handed.append(fact.at)
                    seen.ready = seen.ended = None
                case "runs":
                    seen.runs.append(fact.at)
                case "ready":
                    seen.ready = fact.at
                case "ended":
                    seen.ended, seen.end = fact.at, fact.end
        return lives

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
    def starts(self) -> list[tuple[Act, StartNodes]]:
        """Every order to bring nodes up."""
        return [(act, act.effect) for act in self.acts if isinstance(act.effect, StartNodes)]

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
