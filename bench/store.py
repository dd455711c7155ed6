"""The store, in SQLite and in PostgreSQL: a run is inserted, a step is saved, and runs are found
among 100,000. Then runs are inserted by several threads at once."""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from common import MUSTER, Measure, compare, fresh_home, timed

from cli import fill
from muster.identity import new_id, new_owner
from muster.lifecycle.states import RunState
from muster.store.postgres.store import PostgresStore
from muster.store.records import JobRecord, Lease, NodeRecord, RunFilter, RunRecord, RunStep
from muster.store.sql.database import Connection
from muster.store.sql.store import SqlStore
from muster.store.sqlite.store import SqliteStore

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from support.postgres import PostgresServer

RUNS = 100_000
NODES = 8
REPEAT = 100  # of each measurement
THREADS = 8
OWNER = new_owner()
STARTED = {"state": "IN_PROGRESS", "started_at": 5.5, "finished_at": None, "lifecycle": {}}
Store = SqlStore[Any]


def sqlite_by_hand(path: Path, synchronous: str) -> Measure:
    """Seconds of a transaction of SQLite that inserts one row."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("CREATE TABLE IF NOT EXISTS t (x)")
    return each(lambda: connection.execute("INSERT INTO t VALUES ('x')"))


def postgres_by_hand(url: str) -> Measure:
    """Seconds of a transaction of PostgreSQL that inserts one row."""
    connection = psycopg.connect(url, autocommit=True)
    connection.execute("CREATE TABLE t (x TEXT)")
    return each(lambda: connection.execute("INSERT INTO t VALUES ('x')"))


def each(call: Any) -> Measure:
    """Seconds of one call of many."""

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(REPEAT):
            call()
        return (time.perf_counter() - start) / REPEAT

    return measure


def insert(store: Store, job: str = "bench") -> RunRecord:
    """Insert a new run of a Job."""
    of = JobRecord(f"job-{job}", job, 0, f"content-{job}", {}, None, None, "", {}, 1.0, 1.0)
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

    return store.runs.insert(of, build, OWNER)


def _node(rank: int, state: str) -> NodeRecord:
    name = f"node-{rank}"
    return NodeRecord(rank, "workers", 0, rank, name, name, "127.0.0.1", state, None, None, None)


def saving(store: Store, changes: Mapping[str, Any]) -> Measure:
    """Seconds of saving a step in which one node changes. changes: of the run."""
    lease = Lease.first(insert(store).id, OWNER)
    entry = ("nodes", {"ranks": "0", "state": "RUNNING"})
    nodes = [_node(0, "RUNNING")]
    return each(lambda: store.runs.save(RunStep(lease, changes, nodes, [entry], time.time())))


def copy_runs(store: Store, runs: int) -> None:
    """Copy the newest run, with its large columns, so often."""
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {runs})"
    copied = {
        "id": "'copy' || CAST(i AS TEXT)",
        "run_id": "'copy' || CAST(i AS TEXT)",
        "name": "'old-' || CAST(i AS TEXT)",
        "number": "i",
        "job_name": "'old'",
        "state": "'SUCCEEDED'",
    }

    def copy(connection: Connection) -> None:
        for table, key in (("runs", "id"), ("plans", "run_id"), ("run_specs", "run_id")):
            row = connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchone()
            columns = [name for name in dict(row) if name != "position"]
            values = ", ".join(copied.get(name, name) for name in columns)
            connection.execute(
                f"{numbers} INSERT INTO {table} ({', '.join(columns)}) "
                f"SELECT {values} FROM {table}, n WHERE {key} = '{row[key]}'"
            )

    store.database.write(copy)
    if isinstance(store, PostgresStore):  # as its own maintenance does after a while
        store.database.write(lambda connection: connection.execute("ANALYZE"))


def queries(store: Store) -> dict[str, Measure]:
    """Seconds of the queries that users wait for."""
    runs, numbers = store.runs, count(1)

    def listing(**chosen: Any) -> Measure:
        return each(lambda: runs.listing("default", RunFilter(limit=50, **chosen)))

    return {
        "floor: one row": each(lambda: store.database.read("SELECT 1")),
        "the newest 50": listing(),
        "50 from the middle": listing(before=RUNS // 2),
        "50 that failed": listing(states={RunState.FAILED}),
        "50 of a Job": listing(job="old"),
        "all that have not ended": each(runs.needing_supervisor),
        "find one by its name": each(lambda: runs.find("default", f"old-{next(numbers)}")),
    }


@contextmanager
def stores() -> Iterator[tuple[dict[str, Store], dict[str, Measure]]]:
    """The stores, and their floors."""
    server = PostgresServer(fsync=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            url = server.url(server.create())
            made: dict[str, Store] = {
                "SQLite": SqliteStore.open(Path(folder) / "muster.db"),
                "PostgreSQL": PostgresStore.open(url),
            }
            floors = {
                "SQLite": sqlite_by_hand(Path(folder) / "full.db", "FULL"),
                "PostgreSQL": postgres_by_hand(server.url(server.create(), driver="")),
            }
            yield made, floors
            for store in made.values():
                store.close()
    finally:
        server.remove()


def accepted_per_second(store: Store, jobs: int) -> float:
    """Runs that are inserted per second by threads at once. jobs: whose names are numbered."""
    each_thread = 200

    def work(number: int) -> None:
        for _ in range(each_thread):
            insert(store, f"bench-{number % jobs}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return THREADS * each_thread / (time.perf_counter() - start)


def compare_stores() -> None:
    with stores() as (made, floors):
        for name, store in made.items():
            compare(
                f"{name}, seconds of one transaction",
                {
                    "floor: one row, durable": floors[name],
                    f"insert a run of {NODES} nodes": each(lambda store=store: insert(store)),
                    "save a step of a node": saving(store, {}),
                    "save a step of the run": saving(store, STARTED),
                },
            )
        for name, store in made.items():
            copy_runs(store, RUNS)
            compare(f"{name}, seconds of one query, with {RUNS:,} runs", queries(store))
        print(f"\nruns accepted per second by {THREADS} threads, with {RUNS:,} runs in the store")
        for name, store in made.items():
            for jobs in (1, THREADS):
                print(f"{name}, of {jobs} Jobs: {accepted_per_second(store, jobs):.0f}")


def compare_lists() -> None:
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


if __name__ == "__main__":
    compare_stores()
    compare_lists()
