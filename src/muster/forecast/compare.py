"""Compares policies under the same simulated failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import sqrt
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from muster.forecast.model import Assumptions, Outcome, TimeUse
from muster.forecast.simulate import simulate
from muster.lifecycle.policy import Action, GroupPolicy, Policy, Strategy

#: Differences in goodput below this are not significant.
NOTABLE = 0.001
_UNLIMITED = 1_000_000  # restarts


class Variant(Struct, frozen=True):
    """A policy to simulate, and the assumptions about machines and program."""

    #: How it differs from the requested one; `{restarts}` stands for the most in one of its runs.
    name: str
    policy: Policy
    assumptions: Assumptions


class Forecast(Struct, frozen=True):
    """The outcomes of several simulated runs of a variant."""

    variant: Variant
    outcomes: tuple[Outcome, ...]

    @property
    def goodput(self) -> float:
        return fmean(outcome.goodput for outcome in self.outcomes)

    @property
    def restarts(self) -> float:
        return fmean(outcome.restarts for outcome in self.outcomes)

    @property
    def failures(self) -> float:
        return fmean(outcome.failures for outcome in self.outcomes)

    def ended(self, state: str) -> int:
        """How many of the runs ended in this state."""
        return sum(o.state == state for o in self.outcomes if o.ended_at is not None)

    def use(self, use: TimeUse) -> float:
        """Mean node-seconds in a run."""
        return fmean(outcome.uses.get(use, 0.0) for outcome in self.outcomes)

    def range(self) -> tuple[float, float]:
        """The worst and the best goodput."""
        found = [outcome.goodput for outcome in self.outcomes]
        return min(found), max(found)


def forecast(
    variants: Sequence[Variant],
    runs: int,
    seed: int,
    workers: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[Forecast]:
    """Simulate `runs` runs of each variant in `workers` processes. Run i has the same seed in each
    variant. progress: called with the number of runs that are simulated, and of all."""
    tasks = [(v.policy, v.assumptions, seed + run) for v in variants for run in range(runs)]
    outcomes: list[Outcome] = []
    progress(0, len(tasks))
    for outcome in _simulate_all(tasks, workers):
        outcomes.append(outcome)
        progress(len(outcomes), len(tasks))
    return [
        _forecast(variant, tuple(outcomes[i * runs : (i + 1) * runs]))
        for i, variant in enumerate(variants)
    ]


def _forecast(variant: Variant, outcomes: tuple[Outcome, ...]) -> Forecast:
    """The name and the policy have the number of restarts that suffices, which can be written in a
    spec, where the variant was simulated without a limit."""
    if variant.policy.max_restarts < _UNLIMITED:
        return Forecast(variant, outcomes)
    most = max(outcome.restarts for outcome in outcomes)
    name = variant.name.replace("{restarts}", f"{most}")
    policy = replace(variant.policy, max_restarts=most)
    return Forecast(replace(variant, name=name, policy=policy), outcomes)


def _simulate_all(
    tasks: Sequence[tuple[Policy, Assumptions, int]], workers: int
) -> Iterator[Outcome]:
    """The outcomes in the order of the tasks."""
    if workers == 1:
        for task in tasks:
            yield simulate(*task)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(simulate, *zip(*tasks, strict=True))


def variants(policy: Policy, assumptions: Assumptions) -> list[Variant]:
    """The requested variant first, then alternatives."""
    return [Variant("current policy", policy, assumptions), *_others(policy, assumptions)]


def _others(policy: Policy, assumed: Assumptions) -> Iterator[Variant]:
    best = best_interval(policy, assumed)
    if abs(best - assumed.checkpoint_every) > 0.1 * assumed.checkpoint_every:
        changed = replace(assumed, checkpoint_every=best)
        yield Variant(f"a checkpoint every {_minutes(best)}", policy, changed)
    if policy.max_restarts < _UNLIMITED:
        yield Variant("max_restarts: {restarts}", _without_limit(policy), assumed)
    for strategy in Strategy:
        if strategy is not policy.strategy:
            yield Variant(f"strategy: {strategy}", replace(policy, strategy=strategy), assumed)
    if policy.action is Action.RESTART_RUN and any(g.replicas > 1 for g in policy.groups):
        changed_policy = replace(policy, action=Action.RESTART_REPLICA)
        yield Variant("action: restart_replica", changed_policy, assumed)
    if best != assumed.checkpoint_every and policy.max_restarts < _UNLIMITED:
        changed = replace(assumed, checkpoint_every=best)
        name = f"max_restarts: {{restarts}}, a checkpoint every {_minutes(best)}"
        yield Variant(name, _without_limit(policy), changed)


def _without_limit(policy: Policy) -> Policy:
    return replace(policy, max_restarts=_UNLIMITED)


def initial_policy(policy: Policy) -> Policy:
    """The policy of a run that is never scaled: its groups keep their initial size."""
    groups: list[GroupPolicy] = []
    rank = 0
    for group in policy.groups:
        count = group.initial
        least = min(group.min_success, count)
        made = replace(group, first_rank=rank, replicas=count, min_success=least, desired=None)
        if group.only is not None:  # these replicas get other numbers
            early = tuple(enough for enough in group.early_success if enough.replicas is None)
            made = replace(made, only=None, early_success=early)
        groups.append(made)
        rank += made.size
    return replace(policy, groups=tuple(groups))


def best_interval(policy: Policy, assumed: Assumptions) -> float:
    """The interval between checkpoints that loses least: sqrt(2 * cost * MTBF of the nodes that
    restart together), J. W. Young's first-order approximation (CACM 17, 1974)."""
    together = policy.size_at_once
    alone = all(group.is_array for group in policy.groups)
    if policy.action is Action.RESTART_REPLICA or alone:
        together = max(group.nodes for group in policy.groups)
    return max(
        sqrt(2 * assumed.checkpoint_cost * assumed.mtbf / together),
        assumed.checkpoint_cost,
        1.0,
    )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
