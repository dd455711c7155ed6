"""Pauses between attempts."""

from __future__ import annotations

from muster.engines.loop import EventLoop, RunLoop
from muster.engines.remote.pauses import Backoff, Pauses


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(5.0, 30.0)
    assert [backoff.next() for _ in range(5)] == [5.0, 10.0, 20.0, 30.0, 30.0]
    backoff.reset()
    assert [backoff.next() for _ in range(2)] == [5.0, 10.0]


def test_nothing_is_called_after_the_end() -> None:
    loop, failures, calls = EventLoop(), list[Exception](), list[str]()
    run = RunLoop(loop, failures.append)
    ended, other = Pauses(run), Pauses(run)
    ended.after(0.0, lambda: calls.append("before its end"))
    ended.close()
    ended.after(0.0, lambda: calls.append("after its end"))
    other.after(0.01, lambda: calls.append("of another"))
    while not calls:
        loop.run_once()
    assert (calls, failures) == (["of another"], [])
    loop.close()
