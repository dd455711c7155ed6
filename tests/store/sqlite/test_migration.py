"""A store of schema 4, in which times are seconds and specs are with their runs, is migrated."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from muster.store.records import CorruptRecord, RunFilter, RunStep
from muster.store.sqlite.database import Database
from muster.store.sqlite.schema import MIGRATIONS
from muster.store.sqlite.store import SqliteStore
from support.store_records import OWNER, PROJECT, accept, job

BEFORE = 4
T = 1_750_000_000.123456
#: What the version before writes when it adds a run; `position` and `project` do not exist yet.
INSERT_RUN = (
    "INSERT INTO runs (id, name, number, job_id, job_name, state, details, engine, attempt, "
    "created_at, started_at, finished_at, exit_code, node_count, spec, origins, overrides, "
    "lifecycle, notes, cancel_requested_at, cancel_reason, suspend_requested_at, suspend_reason, "
    "expires_at) VALUES (?, ?, ?, ?, ?, ?, '', 'local', 1, ?, ?, ?, 7, 1, ?, ?, ?, '{}', "
    "'[]', ?, ?, ?, ?, ?)"
)
#: The spec of such a run, its origins and overrides.
SETTINGS = ({"nodes": 1}, {"nodes": "job"}, {"tags": {}})
INSERT_JOB = (
    "INSERT INTO jobs (id, name, version, content_hash, spec, description, tags, created_at, "
    "updated_at) VALUES (?, ?, ?, ?, '{}', '', '{}', ?, ?)"
)


class Earlier:
    """A process of the version before, which has the file open."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)

    def write(self, sql: str, values: Sequence[Any] = ()) -> None:
        self._connection.execute(sql, values)

    def job(self, job_id: str, name: str, version: int, at: float) -> None:
        self.write(INSERT_JOB, (job_id, name, version, job_id, at, at + 1))
        self.write("INSERT INTO job_events VALUES (?, 1, ?, 'created', '', '{}')", (job_id, at))

    def run(self, run_id: str, number: int, at: float | None, state: str = "FAILED") -> None:
        times = (at, at and at + 1, at and at + 2)
        requests = (at and at + 3, "stop", at and at + 4, "pause", at and at + 5)
        settings = map(json.dumps, SETTINGS)
        values = (run_id, f"a-{number}", number, "j2", "a", state, *times, *settings, *requests)
        self.write(INSERT_RUN, values)
        self.write("INSERT INTO plans VALUES (?, '{}')", (run_id,))

    def node(self, run_id: str, started: float | None, finished: float | None) -> None:
        sql = (
            "INSERT INTO nodes (run_id, rank, grp, replica, idx, node_id, fqdn, address, state, "
            "started_at, finished_at) VALUES (?, 0, 'g', 0, 0, 'n', 'n', '1', 'FAILED', ?, ?) "
            "ON CONFLICT (run_id, rank) DO UPDATE SET "
            "started_at = excluded.started_at, finished_at = excluded.finished_at"
        )
        self.write(sql, (run_id, started, finished))

    def event(self, run_id: str, seq: int, at: float) -> None:
        data = json.dumps({"seq": seq})
        self.write("INSERT INTO events VALUES (?, ?, ?, 'step', ?)", (run_id, seq, at, data))

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An empty store of the version before."""
    path = tmp_path / "m.db"
    Database.open(path, migrations=MIGRATIONS[:BEFORE]).close()
    return path


@pytest.fixture
def earlier(path: Path) -> Iterator[Earlier]:
    """A process of the version before, which has added two versions of a Job."""
    with closing(Earlier(path)) as process:
        process.job("j1", "a", 1, T)
        process.job("j2", "a", 2, T + 10)
        yield process


def stored_types(store: SqliteStore) -> set[str]:
    """The types of all stored times."""
    columns = {
        "jobs": ("created_at", "updated_at"),
        "job_events": ("time",),
        "runs": (
            "created_at",
            "started_at",
            "finished_at",
            "cancel_requested_at",
            "suspend_requested_at",
            "expires_at",
        ),
        "nodes": ("started_at", "finished_at"),
        "events": ("time",),
    }
    return {
        row[0]
        for table, names in columns.items()
        for name in names
        for row in store.database.read(f"SELECT DISTINCT typeof({name}) FROM {table}")
    }


def test_every_value_is_kept(path: Path, earlier: Earlier, rng: random.Random) -> None:
    """Also the order of runs, which is not that of their times or ids."""
    ids = [f"r{number}" for number in rng.sample(range(50), 20)]
    times = {run_id: round(T + rng.uniform(-1e6, 1e6), 6) for run_id in ids}
    for number, run_id in enumerate(ids, 1):
        earlier.run(run_id, number, times[run_id])
        earlier.node(run_id, times[run_id], None)
        for seq in (1, 2):
            earlier.event(run_id, seq, round(times[run_id] + seq, 6))
    with closing(SqliteStore.open(path)) as store:
        listed = store.runs.listing(PROJECT, RunFilter())
        assert [each.id for each in listed] == ids[::-1]
        assert [each.position for each in listed] == list(range(20, 0, -1))
        for run_id in ids:
            kept, at = store.runs.get(run_id), times[run_id]
            assert kept.created_at == at
            expected = [round(at + more, 6) for more in (1, 2, 3, 4, 5)]
            assert [
                kept.started_at,
                kept.finished_at,
                kept.cancel_requested_at,
                kept.suspend_requested_at,
                kept.expires_at,
            ] == expected
            assert (kept.exit_code, kept.cancel_reason, kept.plan) == (7, "stop", {})
            assert (kept.spec, kept.origins, kept.overrides) == SETTINGS
            (node,) = store.runs.nodes(run_id)
            assert (node.started_at, node.finished_at) == (at, None)
            log = store.events.since(run_id)
            assert [entry.time for entry in log] == [round(at + seq, 6) for seq in (1, 2)]
            assert store.leases.get(run_id) is None
        found = store.jobs.find(PROJECT, "a")
        assert (found.id, found.version, found.created_at) == ("j2", 2, T + 10)
        assert [event.time for event in store.jobs.events("j2")] == [T + 10]
        assert store.runs.get(ids[0]).project == PROJECT
        assert stored_types(store) == {"integer", "null"}
        assert store.database.read("PRAGMA integrity_check")[0][0] == "ok"


def test_numbers_continue(path: Path, earlier: Earlier) -> None:
    earlier.run("r1", 1, T)
    earlier.run("r7", 7, T)
    earlier.job("other", "b", 3, T)  # a Job without runs
    with closing(SqliteStore.open(path)) as store:
        assert accept(store, job("a")).name == "a-8"
        assert store.jobs.insert(job("a")).version == 4
        assert store.jobs.insert(job("b")).version == 4
        assert accept(store, job("b", id="other")).name == "b-1"


def test_seconds_of_an_earlier_process_are_converted(path: Path, earlier: Earlier) -> None:
    """A supervisor that had the file open before it was migrated."""
    earlier.run("r1", 1, T, "IN_PROGRESS")
    earlier.node("r1", None, None)
    with closing(SqliteStore.open(path)) as store:
        earlier.write(
            "UPDATE runs SET state = ?, started_at = ?, finished_at = ?, expires_at = ? "
            "WHERE id = 'r1'",
            ("FAILED", T + 20, None, T + 21),
        )
        earlier.write("UPDATE runs SET cancel_requested_at = ?", (T + 22,))
        earlier.node("r1", T + 23, T + 24)
        earlier.event("r1", 1, T + 25)
        earlier.job("j3", "a", 3, T + 26)
        earlier.run("r2", 2, T + 27)
        kept, second = store.runs.get("r1"), store.runs.get("r2")
        (node,) = store.runs.nodes("r1")
        assert (kept.started_at, kept.finished_at, kept.expires_at) == (T + 20, None, T + 21)
        assert kept.cancel_requested_at == T + 22
        assert (node.started_at, node.finished_at) == (T + 23, T + 24)
        assert store.events.last_time("r1") == T + 25
        assert second.created_at == T + 27
        since = RunFilter(since=T + 26)
        assert [each.id for each in store.runs.listing(PROJECT, since)] == ["r2"]
        assert store.runs.expired(T + 20.9) == []
        assert store.runs.expired(T + 21) == ["r1"]
        types = "SELECT DISTINCT typeof(created_at) FROM runs UNION SELECT typeof(time) FROM events"
        assert [row[0] for row in store.database.read(types)] == ["integer"]
        # it counted by itself; the next numbers are those after its own
        assert store.jobs.insert(job("a")).version == 4
        assert accept(store, job("a", id="j3")).name == "a-3"


@pytest.mark.parametrize("version", [BEFORE, 6])
def test_settings_of_an_earlier_process_are_moved(tmp_path: Path, version: int) -> None:
    """Those of its runs, and those that it changes when it resumes one. It finds none, and can
    read the runs."""
    path = tmp_path / "m.db"
    Database.open(path, migrations=MIGRATIONS[:version]).close()
    with closing(Earlier(path)) as earlier:
        earlier.job("j2", "a", 2, T)
        earlier.run("r1", 1, T, "SUSPENDED")
        earlier.run("r2", 2, T, "IN_PROGRESS")
        with closing(SqliteStore.open(path)) as store:
            earlier.run("r3", 3, T)
            resumed = (
                "UPDATE runs SET spec = ?, origins = ?, notes = ?, started_at = ? WHERE id = ?"
            )
            earlier.write(resumed, ('{"nodes": 2}', '{"nodes": "override"}', '["b"]', T, "r1"))
            earlier.write("UPDATE runs SET details = 'step' WHERE id = 'r2'")
            changed, stepped, added = store.runs.records(PROJECT, RunFilter())[::-1]
            assert (changed.spec, changed.origins) == ({"nodes": 2}, {"nodes": "override"})
            assert (changed.overrides, changed.notes) == (SETTINGS[2], ["b"])
            assert (changed.started_at, stepped.details) == (T, "step")
            for run in (stepped, added):
                assert (run.spec, run.origins, run.overrides) == SETTINGS
            former = store.database.read("SELECT DISTINCT spec, origins, overrides FROM runs")
            assert [tuple(row) for row in former] == [("{}", "{}", "{}")]


def test_corrupt_values_do_not_stop_the_migration(path: Path, earlier: Earlier) -> None:
    for number, value in enumerate(("garbage", "", b"\xff", -1.5, 1e300, float("inf")), 1):
        earlier.run(f"r{number}", number, T)
        earlier.node(f"r{number}", T, T)
        earlier.event(f"r{number}", 1, T)
        for sql in (
            "UPDATE runs SET started_at = ?, lifecycle = '{' WHERE id = ?",
            "UPDATE nodes SET finished_at = ? WHERE run_id = ?",
            "UPDATE events SET time = ? WHERE run_id = ?",
        ):
            earlier.write(sql, (value, f"r{number}"))
    earlier.run("whole", 9, T)
    with closing(SqliteStore.open(path)) as store:
        listed = store.runs.listing(PROJECT, RunFilter())
        assert [each.id for each in listed] == ["whole", *(f"r{n}" for n in range(6, 0, -1))]
        assert store.runs.get("whole").started_at == T + 1
        for number in range(1, 7):
            with pytest.raises(CorruptRecord, match="muster rm"):
                store.runs.get(f"r{number}")
            lease = store.leases.take(f"r{number}", OWNER, T)
            store.runs.save(RunStep(lease, {}, [], [("step", {})], T))
            store.runs.delete(f"r{number}")
        assert [each.id for each in store.runs.listing(PROJECT, RunFilter())] == ["whole"]


@pytest.mark.slow
def test_many_runs_are_migrated(path: Path, earlier: Earlier) -> None:
    """Prints how long it takes; commands wait for it once."""
    runs = 100_000
    earlier.write("BEGIN")
    for number in range(1, runs + 1):
        at = T + number
        earlier.run(f"r{number:09}", number, at)
        earlier.node(f"r{number:09}", at, at)
        for seq in range(1, 6):
            earlier.event(f"r{number:09}", seq, at)
    earlier.write("COMMIT")
    before = time.perf_counter()
    with closing(SqliteStore.open(path)) as store:
        print(f"{runs:,} runs were migrated in {time.perf_counter() - before:.1f} s")
        assert store.runs.find(PROJECT, "last").number == runs
        assert store.runs.get("r000000001").created_at == T + 1
