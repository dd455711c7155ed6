"""Conditions of queries for jobs and runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.store.names import SHORTEST_PREFIX, SHOWN
from muster.store.sqlite.database import Database, Row


def by_prefix(db: Database, table: str, project: str, text: str) -> list[Row]:
    """Id and name of what a project has with an id that starts with `text`, limited to what the
    message for several matches shows; no row for a text that is too short to be meant as an id."""
    if len(text) < SHORTEST_PREFIX:
        return []
    # a range, since it uses the index on ids; with `+`, SQLite uses no index on projects
    return db.read(
        f"SELECT id, name FROM {table} WHERE id >= ? AND id < ? AND +project = ? "
        f"ORDER BY id LIMIT {SHOWN + 1}",
        (text, text + "\U0010ffff", project),
    )


def tag_conditions(tags: Mapping[str, str | None]) -> tuple[list[str], list[Any]]:
    """SQL conditions on the column `tags`, and their parameters. tags: None matches any value."""
    # a damaged row must not hide the others
    found = "SELECT 1 FROM json_each(tags) WHERE key = ?"
    where: list[str] = []
    values: list[Any] = []
    for key, value in tags.items():
        query = found if value is None else f"{found} AND value = ?"
        where.append(f"CASE WHEN json_valid(tags) THEN EXISTS ({query}) ELSE 0 END")
        values += [key] if value is None else [key, value]
    return where, values
