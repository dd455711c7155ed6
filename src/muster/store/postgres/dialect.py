"""PostgreSQL's own SQL."""

from __future__ import annotations

from muster.store.sql.database import Dialect

# JSON is kept as text: the type would change it, and has no NUL characters
_JSON = r"replace({0}, '\u0000', '\ufffd')::json"

POSTGRES = Dialect(
    seconds="{0} / 1000000.0::float8",
    micros="CAST(round(?::float8 * 1000000) AS BIGINT)",
    is_micros="{0} IS NOT NULL",
    json_number=f"CASE WHEN {{0}} != '{{{{}}}}' THEN ({_JSON} ->> '{{key}}')::float8 END",
    has_key=f"{_JSON} ->> ? IS NOT NULL",
    has_value=f"{_JSON} ->> ? = ?",
    is_any="{0} IN (SELECT CAST(value AS {type}) FROM json_array_elements_text(?::json))",
    join_distinct="string_agg(DISTINCT {0}, ',')",
    unindexed="{0}",
    runs_by_project="runs",
    # rows that refer to it, such as events, may be added nevertheless
    lock=" FOR NO KEY UPDATE",
    lock_alone=" FOR UPDATE",
    lock_to_refer=" FOR KEY SHARE",
    lock_text="SELECT pg_advisory_xact_lock(hashtextextended(?, 0))",
)
