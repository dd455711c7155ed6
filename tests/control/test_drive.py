"""One process drives many runs: each is decided, recorded and carried out on its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest

from muster.control.clock import SteadyClock
from muster.control.controller import Record
from muster.control.drive import DrivenRun, Driver, RunParts
from muster.control.ledger import Ledger
from muster.engines.base import Report, Session
from muster.engines.loop import EventLoop, RunLoop
from muster.errors import EngineError, StoreBusy
from muster.identity import new_owner
from muster.lifecycle.events import (
    CancelRequested,
    EngineEvent,
    HandOverRequested,
    NodeEnded,
    NodeReady,
    NodeStarted,
    NodeUnreachable,
    Request,
    RunQueued,
    RunRestarted,
    SessionClosed,
)
from muster.lifecycle.incarnations import of_native_restart
from muster.lifecycle.states import RunState
from muster.lifecycle.status import NodeRef
from muster.store.records import Lease, LeaseLost
from simulation.harness.fake_ledger import MemoryLedger
from simulation.harness.run_plan import run_plan
from support.run_driver import policy

NOW = 1_000_000_000.0


class FakeSession:
    """See `engines.base.Session`. Nodes start and stop at once; a test ends them, and the closing
    of the session, by `report`."""

    def __init__(self, loop: RunLoop, report: Report, *, slow: bool = False) -> None:
        self.loop = loop
        self.report = report
        self.slow = slow
        self.calls: list[str] = []

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        self.calls.append("start")
        up: list[EngineEvent] = []
        for ref in nodes:
            up += [NodeStarted(*ref), NodeReady(*ref)]
        self.report(up)

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        self.calls.append("stop")
        self.report([NodeEnded(ref.rank, 143, 15, incarnation=ref.incarnation) for ref in nodes])

    kill = stop

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None:
        self.calls.append("signal")

    def release(self, nodes: Sequence[NodeRef]) -> None:
        self.calls.append("release")

    def notified(self) -> None:
        self.calls.append("notified")

    def close(self) -> None:
        self.calls.append("close")
        if not self.slow:
            self.report([SessionClosed()])

    def leave(self) -> None:
        self.calls.append("leave")
        self.report([SessionClosed()])

    def finish_logs(self) -> None:
        self.calls.append("finish logs")


class BusyLedger(MemoryLedger):
    """A ledger that can be busy. Each record is a call of the session, so that the order shows."""

    busy = 0
    session: FakeSession | None = None

    def record(self, record: Record) -> None:
        if self.busy:
            self.busy -= 1
            raise StoreBusy("the store is busy")
        super().record(record)
        if self.session is not None:
            self.session.calls.append(f"record {record.after.state}")


class Run:
    """A run that is driven."""

    def __init__(self, driver: Driver, seed: int, nodes: int = 1, *, slow: bool = False) -> None:
        self.ledger = BusyLedger(run_plan(seed, policy((1, nodes, None))), NOW, suspended=False)
        self._slow = slow
        parts = RunParts(policy((1, nodes, None)), self.ledger, SteadyClock(), self._open)
        self.driven: DrivenRun = driver.add(parts)

    def _open(self, loop: RunLoop, report: Report) -> Session:
        self.session = self.ledger.session = FakeSession(loop, report, slow=self._slow)
        return self.session

    @property
    def state(self) -> RunState:
        return self.ledger.state()

    def request(self, what: str) -> None:
        self.ledger.request(what, f"{what} requested by user", NOW)  # type: ignore[arg-type]
        self.driven.wake()


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    made = EventLoop()
    yield made
    made.close()


@pytest.fixture
def driver(loop: EventLoop) -> Driver:
    return Driver(loop)


@pytest.fixture
def until(loop: EventLoop) -> Callable[[Callable[[], bool]], None]:
    """Run the loop until a condition holds."""

    def wait(condition: Callable[[], bool]) -> None:
        loop.add(lambda _: pytest.fail("nothing happens")).wake_at(loop.now() + 60)
        while not condition():
            loop.run_once()

    return wait


Until = Callable[[Callable[[], bool]], None]


def test_two_runs_in_one_loop(driver: Driver, until: Until) -> None:
    one, other = Run(driver, 1), Run(driver, 2, nodes=2)
    until(lambda: {one.state, other.state} == {RunState.IN_PROGRESS})
    one.session.report([NodeEnded(0, 0)])
    until(lambda: one.driven.outcome is not None)
    assert (one.state, other.state) == (RunState.SUCCEEDED, RunState.IN_PROGRESS)
    assert driver.runs == {other.driven}
    other.request("cancel")
    driver.drive()
    assert other.state is RunState.CANCELED
    for run in (one, other):
        assert run.driven.outcome is not None
        assert run.driven.outcome.error is None
        assert run.driven.outcome.status.state is run.state


def test_a_step_is_recorded_before_it_is_carried_out(driver: Driver, until: Until) -> None:
    run = Run(driver, 1)
    until(lambda: run.state is RunState.IN_PROGRESS)
    run.session.report([NodeEnded(0, 0)])
    driver.drive()
    expected = ["record ACCEPTED", "start", "record IN_PROGRESS"]
    assert run.session.calls == [*expected, "close", "record SUCCEEDED", "finish logs"]


def test_an_error_of_one_run_does_not_affect_the_other(driver: Driver, until: Until) -> None:
    one, other = Run(driver, 1, slow=True), Run(driver, 2)
    until(lambda: {one.state, other.state} == {RunState.IN_PROGRESS})

    def fail(_: object) -> None:
        raise EngineError("the server is gone")

    one.session.loop.add(fail).notify()
    until(lambda: "close" in one.session.calls)
    assert one.driven.outcome is None, "its processes have not ended"
    one.session.report([SessionClosed()])
    until(lambda: one.driven.outcome is not None)
    assert str(one.driven.outcome.error) == "the server is gone"  # type: ignore[union-attr]
    assert one.state is RunState.IN_PROGRESS, "whoever drives it records how it ends"
    assert one.session.calls.count("close") == 1
    other.session.report([NodeEnded(0, 0)])
    driver.drive()
    assert other.state is RunState.SUCCEEDED


def test_a_run_whose_session_cannot_even_close_is_given_up(driver: Driver, until: Until) -> None:
    run = Run(driver, 1)

    def fail() -> None:
        raise EngineError("cannot close")

    run.session.close = fail  # type: ignore[method-assign]
    run.ledger.requests = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    driver.drive()
    assert run.driven.outcome is not None
    assert isinstance(run.driven.outcome.error, ZeroDivisionError)
    assert run.driven.outcome.error.__notes__ == ["and then: EngineError('cannot close')"]


def test_the_end_is_recorded_when_the_session_has_closed(driver: Driver, until: Until) -> None:
    run = Run(driver, 1, slow=True)
    until(lambda: run.state is RunState.IN_PROGRESS)
    run.session.report([NodeEnded(0, 3)])
    until(lambda: "close" in run.session.calls)
    run.request("cancel")  # too late: that the run fails is decided
    run.session.report([NodeStarted(0)])
    until(lambda: not driver._due)
    assert run.state is RunState.IN_PROGRESS
    run.session.report([SessionClosed()])
    driver.drive()
    assert run.state is RunState.FAILED
    assert run.session.calls[-3:] == ["close", "record FAILED", "finish logs"]


def test_a_cancel_during_a_suspension_is_applied_after_it(driver: Driver, until: Until) -> None:
    run = Run(driver, 1, slow=True)
    until(lambda: run.state is RunState.IN_PROGRESS)
    run.request("suspend")
    until(lambda: "close" in run.session.calls)
    run.request("cancel")
    until(lambda: not driver._due)
    assert run.session.calls.count("start") == 1
    run.session.report([SessionClosed()])
    driver.drive()
    recorded = [call for call in run.session.calls if call.startswith("record")]
    assert recorded[-2:] == ["record SUSPENDED", "record CANCELED"]
    assert run.session.calls.count("close") == 1


def test_a_suspended_run_is_driven_no_more(driver: Driver, until: Until) -> None:
    run = Run(driver, 1)
    until(lambda: run.state is RunState.IN_PROGRESS)
    run.request("suspend")
    driver.drive()
    assert run.state is RunState.SUSPENDED


@pytest.mark.parametrize("times", [1, 2])
def test_a_step_that_cannot_be_recorded_is_decided_again(
    driver: Driver, until: Until, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr("muster.control.drive._RETRY", 0.001)
    run = Run(driver, 1)
    until(lambda: run.state is RunState.IN_PROGRESS)
    run.ledger.busy = times
    run.session.report([NodeEnded(0, 0)])
    driver.drive()
    assert run.state is RunState.SUCCEEDED
    assert run.session.calls.count("close") == 1


def test_requests_that_cannot_be_read_are_read_later(
    driver: Driver, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.control.drive._RETRY", 0.001)
    run = Run(driver, 1)
    until(lambda: run.state is RunState.IN_PROGRESS)
    requests, attempts = run.ledger.requests, 0

    def busy_at_first() -> list[Request]:
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            raise StoreBusy("the store is busy")
        return requests()

    run.ledger.requests = busy_at_first  # type: ignore[method-assign]
    run.session.report([NodeEnded(0, 0)])
    driver.drive()
    assert run.state is RunState.SUCCEEDED


def test_a_cancel_of_a_suspended_run_is_recorded_when_the_store_is_not_busy_any_more(
    driver: Driver, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.control.drive._RETRY", 0.001)
    run = Run(driver, 1, slow=True)
    until(lambda: run.state is RunState.IN_PROGRESS)
    run.request("suspend")
    until(lambda: "close" in run.session.calls)
    run.request("cancel")
    record = run.ledger.record

    def busy_later(one: Record) -> None:
        record(one)
        run.ledger.busy = 2
        monkeypatch.setattr(run.ledger, "record", record)

    monkeypatch.setattr(run.ledger, "record", busy_later)
    run.session.report([SessionClosed()])
    driver.drive()
    assert (run.state, run.ledger.busy) == (RunState.CANCELED, 0)


def test_an_engine_reports_from_a_thread(driver: Driver, until: Until) -> None:
    run = Run(driver, 1)
    until(lambda: run.state is RunState.IN_PROGRESS)
    session = run.session
    thread = threading.Thread(
        target=lambda: session.loop.post(lambda: session.report([NodeEnded(0, 0)]))
    )
    thread.start()
    driver.drive()
    thread.join()
    assert run.state is RunState.SUCCEEDED
    session.loop.post(pytest.fail)  # the run is over


def test_a_session_that_closes_on_its_own_is_an_error(driver: Driver, until: Until) -> None:
    run = Run(driver, 1)
    until(lambda: run.state is RunState.IN_PROGRESS)
    run.session.report([SessionClosed()])
    driver.drive()
    assert run.driven.outcome is not None
    assert isinstance(run.driven.outcome.error, EngineError)


def test_what_is_known_at_once_is_part_of_the_first_step(driver: Driver, until: Until) -> None:
    ledger = BusyLedger(run_plan(1, policy((1, 1, None))), NOW, suspended=False)

    def open_session(loop: RunLoop, report: Report) -> Session:
        session = ledger.session = FakeSession(loop, report)
        report([RunQueued("waiting for GPUs")])
        return session

    run = driver.add(RunParts(policy((1, 1, None)), ledger, SteadyClock(), open_session))
    until(lambda: ledger.state() is RunState.QUEUED)
    states = [entry.data["state"] for entry in ledger.log() if entry.kind in ("nodes", "run")]
    assert states == ["ACCEPTED", "QUEUED"], "no node was started"
    ledger.request("cancel", "canceled", NOW)
    run.wake()
    driver.drive()
    assert ledger.state() is RunState.CANCELED


def test_a_request_that_is_not_in_the_ledger(driver: Driver, until: Until) -> None:
    ledger = BusyLedger(run_plan(1, policy((1, 1, None))), NOW, suspended=False)
    requests: list[CancelRequested] = []
    parts = RunParts(policy((1, 1, None)), ledger, SteadyClock(), FakeSession, lambda: [*requests])
    run = driver.add(parts)
    until(lambda: ledger.state() is RunState.IN_PROGRESS)
    requests.append(CancelRequested("a signal"))
    run.wake()
    driver.drive()
    assert ledger.state() is RunState.CANCELED


class Together:
    """Records together, or fails as a test wants it."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.error: Exception | None = None

    def __call__(self, records: Sequence[tuple[Ledger, Record]]) -> None:
        self.sizes.append(len(records))
        if self.error is not None:
            raise self.error
        for ledger, one in records:
            ledger.record(one)


def test_steps_of_one_round_are_recorded_together(loop: EventLoop, until: Until) -> None:
    together = Together()
    driver = Driver(loop, together)
    runs = [Run(driver, number) for number in range(3)]
    until(lambda: all(run.state is RunState.IN_PROGRESS for run in runs))
    assert together.sizes == [3, 3]
    for run in runs:
        run.session.report([NodeEnded(0, 0)])
    driver.drive()
    assert together.sizes == [3, 3, 3]
    for run in runs:
        expected = ["record ACCEPTED", "start", "record IN_PROGRESS"]
        assert run.session.calls == [*expected, "close", "record SUCCEEDED", "finish logs"]


def test_steps_that_cannot_be_recorded_together_are_recorded_alone(
    loop: EventLoop, until: Until
) -> None:
    together = Together()
    together.error = ValueError("one of them has lost its lease")
    driver = Driver(loop, together)
    runs = [Run(driver, number) for number in range(2)]

    def lost(*_: object) -> None:
        raise EngineError("the lease is lost")

    until(lambda: all(run.state is RunState.IN_PROGRESS for run in runs))
    runs[0].ledger.record = lost  # type: ignore[method-assign]
    for run in runs:
        run.session.report([NodeEnded(0, 0)])
    driver.drive()
    errors = [run.driven.outcome.error for run in runs if run.driven.outcome is not None]
    assert [str(error) for error in errors] == ["the lease is lost", "None"]
    assert runs[1].state is RunState.SUCCEEDED


def test_steps_wait_while_the_store_is_busy(
    loop: EventLoop, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.control.drive._RETRY", 0.001)
    together = Together()
    driver = Driver(loop, together)
    runs = [Run(driver, number) for number in range(2)]
    until(lambda: all(run.state is RunState.IN_PROGRESS for run in runs))
    together.error = StoreBusy("the store is busy")
    for run in runs:
        run.session.report([NodeEnded(0, 0)])
    tried = len(together.sizes)
    until(lambda: all("close" in run.session.calls for run in runs))
    until(lambda: len(together.sizes) > tried)
    assert all(run.state is RunState.IN_PROGRESS for run in runs)
    together.error = None
    driver.drive()
    assert all(run.state is RunState.SUCCEEDED for run in runs)


def test_a_run_that_cannot_be_opened_is_not_driven(driver: Driver, loop: EventLoop) -> None:
    ledger = BusyLedger(run_plan(1, policy((1, 1, None))), NOW, suspended=False)

    def fail(share: RunLoop, report: Report) -> Session:
        participant = share.add(lambda _: pytest.fail("it is called"))
        participant.watch(reader.fileno())
        participant.notify()
        share.post(lambda: pytest.fail("it is called"))
        report([RunQueued("waiting")])
        raise EngineError("no server")

    reader, writer = socket.socketpair()
    with reader, writer:
        writer.send(b"something to read")
        with pytest.raises(EngineError, match="no server"):
            driver.add(RunParts(policy((1, 1, None)), ledger, SteadyClock(), fail))
        for _ in range(2):
            loop.add(lambda _: None).notify()
            loop.run_once()
    assert driver.runs == set()
    assert ledger.state() is RunState.ACCEPTED


def test_every_session_is_closed_when_the_process_has_to_end(
    driver: Driver, loop: EventLoop, until: Until
) -> None:
    runs = [Run(driver, number) for number in range(3)]
    until(lambda: all(run.state is RunState.IN_PROGRESS for run in runs))
    closed = []

    def fail(run: Run) -> None:
        closed.append(run)
        raise EngineError("cannot close")

    for run in runs:
        run.session.close = partial(fail, run)  # type: ignore[method-assign]

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    loop.add(interrupt).notify()
    with pytest.raises(KeyboardInterrupt) as caught:
        driver.drive()
    assert set(closed) == set(runs)
    assert caught.value.__notes__ == ["and then: EngineError('cannot close')"] * 3
    assert all(run.session.calls[-1] == "finish logs" for run in runs)


class Detached:
    """A run whose nodes outlive its sessions."""

    def __init__(self, driver: Driver, max_restarts: int = 0) -> None:
        self.policy = policy((1, 1, None), max_restarts=max_restarts)
        self.ledger = BusyLedger(run_plan(1, self.policy), NOW, suspended=False)
        self.requests: list[HandOverRequested] = []
        #: What the next session reports when it is opened.
        self.known: list[EngineEvent] = []
        self.drive(driver)

    def drive(self, driver: Driver) -> None:
        """Drive it, also after another driver."""
        parts = RunParts(
            self.policy,
            self.ledger,
            SteadyClock(),
            self._open,
            lambda: [*self.requests],
            detached=True,
        )
        self.driven = driver.add(parts)

    def _open(self, loop: RunLoop, report: Report) -> Session:
        self.session = self.ledger.session = FakeSession(loop, report)
        report(self.known)
        return self.session


def test_detached_nodes_are_left_when_the_run_is_handed_over(driver: Driver, until: Until) -> None:
    run = Detached(driver)
    until(lambda: run.ledger.state() is RunState.IN_PROGRESS)
    run.requests.append(HandOverRequested("terminated"))
    run.driven.wake()
    driver.drive()
    assert run.driven.outcome is not None
    assert run.driven.outcome.handed_over
    assert run.session.calls[-2:] == ["leave", "record IN_PROGRESS"]
    nodes = run.ledger.load().nodes
    run.requests.clear()
    run.drive(driver)
    until(lambda: not run.session.calls)
    assert run.ledger.load().nodes == nodes
    run.session.report([NodeEnded(0, 0)])
    driver.drive()
    ends = ["record IN_PROGRESS", "close", "record SUCCEEDED", "finish logs"]
    assert run.session.calls == ends, "the ends of nodes are recorded first"


def test_a_run_goes_on_with_the_attempt_that_its_engine_has_begun(
    driver: Driver, until: Until
) -> None:
    run = Detached(driver, max_restarts=1)
    until(lambda: run.ledger.state() is RunState.IN_PROGRESS)
    run.requests.append(HandOverRequested("terminated"))
    run.driven.wake()
    driver.drive()
    run.requests.clear()
    new = of_native_restart(1)
    run.known = [RunRestarted(1, why="node-0 exited with 3"), NodeStarted(0, new)]
    run.drive(driver)
    until(lambda: run.ledger.load().attempt == 1)
    status = run.ledger.load()
    assert (status.native_restarts, status.spent.run, status.nodes[0].incarnation) == (1, 1, new)
    run.session.report([NodeEnded(0, 3), NodeEnded(0, 0, incarnation=new)])
    driver.drive()
    record = "record IN_PROGRESS"
    assert run.session.calls == [record, record, "close", "record SUCCEEDED", "finish logs"]
    entries = [(entry.kind, entry.data) for entry in run.ledger.log()]
    assert ("attempt", {"attempt": 1, "by": "engine"}) in entries


def test_detached_nodes_are_left_to_the_process_that_drives_the_run_now(
    driver: Driver, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Detached(driver)
    until(lambda: run.ledger.state() is RunState.IN_PROGRESS)
    own = Lease.first("simulated-1", new_owner())

    def lost(_: Record) -> None:
        raise LeaseLost(own, None)

    monkeypatch.setattr(run.ledger, "record", lost)
    run.session.report([NodeUnreachable(0)])
    run.session.calls.clear()
    driver.drive()
    assert run.session.calls == ["leave"]
    assert run.driven.outcome is not None
    assert isinstance(run.driven.outcome.error, LeaseLost)


def test_detached_nodes_are_left_also_if_that_fails(
    driver: Driver, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Detached(driver)
    until(lambda: run.ledger.state() is RunState.IN_PROGRESS)
    real, session = run.session.leave, run.session

    def fail(_: object) -> None:
        raise EngineError("a connection breaks")

    def leave() -> None:
        session.calls.append("begin to leave")
        session.loop.add(fail).notify()
        monkeypatch.setattr(session, "leave", real)

    monkeypatch.setattr(session, "leave", leave)
    session.calls.clear()
    run.requests.append(HandOverRequested("terminated"))
    run.driven.wake()
    driver.drive()
    outcome = run.driven.outcome
    assert outcome is not None
    assert (outcome.left, str(outcome.error)) == (True, "a connection breaks")
    assert session.calls == ["notified", "begin to leave", "leave"]


def test_detached_nodes_are_ended_when_their_run_cannot_be_driven(
    driver: Driver, until: Until
) -> None:
    run = Detached(driver)
    until(lambda: run.ledger.state() is RunState.IN_PROGRESS)

    def fail(_: object) -> None:
        raise EngineError("the node table is full")

    run.session.loop.add(fail).notify()
    driver.drive()
    assert run.session.calls[-2:] == ["close", "finish logs"]


def test_detached_nodes_are_left_when_the_process_has_to_end(
    driver: Driver, loop: EventLoop, until: Until
) -> None:
    run = Detached(driver)
    until(lambda: run.ledger.state() is RunState.IN_PROGRESS)

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    loop.add(interrupt).notify()
    with pytest.raises(KeyboardInterrupt):
        driver.drive()
    assert run.session.calls[-1] == "leave"
