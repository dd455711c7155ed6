"""The store: a run is inserted, a step is saved, and the newest of 100,000 runs are listed."""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common import MUSTER, Measure, compare, fresh_home, timed

from cli import fill
from muster.identity import new_id, new_owner
from muster.store.records import JobRecord, Lease, NodeRecord, RunRecord, RunStep
from muster.store.sqlite.store import SqliteStore

RUNS = 100_000
NODES = 8
REPEAT = 100  # of each measurement
OWNER = new_owner()
STARTED = {"state": "IN_PROGRESS", "started_at": 5.5, "finished_at": None, "lifecycle": {}}


def by_hand(path: Path, synchronous: str) -> Measure:
    """Seconds of a transaction of SQLite that inserts one row."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("CREATE TABLE IF NOT EXISTS t (x)")

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(REPEAT):
            connection.execute("INSERT INTO t VALUES ('x')")
        return (time.perf_counter() - start) / REPEAT

    return measure


def inserted(store: SqliteStore) -> RunRecord:
    """A new run of the only Job."""
    job = JobRecord("job", "bench", 0, "content", {}, None, None, "", {}, 1.0, 1.0)
    nodes = [_node(rank, "PENDING") for rank in range(NODES)]

    def build(kept: JobRecord, number: int, name: str) -> tuple[RunRecord, list[NodeRecord]]:
        record = RunRecord(
            id=new_id(),
            name=name,
            number=number,
            job_id=kept.id,
            job_name=kept.name,
            state="ACCEPTED",
            details="",
            engine="local",
            attempt=0,
            created_at=time.time(),
            started_at=None,
            finished_at=None,
            exit_code=None,
            node_count=NODES,
            spec={},
            origins={},
            overrides={},
            plan={"nodes": [*range(NODES)]},
            lifecycle={},
            notes=[],
            cancel_requested_at=None,
            cancel_reason=None,
        )
        return record, nodes

    return store.runs.insert(job, build, OWNER)


def _node(rank: int, state: str) -> NodeRecord:
    name = f"node-{rank}"
    return NodeRecord(rank, "workers", 0, rank, name, name, "127.0.0.1", state, None, None, None)


def inserting(store: SqliteStore) -> Measure:
    """Seconds of inserting a run."""

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(REPEAT):
            inserted(store)
        return (time.perf_counter() - start) / REPEAT

    return measure


def saving(store: SqliteStore, changes: Mapping[str, Any]) -> Measure:
    """Seconds of saving a step in which one node changes. changes: of the run."""
    lease = Lease.first(inserted(store).id, OWNER)
    entry = ("nodes", {"ranks": "0", "state": "RUNNING"})

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(REPEAT):
            store.runs.save(RunStep(lease, changes, [_node(0, "RUNNING")], [entry], time.time()))
        return (time.perf_counter() - start) / REPEAT

    return measure


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore.open(Path(folder) / "muster.db")
        compare(
            "the store, seconds of one transaction",
            {
                "floor: one row, durable": by_hand(Path(folder) / "full.db", "FULL"),
                f"insert a run of {NODES} nodes": inserting(store),
                "one row, not durable": by_hand(Path(folder) / "normal.db", "NORMAL"),
                "save a step of a node": saving(store, {}),
                "save a step of the run": saving(store, STARTED),
            },
        )
        store.close()
    with fresh_home() as home:
        fill(home, RUNS)
        limited = [MUSTER, "runs", "list", "--limit", "50"]
        compare(
            f"lists, with {RUNS:,} runs in the store",
            {
                "floor: python -c pass": timed([sys.executable, "-c", "pass"]),
                "muster runs list --limit 50": timed(limited),
                "... --since 1h": timed([*limited, "--since", "1h"]),
                "... --state failed": timed([*limited, "--state", "failed"]),
                "... --job true": timed([*limited, "--job", "true"]),
            },
        )
