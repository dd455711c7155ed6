"""The text and JSON of `muster simulate`: figures, a plot of characters, alternatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.cli.output import print_table
from muster.cli.terminal import echo
from muster.forecast.compare import NOTABLE, Forecast
from muster.forecast.model import TimeUse
from muster.forecast.plot import shares
from muster.lifecycle.policy import Policy

_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDTH = 64


def print_forecasts(policy: Policy, found: Sequence[Forecast], seed: int) -> None:
    """Print forecasts: the job as specified comes first, then alternatives to it."""
    specified = found[0]
    _print_heading(policy, specified, seed)
    _print_figures(specified)
    _print_uses(specified)
    _print_plot(specified)
    _print_alternatives(found)


def _print_heading(policy: Policy, specified: Forecast, seed: int) -> None:
    assumptions, nodes = specified.variant.assumptions, policy.size
    interval = _duration_text(assumptions.mtbf / nodes)
    echo(
        f"{nodes:,} node{'s' if nodes > 1 else ''} for {_duration_text(assumptions.horizon)}; "
        f"each fails every {_duration_text(assumptions.mtbf)} on average, "
        f"so one node fails every {interval}"
    )
    plural = "s" if policy.max_restarts > 1 else ""
    budget = f"{policy.max_restarts:,} restart{plural}" if policy.max_restarts else "no restart"
    echo(
        f"policy: {policy.action} {policy.strategy}, {budget}; a checkpoint every "
        f"{_duration_text(assumptions.checkpoint_every)}, "
        f"{_duration_text(assumptions.checkpoint_cost)} each"
    )
    echo(f"{len(specified.outcomes)} simulated runs, seeds from {seed}\n")


def _print_figures(specified: Forecast) -> None:
    worst, best = specified.range()
    echo(f"goodput   {specified.goodput:6.1%}   (runs: {worst:.1%} to {best:.1%})")
    echo(f"failures  {specified.failures:6.1f}   restarts {specified.restarts:.1f}")
    running = sum(outcome.ended_at is None for outcome in specified.outcomes)
    ends = [f"{running} still running"] if running else []
    for state in ("SUCCEEDED", "FAILED", "CANCELED"):
        ended = [o for o in specified.outcomes if o.ended_at is not None and o.state == state]
        if ended:
            after = _duration_text(sum(o.ended_at or 0.0 for o in ended) / len(ended))
            why = ended[0].details.splitlines()[-1:] if state != "SUCCEEDED" else []
            ends.append(f"{len(ended)} {state} after {after} on average" + _because(why))
    echo(f"ended     {'; '.join(ends)}\n")


def _because(why: Sequence[str]) -> str:
    return f" ({why[0]})" if why else ""


def _print_uses(specified: Forecast) -> None:
    total = sum(specified.use(use) for use in TimeUse)
    rows = []
    for use in TimeUse:
        spent = specified.use(use)
        if spent:
            bar = "█" * round(spent / total * 30)
            rows.append((str(use), f"{spent / 3600:>12,.1f}", f"{spent / total:>6.1%}", bar))
    print_table(("WHERE THE TIME GOES", "  NODE HOURS", " SHARE", ""), rows)


def _print_plot(specified: Forecast) -> None:
    outcome, horizon = specified.outcomes[0], specified.variant.assumptions.horizon
    columns = shares(outcome.productive, outcome.ended_at or horizon, horizon, _WIDTH)
    top = len(_BLOCKS) - 1
    line = "".join(_BLOCKS[round(share * top)] for share in columns)
    echo("\nshare of nodes making progress, in the first run")
    echo(f"100% |{line}|")
    echo(f"      0{_duration_text(horizon):>{_WIDTH}}\n")


def _print_alternatives(found: Sequence[Forecast]) -> None:
    specified = found[0]
    others = [f for f in found[1:] if abs(f.goodput - specified.goodput) >= NOTABLE]
    rows = [_row(specified, None), *(_row(f, specified) for f in sorted(others, key=_by_goodput))]
    print_table(("ALTERNATIVE", "GOODPUT", "", "RESTARTS", "FAILED"), rows)
    best = min(found, key=_by_goodput)
    if best is specified:
        echo("\nno alternative is better than the job as specified")
    else:
        echo(f"\nbest: {best.variant.name}")


def _by_goodput(forecast: Forecast) -> float:
    return -forecast.goodput


def _row(forecast: Forecast, specified: Forecast | None) -> tuple[str, ...]:
    change = "" if specified is None else f"{(forecast.goodput - specified.goodput) * 100:+.1f}"
    failed = f"{forecast.ended('FAILED')} of {len(forecast.outcomes)}"
    return (
        forecast.variant.name,
        f"{forecast.goodput:.1%}",
        change,
        f"{forecast.restarts:.1f}",
        failed,
    )


def _duration_text(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:,.0f} h" if seconds >= 36000 else f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.3g} s"


def to_json(policy: Policy, found: Sequence[Forecast]) -> dict[str, Any]:
    """Forecasts as JSON; times in seconds, `uses` in node-seconds per run."""
    return {
        "nodes": policy.size,
        "variants": [
            {
                "name": f.variant.name,
                "goodput": f.goodput,
                "failures": f.failures,
                "restarts": f.restarts,
                "uses": {use.name.lower(): f.use(use) for use in TimeUse},
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
