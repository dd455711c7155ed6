"""Printing output: prefixes, and the line between attempts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api.streams import LogChunk
from muster.cli.log_printer import Printer, prefixed
from muster.storage.log_index import MESSAGES, StreamInfo

Printed = Callable[..., tuple[str, str]]


def chunk(attempt: int, text: str, rank: int = 0, local_rank: int | None = 0) -> LogChunk:
    stream: Literal["stdout"] = "stdout"
    number = 3 * rank + (2 if local_rank is None else local_rank)
    info = StreamInfo(number, "f", rank, "workers", "id", local_rank, stream)
    return LogChunk(1, info, text.encode(), attempt)


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str]) -> Iterator[Printed]:
    """The output for chunks: (stdout, stderr)."""
    read, write = os.pipe()

    def make(*chunks: LogChunk, groups: dict[str, int], **how: Any) -> tuple[str, str]:
        Printer(groups, to=write, **how).print(chunks)
        return os.read(read, 1 << 16).decode(), capfd.readouterr().err

    yield make
    os.close(read)
    os.close(write)


def test_every_line_has_a_prefix(printed: Printed) -> None:
    out, err = printed(chunk(0, "a\nb\n"), chunk(0, "\n", rank=10), groups={"workers": 11})
    assert out == "workers/0  | a\nworkers/0  | b\nworkers/10 | \n"
    assert err == ""


def test_prefixes_name_the_process(printed: Printed) -> None:
    out, _ = printed(chunk(0, "a\n", 0, 1), groups={"workers": 1}, processes=2)
    assert out == "workers/0.1 | a\n"


def test_launcher_output_has_the_prefix_of_the_node(printed: Printed) -> None:
    chunks = [chunk(0, "a\n", 0, 1), chunk(0, "b\n", 0, None)]
    out, _ = printed(*chunks, groups={"workers": 1}, processes=2)
    assert out == "workers/0.1 | a\nworkers/0   | b\n"


def test_a_line_is_printed_between_attempts(printed: Printed) -> None:
    out, err = printed(
        chunk(1, "a\n"), chunk(1, "b\n"), chunk(2, "c\n"), chunk(4, "d\n"), groups={"workers": 1}
    )
    assert out == "".join(f"workers/0 | {line}\n" for line in "abcd")
    assert err == "-- attempt 2 --\n-- attempt 4 --\n"


def test_late_output_of_an_earlier_attempt_is_told_apart(printed: Printed) -> None:
    out, err = printed(
        chunk(0, "a\n"), chunk(1, "b\n"), chunk(0, "late\n"), chunk(1, "c\n"), groups={"workers": 1}
    )
    assert out.endswith("| late\nworkers/0 | c\n")
    assert err == "-- attempt 1 --\n-- attempt 0 --\n-- attempt 1 --\n"


def message(kind: str, text: str, attempt: int = 0) -> LogChunk:
    return LogChunk(1, MESSAGES, f"{text}\n".encode(), attempt, kind)


def test_inline_messages_are_printed_like_output(printed: Printed) -> None:
    output = [message("run", "the run was accepted"), chunk(0, "a\n"), message("attempt", "b", 1)]
    out, err = printed(*output, groups={"a": 1}, messages="inline")
    assert out == "muster | the run was accepted\nworkers/0 | a\nmuster | b\n"
    assert err == "", "the message already announces the attempt"


def test_separate_messages_leave_out_what_the_summary_repeats(printed: Printed) -> None:
    output = [
        message("run", "the run was accepted"),
        chunk(0, "a\n"),
        message("restart", "restart 1 of the run"),
        message("attempt", "attempt 1 starts", 1),
        chunk(0, "stopped\n"),
        chunk(1, "b\n"),
        message("run", "the run succeeded", 1),
    ]
    out, err = printed(*output, groups={"workers": 1}, messages="separate")
    assert out == "workers/0 | a\nworkers/0 | stopped\nworkers/0 | b\n"
    assert err == "-- restart 1 of the run --\n-- attempt 1 --\n"


@given(st.lists(st.binary(max_size=6).filter(lambda b: b"\n" not in b), min_size=1))
def test_prefixed_puts_the_prefix_before_every_line(lines: list[bytes]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    assert prefixed(data, b"w/0 | ") == b"".join(b"w/0 | " + line + b"\n" for line in lines)
