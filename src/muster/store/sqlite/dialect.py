"""SQLite's own SQL."""

from __future__ import annotations

from muster.store.sql.database import Dialect

SQLITE = Dialect(
    seconds="CASE typeof({0}) WHEN 'integer' THEN {0} / 1000000.0 ELSE {0} END",
    micros="CAST(round({} * 1000000) AS INTEGER)",
    is_micros="typeof({}) = 'integer'",
    json_number="CASE WHEN json_valid({0}) THEN json_extract({0}, '$.{key}') END",
    has_key="CASE WHEN json_valid({0}) THEN EXISTS "
    "(SELECT 1 FROM json_each({0}) WHERE key = ?) ELSE 0 END",
    has_value="CASE WHEN json_valid({0}) THEN EXISTS "
    "(SELECT 1 FROM json_each({0}) WHERE key = ? AND value = ?) ELSE 0 END",
    is_any="{0} IN (SELECT value FROM json_each(?))",
    join_distinct="group_concat(DISTINCT {})",
    unindexed="+{}",
    # with a limit, SQLite would take any index of projects, and sort all runs
    runs_by_project="runs INDEXED BY runs_by_project",
)
