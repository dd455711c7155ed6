"""A store in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from muster.store.postgres.store import PostgresStore
from support.postgres import shared_server


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of a database with empty tables."""
    with shared_server().database() as made:
        yield made


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore.open(url)) as opened:
        yield opened
