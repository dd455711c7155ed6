"""A picture of a forecast, by matplotlib (the extra `plot`)."""

from __future__ import annotations

from pathlib import Path

from muster.errors import InvalidInput, Problem
from muster.forecast.compare import Forecast
from muster.forecast.timeline import shares
from muster.forecast.world import Use

_COLUMNS = 360


def draw(asked: Forecast, path: Path) -> None:
    """Where the time goes, and how many nodes make progress over time in every run.

    Raises InvalidInput if it cannot be drawn or written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        hint = "pip install 'muster-jobs[plot]'"
        raise InvalidInput(Problem("--plot", "matplotlib is not installed", hint)) from None
    figure = Figure(figsize=(10, 5), layout="constrained")
    spent, progress = figure.subplots(2, 1, height_ratios=[1, 2])
    left = 0.0
    total = sum(asked.use(use) for use in Use)
    for use in Use:
        share = asked.use(use) / total * 100
        if share:
            spent.barh(0, share, left=left, label=f"{use} {share:.1f} %")
            left += share
    spent.set(yticks=[], xlim=(0, 100), xlabel="% of the nodes' time", title=_title(asked))
    spent.legend(loc="upper center", bbox_to_anchor=(0.5, -0.45), ncols=3, frameon=False)
    horizon = asked.variant.world.horizon
    hours = [horizon / 3600 * column / _COLUMNS for column in range(_COLUMNS)]
    for outcome in asked.outcomes:
        end = outcome.ended_at or horizon
        parts = shares(outcome.productive, end, horizon, _COLUMNS)
        progress.plot(hours, [part * 100 for part in parts], linewidth=0.8, alpha=0.6)
    progress.set(xlabel="hours", ylabel="% of nodes that make progress", ylim=(0, 101))
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InvalidInput(Problem("--plot", f"cannot write {path}: {error}")) from None


def _title(asked: Forecast) -> str:
    return f"goodput {asked.goodput:.1%}, {asked.restarts:.1f} restarts"
