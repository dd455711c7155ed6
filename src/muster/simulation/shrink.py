"""Making a failing run as small as it gets, one fault at a time."""

from __future__ import annotations

from muster.simulation.faults import Plan
from muster.simulation.invariants import check
from muster.simulation.seeds import case_of, play


def shrink(seed: int, invariant: str) -> Plan:
    """The smallest plan found, by leaving out single faults, with which the invariant still does
    not hold."""
    plan = case_of(seed).plan
    place = 0
    while place < len(plan):
        fewer = plan[:place] + plan[place + 1 :]
        if any(breach.invariant == invariant for breach in check(play(case_of(seed, fewer)))):
            plan = fewer
        else:
            place += 1
    return plan
