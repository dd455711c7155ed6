"""Copying of what programs write to the standard streams of their server, with real files and
pipes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.node.launch_message import LaunchMessage, OutputFiles
from muster.node.log_copy import LogCopy
from muster.node.messages import encode_launch
from support.node_servers import launch


class Pipe:
    """A pipe, and what was read of it."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.content = b""

    @property
    def lines(self) -> list[str]:
        return self.content.decode().splitlines()

    def of(self, rank: int) -> list[str]:
        """The lines of a rank, without its label."""
        label = f"[rank {rank}] "
        return [line.removeprefix(label) for line in self.lines if line.startswith(label)]

    def read(self) -> int:
        """Read what is there. Returns how much."""
        before = len(self.content)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.reading, 1 << 16):
                self.content += data
        return len(self.content) - before

    def close_reading(self) -> None:
        if self.reading >= 0:
            os.close(self.reading)
        self.reading = -1  # the number may be another's soon

    def close_writing(self) -> None:
        if self.writing >= 0:
            os.close(self.writing)
        self.writing = -1

    def close(self) -> None:
        self.close_reading()
        self.close_writing()


class Node:
    """Files of programs, which are copied to pipes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out, self.err = Pipe(), Pipe()
        self._copies: list[LogCopy] = []
        self.copy = self.start()

    def start(self) -> LogCopy:
        """A server starts, which may take over from another one."""
        self.copy = LogCopy(str(self.folder / "record"), self.out.writing, self.err.writing)
        self._copies.append(self.copy)
        return self.copy

    def launch(
        self, attempt: int = 0, processes: int = 1, ranks: int = 0, *, of_array: bool = False
    ) -> LaunchMessage:
        """An incarnation, whose files are made."""
        logs = self.folder / str(attempt)
        logs.mkdir(exist_ok=True)
        message = launch(self.folder, attempt, "true", copies=processes).launch
        files = [
            OutputFiles(f"{logs}/{number}.out", f"{logs}/{number}.err")
            for number in range(processes + ranks)
        ]
        for path in (path for pair in files for path in pair):
            with open(path, "ab"):
                pass
        started = [
            one._replace(stdout=pair.stdout, stderr=pair.stderr)
            for one, pair in zip(message.processes, files, strict=False)
        ]
        return message._replace(processes=started, ranks=files[processes:], of_array=of_array)

    def follow(self, attempt: int = 0, processes: int = 1, ranks: int = 0) -> None:
        self.copy.follow(self.launch(attempt, processes, ranks), {})

    def write(self, text: str | bytes, name: str = "0.out", attempt: int = 0) -> None:
        """What a program does."""
        data = text.encode() if isinstance(text, str) else text
        with (self.folder / str(attempt) / name).open("ab") as file:
            file.write(data)

    def settle(self) -> None:
        """Copy and read until nothing more comes."""
        while True:
            self.step()
            read = self.out.read() + self.err.read()
            if not read and not is_busy(self.copy) and self.copy.timeout() is None:
                ready = select.select(list(self.copy.interest()), [], [], 0)[0]
                if not ready:
                    return

    def step(self) -> None:
        """Wait as a server does, at most until the next look at the files; then copy."""
        poll = select.poll()
        for descriptor, events in self.copy.interest().items():
            poll.register(descriptor, events)
        left = self.copy.timeout()
        poll.poll(0 if left is None else left * 1000)
        self.copy.step()

    def close(self) -> None:
        self.copy.finish(0)
        self.out.close()
        self.err.close()


def is_busy(copy: LogCopy) -> bool:
    return select.POLLOUT in copy.interest().values()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.close()


# --- lines


def test_lines_are_copied_as_they_are_written(node: Node) -> None:
    node.follow()
    node.write("one\ntw")
    node.settle()
    assert node.out.content == b"one\n"
    node.write("o\n")
    node.settle()
    assert node.out.content == b"one\ntwo\n"


def test_a_last_line_without_an_end_gets_one(node: Node) -> None:
    node.follow()
    node.write("one\ntwo")
    node.settle()
    node.copy.ended()
    node.settle()
    assert node.out.content == b"one\ntwo\n"


def test_standard_error_goes_to_standard_error(node: Node) -> None:
    node.follow()
    node.write("result\n")
    node.write("warning\n", "0.err")
    node.settle()
    assert (node.out.content, node.err.content) == (b"result\n", b"warning\n")


def test_one_process_has_no_label(node: Node) -> None:
    node.follow()
    node.write("plain\n\n \n")
    node.settle()
    assert node.out.content == b"plain\n\n \n"


@pytest.mark.parametrize("size", [10, 700, 5000, 60_000])
def test_lines_of_several_ranks_stay_whole(node: Node, size: int) -> None:
    """Also those that are longer than what a pipe takes at once."""
    node.follow(processes=3)
    lines = {rank: [f"{n} " + f"{rank}" * size for n in range(40)] for rank in range(3)}
    for rank, own in lines.items():
        node.write("\n".join(own) + "\n", f"{rank}.out")
    node.settle()
    assert len(node.out.lines) == 120
    for rank, own in lines.items():
        assert node.out.of(rank) == own


def test_what_others_write_is_between_lines(node: Node) -> None:
    """Such as messages of the server: each write ends with a line."""
    node.follow()
    fcntl.fcntl(node.out.writing, fcntl.F_SETPIPE_SZ, 2 * select.PIPE_BUF)
    node.write(("x" * 700 + "\n") * 1000)
    node.copy.step()
    node.out.read()
    assert node.out.content.endswith(b"x\n")


def test_ranks_take_turns(node: Node) -> None:
    node.follow(processes=2)
    for rank in range(2):
        node.write("x\n" * 200_000, f"{rank}.out")
    while len(node.out.content) < 1_000_000:
        node.copy.step()
        node.out.read()
    shares = [len(node.out.of(rank)) / len(node.out.lines) for rank in range(2)]
    assert min(shares) > 0.3


def test_ranks_of_a_launcher_have_labels_and_the_launcher_has_none(node: Node) -> None:
    node.follow(ranks=2)
    for number, text in enumerate(("launcher", "first", "second")):
        node.write(f"{text}\n", f"{number}.out")
    node.settle()
    assert sorted(node.out.lines) == ["[rank 0] first", "[rank 1] second", "launcher"]


def test_ranks_are_those_of_the_run(node: Node) -> None:
    message = node.launch(processes=2)._replace(env={"NODE_RANK": "3"})
    node.copy.follow(message, {})
    node.write("hello\n", "1.out")
    node.settle()
    assert node.out.lines == ["[rank 7] hello"]


def test_a_line_without_end_is_cut(node: Node) -> None:
    node.follow(processes=2)
    node.write("x" * 200_000, "0.out")
    node.write("short\n", "1.out")
    node.settle()
    assert "[rank 1] short" in node.out.lines
    node.copy.ended()
    node.settle()
    assert "".join(node.out.of(0)) == "x" * 200_000


@pytest.mark.parametrize("path", ["", os.devnull])
def test_output_that_is_not_kept_is_not_copied(node: Node, path: str) -> None:
    message = node.launch()
    processes = [one._replace(stdout=path, stderr=path) for one in message.processes]
    node.copy.follow(message._replace(processes=processes), {})
    assert node.copy.interest() == {}


# --- readers


def test_a_reader_that_is_slow_gets_everything(node: Node) -> None:
    node.follow()
    text = "".join(f"line {number}\n" for number in range(200_000))
    node.write(text)
    for _ in range(20):  # nobody reads
        node.copy.step()
    assert is_busy(node.copy)
    node.settle()
    assert node.out.content.decode() == text


def test_what_others_write_meanwhile_does_not_block_it(node: Node) -> None:
    """Also if it is written after the pipe was found to have room."""
    node.follow()
    node.write("x\n")
    sink = node.copy._sinks[0]
    assert sink._poll.poll(0), "there is room"
    os.set_blocking(node.out.writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(node.out.writing, b"." * 4096)
    os.set_blocking(node.out.writing, True)
    with pytest.raises(BlockingIOError):
        os.write(sink.descriptor, b"x\n")
    node.settle()
    assert node.out.content.endswith(b".x\n")


def test_a_reader_that_is_gone_is_not_written_to(node: Node) -> None:
    node.follow()
    node.out.close_reading()
    node.write("nobody reads this\n")
    node.write("somebody reads this\n", "0.err")
    while is_busy(node.copy):
        node.copy.step()
        node.err.read()
    node.err.read()
    assert node.err.content == b"somebody reads this\n"
    node.write("nor this\n")
    node.copy.step()
    assert not is_busy(node.copy)


def test_a_reader_that_has_stopped_costs_no_looks_at_files(node: Node) -> None:
    node.follow()
    for name in ("0.out", "0.err"):
        node.write("x" * 100 + "\n", name)
    node.settle()
    for name in ("0.out", "0.err"):
        node.write(("x" * 100 + "\n") * 2000, name)
    while node.copy.interest().keys() != {one.descriptor for one in node.copy._sinks}:
        node.step()
    for _ in range(50):
        node.copy.step()
    assert node.copy.timeout() is None
    poll = select.poll()
    for descriptor, events in node.copy.interest().items():
        poll.register(descriptor, events)
    node.write("more\n")
    assert poll.poll(0) == []
    node.settle()
    assert node.out.content.endswith(b"more\n")


def test_the_end_does_not_wait_for_a_reader_that_has_stopped(node: Node) -> None:
    node.follow()
    node.write("x\n" * 100_000)
    node.copy.finish(0.05)
    node.out.read()
    assert 0 < len(node.out.content) < 200_000
    assert node.out.content.endswith(b"\n")
    assert node.copy.interest() == {}


def test_the_end_waits_for_a_reader(node: Node) -> None:
    node.follow()
    text = b"x\n" * 500_000
    node.write(text)
    os.set_blocking(node.out.reading, True)
    found: list[bytes] = []

    def read() -> None:
        while sum(map(len, found)) < len(text):
            found.append(os.read(node.out.reading, 5000))

    reader = threading.Thread(target=read)
    reader.start()
    node.copy.finish(60)
    reader.join(60)
    assert b"".join(found) == text


def test_a_stream_that_cannot_be_opened_again(tmp_path: Path) -> None:
    """As that of another user: a socket cannot be opened by a path at all."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        copy = LogCopy(str(tmp_path / "record"), ours.fileno(), ours.fileno())
        (tmp_path / "logs").mkdir()
        message = launch(tmp_path, 0, "true").launch
        text = b"line\n" * 100_000
        Path(message.processes[0].stdout).write_bytes(text)
        copy.follow(message, {})
        for _ in range(50):  # nobody reads
            copy.step()
        theirs.setblocking(False)
        found = b""
        while len(found) < len(text):
            copy.step()
            with contextlib.suppress(BlockingIOError):
                found += theirs.recv(1 << 20)
        assert found == text
        copy.finish(0)


def test_a_file_is_appended_to(tmp_path: Path) -> None:
    target = tmp_path / "console"
    with target.open("ab") as file:
        file.write(b"of the server\n")
        file.flush()
        copy = LogCopy(str(tmp_path / "record"), file.fileno(), file.fileno())
        (tmp_path / "logs").mkdir()
        message = launch(tmp_path, 0, "true").launch
        Path(message.processes[0].stdout).write_bytes(b"of the program\n")
        copy.follow(message, {})
        copy.finish(10)
        file.write(b"of the server again\n")
    assert target.read_text() == "of the server\nof the program\nof the server again\n"


def test_a_server_without_standard_streams(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    copy = LogCopy(str(tmp_path / "record"), reading, writing)
    (tmp_path / "logs").mkdir()
    message = launch(tmp_path, 0, "true").launch
    Path(message.processes[0].stdout).write_bytes(b"x\n")
    copy.follow(message, {})
    copy.step()
    assert copy.interest() == {}
    copy.finish(0)


# --- attempts


def test_a_restart_continues_with_the_files_of_the_next_attempt(node: Node) -> None:
    node.follow(0)
    node.write("first\nlast words")
    node.copy.ended()
    node.follow(1)
    node.write("second\n", attempt=1)
    node.settle()
    assert node.out.lines == ["first", "last words", "second"]


def test_the_rest_of_an_attempt_comes_before_the_next_one(node: Node) -> None:
    node.follow(0)
    text = [f"first {number}" for number in range(50_000)]
    node.write("\n".join(text))
    node.copy.step()
    node.copy.ended()
    node.follow(1)
    node.write("second\n", attempt=1)
    node.settle()
    assert node.out.lines == [*text, "second"]


def test_attempts_that_nobody_reads_are_left_out(node: Node) -> None:
    """Their files would be open for as long as the reader has stopped."""
    before = len(os.listdir("/proc/self/fd"))
    for attempt in range(40):
        node.follow(attempt)
        node.write(f"begin {attempt}\n" + "x\n" * 100_000, attempt=attempt)
        node.copy.step()
        node.copy.ended()
    assert len(os.listdir("/proc/self/fd")) <= before + 8
    node.settle()
    begun = [line for line in node.out.lines if line.startswith("begin")]
    assert begun == ["begin 0", "begin 38", "begin 39"]
    left_out = [number for number, line in enumerate(node.out.lines) if "is not here" in line]
    assert len(left_out) == 1
    assert left_out[0] < node.out.lines.index("begin 38")


def test_a_node_that_is_restarted_alone_appends_to_its_files(node: Node) -> None:
    node.follow()
    node.write("one\n")
    node.settle()
    node.copy.ended()
    node.follow()
    node.write("two\n")
    node.settle()
    assert node.out.lines == ["one", "two"]


def test_it_does_so_while_its_lines_are_being_written(node: Node) -> None:
    node.follow()
    text = [f"line {number}" for number in range(50_000)]
    node.write("\n".join(text) + "\n")
    node.copy.step()
    node.copy.ended()
    node.follow()
    node.write("again\n")
    node.settle()
    assert node.out.lines == [*text, "again"]


def test_files_of_an_array_are_emptied_for_the_next_node(node: Node) -> None:
    node.copy.follow(node.launch(of_array=True), {})
    node.write("of the first\n")
    node.settle()
    node.copy.ended()
    os.truncate(node.folder / "0" / "0.out", 0)
    node.write("of the next one, which has written more\n")
    node.copy.follow(node.launch(of_array=True), {})
    node.settle()
    assert node.out.lines == ["of the first", "of the next one, which has written more"]


def test_what_was_written_on_another_host_is_not_copied(node: Node) -> None:
    """The file begins with a hole."""
    message = node.launch()
    os.truncate(node.folder / "0" / "0.out", 1000)
    node.write("here\n")
    node.copy.follow(message, {message.processes[0].stdout: 1000})
    node.settle()
    assert node.out.content == b"here\n"


def test_a_program_truncates_its_output(node: Node) -> None:
    node.follow()
    node.write("a long line\n")
    node.settle()
    os.truncate(node.folder / "0" / "0.out", 0)
    node.write("new\n")
    node.settle()
    node.write("more\n")
    node.settle()
    assert node.out.lines == ["a long line", "new", "more"]


def test_a_program_removes_its_output(node: Node) -> None:
    message = node.launch()
    os.unlink(message.processes[0].stdout)
    node.copy.follow(message, {})
    node.write("error\n", "0.err")
    node.settle()
    assert (node.out.content, node.err.content) == (b"", b"error\n")


# --- servers that are killed


def test_another_server_continues_where_one_was_killed(node: Node) -> None:
    node.follow(processes=2)
    node.write("one\ntwo\nthr", "0.out")
    node.write("error\n", "1.err")
    node.settle()
    node.write("ee\nfour", "0.out")
    node.start()  # nothing of the one before is asked
    node.settle()
    assert node.out.lines == [f"[rank 0] {text}" for text in ("one", "two", "three", "four")]
    assert node.err.lines == ["[rank 1] error"]
    node.start()
    node.settle()
    assert len(node.out.lines) == 4


def test_another_server_copies_what_starts_next(node: Node) -> None:
    node.follow()
    node.write("one\n")
    node.settle()
    node.start()
    node.follow()
    node.write("two\n")
    node.follow(1)
    node.write("three\n", attempt=1)
    node.settle()
    assert node.out.lines == ["one", "two", "three"]


#: Copies to its standard output until it is killed; without a launch, until all is copied.
COPY = """
import json, sys
from muster.node.log_copy import LogCopy
from muster.node.messages import encode_launch
from muster.node.messages import decode_launch
copy = LogCopy(sys.argv[1])
if len(sys.argv) > 2:
    copy.follow(decode_launch(json.loads(sys.argv[2])), {})
    while True:
        copy.step()
copy.finish(60)
"""


@pytest.mark.parametrize("after", [0, 3_000, 70_000, 400_000])
def test_nothing_is_written_twice_after_a_kill(node: Node, after: int) -> None:
    """Of what a server was writing as it was killed, one piece may be missing."""
    count, record = 40_000, str(node.folder / "killed")
    message = encode_launch(node.launch(processes=2))
    for rank in range(2):
        node.write("".join(f"{number} of {count}\n" for number in range(count)), f"{rank}.out")
    os.set_blocking(node.out.reading, True)

    def start(*words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", COPY, *words], stdout=node.out.writing)

    first = start(record, json.dumps(message))
    while len(node.out.content) <= after:
        node.out.content += os.read(node.out.reading, 4096)
    first.kill()
    first.wait()
    second = start(record)
    node.out.close_writing()
    node.copy.finish(0)
    while data := os.read(node.out.reading, 1 << 16):
        node.out.content += data
    assert second.wait(60) == 0
    missing = 0
    for rank in range(2):
        whole = [line for line in node.out.of(rank) if line.endswith(f" of {count}")]
        numbers = [int(line.split()[0]) for line in whole]
        assert numbers == sorted(set(numbers)), "nothing comes twice"
        missing += count - len(numbers)
    # at its ends, the piece may have parts of lines
    assert missing <= select.PIPE_BUF // len(f"[rank 0] 0 of {count}\n") + 2


def test_a_record_that_cannot_be_written(tmp_path: Path) -> None:
    """Without one, a server that takes over copies nothing again."""
    node = Node(tmp_path)
    node.follow()
    node.write("one\n")
    node.settle()
    os.mkdir(f"{tmp_path}/record.part")  # it cannot be replaced
    node.copy.ended()
    node.follow(1)
    node.write("two\n", attempt=1)
    node.settle()
    assert node.out.lines == ["one", "two"]
    assert not (tmp_path / "record").exists()
    node.start()
    node.settle()
    assert node.out.lines == ["one", "two"]
    node.close()


def test_a_record_that_a_program_has_written(node: Node) -> None:
    (node.folder / "record").write_text('x\n5 [7, "", "/x"]\n5 {}\n')
    node.start()
    node.follow()
    node.write("one\n")
    node.settle()
    assert node.out.lines == ["one"]


def test_other_processes_do_not_inherit_its_descriptors(node: Node) -> None:
    node.follow()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            place = os.readlink(f"/proc/self/fd/{number}")
            if place.startswith(str(node.folder)):
                assert fcntl.fcntl(int(number), fcntl.F_GETFD) & fcntl.FD_CLOEXEC
