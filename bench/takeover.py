"""A process that drives runs is killed: how long until another one has its leases and has recorded
a step of each run?

Measured from the moment at which the leases expire. Both processes keep leases and drive runs; the
stores, drivers and controllers are real. The nodes are simulated and outlive their process: who
opens their session finds them ready.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from recovery import insert, make_plan

from muster.control.clock import SteadyClock
from muster.control.drive import Driver, RunParts
from muster.control.keeper import Keeper
from muster.control.ledger import StoreLedger, record_together
from muster.control.persist import plan_of
from muster.engines.base import Report
from muster.engines.loop import EventLoop, RunLoop
from muster.identity import new_owner
from muster.lifecycle.events import NodeEvent, NodeReady, NodeStarted, SessionClosed
from muster.lifecycle.states import RunState
from muster.lifecycle.status import NodeRef
from muster.store.records import Lease, RunStep
from muster.store.sqlite.store import SqliteStore

GOAL = 0.1  # seconds after the leases have expired
NODES = 4  # of each run
TERM = 1.0  # seconds that a lease lasts, 15 where runs are driven in earnest
ROUNDS = 9


class KeptSession:
    """A session of nodes that outlive it. found: those that run when it is opened."""

    def __init__(self, found: Sequence[NodeRef], loop: RunLoop, report: Report) -> None:
        self._report = report
        events: list[NodeEvent] = [NodeReady(*ref) for ref in found]
        if events:
            report(events)

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        self._report([NodeStarted(*ref) for ref in nodes])

    def stop(self, nodes: Sequence[NodeRef]) -> None: ...

    kill = release = stop

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None: ...

    def notified(self) -> None: ...

    def close(self) -> None:
        self._report([SessionClosed()])

    def finish_logs(self) -> None: ...


class Process:
    """A process that keeps leases and drives their runs."""

    def __init__(self, store: SqliteStore, loop: EventLoop) -> None:
        self.store, self.loop = store, loop
        self.keeper = Keeper(store, new_owner(), term=TERM)
        self._driver = Driver(loop, partial(record_together, store))
        self._timer = loop.add(lambda _: self._keep())
        self._timer.notify()

    def _keep(self) -> None:
        """Renew the leases of this process, and take over the runs of others."""
        done = self.keeper.step(time.time())
        for lease in done.taken:
            self.drive(lease)
        self._timer.wake_at(self.loop.now() + done.wait)

    def drive(self, lease: Lease) -> None:
        run = self.store.runs.get(lease.run_id)
        plan = plan_of(run)
        ledger = StoreLedger(self.store, plan, lease)
        found = [NodeRef(rank, 0) for rank in range(run.node_count if run.started_at else 0)]
        clock = SteadyClock(self.store.events.last_time(lease.run_id))
        self._driver.add(RunParts(plan.policy, ledger, clock, partial(KeptSession, found)))


def drive_until_killed(database: Path) -> None:
    """The first process: say when all runs are in progress."""
    with closing(EventLoop()) as loop:
        store = SqliteStore.open(database)
        one = Process(store, loop)
        for run_id in store.runs.needing_supervisor():
            one.drive(one.keeper.take(run_id, time.time()))
        while any(run.state != RunState.IN_PROGRESS for run in store.runs.live()):
            loop.run_once()
        print("in progress", flush=True)
        while True:
            loop.run_once()


def take_over(runs: int, killed_after: float) -> float:
    """Seconds from the expiry of the leases until this process has recorded a step of each run.
    killed_after: seconds that the first process drives them."""
    with tempfile.TemporaryDirectory() as folder, closing(EventLoop()) as loop:
        database = Path(folder) / "muster.db"
        store = SqliteStore.open(database)
        for number in range(runs):
            insert(store, make_plan(f"run{number}", NODES), None)
        argv = [sys.executable, __file__, str(database)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as first:
            assert first.stdout is not None
            first.stdout.readline()
            Process(store, loop)
            recorded = note_steps(store)
            killer = loop.add(lambda _: first.kill())
            killer.wake_at(loop.now() + killed_after)
            while first.poll() is None:
                loop.run_once()
        expiry = max(lease.expires_at or 0 for lease in store.leases.expiring(time.time() + TERM))
        while len(recorded) < runs:
            loop.run_once()
        store.close()
    return max(recorded.values()) - expiry


def note_steps(store: SqliteStore) -> dict[str, float]:
    """Note when the first step of each run is recorded (epoch seconds)."""
    recorded: dict[str, float] = {}
    real = store.runs.save

    def save(*steps: RunStep) -> None:
        real(*steps)
        for step in steps:
            recorded.setdefault(step.lease.run_id, time.time())

    store.runs.save = save  # type: ignore[method-assign]
    return recorded


def main() -> None:
    print(f"{'runs':>6} {'after expiry':>13} {'min':>8} {'max':>8}   x goal ({GOAL:g} s)")
    for runs in (1, 100):
        # between two renewals, of which there are three in a term
        taken = [take_over(runs, TERM / 3 * number / ROUNDS) for number in range(ROUNDS)]
        middle = statistics.median(taken)
        print(
            f"{runs:6} {middle * 1000:11.1f}ms {min(taken) * 1000:6.1f}ms "
            f"{max(taken) * 1000:6.1f}ms {middle / GOAL:8.2f}",
            flush=True,
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        drive_until_killed(Path(sys.argv[1]))
    else:
        main()
