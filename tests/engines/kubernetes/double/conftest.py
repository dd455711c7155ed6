"""That the double of a cluster behaves as a real one takes minutes to show."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before slow tests are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave these tests to `make test-all`."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)
