"""Work in a few threads at a time."""

from __future__ import annotations

import threading

from muster.engines.loop import EventLoop, RunLoop
from muster.engines.remote.few_threads import FewThreads

TIMEOUT = 20.0


def test_the_next_one_starts_when_one_has_ended() -> None:
    loop, failures, done = EventLoop(), list[Exception](), list[int]()
    threads = FewThreads(RunLoop(loop, failures.append), 2)
    running, go_on, started = set[int](), threading.Event(), threading.Semaphore(0)
    most: list[int] = []

    def work(number: int) -> int:
        running.add(number)
        most.append(len(running))
        started.release()
        assert go_on.wait(TIMEOUT)
        running.discard(number)
        return number

    for number in range(5):
        threads.in_thread(lambda own=number: work(own), done.append)  # type: ignore[misc]
    assert started.acquire(timeout=TIMEOUT) and started.acquire(timeout=TIMEOUT)
    assert running == {0, 1}
    go_on.set()
    while len(done) < 5:
        loop.run_once()
    assert not failures
    assert sorted(done) == [0, 1, 2, 3, 4]
    assert max(most) == 2
    threads.in_thread(lambda: 5, done.append)  # threads are free again
    while len(done) < 6:
        loop.run_once()
    loop.close()


def test_work_that_raises_has_ended() -> None:
    loop, failures, done = EventLoop(), list[Exception](), list[int]()
    threads = FewThreads(RunLoop(loop, failures.append), 1)
    ended: list[str] = []
    threads.in_thread(lambda: 1 // 0, done.append, lambda: ended.append("first"))
    threads.in_thread(lambda: 2, done.append, lambda: ended.append("second"))
    while not done:
        loop.run_once()
    assert [type(error) for error in failures] == [ZeroDivisionError]
    assert done == [2]
    assert ended == ["first", "second"]
    loop.close()
