"""Threads that do something again and again."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event

from muster.errors import StoreError
from muster.server.log import ServerLog
from muster.server.periodic_threads import PeriodicThread

Call = Callable[[], float]


class Lines(io.StringIO):
    """A log that can be read."""

    @property
    def entries(self) -> list[tuple[str, str]]:
        found = map(json.loads, self.getvalue().splitlines())
        return [(one["level"], one["message"]) for one in found]


def thread(act: Call, log: Lines, pause: float = 0.0) -> PeriodicThread:
    return PeriodicThread("test", act, ServerLog(log), "it fails", pause=pause)


def run_through(calls: list[Exception | None]) -> Lines:
    """What is logged by calls that end like this, one after the other."""
    log, left, done = Lines(), iter(calls), Event()

    def act() -> float:
        try:
            found = next(left)
        except StopIteration:
            done.set()
            return 3600.0
        if found is not None:
            raise found
        return 0.0

    made = thread(act, log)
    made.start()
    assert done.wait(30)
    made.stop()
    return log


def test_an_error_is_logged_once_until_it_works_again() -> None:
    one, other = StoreError("no database"), OSError("disk full")
    log = run_through([one, one, other, other, None, other, None])
    text = [("warning", "it fails: no database"), ("warning", "it fails: disk full")]
    assert log.entries == [*text, text[1]]


def test_each_defect_is_logged() -> None:
    log = run_through([ValueError("x"), ValueError("x"), None])
    assert log.entries == [("error", "it fails")] * 2
    assert log.getvalue().count("ValueError: x") == 2


def test_a_reported_error_is_logged_once_while_the_calls_work() -> None:
    log, calls = Lines(), SimpleQueue[None]()

    def act() -> float:
        made.report(StoreError("one of many"))
        calls.put(None)
        return 0.0

    made = thread(act, log)
    made.start()
    for _ in range(3):
        calls.get(timeout=30)
    made.stop()
    assert log.entries == [("warning", "it fails: one of many")]


def test_it_is_woken_and_stopped_in_a_long_pause() -> None:
    calls: SimpleQueue[None] = SimpleQueue()

    def act() -> float:
        calls.put(None)
        return 3600.0

    made = thread(act, Lines())
    made.start()
    calls.get(timeout=30)
    made.wake()
    calls.get(timeout=30)
    made.stop()
    assert calls.empty()


def test_what_was_not_started_can_be_stopped() -> None:
    thread(lambda: 0.0, Lines()).stop()
