"""Reading output back: whole lines, complete, in order of time, from whatever is on disk."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.storage import log_stream
from muster.storage.log_reader import LogChunk, LogCursor, LogRecord, prefixed, records
from muster.storage.logs import ENTRY, LogWriter, StreamInfo


def stream(number: int) -> StreamInfo:
    return StreamInfo(
        number=number,
        file=f"{number}.out",
        rank=number // 2,
        group="workers",
        node_id=f"id-{number // 2}",
        local_rank=0,
        stream="stdout" if number % 2 == 0 else "stderr",
    )


class Log:
    """A log being written: put() what programs write, note() what the supervisor does."""

    def __init__(self, folder: Path, streams: int = 1) -> None:
        self.folder = folder
        self.streams = [stream(number) for number in range(streams)]
        for one in self.streams:
            (folder / one.file).touch()
        self.clock = 0
        self.writer = LogWriter(folder, self.streams)

    def put(self, number: int, data: bytes) -> None:
        with (self.folder / f"{number}.out").open("ab") as file:
            file.write(data)

    def empty(self, number: int) -> None:
        os.truncate(self.folder / f"{number}.out", 0)

    def note(self, *numbers: int) -> None:
        self.clock += 1
        self.writer.note_growth(self.clock, numbers or range(len(self.streams)))

    def finish(self) -> None:
        self.clock += 1
        self.writer.finish(self.clock)
        self.writer.close()

    def die(self, torn: int = 0) -> None:
        """The supervisor is killed; what is left is half an entry."""
        self.writer.close()
        with (self.folder / "index").open("ab") as index:
            index.write(ENTRY.pack(self.clock + 1, 0, 1 << 40)[:torn])

    def revive(self) -> None:
        self.writer = LogWriter(self.folder, self.streams)

    def everything(self) -> list[tuple[int, bytes]]:
        """(stream, lines) as a reader gets them who comes now and drains."""
        cursor = LogCursor(self.folder)
        got = [(c.stream.number, c.data) for c in [*cursor.read(), *cursor.drain()]]
        cursor.close()
        return got

    def last(self, lines: int) -> list[tuple[int, bytes]]:
        """The same, of the last lines only; one by one."""
        cursor = LogCursor(self.folder)
        cursor.tail(lines)
        got = by_line([*cursor.read(), *cursor.drain()])
        cursor.close()
        return got


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path, streams=2)


def data(chunks: Iterable[LogChunk]) -> bytes:
    return b"".join(chunk.data for chunk in chunks)


def by_line(chunks: Iterable[LogChunk]) -> list[tuple[int, bytes]]:
    return [(c.stream.number, line) for c in chunks for line in c.data.splitlines(keepends=True)]


def test_streams_are_merged_in_the_order_of_the_index(log: Log) -> None:
    for number, text in [(0, b"a\n"), (1, b"b\n"), (0, b"c\n"), (1, b"d\n")]:
        log.put(number, text)
        log.note(number)
    log.finish()
    assert log.everything() == [(0, b"a\n"), (1, b"b\n"), (0, b"c\n"), (1, b"d\n")]


def test_half_a_line_waits_for_its_end(log: Log) -> None:
    cursor = LogCursor(log.folder)
    log.put(0, b"one\ntw")
    log.note()
    assert data(cursor.read()) == b"one\n"
    log.put(1, b"other\n")
    log.note()
    assert data(cursor.read()) == b"other\n"
    log.put(0, b"o\n")
    assert data(cursor.read()) == b""  # not noted yet
    log.note()
    assert data(cursor.read()) == b"two\n"
    cursor.close()


def test_the_last_line_needs_no_newline(log: Log) -> None:
    log.put(0, b"a\nb")
    log.note()
    log.finish()
    cursor = LogCursor(log.folder)
    assert data(cursor.read()) == b"a\n"
    assert cursor.finished
    assert data(cursor.drain()) == b"b\n"
    assert data(cursor.drain()) == b""
    cursor.close()


def test_finished_is_said_by_the_index(log: Log) -> None:
    cursor = LogCursor(log.folder)
    assert not list(cursor.read())
    assert not cursor.finished
    log.finish()
    assert not list(cursor.read())
    assert cursor.finished
    log.revive()  # a successor goes on, and so does the reader
    log.put(0, b"more\n")
    log.note()
    assert data(cursor.read()) == b"more\n"
    assert not cursor.finished
    cursor.close()


def test_only_selected_streams_are_read(log: Log) -> None:
    log.put(0, b"out\n")
    log.put(1, b"err\n")
    log.note()
    log.put(0, b"late out\n")
    log.put(1, b"late err\n")
    cursor = LogCursor(log.folder, lambda s: s.stream == "stderr")
    assert data([*cursor.read(), *cursor.drain()]) == b"err\nlate err\n"
    cursor.close()


def test_progress_bars_stay_in_their_line(log: Log) -> None:
    log.put(0, b"\r 10%\r100%")
    log.note()
    log.put(0, b" done\r\nnext\n")
    log.note()
    assert log.everything() == [(0, b"\r 10%\r100% done\r\nnext\n")]


def test_what_was_never_noted_comes_at_the_end_by_the_age_of_the_files(tmp_path: Path) -> None:
    log = Log(tmp_path, streams=3)
    log.put(0, b"noted\n")
    log.note()
    for number, age in [(2, 10**18), (0, 2 * 10**18), (1, 3 * 10**18)]:
        log.put(number, b"lost %d\nhalf" % number)
        os.utime(tmp_path / f"{number}.out", ns=(age, age))
    log.die(torn=7)
    assert log.everything() == [
        (0, b"noted\n"),
        (2, b"lost 2\n"),
        (2, b"half\n"),
        (0, b"lost 0\n"),
        (0, b"half\n"),
        (1, b"lost 1\n"),
        (1, b"half\n"),
    ]


def test_times_never_decrease_though_a_file_is_older_than_the_last_note(log: Log) -> None:
    log.put(0, b"old\n")
    os.utime(log.folder / "0.out", ns=(5, 5))
    log.put(1, b"new\n")
    log.clock = 100
    log.note(1)
    cursor = LogCursor(log.folder)
    assert [c.time_ns for c in [*cursor.read(), *cursor.drain()]] == [101, 101]
    cursor.close()


def test_a_removed_file_hides_nothing_of_the_others(log: Log) -> None:
    log.put(0, b"gone\n")
    log.put(1, b"here\n")
    log.note()
    (log.folder / "0.out").unlink()
    log.note()
    log.finish()
    assert log.everything() == [(1, b"here\n")]


@pytest.mark.parametrize("again", [b"x\n", b"as wide\n", b"longer than it was before\n"])
def test_emptied_by_its_program_read_as_it_goes(log: Log, again: bytes) -> None:
    cursor = LogCursor(log.folder)
    log.put(0, b"as long\npart")
    log.note()
    assert data(cursor.read()) == b"as long\n"
    log.empty(0)
    log.note()
    log.put(0, again)
    log.note()
    assert data(cursor.read()) == again
    log.put(0, b"and on\n")
    log.note()
    assert data(cursor.read()) == b"and on\n"
    cursor.close()


@pytest.mark.parametrize("size", [0, 2, 6, 8, 11])
def test_emptied_before_it_was_noted_gives_what_is_there_once(log: Log, size: int) -> None:
    log.put(0, b"lost\nlost\n\n")
    log.note()
    reader = LogCursor(log.folder)
    log.empty(0)
    log.put(0, b"new new new"[:size])
    kept = data(reader.read())
    log.note()
    log.put(0, b" end\n")
    log.note()
    kept += data(reader.read())
    assert kept == b"new new new"[:size] + b" end\n"
    reader.close()


def test_emptied_under_a_reader_that_was_behind(log: Log) -> None:
    reader = LogCursor(log.folder)
    log.put(0, b"one\n")
    log.note()
    assert data(reader.read()) == b"one\n"
    log.put(0, b"two\n")
    log.note()
    log.empty(0)
    log.put(0, b"3\n")
    assert data(reader.read()) == b"3\n"  # nothing has told of it yet
    log.note()
    log.put(0, b"4\n")
    log.note()
    assert data(reader.read()) == b"4\n"
    reader.close()


def test_emptied_and_written_further_than_before_between_two_notes(log: Log) -> None:
    reader = LogCursor(log.folder)
    log.put(0, b"before the tee\n")
    log.note()
    assert data(reader.read()) == b"before the tee\n"
    log.empty(0)
    log.put(0, b"through tee\nafter the tee\n")
    log.note()
    assert data(reader.read()) == b"through tee\nafter the tee\n"
    reader.close()


@pytest.mark.parametrize("again", [b"a\n", b"half a\n", b"half\n", b"much longer than half\n"])
def test_emptied_in_the_middle_of_the_first_line(log: Log, again: bytes) -> None:
    reader = LogCursor(log.folder)
    log.put(0, b"half a line")
    log.note()
    assert data(reader.read()) == b""
    log.empty(0)
    log.put(0, again)
    log.note()
    assert data([*reader.read(), *reader.drain()]) == again
    reader.close()


emptying = st.lists(
    st.sampled_from(["put", "put", "put", "note", "read", "empty"]), min_size=8, max_size=60
)


@given(emptying)
def test_a_follower_of_a_file_that_is_emptied_gets_whole_lines_each_once(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder))
        reader = LogCursor(log.folder)
        got = b""
        for n, step in enumerate(steps):
            if step == "put":
                log.put(0, b"line %d%s\n" % (n, b"." * (n * 7 % 5)))
            elif step == "note":
                log.note()
            elif step == "read":
                got += data(reader.read())
            else:
                log.empty(0)
        got += data([*reader.read(), *reader.drain()])
        reader.close()
        there = (log.folder / "0.out").read_bytes()
        assert got.endswith(there)
        lines = got.splitlines()
        assert len(set(lines)) == len(lines)
        written = {
            b"line %d%s" % (n, b"." * (n * 7 % 5)) for n, s in enumerate(steps) if s == "put"
        }
        assert set(lines) <= written


@given(
    st.lists(
        st.lists(st.binary(min_size=1, max_size=4).map(lambda b: b + b"\n"), max_size=3),
        min_size=1,
        max_size=5,
    )
)
def test_who_comes_later_gets_what_an_emptied_file_holds_exactly(
    lives: list[list[bytes]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder))
        for life in lives:
            log.empty(0)
            log.note()
            for line in life:
                log.put(0, line)
                log.note()
        log.finish()
        assert b"".join(text for _, text in log.everything()) == b"".join(lives[-1])


def test_a_line_longer_than_the_longest_is_cut(log: Log) -> None:
    longest = log_stream.LONGEST
    log.put(0, b"a\n" + b"b" * longest + b"\n" + b"c" * (2 * longest + 5) + b"\nd\n")
    log.note()
    got = by_line(LogCursor(log.folder).read())
    assert [(line[:1], len(line) - 1) for _, line in got] == [
        (b"a", 1),
        (b"b", longest),
        (b"c", longest),
        (b"c", longest),
        (b"c", 5),
        (b"d", 1),
    ]


def test_a_line_that_grows_for_long_is_not_read_over_and_over(log: Log) -> None:
    for _ in range(300):
        log.put(0, b"\r" + b"=" * 2999)
        log.note()
    log.put(0, b"\n")
    log.note()
    read = 0
    original = log_stream.OpenFiles.read

    def counting(self: log_stream.OpenFiles, path: Path, offset: int, length: int) -> bytes:
        nonlocal read
        found = original(self, path, offset, length)
        read += len(found)
        return found

    with mock.patch.object(log_stream.OpenFiles, "read", counting):
        assert len(data(LogCursor(log.folder).read())) == 900_001
    assert read < 4 * 900_000


def test_chunks_are_bounded_and_so_is_memory(log: Log) -> None:
    line = b"x" * 99 + b"\n"
    for _ in range(16):
        log.put(0, line * 10_000)
        log.put(1, line * 10_000)
    log.note()
    log.finish()
    tracemalloc.start()
    cursor = LogCursor(log.folder)
    largest = total = 0
    for chunk in cursor.read():
        largest = max(largest, len(chunk.data))
        total += len(chunk.data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    cursor.close()
    assert total == 32_000_000
    assert largest <= log_stream.CHUNK
    assert peak < 4 * log_stream.CHUNK


def test_few_files_are_open_however_many_streams(tmp_path: Path) -> None:
    log = Log(tmp_path, streams=300)
    for number in range(300):
        log.put(number, b"%d\n" % number)
    log.note()
    before = len(list(Path("/dev/fd").iterdir()))
    cursor = LogCursor(tmp_path)
    most = max(len(list(Path("/dev/fd").iterdir())) for _ in cursor.read())
    assert most - before <= 130
    cursor.close()
    assert len(list(Path("/dev/fd").iterdir())) == before


@pytest.mark.shows("distributed-jobs/capability-logging")
def test_records_carry_whose_line_it_is() -> None:
    chunk = LogChunk(1_500_000_000, stream(3), b"a\r b\n\n\xff\xfeok\n")
    made = list(records(chunk, attempt=2))
    assert [record.message for record in made] == ["a\r b", "", "\ufffd\ufffdok"]
    assert made[0] == LogRecord(
        time=1.5,
        rank=1,
        group="workers",
        node_id="id-1",
        attempt=2,
        stream="stderr",
        message="a\r b",
        local_rank=0,
    )
    assert chunk.data.endswith(b"\xff\xfeok\n")  # the bytes stay as they were written


@given(st.lists(st.binary(max_size=6).filter(lambda b: b"\n" not in b), min_size=1))
def test_prefixed_puts_the_prefix_before_every_line(lines: list[bytes]) -> None:
    chunk = LogChunk(0, stream(0), b"".join(line + b"\n" for line in lines))
    assert prefixed(chunk, b"w/0 | ") == b"".join(b"w/0 | " + line + b"\n" for line in lines)


TAILS = [
    (b"", 1, b""),
    (b"a\nb\nc\n", 0, b""),
    (b"a\nb\nc\n", 1, b"c\n"),
    (b"a\nb\nc\n", 2, b"b\nc\n"),
    (b"a\nb\nc\n", 3, b"a\nb\nc\n"),
    (b"a\nb\nc\n", 9, b"a\nb\nc\n"),
    (b"a\nb\nc", 0, b""),
    (b"a\nb\nc", 1, b"c\n"),
    (b"a\nb\nc", 2, b"b\nc\n"),
    (b"\n\n\n", 2, b"\n\n"),
    (b"only", 1, b"only\n"),
]


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize(("written", "lines", "expected"), TAILS)
def test_tail_of_one_stream(
    log: Log, written: bytes, lines: int, expected: bytes, noted: bool
) -> None:
    log.put(0, written)
    if noted:
        log.note()
    assert b"".join(line for _, line in log.last(lines)) == expected


def test_tail_drops_no_line_that_is_written_later(tmp_path: Path) -> None:
    log = Log(tmp_path, streams=3)
    for number in range(3):
        log.put(number, b"old\nhalf")
    log.note()
    cursor = LogCursor(tmp_path)
    cursor.tail(1)  # of three unfinished lines, the two that end first are left out
    log.put(0, b" a\nnew\n")
    log.note()
    log.put(0, b"newer\n")
    log.note()
    log.put(1, b" b\n")
    log.note()
    log.put(2, b" c\n")
    log.note()
    assert by_line(cursor.read()) == [(0, b"new\n"), (0, b"newer\n"), (2, b"half c\n")]
    cursor.close()


def test_tail_of_nothing_shows_no_half_line(log: Log) -> None:
    log.put(0, b"old\nha")
    log.note()
    cursor = LogCursor(log.folder)
    cursor.tail(0)
    log.put(0, b"lf\nnew\n")
    log.note()
    assert data(cursor.read()) == b"new\n"
    cursor.close()


def test_tail_reads_little_of_a_large_log(log: Log) -> None:
    for _ in range(20):
        log.put(0, b"%099d\n" % 0 * 20_000)
        log.note()
    log.put(0, b"last\n")
    log.note()
    sizes = []
    original = log_stream.OpenFiles.read

    def counting(self: log_stream.OpenFiles, path: Path, offset: int, length: int) -> bytes:
        found = original(self, path, offset, length)
        sizes.append(len(found))
        return found

    with mock.patch.object(log_stream.OpenFiles, "read", counting):
        assert log.last(1) == [(0, b"last\n")]
    assert sum(sizes) < 2 * log_stream.CHUNK


# --- against a model ---------------------------------------------------------------------------

pieces = st.lists(
    st.sampled_from([b"\n", b"a", b"bc", b"\r", b"\xff", b"0123456789" * 3]), max_size=6
).map(b"".join)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), pieces),
        st.tuples(st.just("note"), st.sets(st.integers(0, 2)), st.none()),
        st.tuples(st.just("read"), st.none(), st.none()),
        st.tuples(st.just("die"), st.integers(0, ENTRY.size - 1), st.none()),
    ),
    max_size=40,
)


def ended(text: bytes) -> bytes:
    return text if not text or text.endswith(b"\n") else text + b"\n"


def play(log: Log, steps: list[tuple[str, object, object]], cursor: LogCursor) -> list[LogChunk]:
    """What a reader gets who follows."""
    got: list[LogChunk] = []
    for action, first, second in steps:
        match action, first, second:
            case "put", int(number), bytes(text):
                log.put(number, text)
            case "note", set(numbers), None:
                log.note(*sorted(numbers)) if numbers else None
            case "read", None, None:
                got += cursor.read()
            case "die", int(torn), None:
                log.die(torn)
                log.revive()
            case _:
                raise AssertionError(action)
    return got


# small limits, so that a few bytes meet every boundary
small = mock.patch.multiple(log_stream, CHUNK=8, _CARRY=3, _OPEN=2)


@given(actions, st.booleans())
def test_every_reader_gets_exactly_what_was_written(
    steps: list[tuple[str, object, object]], finished: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder, small:
        log = Log(Path(folder), streams=3)
        cursor = LogCursor(log.folder)
        got = play(log, steps, cursor)
        if finished:
            log.note()
            log.finish()
        got += [*cursor.read(), *cursor.drain()]
        cursor.close()
        late = LogCursor(log.folder)
        again = [*late.read(), *late.drain()]
        late.close()
        for chunks in (got, again):
            assert all(chunk.data.endswith(b"\n") for chunk in chunks)
            times = [chunk.time_ns for chunk in chunks]
            assert times == sorted(times)
            for number in range(3):
                written = (log.folder / f"{number}.out").read_bytes()
                assert data(c for c in chunks if c.stream.number == number) == ended(written)


@given(actions, st.booleans(), st.integers(0, 12))
def test_tail_is_the_end_of_everything(
    steps: list[tuple[str, object, object]], finished: bool, lines: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, small:
        log = Log(Path(folder), streams=3)
        cursor = LogCursor(log.folder)
        play(log, steps, cursor)
        cursor.close()
        if finished:
            log.note()
            log.finish()
        whole = [
            (number, line) for number, text in log.everything() for line in text.split(b"\n")[:-1]
        ]
        kept = LogCursor(log.folder)
        kept.tail(lines)
        got = [
            (chunk.stream.number, line)
            for chunk in [*kept.read(), *kept.drain()]
            for line in chunk.data.split(b"\n")[:-1]
        ]
        kept.close()
        assert got == whole[len(whole) - min(lines, len(whole)) :]


# --- real processes ----------------------------------------------------------------------------

PROGRAM = """
import os, random, sys
number = int(sys.argv[1])
chance = random.Random(number)
file = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
text = b"".join(b"%d %d %s\\n" % (number, n, b"x" * chance.randrange(200)) for n in range(4000))
while text:  # in pieces that end anywhere
    text = text[os.write(file, text[: chance.randrange(1, 3000)]):]
"""


def test_programs_that_write_at_once_are_read_while_they_do(tmp_path: Path) -> None:
    log = Log(tmp_path, streams=4)
    cursor = LogCursor(tmp_path)
    programs = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(n), str(tmp_path / f"{n}.out")])
        for n in range(4)
    ]
    got: list[LogChunk] = []
    while any(program.poll() is None for program in programs):
        log.note()
        got += cursor.read()
    log.note()
    log.finish()
    got += cursor.read()
    assert cursor.finished
    assert [program.returncode for program in programs] == [0] * 4
    for number in range(4):
        chance = random.Random(number)
        expected = b"".join(
            b"%d %d %s\n" % (number, n, b"x" * chance.randrange(200)) for n in range(4000)
        )
        assert data(c for c in got if c.stream.number == number) == expected
    cursor.close()
