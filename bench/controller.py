"""One process drives a thousand runs: its memory, its idle CPU time, and how many events a second
it decides and records.

The driver, the controllers, `decide` and every SQLite transaction are real; the engine only reports
what it is told to. Beside each rate is the floor: bare transactions with the same rows, one for
each recorded step, in the same run of this program.
"""

from __future__ import annotations

import gc
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from recovery import accept, make_plan

from muster.control.clock import SteadyClock
from muster.control.drive import Driver, RunParts
from muster.control.ledger import record_together
from muster.engines.base import Report
from muster.engines.loop import EventLoop, RunLoop
from muster.lifecycle.events import NodeEnded, NodeEvent, NodeReady, NodeStarted, SessionClosed
from muster.lifecycle.status import NodeRef
from muster.plan.model import RunPlan
from muster.store.records import RunStep
from muster.store.sqlite.store import SqliteStore

RUNS = 1000
IDLE = 5.0  # seconds
#: (runs, nodes of each, events of a run that arrive together)
LOADS = ((1000, 4, 1), (1000, 4, 4), (100, 100, 10), (10, 1000, 100))


class ToldSession:
    """A session that starts nothing, and reports what it is told to."""

    def __init__(self, loop: RunLoop, report: Report) -> None:
        self.loop = loop
        self.report = report
        self.started: list[NodeRef] = []

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        self.started += nodes

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        self.report([NodeEnded(ref.rank, 143, 15, incarnation=ref.incarnation) for ref in nodes])

    kill = stop

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None: ...

    def release(self, nodes: Sequence[NodeRef]) -> None: ...

    def notified(self) -> None: ...

    def close(self) -> None:
        self.report([SessionClosed()])

    def finish_logs(self) -> None: ...


class Process:
    """A process that drives runs of an idle engine."""

    def __init__(self, store: SqliteStore, loop: EventLoop, *, together: bool) -> None:
        self.store, self.loop = store, loop
        self.driver = Driver(loop, partial(record_together, store) if together else None)
        self.sessions: list[ToldSession] = []

    def drive(self, plan: RunPlan) -> None:
        ledger = accept(self.store, plan)
        clock = SteadyClock()
        self.driver.add(RunParts(plan.policy, ledger, clock, self._open))

    def _open(self, loop: RunLoop, report: Report) -> ToldSession:
        self.sessions.append(ToldSession(loop, report))
        return self.sessions[-1]

    def settle(self) -> None:
        """Run the loop until nothing is left to do."""
        while self.loop.notified:
            self.loop.run_once()


@contextmanager
def process(*, together: bool = False) -> Iterator[Process]:
    with tempfile.TemporaryDirectory() as folder, closing(EventLoop()) as loop:
        store = SqliteStore.open(Path(folder) / "muster.db")
        yield Process(store, loop, together=together)
        store.close()


def resident() -> int:
    """Bytes of this process in memory, without pages of files."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10


def idle() -> None:
    """Memory and CPU time of a process with idle runs."""
    with process() as one:
        gc.collect()
        before = resident()
        for number in range(RUNS):
            one.drive(make_plan(f"idle{number}", 4))
        one.settle()
        for session in one.sessions:
            session.report([NodeStarted(*ref) for ref in session.started])
        one.settle()
        gc.collect()
        total = resident()
        print(f"{RUNS} idle runs of 4 nodes: {total / 1e6:.1f} MB in all, ", end="")
        print(f"{(total - before) / RUNS / 1e3:.1f} kB each")
        until = one.loop.now() + IDLE
        spent = time.process_time()
        timer = one.loop.add(lambda _: None)
        rounds = 0
        while one.loop.now() < until:
            timer.wake_at(until)
            one.loop.run_once()
            rounds += 1
        spent = time.process_time() - spent
        print(f"CPU when idle: {spent / IDLE * 100:.2f} %, {rounds} rounds in {IDLE:g} s")


def busy(runs: int, nodes: int, batch: int, *, together: bool) -> None:
    """Events a second: every node starts, becomes ready, and ends."""
    with process(together=together) as one:
        steps = count_steps(one)
        for number in range(runs):
            one.drive(make_plan(f"busy{number}", nodes))
        one.settle()
        steps.clear()
        events = 0
        start = time.process_time(), time.perf_counter()
        for made in (NodeStarted, NodeReady, lambda *ref: NodeEnded(ref[0], 0, incarnation=ref[1])):
            for first in range(0, nodes, batch):
                for session in one.sessions:
                    reported: list[NodeEvent] = [
                        made(*ref) for ref in session.started[first : first + batch]
                    ]
                    events += len(reported)
                    session.report(reported)
                one.settle()
        cpu, wall = time.process_time() - start[0], time.perf_counter() - start[1]
        assert not one.driver.runs, "every run has ended"
    floor = bare(steps)
    print(
        f"{runs:6,} {nodes:6,} {batch:6,} {'one' if together else 'each':>12} {events:8,} "
        f"{events / cpu:10,.0f} {events / wall:10,.0f} {events / floor:10,.0f}  {cpu / floor:5.1f}",
        flush=True,
    )


def count_steps(one: Process) -> list[Sequence[RunStep]]:
    """Note what each transaction records."""
    transactions: list[Sequence[RunStep]] = []
    real = one.store.runs.save

    def save(*steps: RunStep) -> None:
        transactions.append(steps)
        real(*steps)

    one.store.runs.save = save  # type: ignore[method-assign]
    return transactions


def bare(transactions: Sequence[Sequence[RunStep]]) -> float:
    """Seconds of CPU time for the same transactions with as many rows of the same size, and nothing
    else."""
    lifecycle, data = "x" * 120, '{"ranks": "0-3", "state": "READY"}'
    with tempfile.TemporaryDirectory() as folder:
        db = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE runs (id TEXT PRIMARY KEY, a, b, c, d, e, f, g, h)")
        db.execute("CREATE TABLE nodes (run, rank, a, b, c, d, e, f, g, PRIMARY KEY (run, rank))")
        db.execute("CREATE TABLE events (run, seq, time, kind, data, PRIMARY KEY (run, seq))")
        known = {step.lease.run_id for steps in transactions for step in steps}
        rows = [(run, lifecycle) for run in known]
        db.executemany("INSERT INTO runs VALUES (?, 1, 2, 3, 4, 5, 6, 7, ?)", rows)
        seq = 0
        start = time.process_time()
        for steps in transactions:
            durable = any(step.changes.get("finished_at") is not None for step in steps)
            db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            db.execute("BEGIN IMMEDIATE")
            for step in steps:
                run = step.lease.run_id
                db.execute("UPDATE runs SET a = ?, h = ? WHERE id = ?", (seq, lifecycle, run))
                db.executemany(
                    "INSERT INTO nodes VALUES (?, ?, 1, 2, 3, 4, 5, 6, 7) ON CONFLICT (run, rank) "
                    "DO UPDATE SET a = excluded.a, b = excluded.b",
                    [(run, node.rank) for node in step.nodes],
                )
                db.executemany(
                    "INSERT INTO events VALUES (?, ?, 1.0, 'nodes', ?)",
                    [(run, seq + entry, data) for entry in range(len(step.entries))],
                )
                seq += len(step.entries)
            db.execute("COMMIT")
        took = time.process_time() - start
        db.close()
    return took


def main() -> None:
    idle()
    print(
        f"{'runs':>6} {'nodes':>6} {'batch':>6} {'transactions':>12} {'events':>8} "
        f"{'events/s':>10} {'(wall)':>10} {'floor/s':>10}  x floor"
    )
    for load in LOADS:
        for together in (False, True):
            busy(*load, together=together)


if __name__ == "__main__":
    main()
