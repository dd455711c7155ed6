"""Rows of nodes as records."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import asdict

from muster.store.records import CorruptRecord, NodeRecord
from muster.store.sql.rows import node_record
from muster.store.sqlite.database import Database

NODE = NodeRecord(
    rank=5,
    group="workers",
    replica=1,
    index=2,
    node_id="abc-5",
    fqdn="node-5.example",
    address="127.0.0.1",
    state="RUNNING",
    exit_code=None,
    started_at=1.0,
    finished_at=None,
)


def row(**changes: object) -> sqlite3.Row:
    """A row of `node_query`."""
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    values = {**asdict(NODE), **changes}
    query = ", ".join(f'? AS "{name}"' for name in values)
    found: sqlite3.Row = connection.execute(f"SELECT {query}", tuple(values.values())).fetchone()
    connection.close()
    return found


def test_a_node_is_read(tmp_path: Path) -> None:
    with closing(Database.open(tmp_path / "db")) as db:
        assert node_record(db, "abc", row()) == NODE


@pytest.mark.parametrize("changes", [{"state": "ODD"}, {"replica": "x"}])
def test_error_for_a_corrupt_node_names_the_run_once(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    with (
        closing(Database.open(tmp_path / "db")) as db,
        pytest.raises(CorruptRecord, match=r"^the record of run abc in \S+ is corrupt: ") as found,
    ):
        node_record(db, "abc", row(**changes))
    assert "(id" not in str(found.value)
