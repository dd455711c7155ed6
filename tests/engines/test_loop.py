"""The event loop calls each participant once a round, and only while there is something to do."""

from __future__ import annotations

import gc
import os
import select
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest

from muster.engines import loop as module
from muster.engines.loop import EventLoop, RunLoop


@pytest.fixture(params=["epoll", "poll"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventLoop]:
    if request.param == "poll":  # as on systems without epoll
        monkeypatch.setattr(module, "_make_poll", module._PlainPoll)
    made = EventLoop()
    yield made
    made.close()


@pytest.fixture
def files() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def pipe(files: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        files.callback(os.close, end)
    return ends


class Steps(list[dict[int, int]]):
    """The calls of a participant: the ready descriptors of each."""

    def __call__(self, ready: Mapping[int, int]) -> None:
        self.append(dict(ready))


def test_all_ready_descriptors_of_a_participant_arrive_together(
    loop: EventLoop, files: ExitStack
) -> None:
    steps, pipes = Steps(), [pipe(files) for _ in range(3)]
    participant = loop.add(steps)
    for reader, _ in pipes:
        participant.watch(reader)
    for _, writer in pipes[1:]:
        os.write(writer, b"!")
    loop.run_once()
    assert steps == [{reader: select.POLLIN for reader, _ in pipes[1:]}]


def test_a_descriptor_is_watched_for_writing_on_request(loop: EventLoop, files: ExitStack) -> None:
    steps, (_, writer) = Steps(), pipe(files)
    participant = loop.add(steps)
    participant.watch(writer, write=True)
    loop.run_once()
    participant.watch(writer)
    participant.notify()
    loop.run_once()
    assert steps == [{writer: select.POLLOUT}, {}]


def test_deadlines_pass_in_order_and_once(loop: EventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    now = passed = loop.now()
    monkeypatch.setattr(loop, "now", lambda: passed)
    for name, after in (("late", 0.02), ("never", None), ("soon", 0.01), ("moved", 0.001)):
        participant = loop.add(lambda _, name=name: order.append(name))
        participant.wake_at(None if after is None else now + after)
    participant.wake_at(now + 0.03)
    while len(order) < 3:
        passed += loop.timeout() or 0.0
        loop.run_once()
    assert order == ["soon", "late", "moved"]
    assert loop.timeout() is None
    assert loop.now() >= now + 0.03


def test_a_deadline_that_is_set_earlier_passes_earlier(loop: EventLoop) -> None:
    steps = Steps()
    participant = loop.add(steps)
    participant.wake_at(loop.now() + 1000)
    participant.wake_at(loop.now() + 0.001)
    loop.run_once()
    assert steps == [{}]
    participant.wake_at(None)
    assert (loop.timeout() or 0) > 900, "the entry for the old deadline is dropped at its time"


def test_a_closed_participant_is_not_kept_until_its_deadline(loop: EventLoop) -> None:
    class Run:
        def attend(self, _: Mapping[int, int]) -> None: ...
        def fail(self, _: Exception) -> None: ...

    run = Run()
    freed = weakref.ref(run)
    participant = loop.add(run.attend, run.fail)
    participant.wake_at(loop.now() + 1000)
    participant.close()
    del run
    gc.collect()
    assert freed() is None


def test_the_first_participant_precedes_those_that_were_notified_before(loop: EventLoop) -> None:
    order: list[str] = []
    other = loop.add(lambda _: order.append("other"))
    driver = loop.add(lambda _: order.append("driver"), first=True)
    other.notify()
    driver.notify()
    loop.run_once()
    assert order == ["driver", "other"]


def test_a_notification_during_a_round_is_for_the_next_one(loop: EventLoop) -> None:
    order: list[str] = []

    def step(_: Mapping[int, int]) -> None:
        order.append("one")
        if len(order) == 1:
            one.notify()
            other.notify()

    one, other = loop.add(step), loop.add(lambda _: order.append("other"))
    one.notify()
    loop.run_once()
    assert order == ["one"]
    loop.run_once()
    assert order == ["one", "one", "other"]


def test_other_threads_post_calls(loop: EventLoop) -> None:
    called: list[tuple[int, bool]] = []
    main = threading.get_ident()

    def work() -> None:
        for number in range(1000):
            loop.post(lambda number=number: called.append((number, threading.get_ident() == main)))

    thread = threading.Thread(target=work)
    thread.start()
    while len(called) < 1000:
        loop.run_once()
    thread.join()
    assert called == [(number, True) for number in range(1000)]


def test_an_error_of_a_run_does_not_affect_other_participants(loop: EventLoop) -> None:
    errors: list[Exception] = []
    run, steps = RunLoop(loop, errors.append), Steps()

    def fail(*_: object) -> None:
        raise ValueError("broken")

    run.add(fail).notify()
    run.post(fail)
    loop.add(steps).notify()
    while len(errors) < 2:
        loop.run_once()
    assert [str(error) for error in errors] == ["broken", "broken"]
    assert steps == [{}]


def test_what_a_thread_has_done_is_passed_on_in_the_loop(loop: EventLoop) -> None:
    errors: list[Exception] = []
    run, results = RunLoop(loop, errors.append), list[tuple[bool, bool]]()
    here = threading.get_ident()
    run.in_thread(
        lambda: threading.get_ident() == here,
        lambda result: results.append((result, threading.get_ident() == here)),
    )
    run.in_thread(lambda: 1 / 0, lambda _: pytest.fail())
    while not (results and errors):
        loop.run_once()
    assert results == [(False, True)]
    assert isinstance(errors[0], ZeroDivisionError)


def test_an_error_of_nobody_ends_the_loop(loop: EventLoop) -> None:
    def fail(_: Mapping[int, int]) -> None:
        raise ValueError("broken")

    loop.add(fail).notify()
    with pytest.raises(ValueError, match="broken"):
        loop.run_once()


def test_nothing_of_a_closed_run_is_called(loop: EventLoop, files: ExitStack) -> None:
    run, steps, others = RunLoop(loop, pytest.fail), Steps(), Steps()
    reader, writer = pipe(files)
    participant = run.add(steps)
    participant.watch(reader)
    participant.wake_at(loop.now())
    participant.notify()
    run.post(lambda: steps({}))
    os.write(writer, b"!")
    closer = loop.add(lambda _: run.close(), first=True)
    closer.notify()
    loop.add(others).notify()
    loop.run_once()
    participant.notify()
    participant.watch(reader)
    participant.wake_at(loop.now())
    loop.post(lambda: others({}))
    loop.run_once()
    assert (steps, len(others)) == ([], 2)


def test_an_unwatched_descriptor_that_a_child_holds_open_is_not_reported(
    loop: EventLoop, files: ExitStack
) -> None:
    """The kernel keeps a registration while any process has the file open."""
    steps = Steps()
    reader, writer = os.pipe()
    files.callback(os.close, writer)
    participant = loop.add(steps)
    participant.watch(reader)
    alive, release = pipe(files)
    child = os.fork()
    if child == 0:
        os.close(release)
        os.read(alive, 1)
        os._exit(0)
    participant.unwatch(reader)
    os.close(reader)
    os.write(writer, b"!")  # the child's copy is readable
    again, other = pipe(files)
    assert again == reader, "the number is used again"
    participant.watch(again)
    participant.notify()
    loop.run_once()
    assert steps == [{}]
    os.write(other, b"!")
    loop.run_once()
    assert steps == [{}, {again: select.POLLIN}]
    os.write(release, b"!")
    os.waitpid(child, 0)


def test_calls_that_are_posted_to_a_closed_loop_are_dropped() -> None:
    loop = EventLoop()
    loop.close()
    loop.post(pytest.fail)
