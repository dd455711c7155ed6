"""How many nodes make progress, over time."""

from __future__ import annotations

from collections.abc import Sequence

Changes = Sequence[tuple[float, float]]


def shares(changes: Changes, until: float, horizon: float, columns: int) -> list[float]:
    """The mean of each of so many equal parts of the time to the horizon.

    changes: (time, value from then on), in order; nothing after `until`.
    """
    width = horizon / columns
    sums = [0.0] * columns
    ends = [at for at, _ in changes[1:]] + [until]
    for (begin, value), end in zip(changes, ends, strict=True):
        column = int(begin / width)
        while value and begin < end and column < columns:
            step = min(end, (column + 1) * width)
            sums[column] += value * (step - begin)
            begin, column = step, column + 1  # noqa: PLW2901
    return [min(total / width, 1.0) for total in sums]
