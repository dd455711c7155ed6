"""Output of several attempts: folders created by hand, a supervisor simulated by an open FIFO."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from muster.api.streams import LogChunk, Notice, Selection
from muster.client.following import chunks
from muster.client.log_records import records
from muster.control.supervisor_check import SupervisorCheck
from muster.errors import InvalidInput, NotFound
from muster.node.file_watch import Watcher
from muster.service import follow, run_log
from muster.service.follow import Follower
from muster.service.selection import check_attempt
from muster.storage import log_reader
from muster.storage.home import Home
from muster.storage.liveness import open_liveness_pipe
from muster.storage.log_index import LogWriter, StreamInfo
from muster.storage.run_output import RunOutput
from muster.store.records import EventRecord


class Attempt:
    """The output of one attempt of two nodes, being written."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        streams = [StreamInfo(n, f"{n}.out", n, "workers", f"r-{n}", 0, "stdout") for n in range(2)]
        self.clock = 0
        self._writer = LogWriter(folder, streams)

    def write(self, text: str, rank: int = 0) -> None:
        with (self.folder / f"{rank}.out").open("a") as file:
            file.write(text)

    def index(self) -> None:
        self.clock += 1
        self._writer.note_growth(self.clock, range(2))

    def write_lines(self, *lines: str, rank: int = 0) -> None:
        self.write("".join(f"{line}\n" for line in lines), rank)
        self.index()

    def end(self) -> None:
        self.index()
        self._writer.finish(self.clock)
        self._writer.close()

    def abandon(self) -> None:
        self._writer.close()


class Run:
    """A run and the context of its use cases, as far as log readers need them."""

    id, name, attempt = "r1", "demo-1", 0

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.folder = self.home.run_dir(self.id).path
        self.folder.mkdir(parents=True)
        self._pipe: int | None = None
        self.entries: list[EventRecord] = []
        self.successor: Callable[[], None] = lambda: None
        record = SimpleNamespace(plan={"groups": []})  # no arrays
        runs = SimpleNamespace(get=lambda _id: record)
        self.store = SimpleNamespace(events=SimpleNamespace(since=self._since), runs=runs)

    def start(self) -> None:
        self._pipe = open_liveness_pipe(self.home.run_dir(self.id).liveness_pipe)

    def end(self) -> None:
        # closed last: a waiting reader may start another attempt at once
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            os.close(pipe)

    def new(self, number: int) -> Attempt:
        return Attempt(self.folder / "logs" / str(number))

    def recover(self) -> None:
        """Start what follows the supervisor that has ended."""
        self.successor()

    def follow(self, run_id: str) -> Follower:
        """Like `follow.follow`, without a supervisor to wake."""
        return Follower(
            self.home,
            run_id,
            check=SupervisorCheck(self.home.run_dir(run_id), self.name),
            space_mark=self.home.root / "reserve" / "mark",
            is_elsewhere=lambda: False,
            recover=self.recover,
            notices=self.notices,
        )

    def notices(self, check: SupervisorCheck) -> Iterator[Notice]:
        assert check.check() == ""
        yield from ()

    def _since(self, run_id: str, after: int) -> list[EventRecord]:
        """Like the store's method."""
        assert run_id == self.id
        return self.entries[after:]

    def add_event(self, kind: str, at: int = 0, **data: Any) -> None:
        """Add an entry to the event log; `at` is the time of an attempt's clock (ns)."""
        seq = len(self.entries) + 1
        self.entries.append(EventRecord(self.id, seq, at / 1e9, kind, data))
        with self.home.run_dir(self.id).event_notification.open("a") as notification:
            notification.write(".")

    def chunks(self, *, follow: bool = False, **selection: Any) -> Iterator[LogChunk]:
        this: Any = self
        items = run_log.items(this, this, Selection(**selection), follow=follow, live=None)
        return chunks(items)

    def read(self, **selection: Any) -> list[tuple[int, str]]:
        return list(lines_of(self.chunks(**selection)))


def lines_of(found: Iterator[LogChunk]) -> Iterator[tuple[int, str]]:
    for chunk in found:
        for record in records(chunk):
            yield record.attempt, record.message


class Reader:
    """Follow the run's output in a thread."""

    def __init__(self, run: Run, **selection: Any) -> None:
        self._found: Queue[tuple[int, str] | BaseException | None] = Queue()
        self._thread = threading.Thread(target=self._follow, args=(run, selection), daemon=True)
        self._thread.start()

    def _follow(self, run: Run, selection: Any) -> None:
        try:
            for line in lines_of(run.chunks(follow=True, **selection)):
                self._found.put(line)
            self._found.put(None)
        except BaseException as error:  # noqa: BLE001
            self._found.put(error)

    def next(self) -> tuple[int, str] | None:
        found = self._found.get(timeout=30)
        if isinstance(found, BaseException):
            raise found
        return found

    def expect(self, *lines: tuple[int, str]) -> None:
        assert [self.next() for _ in lines] == list(lines)

    def expect_end(self) -> None:
        assert self.next() is None
        self._thread.join(30)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(follow, "follow", lambda context, run_id, **_: context.follow(run_id))
    run = Run(tmp_path)
    yield run
    run.end()


@pytest.fixture(params=["inotify", "polling"])
def any_watcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "polling":
        monkeypatch.setattr(follow, "Watcher", Watcher.polling)


# --- reading


def test_an_attempt_can_be_chosen(run: Run) -> None:
    for number in (0, 1, 2, 10):
        attempt = run.new(number)
        attempt.write_lines(f"a{number}", f"b{number}")
        attempt.end()
    everything = [(n, f"{letter}{n}") for n in (0, 1, 2, 10) for letter in "ab"]
    assert run.read() == everything[-2:]
    assert run.read(attempt=1) == [(1, "a1"), (1, "b1")]
    assert run.read(attempt="all") == everything
    assert run.read(attempt="all", ranks=[1]) == []


@pytest.mark.parametrize("lines", range(8))
@pytest.mark.parametrize("follow", [False, True])
def test_the_last_lines_of_all_attempts_together(run: Run, lines: int, follow: bool) -> None:
    written: list[tuple[int, str]] = []
    for number in range(3):
        attempt = run.new(number)
        attempt.write_lines(f"{number} first", rank=1)
        attempt.write_lines(f"{number} second")
        attempt.write(f"{number} half")
        attempt.end()
        written += [(number, f"{number} {which}") for which in ("first", "second", "half")]
    got = list(lines_of(run.chunks(follow=follow, attempt="all", tail=lines)))
    assert got == written[len(written) - lines :]
    assert run.read(tail=1) == written[-1:]


@pytest.mark.parametrize("follow", [False, True])
def test_lines_that_are_written_meanwhile_take_the_place_of_earlier_ones(
    run: Run, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    attempt = run.new(0)
    attempt.write_lines("1", "2", "3")
    skip = RunOutput.skip_to_last

    def skip_and_write(output: RunOutput, number: int, lines: int) -> None:
        skip(output, number, lines)
        attempt.write_lines("4", "5", rank=1)

    monkeypatch.setattr(RunOutput, "skip_to_last", skip_and_write)
    with closing(run.chunks(follow=follow, tail=3)) as found:
        lines = lines_of(found)
        assert [next(lines) for _ in range(3)] == [(0, "3"), (0, "4"), (0, "5")]
        if not follow:
            assert list(lines) == []


def test_lines_written_between_two_reads_precede_those_of_the_next_attempt(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = run.new(0), run.new(1)
    old.write_lines("first")
    read = RunOutput.read

    def write_and_read(
        output: RunOutput, attempt: int, *, final: bool
    ) -> Iterator[log_reader.LogChunk]:
        if attempt == 1 and not new.clock:
            old.write_lines("last")
            new.write_lines("next")
        yield from read(output, attempt, final=final)

    monkeypatch.setattr(RunOutput, "read", write_and_read)
    assert run.read(attempt="all") == [(0, "first"), (0, "last"), (1, "next")]


def test_logs_are_empty_before_any_output(run: Run) -> None:
    assert run.read() == run.read(attempt="all") == run.read(attempt=0) == []
    (run.folder / "logs" / "0").mkdir(parents=True)
    assert run.read() == [], "the folder exists before its index"


def test_the_latest_attempt_with_output_is_shown_while_the_next_waits(run: Run) -> None:
    run.new(0).write_lines("a")
    run.attempt = 1
    assert run.read() == [(0, "a")]
    assert run.read(attempt=1) == []


def test_a_missing_attempt_is_reported_at_once(run: Run) -> None:
    for number in (2, 3):
        run.new(number).write_lines("a")
    run.attempt = 4
    this: Any = run
    with pytest.raises(InvalidInput) as caught:
        check_attempt(this, this, 1)
    text = "attempt: attempt 1 of demo-1 has no output (attempts with output: 2, 3, 4)"
    assert str(caught.value) == text
    check_attempt(this, this, 4)
    with pytest.raises(InvalidInput):
        check_attempt(this, this, 5)


def test_other_files_in_the_log_folder_are_ignored(run: Run) -> None:
    run.new(0).write_lines("a")
    for name in ("core", "x-1", "²"):
        (run.folder / "logs" / name).mkdir()
    (run.folder / "logs" / "7").touch()
    assert run.read(attempt="all") == [(0, "a")]


def test_logs_in_a_linked_folder_are_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (run.folder / "logs").symlink_to(tmp_path / "elsewhere")
    run.new(0).write_lines("a")
    assert run.read() == [(0, "a")]


# --- following


@pytest.mark.usefixtures("any_watcher")
def test_following_continues_with_the_next_attempt(run: Run) -> None:
    run.start()
    follower = Reader(run)
    for number in range(4):
        attempt = run.new(number)
        attempt.write_lines("one")
        follower.expect((number, "one"))
        attempt.write_lines("two")
        attempt.write("half")
        attempt.end()
        follower.expect((number, "two"), (number, "half"))
    run.end()
    follower.expect_end()


def test_following_starts_with_the_latest_attempt(run: Run) -> None:
    run.start()
    for number in range(3):
        attempt = run.new(number)
        attempt.write_lines(f"a{number}")
    newest, every = Reader(run), Reader(run, attempt="all")
    newest.expect((2, "a2"))
    every.expect((0, "a0"), (1, "a1"), (2, "a2"))
    run.new(3).write_lines("a3")
    newest.expect((3, "a3"))
    every.expect((3, "a3"))
    run.end()
    newest.expect_end()
    every.expect_end()


@pytest.mark.usefixtures("any_watcher")
def test_late_output_of_an_attempt_is_shown_while_the_next_runs(run: Run) -> None:
    run.start()
    old = run.new(0)
    old.write_lines("a")
    follower = Reader(run)
    follower.expect((0, "a"))
    new = run.new(1)
    new.write_lines("b")
    follower.expect((1, "b"))
    old.write_lines("saving", rank=1)
    follower.expect((0, "saving"))
    old.write("saved")
    old.end()
    follower.expect((0, "saved"))
    new.write_lines("c")
    follower.expect((1, "c"))
    run.end()
    follower.expect_end()


def test_following_one_attempt_ends_with_that_attempt(run: Run) -> None:
    run.start()
    run.attempt = 1
    old = run.new(0)
    old.write_lines("a")
    one, next_one = Reader(run, attempt=0), Reader(run, attempt=1)
    one.expect((0, "a"))
    new = run.new(1)
    new.write_lines("b")
    next_one.expect((1, "b"))
    old.end()
    one.expect_end()
    run.new(2).write_lines("c")
    new.end()
    next_one.expect_end()


def test_following_ends_when_the_run_is_suspended(run: Run) -> None:
    """Followers after the resume see the next attempt."""
    run.start()
    attempt = run.new(0)
    attempt.write_lines("a")
    follower = Reader(run)
    follower.expect((0, "a"))
    attempt.end()
    run.end()
    follower.expect_end()
    run.start()
    run.new(1).write_lines("b")
    follower = Reader(run)
    follower.expect((1, "b"))
    run.end()
    follower.expect_end()


def test_following_a_run_that_was_never_started_ends_at_once(run: Run) -> None:
    follower = Reader(run)
    follower.expect_end()


@pytest.mark.usefixtures("any_watcher")
def test_following_a_run_without_output_ends_with_the_run(run: Run) -> None:
    run.start()
    follower = Reader(run)
    run.end()
    follower.expect_end()


def test_output_missing_in_the_index_is_shown_at_the_end(run: Run) -> None:
    run.start()
    attempt = run.new(0)
    attempt.write_lines("a")
    follower = Reader(run)
    follower.expect((0, "a"))
    attempt.write("b\nhalf")
    run.end()
    follower.expect((0, "b"), (0, "half"))
    follower.expect_end()


def test_following_continues_after_the_supervisor_was_replaced(run: Run) -> None:
    run.start()
    attempt = run.new(0)
    attempt.write_lines("a")
    follower = Reader(run)
    follower.expect((0, "a"))
    attempt.write("b\nhalf")
    attempt.abandon()
    recovered = threading.Event()

    def successor() -> None:
        run.start()
        recovered.set()

    run.successor = successor
    run.end()
    follower.expect((0, "b"), (0, "half"))
    assert recovered.wait(30)  # the output is reported before the recovery
    run.successor = lambda: None
    run.new(1).write_lines("c")
    follower.expect((1, "c"))
    run.end()
    follower.expect_end()


def test_following_ends_when_the_run_is_deleted(run: Run) -> None:
    run.start()
    run.new(0).write_lines("a")
    follower = Reader(run)
    follower.expect((0, "a"))

    def deleted() -> None:
        shutil.rmtree(run.folder)
        raise NotFound("no run called 'r1'")

    run.successor = deleted
    run.end()
    follower.expect_end()


@pytest.mark.usefixtures("any_watcher")
def test_attempts_may_be_removed_while_they_are_followed(run: Run) -> None:
    run.start()
    run.new(0).write_lines("a")
    follower = Reader(run)
    follower.expect((0, "a"))
    shutil.rmtree(run.folder / "logs" / "0")
    run.new(1).write_lines("b")
    follower.expect((1, "b"))
    shutil.rmtree(run.folder / "logs" / "1")
    run.new(2).write_lines("c")
    follower.expect((2, "c"))
    run.end()
    follower.expect_end()


def test_closing_a_reader_halfway_closes_its_files(run: Run) -> None:
    run.start()
    run.new(0).write_lines("a")
    before = 0
    for _ in range(2):  # the first one may open a watcher, which the process keeps
        before = len(os.listdir("/proc/self/fd"))
        with closing(run.chunks(follow=True)) as found:  # type: ignore[type-var]
            assert next(found).data == b"a\n"
    assert len(os.listdir("/proc/self/fd")) <= before, "nothing is left open"


@pytest.mark.parametrize("repetition", range(6))
@pytest.mark.usefixtures("any_watcher")
def test_every_line_is_read_once_and_in_order(
    run: Run, rng: random.Random, repetition: int
) -> None:
    """Attempts that start and end quickly, with the last lines of each at any time."""
    run.start()
    followers = [Reader(run, attempt="all") for _ in range(3)]
    written: dict[tuple[int, int], list[str]] = {}
    active: list[Attempt] = []

    def write_some(attempt: Attempt) -> None:
        rank = rng.randrange(2)
        mine = written.setdefault((int(attempt.folder.name), rank), [])
        for _ in range(rng.randrange(5)):
            mine.append(f"{rank}:{len(mine)}")
            attempt.write(mine[-1] + "\n", rank)
        if rng.random() < 0.8:
            attempt.index()

    for number in range(30):
        active.append(run.new(number))
        for _ in range(rng.randrange(20)):
            write_some(rng.choice(active))
        while active and rng.random() < 0.6:
            active.pop(0).end()
    run.end()
    for follower in followers:
        got: dict[tuple[int, int], list[str]] = {}
        while (line := follower.next()) is not None:
            got.setdefault((line[0], int(line[1][0])), []).append(line[1])
        assert got == {key: lines for key, lines in written.items() if lines}


# --- messages


def test_messages_are_ordered_by_time(run: Run) -> None:
    run.add_event("run", 0, state="ACCEPTED")
    run.add_event("nodes", 0, state="STARTING", ranks="0-1")
    attempt = run.new(0)
    attempt.write_lines("a")  # at 1
    run.add_event("run", 2, state="CANCELING", details="maximum runtime of 1 s exceeded")
    attempt.clock = 2
    attempt.write_lines("b")  # at 3
    attempt.end()
    run.add_event("run", 4, state="CANCELED", details="maximum runtime of 1 s exceeded")
    everything = [
        (0, "the run was accepted"),
        (0, "nodes 0-1 are starting"),
        (0, "a"),
        (0, "the run is being canceled: maximum runtime of 1 s exceeded"),
        (0, "b"),
        (0, "the run was canceled: maximum runtime of 1 s exceeded"),
    ]
    assert run.read() == everything
    assert run.read(streams=["service"]) == [line for line in everything if len(line[1]) > 1]
    for without in ({"streams": ["stdout"]}, {"ranks": [0]}, {"groups": ["workers"]}):
        assert run.read(**without) == [(0, "a"), (0, "b")]
    assert run.read(services=["scheduler"]) == []
    for lines in range(7):
        assert run.read(tail=lines) == everything[len(everything) - lines :]


def test_messages_belong_to_the_attempt_that_made_them(run: Run) -> None:
    expected = {}
    for number in range(3):
        if number:
            run.add_event("attempt", attempt=number)
        run.add_event("nodes", state="STARTING", ranks="0")
        attempt = run.new(number)
        attempt.write_lines(f"a{number}")
        attempt.end()
        starts = [(number, f"attempt {number} starts")] if number else []
        expected[number] = [*starts, (number, "node 0 is starting"), (number, f"a{number}")]
    assert run.read() == expected[2]
    assert run.read(attempt=1) == expected[1]
    assert run.read(attempt="all") == [line for lines in expected.values() for line in lines]
    assert run.read(attempt="all", tail=4) == [expected[1][-1], *expected[2]]
    shutil.rmtree(run.folder / "logs" / "0")  # too old to keep
    assert run.read(attempt="all")[0] == (0, "node 0 is starting")


def test_a_run_without_output_has_messages(run: Run) -> None:
    run.add_event("run", state="ACCEPTED")
    run.add_event("run", state="SUCCEEDED")
    assert run.read() == [(0, "the run was accepted"), (0, "the run succeeded")]


@pytest.mark.usefixtures("any_watcher")
def test_messages_are_followed(run: Run) -> None:
    run.add_event("run", state="ACCEPTED")
    run.start()
    follower, only = Reader(run), Reader(run, streams=["service"])
    for one in (follower, only):
        one.expect((0, "the run was accepted"))
    attempt = run.new(0)
    attempt.write_lines("a")
    follower.expect((0, "a"))
    run.add_event("attempt", attempt=1, why="restart 1")
    attempt.end()
    for one in (follower, only):
        one.expect((1, "attempt 1 starts: restart 1"))
    run.add_event("run", state="SUCCEEDED")
    run.end()
    for one in (follower, only):
        one.expect((1, "the run succeeded"))
        one.expect_end()


def test_the_last_message_of_one_attempt_is_not_missed(run: Run) -> None:
    """The message is recorded before the attempt's index ends, but may be read after it."""
    run.start()
    attempt = run.new(0)
    attempt.write_lines("a")
    follower = Reader(run, attempt=0)
    follower.expect((0, "a"))
    run.add_event("run", state="FAILED", details="node-0 failed")
    attempt.end()
    follower.expect((0, "the run failed: node-0 failed"))
    follower.expect_end()
