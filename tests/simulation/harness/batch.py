"""Simulates many seeds on all cores, and reduces the plans of failing ones."""

from __future__ import annotations

import gc
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import SystemRandom

from msgspec import Struct

from simulation.harness.coverage import count
from simulation.harness.faults import FaultPlan
from simulation.harness.invariants import Breach, check
from simulation.harness.render import faults
from simulation.harness.seeds import case_of, play

#: Seeds in one task of a worker process.
_CHUNK = 250
#: The threshold of the garbage collector: a trace allocates many objects and keeps nearly all.
_GARBAGE = 100_000
#: Where databases of simulated runs are kept: in memory, where possible.
_MEMORY = Path("/dev/shm")


class Finding(Struct, frozen=True):
    """A seed whose run breaks an invariant."""

    seed: int
    breaches: tuple[Breach, ...]


class Tally(Struct):
    """The results of many seeds."""

    seen: Counter[str]
    findings: list[Finding]


def fresh(count: int) -> range:
    """Random seeds that are unlikely to have been tried before."""
    start = SystemRandom().randrange(100_000, 10**9)
    return range(start, start + count)


def run_seeds(seeds: range, workers: int | None = None) -> Iterator[Tally]:
    """One tally for each part of the seeds, as soon as it is complete.

    workers: the number of processes; None = one per core, 0 = only this one.
    """
    parts = [seeds[place : place + _CHUNK] for place in range(0, len(seeds), _CHUNK)]
    if workers == 0:
        yield from map(run_part, parts)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(run_part, parts)


def run_part(seeds: Sequence[int]) -> Tally:
    """Simulate these seeds in this process."""
    gc.set_threshold(_GARBAGE)
    tally = Tally(Counter(), [])
    where = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="muster-simulation-", dir=where) as folder:
        for seed in seeds:
            trace = play(case_of(seed), Path(folder))
            tally.seen.update(count(trace))
            breaches = check(trace)
            if breaches:
                tally.findings.append(Finding(seed, tuple(breaches)))
    return tally


def total(tallies: Iterator[Tally]) -> Tally:
    """The sum of all tallies."""
    whole = Tally(Counter(), [])
    for tally in tallies:
        whole.seen.update(tally.seen)
        whole.findings += tally.findings
    return whole


def explain(finding: Finding) -> Iterator[str]:
    """The broken invariants, the command that replays the run, and the smallest plan found."""
    yield f"seed {finding.seed}:"
    yield from (f"  {breach}" for breach in finding.breaches)
    yield f"  python tests/simulate.py --seed {finding.seed} --trace"
    least: FaultPlan = shrink(finding.seed, finding.breaches[0].invariant)
    yield from (f"  {line}" for line in faults(least))


def shrink(seed: int, invariant: str) -> FaultPlan:
    """The smallest plan, found by leaving out single faults, that still breaks the invariant."""
    plan = case_of(seed).plan
    place = 0
    while place < len(plan):
        fewer = plan[:place] + plan[place + 1 :]
        if any(breach.invariant == invariant for breach in check(play(case_of(seed, fewer)))):
            plan = fewer
        else:
            place += 1
    return plan
