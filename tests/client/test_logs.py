"""Output over several attempts: folders made by hand, a supervisor that is but a held FIFO."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from muster.client import logs
from muster.client.logs import Selection, check_attempt, chunks
from muster.client.messages import RunChunk
from muster.control.answering import Answering
from muster.control.watch import begin_life
from muster.errors import InvalidInput, NotFound
from muster.storage.home import Home
from muster.storage.log_reader import records
from muster.storage.logs import LogWriter, StreamInfo
from muster.storage.notify import Watcher
from muster.store.records import EventRecord


class Attempt:
    """The output of one attempt of two nodes, being written."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        streams = [StreamInfo(n, f"{n}.out", n, "workers", f"r-{n}", 0, "stdout") for n in range(2)]
        self.clock = 0
        self._writer = LogWriter(folder, streams)

    def put(self, text: str, rank: int = 0) -> None:
        with (self.folder / f"{rank}.out").open("a") as file:
            file.write(text)

    def note(self) -> None:
        self.clock += 1
        self._writer.note_growth(self.clock, range(2))

    def say(self, *lines: str, rank: int = 0) -> None:
        self.put("".join(f"{line}\n" for line in lines), rank)
        self.note()

    def end(self) -> None:
        self.note()
        self._writer.finish(self.clock)
        self._writer.close()

    def die(self) -> None:
        self._writer.close()


class Run:
    """A run and its service, as far as who reads its output needs them."""

    id, name, attempt = "r1", "demo-1", 0

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.folder = self.home.run_dir(self.id).path
        self.folder.mkdir(parents=True)
        self._life: int | None = None
        self.entries: list[EventRecord] = []
        self.successor: Callable[[], None] = lambda: None

    def begin(self) -> None:
        self._life = begin_life(self.home.run_dir(self.id).life)

    def end(self) -> None:
        # closed last: whoever waits for that may have begun another before we are back
        life, self._life = self._life, None
        if life is not None:
            os.close(life)

    def new(self, number: int) -> Attempt:
        return Attempt(self.folder / "logs" / str(number))

    def wait(self, run_id: str, timeout: float | None) -> None:
        """As the service's: has somebody take the run up, and gives up if somebody does."""
        assert (run_id, timeout) == (self.id, 0)
        self.successor()
        if self._life is not None:
            raise TimeoutError

    def answering(self, run_id: str) -> Answering:
        """As the service's. There is no bell, and nothing to say."""
        return Answering(self.home.run_dir(run_id), self.name)

    def warn(self, answering: Answering) -> None:
        assert answering.look() == ""

    def events(self, run_id: str, after: int) -> list[EventRecord]:
        """As the service's."""
        assert run_id == self.id
        return self.entries[after:]

    def tell(self, kind: str, at: int = 0, **data: Any) -> None:
        """An entry of the event log, at the time of an attempt's clock (ns)."""
        seq = len(self.entries) + 1
        self.entries.append(EventRecord(self.id, seq, at / 1e9, kind, data))
        with self.home.run_dir(self.id).pulse.open("a") as pulse:
            pulse.write(".")

    @property
    def space_mark(self) -> Path:
        """As the service's, which is never touched."""
        return self.home.root / "reserve" / "mark"

    def chunks(self, *, follow: bool = False, **selection: Any) -> Iterator[RunChunk]:
        this: Any = self
        return chunks(this, this, Selection(**selection), follow=follow)

    def read(self, **selection: Any) -> list[tuple[int, str]]:
        return list(lines_of(self.chunks(**selection)))


def lines_of(found: Iterator[RunChunk]) -> Iterator[tuple[int, str]]:
    for chunk in found:
        for record in records(chunk, chunk.attempt):
            yield record.attempt, record.message


class Follower:
    """Somebody who follows the run, in a thread."""

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
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    run.end()


@pytest.fixture(params=["told", "looking"])
def any_watcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "looking":
        monkeypatch.setattr(logs, "Watcher", Watcher.polling)


# --- what there is


def test_which_attempt(run: Run) -> None:
    for number in (0, 1, 2, 10):
        attempt = run.new(number)
        attempt.say(f"a{number}", f"b{number}")
        attempt.end()
    everything = [(n, f"{letter}{n}") for n in (0, 1, 2, 10) for letter in "ab"]
    assert run.read() == everything[-2:]
    assert run.read(attempt=1) == [(1, "a1"), (1, "b1")]
    assert run.read(attempt="all") == everything
    assert run.read(attempt="all", ranks=[1]) == []


@pytest.mark.parametrize("lines", range(8))
@pytest.mark.parametrize("follow", [False, True])
def test_the_last_lines_of_all_attempts_together(run: Run, lines: int, follow: bool) -> None:
    said: list[tuple[int, str]] = []
    for number in range(3):
        attempt = run.new(number)
        attempt.say(f"{number} first", rank=1)
        attempt.say(f"{number} second")
        attempt.put(f"{number} half")
        attempt.end()
        said += [(number, f"{number} {which}") for which in ("first", "second", "half")]
    got = list(lines_of(run.chunks(follow=follow, attempt="all", tail=lines)))
    assert got == said[len(said) - lines :]
    assert run.read(tail=1) == said[-1:]


def test_nothing_yet(run: Run) -> None:
    assert run.read() == run.read(attempt="all") == run.read(attempt=0) == []
    (run.folder / "logs" / "0").mkdir(parents=True)
    assert run.read() == [], "it is being made"


def test_the_newest_with_output_is_shown_while_the_next_waits(run: Run) -> None:
    run.new(0).say("a")
    run.attempt = 1
    assert run.read() == [(0, "a")]
    assert run.read(attempt=1) == []


def test_an_attempt_that_is_not_there_is_told_at_once(run: Run) -> None:
    for number in (2, 3):
        run.new(number).say("a")
    run.attempt = 4
    with pytest.raises(InvalidInput) as told:
        run.chunks(attempt=1)
    text = "attempt: there is no output of attempt 1 of demo-1 (there are: 2, 3, 4)"
    assert str(told.value) == text
    this: Any = run
    check_attempt(run.home, this, 4)
    with pytest.raises(InvalidInput):
        check_attempt(run.home, this, 5)


def test_what_is_no_attempt_is_left_alone(run: Run) -> None:
    run.new(0).say("a")
    for name in ("core", "x-1", "²"):
        (run.folder / "logs" / name).mkdir()
    (run.folder / "logs" / "7").touch()
    assert run.read(attempt="all") == [(0, "a")]


def test_logs_in_a_folder_elsewhere(run: Run, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (run.folder / "logs").symlink_to(tmp_path / "elsewhere")
    run.new(0).say("a")
    assert run.read() == [(0, "a")]


# --- what comes


@pytest.mark.usefixtures("any_watcher")
def test_following_goes_on_with_the_next_attempt(run: Run) -> None:
    run.begin()
    follower = Follower(run)
    for number in range(4):
        attempt = run.new(number)
        attempt.say("one")
        follower.expect((number, "one"))
        attempt.say("two")
        attempt.put("half")
        attempt.end()
        follower.expect((number, "two"), (number, "half"))
    run.end()
    follower.expect_end()


def test_following_begins_with_the_newest(run: Run) -> None:
    run.begin()
    for number in range(3):
        attempt = run.new(number)
        attempt.say(f"a{number}")
    newest, every = Follower(run), Follower(run, attempt="all")
    newest.expect((2, "a2"))
    every.expect((0, "a0"), (1, "a1"), (2, "a2"))
    run.new(3).say("a3")
    newest.expect((3, "a3"))
    every.expect((3, "a3"))
    run.end()
    newest.expect_end()
    every.expect_end()


@pytest.mark.usefixtures("any_watcher")
def test_the_last_nodes_of_one_attempt_may_write_when_the_next_has_begun(run: Run) -> None:
    run.begin()
    old = run.new(0)
    old.say("a")
    follower = Follower(run)
    follower.expect((0, "a"))
    new = run.new(1)
    new.say("b")
    follower.expect((1, "b"))
    old.say("saving", rank=1)
    follower.expect((0, "saving"))
    old.put("saved")
    old.end()
    follower.expect((0, "saved"))
    new.say("c")
    follower.expect((1, "c"))
    run.end()
    follower.expect_end()


def test_following_one_attempt_ends_with_it(run: Run) -> None:
    run.begin()
    run.attempt = 1
    old = run.new(0)
    old.say("a")
    one, next_one = Follower(run, attempt=0), Follower(run, attempt=1)
    one.expect((0, "a"))
    new = run.new(1)
    new.say("b")
    next_one.expect((1, "b"))
    old.end()
    one.expect_end()
    run.new(2).say("c")
    new.end()
    next_one.expect_end()


def test_a_suspended_run_ends_the_following(run: Run) -> None:
    """And whoever follows it when it goes on is shown the next attempt."""
    run.begin()
    attempt = run.new(0)
    attempt.say("a")
    follower = Follower(run)
    follower.expect((0, "a"))
    attempt.end()
    run.end()
    follower.expect_end()
    run.begin()
    run.new(1).say("b")
    follower = Follower(run)
    follower.expect((1, "b"))
    run.end()
    follower.expect_end()


def test_a_run_that_was_never_started(run: Run) -> None:
    follower = Follower(run)
    follower.expect_end()


@pytest.mark.usefixtures("any_watcher")
def test_a_run_without_output(run: Run) -> None:
    run.begin()
    follower = Follower(run)
    run.end()
    follower.expect_end()


def test_what_nobody_noted_is_shown_at_the_end(run: Run) -> None:
    run.begin()
    attempt = run.new(0)
    attempt.say("a")
    follower = Follower(run)
    follower.expect((0, "a"))
    attempt.put("b\nhalf")
    run.end()
    follower.expect((0, "b"), (0, "half"))
    follower.expect_end()


def test_a_supervisor_that_was_killed_may_have_a_successor(run: Run) -> None:
    run.begin()
    attempt = run.new(0)
    attempt.say("a")
    follower = Follower(run)
    follower.expect((0, "a"))
    attempt.put("b\nhalf")
    attempt.die()
    taken_up = threading.Event()

    def successor() -> None:
        run.begin()
        taken_up.set()

    run.successor = successor
    run.end()
    follower.expect((0, "b"), (0, "half"))
    assert taken_up.wait(30)  # what was written is told before that
    run.successor = lambda: None
    run.new(1).say("c")
    follower.expect((1, "c"))
    run.end()
    follower.expect_end()


def test_a_run_that_is_deleted(run: Run) -> None:
    run.begin()
    run.new(0).say("a")
    follower = Follower(run)
    follower.expect((0, "a"))

    def deleted() -> None:
        shutil.rmtree(run.folder)
        raise NotFound("there is no run r1")

    run.successor = deleted
    run.end()
    follower.expect_end()


@pytest.mark.usefixtures("any_watcher")
def test_attempts_may_be_removed_while_they_are_followed(run: Run) -> None:
    run.begin()
    run.new(0).say("a")
    follower = Follower(run)
    follower.expect((0, "a"))
    shutil.rmtree(run.folder / "logs" / "0")
    run.new(1).say("b")
    follower.expect((1, "b"))
    shutil.rmtree(run.folder / "logs" / "1")
    run.new(2).say("c")
    follower.expect((2, "c"))
    run.end()
    follower.expect_end()


def test_letting_go_of_it_halfway(run: Run) -> None:
    run.begin()
    run.new(0).say("a")
    before = len(os.listdir("/proc/self/fd"))
    with closing(run.chunks(follow=True)) as found:  # type: ignore[type-var]
        assert next(found).data == b"a\n"
    assert len(os.listdir("/proc/self/fd")) == before, "nothing is left open"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("any_watcher")
def test_every_line_once_and_in_order(run: Run, seed: int) -> None:
    """Attempts that come and go in a hurry, the last lines of each at any time."""
    dice = random.Random(seed)
    run.begin()
    followers = [Follower(run, attempt="all") for _ in range(3)]
    said: dict[tuple[int, int], list[str]] = {}
    going: list[Attempt] = []

    def say(attempt: Attempt) -> None:
        rank = dice.randrange(2)
        mine = said.setdefault((int(attempt.folder.name), rank), [])
        for _ in range(dice.randrange(5)):
            mine.append(f"{rank}:{len(mine)}")
            attempt.put(mine[-1] + "\n", rank)
        if dice.random() < 0.8:
            attempt.note()

    for number in range(30):
        going.append(run.new(number))
        for _ in range(dice.randrange(20)):
            say(dice.choice(going))
        while going and dice.random() < 0.6:
            going.pop(0).end()
    run.end()
    for follower in followers:
        got: dict[tuple[int, int], list[str]] = {}
        while (line := follower.next()) is not None:
            got.setdefault((line[0], int(line[1][0])), []).append(line[1])
        assert got == {key: lines for key, lines in said.items() if lines}


# --- what the service says


def test_messages_stand_where_they_belong_by_their_time(run: Run) -> None:
    run.tell("run", 0, state="ACCEPTED")
    run.tell("nodes", 0, state="STARTING", ranks="0-1")
    attempt = run.new(0)
    attempt.say("a")  # at 1
    run.tell("run", 2, state="CANCELING", details="maximum runtime of 1 s exceeded")
    attempt.clock = 2
    attempt.say("b")  # at 3
    attempt.end()
    run.tell("run", 4, state="CANCELED", details="maximum runtime of 1 s exceeded")
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


def test_messages_are_of_the_attempt_they_were_made_in(run: Run) -> None:
    said = {}
    for number in range(3):
        if number:
            run.tell("attempt", attempt=number)
        run.tell("nodes", state="STARTING", ranks="0")
        attempt = run.new(number)
        attempt.say(f"a{number}")
        attempt.end()
        begins = [(number, f"attempt {number} begins")] if number else []
        said[number] = [*begins, (number, "node 0 is starting"), (number, f"a{number}")]
    assert run.read() == said[2]
    assert run.read(attempt=1) == said[1]
    assert run.read(attempt="all") == [line for lines in said.values() for line in lines]
    assert run.read(attempt="all", tail=4) == [said[1][-1], *said[2]]
    shutil.rmtree(run.folder / "logs" / "0")  # too old to keep
    assert run.read(attempt="all")[0] == (0, "node 0 is starting")


def test_a_run_without_output_has_messages_still(run: Run) -> None:
    run.tell("run", state="ACCEPTED")
    run.tell("run", state="SUCCEEDED")
    assert run.read() == [(0, "the run was accepted"), (0, "the run succeeded")]


@pytest.mark.usefixtures("any_watcher")
def test_messages_are_followed(run: Run) -> None:
    run.tell("run", state="ACCEPTED")
    run.begin()
    follower, only = Follower(run), Follower(run, streams=["service"])
    for one in (follower, only):
        one.expect((0, "the run was accepted"))
    attempt = run.new(0)
    attempt.say("a")
    follower.expect((0, "a"))
    run.tell("attempt", attempt=1, why="restart 1")
    attempt.end()
    for one in (follower, only):
        one.expect((1, "attempt 1 begins: restart 1"))
    run.tell("run", state="SUCCEEDED")
    run.end()
    for one in (follower, only):
        one.expect((1, "the run succeeded"))
        one.expect_end()


def test_the_last_message_of_one_attempt_is_not_missed(run: Run) -> None:
    """It is recorded before the attempt's index ends, and may be read after."""
    run.begin()
    attempt = run.new(0)
    attempt.say("a")
    follower = Follower(run, attempt=0)
    follower.expect((0, "a"))
    run.tell("run", state="FAILED", details="node-0 failed")
    attempt.end()
    follower.expect((0, "the run failed: node-0 failed"))
    follower.expect_end()
