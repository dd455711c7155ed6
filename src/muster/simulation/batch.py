"""Many seeds, on all cores."""

from __future__ import annotations

import gc
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import SystemRandom

from msgspec import Struct

from muster.simulation.coverage import count
from muster.simulation.faults import Plan
from muster.simulation.invariants import Breach, check
from muster.simulation.seeds import case_of, play
from muster.simulation.shrink import shrink
from muster.simulation.trace import faults

#: Seeds a process takes at a time.
_CHUNK = 250
#: Objects made between two looks for garbage: a story makes many, and keeps nearly all.
_GARBAGE = 100_000
#: Where databases of simulated runs are kept: in memory, if there is such a place.
_MEMORY = Path("/dev/shm")


class Finding(Struct, frozen=True):
    """A seed with which something is wrong."""

    seed: int
    breaches: tuple[Breach, ...]


class Tally(Struct):
    """What came of many seeds."""

    seen: Counter[str]
    findings: list[Finding]


def fresh(count: int) -> range:
    """So many seeds that nobody is likely to have tried: beyond those that are tried each time."""
    start = SystemRandom().randrange(100_000, 10**9)
    return range(start, start + count)


def run_seeds(seeds: range, workers: int | None = None) -> Iterator[Tally]:
    """One tally for each part of the seeds, as they come in. workers: processes; default: one a
    core; 0: none but this one."""
    parts = [seeds[place : place + _CHUNK] for place in range(0, len(seeds), _CHUNK)]
    if workers == 0:
        yield from map(run_part, parts)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(run_part, parts)


def run_part(seeds: Sequence[int]) -> Tally:
    """In this process."""
    gc.set_threshold(_GARBAGE)
    tally = Tally(Counter(), [])
    where = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="muster-simulation-", dir=where) as folder:
        for seed in seeds:
            story = play(case_of(seed), Path(folder))
            tally.seen.update(count(story))
            breaches = check(story)
            if breaches:
                tally.findings.append(Finding(seed, tuple(breaches)))
    return tally


def total(tallies: Iterator[Tally]) -> Tally:
    """All together."""
    whole = Tally(Counter(), [])
    for tally in tallies:
        whole.seen.update(tally.seen)
        whole.findings += tally.findings
    return whole


def explain(finding: Finding) -> Iterator[str]:
    """What is wrong, how to see it, and how little it takes."""
    yield f"seed {finding.seed}:"
    yield from (f"  {breach}" for breach in finding.breaches)
    yield f"  python -m muster.simulation --seed {finding.seed} --trace"
    least: Plan = shrink(finding.seed, finding.breaches[0].invariant)
    yield from (f"  {line}" for line in faults(least))
