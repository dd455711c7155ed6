"""The stores that keep the contract."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.store.base import Store
from muster.store.sqlite.store import SqliteStore
from support.memory_store import MemoryStore


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path, rng: random.Random) -> Iterator[Store]:
    """An empty store of each kind."""
    made: Store = MemoryStore(rng)
    if request.param == "sqlite":
        made = SqliteStore.open(tmp_path / "m.db")
    yield made
    made.close()
