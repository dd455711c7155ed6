"""Reading output back: complete lines, in order of time, from any state of the files."""

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
from muster.storage.log_index import ENTRY, LogWriter, StreamInfo
from muster.storage.log_reader import LogChunk, LogCursor


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
    """A log being written: `write` is done by programs, `index` by the supervisor."""

    def __init__(self, folder: Path, streams: int = 1) -> None:
        self.folder = folder
        self.streams = [stream(number) for number in range(streams)]
        for one in self.streams:
            (folder / one.file).touch()
        self.clock = 0
        self.writer = LogWriter(folder, self.streams)

    def write(self, number: int, data: bytes) -> None:
        with (self.folder / f"{number}.out").open("ab") as file:
            file.write(data)

    def truncate(self, number: int) -> None:
        os.truncate(self.folder / f"{number}.out", 0)

    def index(self, *numbers: int) -> None:
        self.clock += 1
        self.writer.note_growth(self.clock, numbers or range(len(self.streams)))

    def finish(self) -> None:
        self.clock += 1
        self.writer.finish(self.clock)
        self.writer.close()

    def crash(self, partial: int = 0) -> None:
        """Kill the supervisor, which leaves part of an entry."""
        self.writer.close()
        with (self.folder / "index").open("ab") as index:
            index.write(ENTRY.pack(self.clock + 1, 0, 1 << 40)[:partial])

    def restart(self) -> None:
        self.writer = LogWriter(self.folder, self.streams)

    def everything(self) -> list[tuple[int, bytes]]:
        """(stream, lines) as a new reader gets them that drains."""
        cursor = LogCursor(self.folder)
        got = [(c.stream.number, c.data) for c in [*cursor.read(), *cursor.drain()]]
        cursor.close()
        return got

    def last(self, lines: int) -> list[tuple[int, bytes]]:
        """The last lines only, one by one."""
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
        log.write(number, text)
        log.index(number)
    log.finish()
    assert log.everything() == [(0, b"a\n"), (1, b"b\n"), (0, b"c\n"), (1, b"d\n")]


def test_an_unterminated_line_is_not_read(log: Log) -> None:
    cursor = LogCursor(log.folder)
    log.write(0, b"one\ntw")
    log.index()
    assert data(cursor.read()) == b"one\n"
    log.write(1, b"other\n")
    log.index()
    assert data(cursor.read()) == b"other\n"
    log.write(0, b"o\n")
    assert data(cursor.read()) == b""  # not indexed yet
    log.index()
    assert data(cursor.read()) == b"two\n"
    cursor.close()


def test_the_last_line_needs_no_newline(log: Log) -> None:
    log.write(0, b"a\nb")
    log.index()
    log.finish()
    cursor = LogCursor(log.folder)
    assert data(cursor.read()) == b"a\n"
    assert cursor.finished
    assert data(cursor.drain()) == b"b\n"
    assert data(cursor.drain()) == b""
    cursor.close()


def test_the_index_marks_the_end_of_a_log(log: Log) -> None:
    cursor = LogCursor(log.folder)
    assert not list(cursor.read())
    assert not cursor.finished
    log.finish()
    assert not list(cursor.read())
    assert cursor.finished
    log.restart()  # the next writer continues, and so does the reader
    log.write(0, b"more\n")
    log.index()
    assert data(cursor.read()) == b"more\n"
    assert not cursor.finished
    cursor.close()


def test_only_selected_streams_are_read(log: Log) -> None:
    log.write(0, b"out\n")
    log.write(1, b"err\n")
    log.index()
    log.write(0, b"late out\n")
    log.write(1, b"late err\n")
    cursor = LogCursor(log.folder, lambda s: s.stream == "stderr")
    assert data([*cursor.read(), *cursor.drain()]) == b"err\nlate err\n"
    cursor.close()


def test_carriage_returns_do_not_end_a_line(log: Log) -> None:
    log.write(0, b"\r 10%\r100%")
    log.index()
    log.write(0, b" done\r\nnext\n")
    log.index()
    assert log.everything() == [(0, b"\r 10%\r100% done\r\nnext\n")]


def test_output_missing_in_the_index_is_read_last_by_the_age_of_the_files(tmp_path: Path) -> None:
    log = Log(tmp_path, streams=3)
    log.write(0, b"indexed\n")
    log.index()
    for number, age in [(2, 10**18), (0, 2 * 10**18), (1, 3 * 10**18)]:
        log.write(number, b"lost %d\nhalf" % number)
        os.utime(tmp_path / f"{number}.out", ns=(age, age))
    log.crash(partial=7)
    assert log.everything() == [
        (0, b"indexed\n"),
        (2, b"lost 2\n"),
        (2, b"half\n"),
        (0, b"lost 0\n"),
        (0, b"half\n"),
        (1, b"lost 1\n"),
        (1, b"half\n"),
    ]


def test_times_never_decrease_even_if_a_file_is_older_than_the_last_entry(log: Log) -> None:
    log.write(0, b"old\n")
    os.utime(log.folder / "0.out", ns=(5, 5))
    log.write(1, b"new\n")
    log.clock = 100
    log.index(1)
    cursor = LogCursor(log.folder)
    assert [c.time_ns for c in [*cursor.read(), *cursor.drain()]] == [101, 101]
    cursor.close()


def test_a_removed_file_does_not_hide_others(log: Log) -> None:
    log.write(0, b"removed\n")
    log.write(1, b"here\n")
    log.index()
    (log.folder / "0.out").unlink()
    log.index()
    log.finish()
    assert log.everything() == [(1, b"here\n")]


@pytest.mark.parametrize("again", [b"x\n", b"as wide\n", b"longer than it was before\n"])
def test_a_file_truncated_while_it_is_followed_is_read_from_its_start(
    log: Log, again: bytes
) -> None:
    cursor = LogCursor(log.folder)
    log.write(0, b"as long\npart")
    log.index()
    assert data(cursor.read()) == b"as long\n"
    log.truncate(0)
    log.index()
    log.write(0, again)
    log.index()
    assert data(cursor.read()) == again
    log.write(0, b"and on\n")
    log.index()
    assert data(cursor.read()) == b"and on\n"
    cursor.close()


@pytest.mark.parametrize("size", [0, 2, 6, 8, 11])
def test_a_file_truncated_before_it_is_indexed_is_read_once(log: Log, size: int) -> None:
    log.write(0, b"lost\nlost\n\n")
    log.index()
    reader = LogCursor(log.folder)
    log.truncate(0)
    log.write(0, b"new new new"[:size])
    kept = data(reader.read())
    log.index()
    log.write(0, b" end\n")
    log.index()
    kept += data(reader.read())
    assert kept == b"new new new"[:size] + b" end\n"
    reader.close()


def test_a_file_truncated_before_it_was_read_is_read_from_its_start(log: Log) -> None:
    reader = LogCursor(log.folder)
    log.write(0, b"one\n")
    log.index()
    assert data(reader.read()) == b"one\n"
    log.write(0, b"two\n")
    log.index()
    log.truncate(0)
    log.write(0, b"3\n")
    assert data(reader.read()) == b"3\n"  # not indexed yet
    log.index()
    log.write(0, b"4\n")
    log.index()
    assert data(reader.read()) == b"4\n"
    reader.close()


def test_a_file_truncated_and_grown_between_two_entries_is_read_from_its_start(log: Log) -> None:
    reader = LogCursor(log.folder)
    log.write(0, b"before the tee\n")
    log.index()
    assert data(reader.read()) == b"before the tee\n"
    log.truncate(0)
    log.write(0, b"through tee\nafter the tee\n")
    log.index()
    assert data(reader.read()) == b"through tee\nafter the tee\n"
    reader.close()


@pytest.mark.parametrize("again", [b"a\n", b"half a\n", b"half\n", b"much longer than half\n"])
def test_a_file_truncated_within_its_first_line_is_read_from_its_start(
    log: Log, again: bytes
) -> None:
    reader = LogCursor(log.folder)
    log.write(0, b"half a line")
    log.index()
    assert data(reader.read()) == b""
    log.truncate(0)
    log.write(0, again)
    log.index()
    assert data([*reader.read(), *reader.drain()]) == again
    reader.close()


truncating_steps = st.lists(
    st.sampled_from(["write", "write", "write", "index", "read", "truncate"]),
    min_size=8,
    max_size=60,
)


@given(truncating_steps)
def test_a_follower_reads_each_line_of_a_truncated_file_once(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder))
        reader = LogCursor(log.folder)
        got = b""
        for n, step in enumerate(steps):
            if step == "write":
                log.write(0, b"line %d%s\n" % (n, b"." * (n * 7 % 5)))
            elif step == "index":
                log.index()
            elif step == "read":
                got += data(reader.read())
            else:
                log.truncate(0)
        got += data([*reader.read(), *reader.drain()])
        reader.close()
        content = (log.folder / "0.out").read_bytes()
        assert got.endswith(content)
        lines = got.splitlines()
        assert len(set(lines)) == len(lines)
        written = {
            b"line %d%s" % (n, b"." * (n * 7 % 5)) for n, s in enumerate(steps) if s == "write"
        }
        assert set(lines) <= written


@given(
    st.lists(
        st.lists(st.binary(min_size=1, max_size=4).map(lambda b: b + b"\n"), max_size=3),
        min_size=1,
        max_size=5,
    )
)
def test_a_later_reader_gets_exactly_the_content_of_a_truncated_file(
    contents: list[list[bytes]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder))
        for lines in contents:
            log.truncate(0)
            log.index()
            for line in lines:
                log.write(0, line)
                log.index()
        log.finish()
        assert b"".join(text for _, text in log.everything()) == b"".join(contents[-1])


def test_a_line_longer_than_the_longest_is_cut(log: Log) -> None:
    longest = log_stream.MAX_LINE
    log.write(0, b"a\n" + b"b" * longest + b"\n" + b"c" * (2 * longest + 5) + b"\nd\n")
    log.index()
    got = by_line(LogCursor(log.folder).read())
    assert [(line[:1], len(line) - 1) for _, line in got] == [
        (b"a", 1),
        (b"b", longest),
        (b"c", longest),
        (b"c", longest),
        (b"c", 5),
        (b"d", 1),
    ]


def test_a_growing_line_is_not_read_again_each_time(log: Log) -> None:
    for _ in range(300):
        log.write(0, b"\r" + b"=" * 2999)
        log.index()
    log.write(0, b"\n")
    log.index()
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
        log.write(0, line * 10_000)
        log.write(1, line * 10_000)
    log.index()
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


def test_the_number_of_open_files_is_bounded(tmp_path: Path) -> None:
    log = Log(tmp_path, streams=300)
    for number in range(300):
        log.write(number, b"%d\n" % number)
    log.index()
    before = len(list(Path("/dev/fd").iterdir()))
    cursor = LogCursor(tmp_path)
    maximum = max(len(list(Path("/dev/fd").iterdir())) for _ in cursor.read())
    assert maximum - before <= 130
    cursor.close()
    assert len(list(Path("/dev/fd").iterdir())) <= before  # others may have closed some


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


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize(("written", "lines", "expected"), TAILS)
def test_tail_reads_the_last_lines_of_a_stream(
    log: Log, written: bytes, lines: int, expected: bytes, indexed: bool
) -> None:
    log.write(0, written)
    if indexed:
        log.index()
    assert b"".join(line for _, line in log.last(lines)) == expected


def test_tail_drops_no_line_that_is_written_later(tmp_path: Path) -> None:
    log = Log(tmp_path, streams=3)
    for number in range(3):
        log.write(number, b"old\nhalf")
    log.index()
    cursor = LogCursor(tmp_path)
    cursor.tail(1)  # of three unfinished lines, the two that end first are left out
    log.write(0, b" a\nnew\n")
    log.index()
    log.write(0, b"newer\n")
    log.index()
    log.write(1, b" b\n")
    log.index()
    log.write(2, b" c\n")
    log.index()
    assert by_line(cursor.read()) == [(0, b"new\n"), (0, b"newer\n"), (2, b"half c\n")]
    cursor.close()


def test_a_tail_of_no_lines_skips_the_unterminated_line(log: Log) -> None:
    log.write(0, b"old\nha")
    log.index()
    cursor = LogCursor(log.folder)
    cursor.tail(0)
    log.write(0, b"lf\nnew\n")
    log.index()
    assert data(cursor.read()) == b"new\n"
    cursor.close()


def test_tail_reads_only_the_end_of_a_large_log(log: Log) -> None:
    for _ in range(20):
        log.write(0, b"%099d\n" % 0 * 20_000)
        log.index()
    log.write(0, b"last\n")
    log.index()
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
        st.tuples(st.just("write"), st.integers(0, 2), pieces),
        st.tuples(st.just("index"), st.sets(st.integers(0, 2)), st.none()),
        st.tuples(st.just("read"), st.none(), st.none()),
        st.tuples(st.just("crash"), st.integers(0, ENTRY.size - 1), st.none()),
    ),
    max_size=40,
)


def terminated(text: bytes) -> bytes:
    return text if not text or text.endswith(b"\n") else text + b"\n"


def apply_steps(
    log: Log, steps: list[tuple[str, object, object]], cursor: LogCursor
) -> list[LogChunk]:
    """Apply the steps; what a follower reads meanwhile."""
    got: list[LogChunk] = []
    for action, first, second in steps:
        match action, first, second:
            case "write", int(number), bytes(text):
                log.write(number, text)
            case "index", set(numbers), None:
                log.index(*sorted(numbers)) if numbers else None
            case "read", None, None:
                got += cursor.read()
            case "crash", int(partial), None:
                log.crash(partial)
                log.restart()
            case _:
                raise AssertionError(action)
    return got


# small limits, so that a few bytes cross every boundary
small = mock.patch.multiple(log_stream, CHUNK=8, _CARRY=3, _MAX_OPEN=2)


@given(actions, st.booleans())
def test_every_reader_gets_exactly_what_was_written(
    steps: list[tuple[str, object, object]], finished: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder, small:
        log = Log(Path(folder), streams=3)
        cursor = LogCursor(log.folder)
        got = apply_steps(log, steps, cursor)
        if finished:
            log.index()
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
                assert data(c for c in chunks if c.stream.number == number) == terminated(written)


@given(actions, st.booleans(), st.integers(0, 12))
def test_tail_is_the_end_of_everything(
    steps: list[tuple[str, object, object]], finished: bool, lines: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, small:
        log = Log(Path(folder), streams=3)
        cursor = LogCursor(log.folder)
        apply_steps(log, steps, cursor)
        cursor.close()
        if finished:
            log.index()
            log.finish()
        everything = [
            (number, line) for number, text in log.everything() for line in text.split(b"\n")[:-1]
        ]
        tail = LogCursor(log.folder)
        tail.tail(lines)
        got = [
            (chunk.stream.number, line)
            for chunk in [*tail.read(), *tail.drain()]
            for line in chunk.data.split(b"\n")[:-1]
        ]
        tail.close()
        assert got == everything[len(everything) - min(lines, len(everything)) :]


# --- real processes ----------------------------------------------------------------------------

PROGRAM = """
import os, random, sys
number = int(sys.argv[1])
rng = random.Random(number)
file = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
text = b"".join(b"%d %d %s\\n" % (number, n, b"x" * rng.randrange(200)) for n in range(4000))
while text:  # in pieces that end anywhere
    text = text[os.write(file, text[: rng.randrange(1, 3000)]):]
"""


def test_output_of_concurrent_programs_is_read_completely(tmp_path: Path) -> None:
    log = Log(tmp_path, streams=4)
    cursor = LogCursor(tmp_path)
    programs = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(n), str(tmp_path / f"{n}.out")])
        for n in range(4)
    ]
    got: list[LogChunk] = []
    while any(program.poll() is None for program in programs):
        log.index()
        got += cursor.read()
    log.index()
    log.finish()
    got += cursor.read()
    assert cursor.finished
    assert [program.returncode for program in programs] == [0] * 4
    for number in range(4):
        rng = random.Random(number)
        expected = b"".join(
            b"%d %d %s\n" % (number, n, b"x" * rng.randrange(200)) for n in range(4000)
        )
        assert data(c for c in got if c.stream.number == number) == expected
    cursor.close()
