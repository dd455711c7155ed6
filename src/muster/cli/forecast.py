"""Showing what was forecast: figures, a plot of characters, and what if."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.cli.output import print_table
from muster.cli.terminal import echo
from muster.forecast.compare import NOTABLE, Forecast
from muster.forecast.timeline import shares
from muster.forecast.world import Use
from muster.lifecycle.policy import Policy

_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDTH = 64


def print_forecasts(policy: Policy, found: Sequence[Forecast], seed: int) -> None:
    """found: what was asked first, then what might be asked instead."""
    asked = found[0]
    _head(policy, asked, seed)
    _figures(asked)
    _uses(policy, asked)
    _plot(asked)
    _what_if(found)


def _head(policy: Policy, asked: Forecast, seed: int) -> None:
    world, nodes = asked.variant.world, policy.size
    often = _hours(world.mtbf / nodes)
    echo(
        f"{nodes:,} node{'s' if nodes > 1 else ''} for {_hours(world.horizon)}; each fails every "
        f"{_hours(world.mtbf)} on average, so one of them every {often}"
    )
    plural = "s" if policy.max_restarts > 1 else ""
    budget = f"{policy.max_restarts:,} restart{plural}" if policy.max_restarts else "no restart"
    echo(
        f"policy: {policy.action} {policy.strategy}, {budget}; a checkpoint every "
        f"{_hours(world.checkpoint_every)}, {_hours(world.checkpoint_cost)} each"
    )
    echo(f"{len(asked.outcomes)} simulated runs, seeds from {seed}\n")


def _figures(asked: Forecast) -> None:
    worst, best = asked.range()
    echo(f"goodput   {asked.goodput:6.1%}   (runs: {worst:.1%} to {best:.1%})")
    echo(f"failures  {asked.failures:6.1f}   restarts {asked.restarts:.1f}")
    going = sum(outcome.ended_at is None for outcome in asked.outcomes)
    ends = [f"{going} still going"] if going else []
    for state in ("SUCCEEDED", "FAILED", "CANCELED"):
        ended = [o for o in asked.outcomes if o.ended_at is not None and o.state == state]
        if ended:
            after = _hours(sum(o.ended_at or 0.0 for o in ended) / len(ended))
            why = ended[0].details.splitlines()[-1:] if state != "SUCCEEDED" else []
            ends.append(f"{len(ended)} {state} after {after} on average" + _because(why))
    echo(f"ended     {'; '.join(ends)}\n")


def _because(why: Sequence[str]) -> str:
    return f" ({why[0]})" if why else ""


def _uses(policy: Policy, asked: Forecast) -> None:
    total = sum(asked.use(use) for use in Use)
    rows = []
    for use in Use:
        spent = asked.use(use)
        if spent:
            bar = "█" * round(spent / total * 30)
            rows.append((str(use), f"{spent / 3600:>12,.1f}", f"{spent / total:>6.1%}", bar))
    print_table(("WHERE THE TIME GOES", "  NODE HOURS", " SHARE", ""), rows)


def _plot(asked: Forecast) -> None:
    outcome, horizon = asked.outcomes[0], asked.variant.world.horizon
    columns = shares(outcome.productive, outcome.ended_at or horizon, horizon, _WIDTH)
    top = len(_BLOCKS) - 1
    line = "".join(_BLOCKS[round(share * top)] for share in columns)
    echo("\nnodes that make progress, in the first of the runs")
    echo(f"100% |{line}|")
    echo(f"      0{_hours(horizon):>{_WIDTH}}\n")


def _what_if(found: Sequence[Forecast]) -> None:
    asked = found[0]
    others = [f for f in found[1:] if abs(f.goodput - asked.goodput) >= NOTABLE]
    rows = [_row(asked, None), *(_row(f, asked) for f in sorted(others, key=_by_goodput))]
    print_table(("WHAT IF", "GOODPUT", "", "RESTARTS", "FAILED"), rows)
    best = min(found, key=_by_goodput)
    if best is asked:
        echo("\nnone of these does better than what is asked for")
    else:
        echo(f"\nbest: {best.variant.name}")


def _by_goodput(forecast: Forecast) -> float:
    return -forecast.goodput


def _row(forecast: Forecast, asked: Forecast | None) -> tuple[str, ...]:
    change = "" if asked is None else f"{(forecast.goodput - asked.goodput) * 100:+.1f}"
    failed = f"{forecast.ended('FAILED')} of {len(forecast.outcomes)}"
    return (
        forecast.variant.name,
        f"{forecast.goodput:.1%}",
        change,
        f"{forecast.restarts:.1f}",
        failed,
    )


def _hours(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:,.0f} h" if seconds >= 36000 else f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.3g} s"


def to_json(policy: Policy, found: Sequence[Forecast]) -> dict[str, Any]:
    """The same as data; times in seconds, `uses` in node-seconds of a run."""
    return {
        "nodes": policy.size,
        "variants": [
            {
                "name": f.variant.name,
                "goodput": f.goodput,
                "failures": f.failures,
                "restarts": f.restarts,
                "uses": {use.name.lower(): f.use(use) for use in Use},
                "runs": [
                    {
                        "state": o.state,
                        "details": o.details,
                        "ended_at": o.ended_at,
                        "goodput": o.goodput,
                        "failures": o.failures,
                        "restarts": o.restarts,
                    }
                    for o in f.outcomes
                ],
            }
            for f in found
        ],
    }
