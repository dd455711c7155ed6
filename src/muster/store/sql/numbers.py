"""Numbers that are given once: versions of Jobs and numbers of runs, within a project and a name.

The row of the name is locked from the moment its number is counted until the transaction ends, so
that two writers never get the same one.
"""

from __future__ import annotations

from typing import Literal

from muster.store.sql.database import Connection


def next_number(
    connection: Connection, kind: Literal["versions", "runs"], project: str, name: str
) -> int:
    """Within a transaction: the next number of a name, from 1."""
    (number,) = connection.execute(
        f"INSERT INTO numbers (project, name, {kind}) VALUES (?, ?, 1) "
        f"ON CONFLICT (project, name) DO UPDATE SET {kind} = numbers.{kind} + 1 RETURNING {kind}",
        (project, name),
    ).fetchone()
    return int(number)
