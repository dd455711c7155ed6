"""Output files that nodes of an array write one after another."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.storage import shared_output
from muster.storage.log_index import ENTRY, LogWriter, Owner, StreamInfo
from muster.storage.log_reader import LogCursor
from muster.storage.shared_output import present_file

STREAM = StreamInfo(0, "slot.out", 0, "workers", "id", 0, "stdout", shared=True)


class Slot:
    """A slot whose nodes write, as programs and the supervisor do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / STREAM.file
        present_file(self.file).touch()
        self.writer = LogWriter(folder, [STREAM])
        self.cursors: list[LogCursor] = []
        self.clock = 0

    def own(self, rank: int) -> None:
        self.clock += 1
        self.writer.set_owner(self.clock, [0], rank)

    def write(self, text: bytes) -> None:
        with present_file(self.file).open("ab") as file:
            file.write(text)

    def note(self) -> None:
        self.clock += 1
        self.writer.note_growth(self.clock, [0])

    def end(self) -> None:
        self.note()
        self.writer.collect(0)

    def run(self, rank: int, text: bytes) -> None:
        self.own(rank)
        self.write(text)
        self.end()

    def restart(self) -> None:
        """The supervisor is killed, and another one continues."""
        self.writer.close()
        self.writer = LogWriter(self.folder, [STREAM])

    def end_like(self, what: str, size: int) -> None:
        """The node ends: also on a full disk, or with its supervisor, which has begun to collect
        what the node wrote."""
        if what == "kill":
            self.move_some(size)
            self.restart()
        elif what == "full":
            with full_disk(size):
                self.end()
        else:
            self.end()

    def move_some(self, count: int) -> None:
        """What a supervisor has done that is killed while it collects the output."""
        descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT)
        start = self.writer._shared[0].start
        os.pwrite(descriptor, present_file(self.file).read_bytes()[:count], start)
        os.close(descriptor)

    def cursor(self, select: Callable[[StreamInfo], bool] | None = None) -> LogCursor:
        self.cursors.append(LogCursor(self.folder, select))
        return self.cursors[-1]

    def close(self) -> None:
        self.writer.close()
        for cursor in self.cursors:
            cursor.close()


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[Slot]:
    with contextlib.closing(Slot(tmp_path)) as made:
        yield made


@contextlib.contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file can be larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def everything(cursor: LogCursor) -> dict[int | None, bytes]:
    found: dict[int | None, bytes] = {}
    for part in (cursor.read, cursor.drain):
        for chunk in part():
            found[chunk.stream.rank] = found.get(chunk.stream.rank, b"") + chunk.data
    return found


def by_rank(cursor: LogCursor) -> list[tuple[int | None, bytes]]:
    return [(chunk.stream.rank, chunk.data) for chunk in cursor.read()]


@pytest.mark.parametrize(
    "owner", [Owner(0, 0), Owner(7, 12, True), Owner(1_000_000, (1 << 40) - 1)]
)
def test_an_owner_fits_into_an_entry(owner: Owner) -> None:
    entry = ENTRY.pack(1, *owner.entry(9))
    assert Owner.of_entry(*ENTRY.unpack(entry)[1:]) == (9, owner)


def test_an_offset_that_does_not_fit_is_refused() -> None:
    with pytest.raises(OSError, match="too large"):
        Owner(0, 1 << 40).entry(0)


def test_each_node_has_its_own_lines(slot: Slot) -> None:
    slot.run(3, b"a\nb\n")
    slot.run(17, b"c\n")
    assert by_rank(slot.cursor()) == [(3, b"a\nb\n"), (17, b"c\n")]


def test_silent_nodes_leave_nothing(slot: Slot) -> None:
    for rank in range(50):
        slot.run(rank, b"")
    slot.run(50, b"done\n")
    assert by_rank(slot.cursor()) == [(50, b"done\n")]
    assert (slot.folder / "index").stat().st_size == 52 * ENTRY.size
    assert slot.file.read_bytes() == b"done\n"


def test_a_line_without_an_end_stays_that_of_its_node(slot: Slot) -> None:
    slot.run(1, b"no newline")
    slot.run(2, b"next\n")
    assert by_rank(slot.cursor()) == [(1, b"no newline\n"), (2, b"next\n")]


def test_a_node_that_truncates_its_output_loses_only_its_own(slot: Slot) -> None:
    slot.run(1, b"first\n")
    slot.own(2)
    slot.write(b"progress\n")
    os.truncate(present_file(slot.file), 0)
    slot.write(b"second\n")
    slot.end()
    assert by_rank(slot.cursor()) == [(1, b"first\n"), (2, b"second\n")]


def test_what_was_noted_before_it_was_truncated_is_not_taken_from_the_next(slot: Slot) -> None:
    slot.own(1)
    slot.write(b"a long line\n")
    slot.note()
    os.truncate(present_file(slot.file), 0)
    slot.write(b"1\n")
    slot.end()
    slot.run(2, b"2\n")
    late = slot.cursor()
    assert by_rank(late) == [(1, b"1\n"), (2, b"2\n")]
    assert list(late.drain()) == []


def test_what_was_truncated_is_not_taken_from_the_node_that_runs(slot: Slot) -> None:
    slot.own(1)
    slot.write(b"a long line\n")
    slot.note()
    os.truncate(present_file(slot.file), 0)
    slot.write(b"1\n")
    slot.end()
    slot.own(2)
    slot.write(b"another long line\n")
    slot.note()
    assert everything(slot.cursor()) == {1: b"1\n", 2: b"another long line\n"}


def test_lines_are_followed_while_the_node_runs(slot: Slot) -> None:
    slot.run(1, b"one\n")
    cursor = slot.cursor()
    assert by_rank(cursor) == [(1, b"one\n")]
    slot.own(2)
    slot.write(b"two\n")
    slot.note()
    assert by_rank(cursor) == [(2, b"two\n")]
    slot.write(b"more\n")
    slot.end()
    assert by_rank(cursor) == [(2, b"more\n")]


def test_one_node_can_be_selected(slot: Slot) -> None:
    cursor = slot.cursor(lambda stream: stream.rank == 2)
    for rank in range(5):
        slot.run(rank, b"rank %d\nunfinished" % rank)
    assert by_rank(cursor) == [(2, b"rank 2\n"), (2, b"unfinished\n")]
    assert list(cursor.drain()) == []


def test_what_a_killed_supervisor_had_not_kept_is_kept_by_the_next(slot: Slot) -> None:
    slot.own(1)
    slot.write(b"one\n")
    slot.note()
    slot.restart()
    slot.run(2, b"two\n")
    assert by_rank(slot.cursor()) == [(1, b"one\n"), (2, b"two\n")]
    assert slot.file.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("count", [0, 2, 4])
@pytest.mark.parametrize("noted", [True, False])
def test_nothing_is_doubled_if_a_supervisor_is_killed_while_it_collects(
    slot: Slot, count: int, noted: bool
) -> None:
    slot.run(0, b"zero\n")
    slot.own(1)
    slot.write(b"one\n")
    if noted:
        slot.note()
    slot.move_some(count)
    assert everything(slot.cursor()) == {0: b"zero\n", 1: b"one\n"}
    slot.restart()
    slot.run(2, b"two\n")
    assert everything(slot.cursor()) == {0: b"zero\n", 1: b"one\n", 2: b"two\n"}
    assert slot.file.read_bytes() == b"zero\none\ntwo\n"


def test_the_same_words_of_two_nodes_are_not_taken_for_one(slot: Slot) -> None:
    """The output of the second node was not recorded when the supervisor was killed."""
    slot.run(1, b"done\n")
    slot.own(2)
    slot.write(b"done\n")
    slot.restart()
    slot.run(3, b"done\n")
    assert everything(slot.cursor()) == dict.fromkeys((1, 2, 3), b"done\n")


def test_an_entry_of_an_unknown_stream_is_ignored(slot: Slot) -> None:
    """A program has damaged the index."""
    slot.run(1, b"one\n")
    with (slot.folder / "index").open("ab") as index:
        index.write(ENTRY.pack(9, *Owner(3, 7).entry(12)))
        index.write(ENTRY.pack(9, 13, 5))
    slot.restart()
    slot.run(2, b"two\n")
    assert everything(slot.cursor()) == {1: b"one\n", 2: b"two\n"}


def test_output_of_which_nothing_is_in_the_index_is_kept(slot: Slot) -> None:
    """The disk was full when the node that wrote it was started."""
    slot.run(1, b"one\n")
    with full_disk((slot.folder / "index").stat().st_size):
        slot.own(2)
        slot.write(b"two\n")
    slot.restart()
    slot.run(3, b"three\n")
    assert slot.file.read_bytes() == b"one\ntwo\nthree\n"


def test_output_without_an_owner_is_that_of_the_first_node(slot: Slot) -> None:
    """Nothing could be recorded."""
    with full_disk(0):
        slot.own(0)
    slot.write(b"x\n")
    assert everything(slot.cursor(lambda stream: stream.rank == 5)) == {}
    assert everything(slot.cursor(lambda stream: stream.rank == 0)) == {0: b"x\n"}


@pytest.mark.parametrize("killed", [False, True])
def test_a_full_disk_loses_and_doubles_nothing(slot: Slot, killed: bool) -> None:
    slot.run(0, b"0" * 99 + b"\n")
    early = slot.cursor()
    slot.own(1)
    slot.write(b"1" * 549 + b"\n")
    for rank in (2, 3):  # they append to what could not be collected
        with full_disk(300):
            slot.end()
            slot.own(rank)
        slot.write(b"%d\n" % rank)
    slot.note()
    expected = {0: b"0" * 99 + b"\n", 1: b"1" * 549 + b"\n", 2: b"2\n", 3: b"3\n"}
    assert everything(slot.cursor()) == everything(early) == expected
    if killed:
        slot.restart()
    else:
        slot.end()
    slot.run(4, b"4\n")
    assert slot.file.stat().st_size == 100 + 550 + 3 * 2
    assert everything(slot.cursor()) == {**expected, 4: b"4\n"}


def test_a_folder_in_place_of_the_output_does_not_stop_the_run(slot: Slot) -> None:
    slot.file.mkdir()
    slot.run(1, b"one\n")
    slot.file.rmdir()
    slot.run(2, b"two\n")
    assert everything(slot.cursor()) == {1: b"one\n", 2: b"two\n"}


def test_a_link_in_place_of_the_present_file_is_not_followed(slot: Slot, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    slot.own(1)
    present_file(slot.file).unlink()
    present_file(slot.file).symlink_to(tmp_path / "mine")
    slot.end()
    assert (tmp_path / "mine").read_text() == "mine"


def test_output_that_was_not_indexed_is_read_at_the_end(slot: Slot) -> None:
    slot.run(1, b"one\n")
    slot.own(2)
    slot.write(b"two\n")
    slot.note()
    slot.write(b"late\n")
    cursor = slot.cursor()
    assert by_rank(cursor) == [(1, b"one\n"), (2, b"two\n")]
    assert [(chunk.stream.rank, chunk.data) for chunk in cursor.drain()] == [(2, b"late\n")]


@pytest.mark.parametrize("data", [b"late\n", b"a bar: 10%"])
def test_what_the_first_node_wrote_is_read_at_the_end(slot: Slot, data: bytes) -> None:
    """Nothing of the slot was collected yet."""
    slot.own(7)
    slot.write(data)
    line = data if data.endswith(b"\n") else data + b"\n"
    assert everything(slot.cursor()) == {7: line}
    assert everything(slot.cursor(lambda stream: stream.rank == 0)) == {}
    assert everything(slot.cursor(lambda stream: stream.rank == 7)) == {7: line}


def test_a_missing_file_is_not_collected(tmp_path: Path) -> None:
    assert shared_output.collect(tmp_path / "slot.out", 5, 5) == 5
    assert list(tmp_path.iterdir()) == []


STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from([b"x", b"line\n", b"a\nb", b"\n", b"y" * 300])),
    st.just(("note", None)),
    st.just(("next", None)),
    st.just(("truncate", None)),
    st.just(("read", None)),
    st.tuples(st.just("kill"), st.integers(0, 400)),
    st.tuples(st.just("full"), st.integers(0, 400)),
)


@given(st.lists(STEPS, max_size=40))
def test_every_reader_sees_each_nodes_lines(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]
) -> None:
    """However reading and writing alternate, and whenever a reader starts."""
    with contextlib.closing(Slot(tmp_path_factory.mktemp("slot"))) as slot:
        check_reading(slot, steps)


def check_reading(slot: Slot, steps: list[tuple[str, Any]]) -> None:
    written: dict[int, bytes] = {0: b""}
    slot.own(0)
    early = slot.cursor()
    seen: dict[int | None, bytes] = {}
    followed = False  # what is truncated after it was read was seen
    appends = False  # to what could not be collected

    def read() -> None:
        for rank, data in by_rank(early):
            seen[rank] = seen.get(rank, b"") + data

    for what, text in steps:
        rank = max(written)
        if what == "write":
            slot.write(text)
            written[rank] += text
        elif what == "note":
            slot.note()
        elif what == "truncate":
            if present_file(slot.file).stat().st_size and not followed and not appends:
                os.truncate(present_file(slot.file), 0)
                written[rank] = b""
        elif what == "read":
            followed = True
            read()
        else:
            slot.end_like(what, text)
            written[rank + 1] = b""
            slot.own(rank + 1)
            appends = present_file(slot.file).stat().st_size > 0
    slot.end()
    expected = {
        rank: text if text.endswith(b"\n") else text + b"\n"
        for rank, text in written.items()
        if text
    }
    read()
    for chunk in early.drain():
        seen[chunk.stream.rank] = seen.get(chunk.stream.rank, b"") + chunk.data
    assert seen == expected
    late, found = slot.cursor(), {}
    for rank, data in [*by_rank(late), *((c.stream.rank, c.data) for c in late.drain())]:
        found[rank] = found.get(rank, b"") + data
    assert found == expected
