"""The stores that keep the contract."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from muster.store.base import Store
from muster.store.sqlite.store import SqliteStore
from support.memory_store import MemoryStore
from support.postgres import shared_server


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path, rng: random.Random) -> Iterator[Store]:
    """An empty store of each kind."""
    with ExitStack() as stack:
        made: Store = MemoryStore(rng)
        if request.param == "sqlite":
            made = SqliteStore.open(tmp_path / "m.db")
        if request.param == "postgres":
            url = stack.enter_context(shared_server().database())
            from muster.store.postgres.store import PostgresStore

            made = PostgresStore.open(url)
        yield made
        made.close()
