"""Logs of containers: read to their ends, whatever happens to the streams."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engines.kubernetes.api_stub import Answer, ApiStub, Request, status, write_config
from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.pod_logs import LogLine, LogReader, Position, parse, tail

pytest.importorskip("kubernetes")

#: 2026-03-01T12:00:00Z.
NOON = 1_772_366_400_000_000_000

Serve = Callable[[Callable[[Request], Answer]], Cluster]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Makes a cluster with an API server that answers so."""
    stubs: list[ApiStub] = []

    def made(answer: Callable[[Request], Answer]) -> Cluster:
        stubs.append(ApiStub(answer))
        return Cluster(write_config(tmp_path / "config", stubs[-1].url))

    yield made
    for one in stubs:
        one.close()


def line(second: int, text: str, fraction: str = "") -> bytes:
    return f"2026-03-01T12:00:{second:02}{fraction}Z {text}\n".encode()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"2026-03-01T12:00:00Z a b", LogLine(NOON, b"a b")),
        (b"2026-03-01T12:00:00.5Z ", LogLine(NOON + 500_000_000, b"")),
        (b"2026-03-01T12:00:00.123456789Z x", LogLine(NOON + 123_456_789, b"x")),
        (b"2026-03-01T14:00:00.000000001+02:00 x", LogLine(NOON + 1, b"x")),
        (b"2026-03-01T12:00:00Z \xff", LogLine(NOON, b"\xff")),
        (b"2026-03-01T12:00:00 x", None),  # of no zone
        (b"unable to retrieve container logs for containerd://1", None),
        (b"", None),
    ],
)
def test_a_line_begins_with_its_time(text: bytes, found: LogLine | None) -> None:
    assert parse(text) == found


def test_a_position_is_a_time_in_whole_seconds() -> None:
    start = Position()
    assert start.since is None
    one = start.after(LogLine(NOON + 5, b"")).after(LogLine(NOON + 5, b""))
    assert one == (NOON + 5, 2)
    assert one.since == "2026-03-01T12:00:00Z"
    assert one.after(LogLine(NOON + 6, b"")) == (NOON + 6, 1)


def contents(lines: Iterator[LogLine]) -> list[bytes]:
    return [one.content for one in lines]


def test_a_log_is_read_to_its_end_without_repetitions(serve: Serve) -> None:
    cut = line(2, "cut off")[:-3]
    streams = iter(
        [
            [line(0, "a"), line(1, "b"), line(1, "b"), cut],
            # since second 1: what was read comes again
            [line(1, "b"), line(1, "b"), line(1, "c"), line(2, "cut off")],
        ]
    )
    requests: list[Request] = []

    def answer(request: Request) -> Answer:
        requests.append(request)
        if request.query.get("follow") == "true":
            return Answer(stream=iter(next(streams)))
        return Answer(line(2, "cut off") + line(2, "without an end", ".5")[:-1])

    reader = LogReader(serve(answer), "p", "main")
    assert contents(reader.new(follow=True)) == [b"a", b"b", b"b"]
    assert contents(reader.new(follow=True)) == [b"c", b"cut off"]
    assert contents(reader.new(follow=False)) == []  # one line has no end yet
    assert contents(reader.rest()) == [b"without an end"]
    assert [one.query.get("sinceTime") for one in requests] == [
        None,
        "2026-03-01T12:00:01Z",
        "2026-03-01T12:00:02Z",
        "2026-03-01T12:00:02Z",
    ]
    assert {one.path for one in requests} == {"/api/v1/namespaces/team/pods/p/log"}


def test_a_progress_bar_is_one_line(serve: Serve) -> None:
    bar = "10%\r20%\r100%"
    written = line(0, bar) + line(1, "ValueError: x")
    reader = LogReader(serve(lambda _: Answer(written)), "p", "main")
    assert contents(reader.rest()) == [bar.encode(), b"ValueError: x"]
    again = LogReader(serve(lambda _: Answer(stream=iter([written]))), "p", "main")
    assert contents(again.new(follow=True)) == [bar.encode(), b"ValueError: x"]


def test_another_one_continues_where_one_was_closed(serve: Serve) -> None:
    cluster = serve(lambda _: Answer(line(0, "a") + line(0, "b") + line(0, "c")))
    first = LogReader(cluster, "p", "main")
    assert next(first.rest()).content == b"a"
    second = LogReader(cluster, "p", "main", first.position)
    assert contents(second.rest()) == [b"b", b"c"]


def test_the_log_of_a_pod_that_is_gone_cannot_be_read(serve: Serve) -> None:
    cluster = serve(lambda _: status(404, 'pods "p" not found'))
    with pytest.raises(CannotCall, match="namespace team has no Pod p"):
        next(LogReader(cluster, "p", "main").new(follow=True))


@pytest.mark.parametrize("is_early", [False, True])
def test_reading_is_interrupted(serve: Serve, is_early: bool) -> None:
    first, done = threading.Event(), threading.Event()

    def stream() -> Iterator[bytes]:
        yield line(0, "a")
        done.wait(240)

    reader = LogReader(serve(lambda _: Answer(stream=stream())), "p", "main")

    def read() -> None:
        for _ in reader.new(follow=True):
            first.set()

    if is_early:
        reader.interrupt()
    thread = threading.Thread(target=read)
    thread.start()
    if not is_early:
        assert first.wait(60)
        reader.interrupt()
    thread.join(10)
    assert not thread.is_alive()
    done.set()


def test_the_last_lines_are_read_once(serve: Serve) -> None:
    requests: list[Request] = []

    def answer(request: Request) -> Answer:
        requests.append(request)
        return Answer(b"\nImportError: no module named x\n\xff\n")

    assert tail(serve(answer), "p", "node") == "ImportError: no module named x\n�"
    assert requests[0].query == {"container": "node", "tailLines": "40"}
