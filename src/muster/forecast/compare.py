"""Which policy would do better: the same simulated failures under others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import sqrt
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from muster.forecast.play import play
from muster.forecast.world import Outcome, Use, World
from muster.lifecycle.policy import Action, GroupPolicy, Policy, Strategy

#: A difference in goodput below this says nothing.
NOTABLE = 0.001
_ENOUGH = 1_000_000  # restarts: no budget at all


class Variant(Struct, frozen=True):
    """A policy and a world, and what they differ in from what was asked."""

    name: str
    policy: Policy
    world: World


class Forecast(Struct, frozen=True):
    """A variant over several simulated runs."""

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
        """How many of the runs ended so."""
        return sum(o.state == state for o in self.outcomes if o.ended_at is not None)

    def use(self, use: Use) -> float:
        """Node-seconds of a run."""
        return fmean(outcome.uses.get(use, 0.0) for outcome in self.outcomes)

    def range(self) -> tuple[float, float]:
        """The worst and the best goodput."""
        found = [outcome.goodput for outcome in self.outcomes]
        return min(found), max(found)


def forecast(variants: Sequence[Variant], runs: int, seed: int, workers: int) -> list[Forecast]:
    """Play `runs` runs of each variant, on so many processors. Run i has the same seed in all."""
    tasks = [(v.policy, v.world, seed + run) for v in variants for run in range(runs)]
    if workers == 1:
        outcomes = [play(*task) for task in tasks]
    else:
        with ProcessPoolExecutor(workers) as pool:
            outcomes = list(pool.map(play, *zip(*tasks, strict=True)))
    return [
        Forecast(variant, tuple(outcomes[i * runs : (i + 1) * runs]))
        for i, variant in enumerate(variants)
    ]


def variants(policy: Policy, world: World) -> list[Variant]:
    """What was asked first, then what might be asked instead."""
    return [Variant("as it is", policy, world), *_others(policy, world)]


def _others(policy: Policy, world: World) -> Iterator[Variant]:
    best = best_interval(policy, world)
    if abs(best - world.checkpoint_every) > 0.1 * world.checkpoint_every:
        changed = replace(world, checkpoint_every=best)
        yield Variant(f"a checkpoint every {_minutes(best)}", policy, changed)
    if policy.max_restarts < _ENOUGH:
        yield Variant("max_restarts without limit", replace(policy, max_restarts=_ENOUGH), world)
    for strategy in Strategy:
        if strategy is not policy.strategy:
            yield Variant(f"strategy: {strategy}", replace(policy, strategy=strategy), world)
    if policy.action is Action.RESTART_RUN and any(g.replicas > 1 for g in policy.groups):
        changed_policy = replace(policy, action=Action.RESTART_REPLICA)
        yield Variant("action: restart_replica", changed_policy, world)
    if best != world.checkpoint_every and policy.max_restarts < _ENOUGH:
        both = replace(policy, max_restarts=_ENOUGH)
        changed = replace(world, checkpoint_every=best)
        yield Variant(f"no limit, and a checkpoint every {_minutes(best)}", both, changed)


def as_it_begins(policy: Policy) -> Policy:
    """The policy of a run that nobody scales: its groups are as large as at first, for good."""
    groups: list[GroupPolicy] = []
    rank = 0
    for group in policy.groups:
        count = group.initial
        least = min(group.min_success, count)
        made = replace(group, first_rank=rank, replicas=count, min_success=least, wanted=None)
        groups.append(made)
        rank += made.size
    return replace(policy, groups=tuple(groups))


def best_interval(policy: Policy, world: World) -> float:
    """The interval between checkpoints that loses least: sqrt(2 * cost * MTBF of what restarts),
    J. W. Young's first-order approximation (CACM 17, 1974)."""
    together = policy.size
    if policy.action is Action.RESTART_REPLICA:
        together = max(group.nodes for group in policy.groups)
    return max(sqrt(2 * world.checkpoint_cost * world.mtbf / together), world.checkpoint_cost, 1.0)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
