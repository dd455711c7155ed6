"""Plots of a forecast: values over time, and a picture by matplotlib (the extra `plot`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from muster.errors import InvalidInput, Problem
from muster.forecast.compare import Forecast
from muster.forecast.model import TimeUse

_COLUMNS = 360
#: Green is useful, blue overhead, yellow to red wasted; hatches tell them apart without colours.
_COLORS = {
    TimeUse.USEFUL: ("#2e8b57", ""),
    TimeUse.CHECKPOINTS: ("#6baed6", "/"),
    TimeUse.AGAIN: ("#d7301f", "x"),
    TimeUse.NOTICING: ("#fdae61", "."),
    TimeUse.STOPPING: ("#fee08b", "o"),
    TimeUse.WAITING: ("#f46d43", "+"),
    TimeUse.STARTING: ("#9ecae1", "\\"),
    TimeUse.IDLE: ("#c6dbef", "-"),
    TimeUse.OVER: ("#7f0000", "|"),
}

Changes = Sequence[tuple[float, float]]


def draw(forecast: Forecast, path: Path) -> None:
    """Draw how the nodes' time is used, and how many make progress over time in each run.

    Raises InvalidInput if matplotlib is missing or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        hint = "pip install 'muster-jobs[plot]'"
        raise InvalidInput(Problem("--plot", "matplotlib is not installed", hint)) from None
    figure = Figure(figsize=(10, 5), layout="constrained")
    spent, progress = figure.subplots(2, 1, height_ratios=[1, 2])
    left = 0.0
    total = sum(forecast.use(use) for use in TimeUse)
    for use in TimeUse:
        share = forecast.use(use) / total * 100
        if share:
            color, hatch = _COLORS[use]
            label = f"{use} {share:.1f} % ({use.worth})"
            spent.barh(0, share, left=left, color=color, hatch=hatch, ec="white", label=label)
            left += share
    spent.set(yticks=[], xlim=(0, 100), xlabel="% of the nodes' time", title=_title(forecast))
    spent.legend(loc="upper center", bbox_to_anchor=(0.5, -0.45), ncols=3, frameon=False)
    horizon = forecast.variant.assumptions.horizon
    hours = [horizon / 3600 * column / _COLUMNS for column in range(_COLUMNS)]
    for outcome in forecast.outcomes:
        end = outcome.ended_at or horizon
        parts = shares(outcome.productive, end, horizon, _COLUMNS)
        # an underscore keeps a line out of the legend
        name = "one line per simulated run" if outcome is forecast.outcomes[0] else "_other"
        progress.plot(hours, [part * 100 for part in parts], linewidth=0.8, alpha=0.6, label=name)
    progress.legend(loc="lower left", frameon=False)
    progress.set(xlabel="hours", ylabel="% of nodes that make progress", ylim=(0, 101))
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InvalidInput(Problem("--plot", f"cannot write {path}: {error}")) from None


def _title(forecast: Forecast) -> str:
    return f"goodput {forecast.goodput:.1%}, {forecast.restarts:.1f} restarts"


def shares(changes: Changes, until: float, horizon: float, columns: int) -> list[float]:
    """The mean value in each of `columns` equal parts of the time to the horizon.

    changes: (time, value from then on), sorted. until: the value is 0 from then on.
    """
    width = horizon / columns
    sums = [0.0] * columns
    ends = [at for at, _ in changes[1:]] + [until]
    for (start, value), end in zip(changes, ends, strict=True):
        column = int(start / width)
        while value and start < end and column < columns:
            step = min(end, (column + 1) * width)
            sums[column] += value * (step - start)
            start, column = step, column + 1  # noqa: PLW2901
    return [min(total / width, 1.0) for total in sums]
