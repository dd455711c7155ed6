"""The text and JSON of `muster simulate`: figures, a plot of characters, alternatives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from muster.cli.output import print_table
from muster.cli.terminal import echo, style, symbol
from muster.describe.times import span
from muster.forecast.compare import NOTABLE, Forecast
from muster.forecast.model import TimeUse, Worth
from muster.forecast.plot import shares
from muster.lifecycle.policy import Policy

_BLOCKS, _ASCII_BLOCKS = " ▁▂▃▄▅▆▇█", " .:#"
_WIDTH = 64
_BAR = 24
_INTERVAL = 0.1  # seconds between two drawings
#: At the rows of the plot, from the top.
_LABELS = ("100%", "", "50%", "")


class _Look(NamedTuple):
    """How bars of a kind look, with and without colours."""

    color: str
    block: str
    ascii: str


_LOOKS = {
    Worth.USEFUL: _Look("green", "█", "#"),
    Worth.OVERHEAD: _Look("blue", "▒", "+"),
    Worth.WASTED: _Look("red", "░", "."),
}


@contextmanager
def simulation_progress() -> Iterator[Callable[[int, int], None]]:
    """Shows on a terminal how many runs are simulated, while they are."""
    from muster.cli.live_area import LiveArea, can_be_live

    if not can_be_live(1):
        yield lambda _done, _total: None
        return
    started = drawn = time.monotonic()
    with LiveArea().open() as area:

        def show(done: int, total: int) -> None:
            nonlocal drawn
            now = time.monotonic()
            if done and now - drawn < _INTERVAL:
                return
            drawn = now
            left = f", about {span((now - started) / done * (total - done))} left" if done else ""
            area.draw([[(f"simulated {done} of {total} runs{left}", "")]])

        yield show


def print_forecasts(policy: Policy, found: Sequence[Forecast], seed: int) -> None:
    """Print forecasts: the job as specified comes first, then alternatives to it."""
    specified = found[0]
    _print_heading(policy, specified, seed)
    _print_figures(specified)
    _print_uses(specified)
    _print_plot(specified)
    _print_alternatives(found)


def _print_heading(policy: Policy, specified: Forecast, seed: int) -> None:
    assumptions, nodes = specified.variant.assumptions, policy.size_at_once
    interval = _duration_text(assumptions.mtbf / nodes)
    echo(
        f"{nodes:,} node{'s' if nodes > 1 else ''} for {_duration_text(assumptions.horizon)}; "
        f"each fails every {_duration_text(assumptions.mtbf)} on average, "
        f"so one node fails every {interval}"
    )
    for group in policy.groups:
        if group.is_array:
            each = f" of {group.nodes} nodes" if group.nodes > 1 else ""
            at_once = f"{group.at_once:,} at once"
            echo(f"group {group.name}: {group.replicas:,} replicas{each}, {at_once}")
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
            look = _LOOKS[use.worth]
            bar = symbol(look.block, look.ascii) * (round(spent / total * _BAR) or 1)
            figures = (f"{spent / 3600:>12,.1f}", f"{spent / total:>6.1%}")
            rows.append((str(use), *figures, str(use.worth), style(bar, look.color)))
    header = ("WHERE THE TIME GOES", "  NODE HOURS", " SHARE", "WORTH", "")
    print_table(header, rows, drop=("  NODE HOURS", ""), shorten={})


def _print_plot(specified: Forecast) -> None:
    outcome, horizon = specified.outcomes[0], specified.variant.assumptions.horizon
    columns = shares(outcome.productive, outcome.ended_at or horizon, horizon, _WIDTH)
    blocks = symbol(_BLOCKS, _ASCII_BLOCKS)
    edge = symbol("┤", "|")
    echo("\nnodes at work in the first run")
    for label, row in zip(_LABELS, chart(columns, len(_LABELS), blocks), strict=True):
        echo(f"{label:>4} {edge}{style(row, 'cyan')}")
    middle, end = _duration_text(horizon / 2), _duration_text(horizon)
    echo(f"     0{middle:^{_WIDTH - 1 - len(end)}}{end}")
    block = style(blocks[-1], "cyan")
    note = "share of nodes that work, even if a failure destroys the work later"
    echo(f"     time; {block} {note}\n")


def chart(columns: Sequence[float], height: int, blocks: str) -> list[str]:
    """Shares (0 to 1) as columns of characters, the top row first. blocks: from empty to full."""
    top = len(blocks) - 1
    levels = [round(share * height * top) for share in columns]
    return [
        "".join(blocks[min(max(level - row * top, 0), top)] for level in levels).rstrip()
        for row in reversed(range(height))
    ]


def _print_alternatives(found: Sequence[Forecast]) -> None:
    specified = found[0]
    others = [f for f in found[1:] if abs(f.goodput - specified.goodput) >= NOTABLE]
    rows = [_row(specified, None), *(_row(f, specified) for f in sorted(others, key=_by_goodput))]
    header = ("ALTERNATIVE", "GOODPUT", "", "RESTARTS", "FAILED")
    print_table(header, rows, shorten={"ALTERNATIVE": 24})
    best = min((specified, *others), key=_by_goodput)
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
        "nodes": policy.size_at_once,
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
