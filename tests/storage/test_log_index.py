"""The index of a log: its entries, writers that are killed, and full disks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import asdict

from muster.storage.log_index import END, ENTRY, LogWriter, StreamInfo
from muster.storage.log_reader import LogCursor


def stream(number: int) -> StreamInfo:
    return StreamInfo(
        number=number,
        file=f"workers-{number}.out",
        rank=number,
        group="workers",
        node_id=f"id-{number}",
        local_rank=0,
        stream="stdout",
    )


def append(folder: Path, number: int, data: bytes) -> None:
    with (folder / stream(number).file).open("ab") as file:
        file.write(data)


def entries(folder: Path) -> list[tuple[int, int, int]]:
    return list(ENTRY.iter_unpack((folder / "index").read_bytes()))


def test_streams_are_listed_for_readers(tmp_path: Path) -> None:
    streams = [stream(0), stream(1)]
    LogWriter(tmp_path, streams).close()
    assert json.loads((tmp_path / "streams.json").read_text()) == [asdict(s) for s in streams]


def test_only_growth_is_recorded(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, [stream(0), stream(1), stream(2)])
    append(tmp_path, 0, b"ab\n")
    append(tmp_path, 1, b"")
    writer.note_growth(10, [0, 0, 1, 2])  # the file of stream 2 does not exist
    writer.note_growth(11, [0, 1])
    append(tmp_path, 0, b"c")
    writer.note_growth(12, [0])
    writer.finish(13)
    writer.close()
    assert entries(tmp_path) == [(10, 0, 3), (12, 0, 4), (13, END, 0)]


def test_times_never_decrease_even_if_the_clock_is_set_back(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, [stream(0)])
    append(tmp_path, 0, b"a\n")
    writer.note_growth(1000, [0])
    append(tmp_path, 0, b"b\n")
    writer.note_growth(500, [0])
    writer.close()
    writer = LogWriter(tmp_path, [stream(0)])  # neither do those of the next writer
    append(tmp_path, 0, b"c\n")
    writer.note_growth(600, [0])
    writer.finish(700)
    writer.close()
    assert [time for time, _, _ in entries(tmp_path)] == [1000, 1000, 1000, 1000]


@pytest.mark.parametrize("partial", range(ENTRY.size))
def test_the_next_writer_continues_after_a_partial_entry(tmp_path: Path, partial: int) -> None:
    writer = LogWriter(tmp_path, [stream(0)])
    append(tmp_path, 0, b"a\n")
    writer.note_growth(1, [0])
    writer.close()
    with (tmp_path / "index").open("ab") as index:
        index.write(ENTRY.pack(2, 0, 999)[:partial])
    reader = LogCursor(tmp_path)
    assert [chunk.data for chunk in reader.read()] == [b"a\n"]
    append(tmp_path, 0, b"b\n")
    successor = LogWriter(tmp_path, [stream(0)])
    successor.note_growth(3, [0])
    successor.finish(4)
    successor.close()
    assert entries(tmp_path) == [(1, 0, 2), (3, 0, 4), (4, END, 0)]
    assert [chunk.data for chunk in reader.read()] == [b"b\n"]
    reader.close()


def test_entries_of_other_streams_are_kept(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(ENTRY.pack(1, 7, 10) + ENTRY.pack(2, END, 0))
    writer = LogWriter(tmp_path, [stream(0)])
    append(tmp_path, 0, b"a\n")
    writer.note_growth(3, [0])
    writer.close()
    reader = LogCursor(tmp_path)
    assert [chunk.data for chunk in reader.read()] == [b"a\n"]
    assert not reader.finished  # the first writer had finished; the second continues
    reader.close()


# Runs in a separate process: a limit of the file size simulates a full disk (one write is partial,
# later ones fail), and an ordinary user's process cannot raise the limit again.
FULL_DISK = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from muster.storage.log_index import ENTRY, LogWriter
from tests_streams import streams
folder = Path(sys.argv[1])
writer = LogWriter(folder, streams)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for s in streams:
    (folder / s.file).write_bytes(b"first\\n")
writer.note_growth(1, [0])
resource.setrlimit(resource.RLIMIT_FSIZE, (ENTRY.size + 30, hard))  # one and a half entries
writer.note_growth(2, range(4))
print((folder / "index").stat().st_size)
resource.setrlimit(resource.RLIMIT_FSIZE, (ENTRY.size, hard))  # no further byte
writer.note_growth(3, range(4))
writer.finish(3)
print((folder / "index").stat().st_size)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
writer.note_growth(4, range(4))
writer.finish(5)
"""


def test_a_full_disk_leaves_no_partial_entry_and_growth_is_recorded_later(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (tmp_path / "tests_streams.py").write_text(
        "from muster.storage.log_index import StreamInfo\n"
        f"streams = [StreamInfo(**s) for s in {[asdict(stream(n)) for n in range(4)]!r}]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(folder), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(ENTRY.size)] * 2
    assert entries(folder) == [
        (1, 0, 6),
        *((4, number, 6) for number in (1, 2, 3)),
        (5, END, 0),
    ]


def test_other_errors_of_the_index_are_raised(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, [stream(0)])
    append(tmp_path, 0, b"a\n")
    writer.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        writer.note_growth(1, [0])


# Writes numbered lines to every stream and records them as fast as it can, until it is killed. The
# kernel may end a write between two pages: 64 lines of 16 bytes never cross such a boundary.
BUSY_WRITER = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests_streams import streams
from muster.storage.log_index import LogWriter
folder = Path(sys.argv[1])
files = [os.open(folder / s.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for s in streams]
writer = LogWriter(folder, streams)
line = [os.fstat(f).st_size // 16 for f in files]
while True:
    for number, file in enumerate(files):
        data = b"".join(b"%015d\\n" % n for n in range(line[number], line[number] + 64))
        os.write(file, data)
        line[number] += 64
    writer.note_growth(time.time_ns(), range(len(files)))
    os.write(1, b".")
"""


def test_a_killed_writer_loses_nothing_and_the_next_continues(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    streams = [stream(n) for n in range(4)]
    (tmp_path / "tests_streams.py").write_text(
        "from muster.storage.log_index import StreamInfo\n"
        f"streams = [StreamInfo(**s) for s in {[asdict(s) for s in streams]!r}]\n"
    )
    got: dict[int, bytes] = {s.number: b"" for s in streams}
    cursor: LogCursor | None = None
    last = 0
    for rounds in (1, 3, 40, 7):
        with subprocess.Popen(
            [sys.executable, "-c", BUSY_WRITER, str(folder), str(tmp_path)],
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout
            assert process.stdout.read(rounds) == b"." * rounds
            process.send_signal(signal.SIGKILL)
        cursor = cursor or LogCursor(folder)
        for chunk in cursor.read():
            assert chunk.time_ns >= last
            last = chunk.time_ns
            assert chunk.data.endswith(b"\n")
            got[chunk.stream.number] += chunk.data
    assert cursor
    for chunk in cursor.drain():
        assert chunk.time_ns >= last
        last = chunk.time_ns
        got[chunk.stream.number] += chunk.data
    cursor.close()
    for s in streams:
        written = (folder / s.file).read_bytes()
        assert got[s.number] == written
        assert written == b"".join(b"%015d\n" % n for n in range(len(written) // 16))
        assert written
