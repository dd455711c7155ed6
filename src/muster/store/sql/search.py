"""Conditions of queries for jobs and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from muster.store.names import SHORTEST_PREFIX, SHOWN, is_valid_unicode, not_found_error
from muster.store.sql.database import Database, Dialect, Row


def by_prefix(db: Database, table: str, project: str, text: str) -> Sequence[Row]:
    """Id and name of what a project has with an id that starts with `text`, limited to what the
    message for several matches shows; no row for a text that is too short to be meant as an id."""
    if len(text) < SHORTEST_PREFIX:
        return []
    # a range, since it uses the index on ids
    own = f"{db.dialect.unindexed.format('project')} = ?"
    return db.read(
        f"SELECT id, name FROM {table} WHERE id >= ? AND id < ? AND {own} "
        f"ORDER BY id LIMIT {SHOWN + 1}",
        (text, text + "\U0010ffff", project),
    )


def named_row(db: Database, query: str, table: str, project: str, text: str, lister: str) -> Row:
    """The row of what a project has with this name or id. query: selects from the table, without a
    condition. lister: the command that lists what there is. Raises NotFound."""
    if is_valid_unicode(text):
        for column in ("name", "id"):
            sql = f"{query} WHERE {table}.project = ? AND {table}.{column} = ?"
            if rows := db.read(sql, (project, text)):
                return rows[0]
    known = db.read(f"SELECT name FROM {table} WHERE project = ?", (project,))
    given = sorted(row["name"] for row in known)
    raise not_found_error(table.removesuffix("s"), text, given, lister)


def tag_conditions(dialect: Dialect, tags: Mapping[str, str | None]) -> tuple[list[str], list[Any]]:
    """SQL conditions on the column `tags`, and their parameters. tags: None matches any value."""
    where: list[str] = []
    values: list[Any] = []
    for key, value in tags.items():
        where.append((dialect.has_key if value is None else dialect.has_value).format("tags"))
        values += [key] if value is None else [key, value]
    return where, values
