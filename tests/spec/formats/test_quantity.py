"""Kubernetes quantities."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.spec.formats.quantity import format_bytes, format_cpus, parse_quantity

GOOD = {
    "1": "1",
    "500m": "0.5",
    "1.5": "1.5",
    ".5": "0.5",
    "5.": "5",
    "2Ki": "2048",
    "1.5Gi": str(3 << 29),
    "1k": "1000",
    "2M": "2000000",
    "1e3": "1000",
    "1E3": "1000",
    "2E": "2000000000000000000",
    "100n": "0.0000001",
    "+1": "1",
}


@pytest.mark.parametrize("text", GOOD)
def test_quantities(text: str) -> None:
    assert parse_quantity(text) == Decimal(GOOD[text])


@pytest.mark.parametrize(
    "value", ["", "m", "1 Gi", "1GB", "1ki", "-1", "1e", "1e999999", True, "9" * 200]
)
def test_invalid_quantities(value: object) -> None:
    with pytest.raises(ValueError, match=r"quantity|out of range|negative"):
        parse_quantity(value)


@given(st.integers(min_value=1, max_value=1 << 60))
def test_bytes_survive_formatting(size: int) -> None:
    assert parse_quantity(format_bytes(size)) == size


@given(st.floats(min_value=0.001, max_value=10_000))
def test_cpus_survive_formatting(cpus: float) -> None:
    assert float(parse_quantity(format_cpus(cpus))) == cpus
