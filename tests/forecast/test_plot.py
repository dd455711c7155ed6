"""Mean values per column, from changes over time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.forecast.plot import shares


def test_a_column_is_the_mean_of_its_part() -> None:
    changes = [(0.0, 0.0), (1.0, 1.0), (3.0, 0.5)]
    assert shares(changes, until=4.0, horizon=8.0, columns=4) == [0.5, 0.75, 0.0, 0.0]


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 1)), min_size=1, max_size=20),
    st.integers(1, 50),
)
def test_the_integral_is_kept(raw: list[tuple[float, float]], columns: int) -> None:
    changes = sorted(dict(raw).items())
    ends = [at for at, _ in changes[1:]] + [100.0]
    area = sum(v * (e - at) for (at, v), e in zip(changes, ends, strict=True))
    found = shares(changes, until=100.0, horizon=100.0, columns=columns)
    assert sum(found) * 100 / columns == pytest.approx(area, abs=1e-6)
