"""The stores that keep the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.store.base import Store
from muster.store.sqlite.store import SqliteStore


@pytest.fixture(params=["sqlite"])
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    made = SqliteStore.open(tmp_path / "m.db")
    yield made
    made.close()
