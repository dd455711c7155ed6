"""Select lines of a run's log by their time and their text."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from muster.api.streams import LogChunk, Selection

LineFilter = Callable[[Iterable["LogChunk"]], Iterator["LogChunk"]]


def line_filter(selection: Selection) -> LineFilter | None:
    """Keeps the lines that a selection chooses by `since` and `grep`; None if it has neither."""
    since, grep = selection.since, selection.grep
    if since is None and grep is None:
        return None
    since_ns = None if since is None else int(since * 1e9)
    found = _finder(grep) if grep is not None else None

    def keep(chunks: Iterable[LogChunk]) -> Iterator[LogChunk]:
        for chunk in chunks:
            if since_ns is not None and chunk.time_ns < since_ns:
                continue
            data = chunk.data if found is None else found(chunk.data)
            if data:
                yield chunk if data is chunk.data else replace(chunk, data=data)

    return keep


def _finder(pattern: str) -> Callable[[bytes], bytes]:
    """Returns the lines of a text in which a pattern is found."""
    from muster.spec.patterns import finder

    is_in = finder(pattern)

    def found(data: bytes) -> bytes:
        lines = data[:-1].split(b"\n")
        kept = [line for line in lines if is_in(line)]
        return data if len(kept) == len(lines) else b"".join(line + b"\n" for line in kept)

    return found


def last_lines(chunks: Iterable[LogChunk], count: int) -> Iterator[LogChunk]:
    """The last lines of all chunks, in memory for these lines only."""
    kept: deque[LogChunk] = deque()
    total = 0
    for chunk in chunks:
        kept.append(chunk)
        total += chunk.data.count(b"\n")
        while kept and total - (lines := kept[0].data.count(b"\n")) >= count:
            kept.popleft()
            total -= lines
    yield from _without_first(max(0, total - count), kept)


def _without_first(lines: int, chunks: Iterable[LogChunk]) -> Iterator[LogChunk]:
    """Chunks without the first lines."""
    for chunk in chunks:
        present = chunk.data.count(b"\n")
        if present > lines:
            yield replace(chunk, data=chunk.data.split(b"\n", lines)[-1])
        lines = max(0, lines - present)
