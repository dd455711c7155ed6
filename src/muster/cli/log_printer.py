"""Print a run's output, each line prefixed with the group and rank that wrote it.

In the prefix, `|` precedes a line of stdout, `!` one of stderr.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal

import click

from muster.cli.streams import write
from muster.cli.terminal import echo, make_room, use_color
from muster.program_text import final_lines, harmless

if TYPE_CHECKING:
    from muster.api.streams import LogChunk, StreamInfo

#: Prefix of Muster's own messages.
_SERVICE = "muster"
#: Kinds of messages that the summary at the run's end does not repeat.
_NOT_IN_SUMMARY = frozenset(
    {
        "queued",
        "scheduled",
        "unreachable",
        "reachable",
        "restart",
        "scaled",
        "supervisor_lost",
        "supervisor_replaced",
        "cancel_requested",
        "suspend_requested",
    }
)
#: Colours of the prefixes, one per node, by rank. Red marks stderr.
_COLORS = (
    "cyan",
    "magenta",
    "green",
    "blue",
    "yellow",
    "bright_cyan",
    "bright_magenta",
    "bright_green",
    "bright_blue",
    "bright_yellow",
)


#: Prefixes that are kept: an array has as many as it has replicas.
_MAX_PREFIXES = 10_000


class Printer:
    """Write chunks of whole lines to a file descriptor, in bulk.

    groups: nodes by group name, in order; they determine the width of the prefix. arrays: group ->
    its first rank, and nodes per replica; the prefix of their lines names the replica, and the node
    if a replica has several. processes: per node; with more than one, the prefix names the process.
    to: the descriptor.
    messages: where to print Muster's own messages. "inline": all of them, between the programs'
    lines; "separate": on stderr, and only those that the run's summary does not repeat; "none":
    nowhere. stamp: what to print before a line, from its time in nanoseconds. printed: called
    after each chunk.

    Of a line that a program has overwritten with carriage returns, such as a progress bar, the last
    text is printed. A terminal gets no control sequences of programs but colours.
    """

    def __init__(
        self,
        groups: Mapping[str, int],
        *,
        arrays: Mapping[str, tuple[int, int]] | None = None,
        processes: int = 1,
        to: int = 1,
        messages: Literal["inline", "separate", "none"] = "none",
        stamp: Callable[[int], bytes] | None = None,
        printed: Callable[[LogChunk], None] | None = None,
    ) -> None:
        self._to = to
        self._messages = messages
        self._stamp = stamp
        self._printed = printed
        self._tty = os.isatty(to)
        self._color = use_color(self._tty)
        nodes = sum(groups.values())
        self._processes = processes
        self._arrays = arrays or {}
        deepest = len(str(nodes - 1)) + (1 + len(str(processes - 1)) if processes > 1 else 0)
        self._width = max((len(name) for name in groups), default=0) + 1 + deepest
        if messages == "inline":
            self._width = max(self._width, len(_SERVICE))
        self._prefixes: dict[int | StreamInfo, bytes] = {}

    def print(self, chunks: Iterable[LogChunk]) -> None:
        """Print chunks until there are no more. Where output of another attempt follows, a line on
        stderr says so, unless messages are inline."""
        attempt: int | None = None
        for chunk in chunks:
            # the message of a restart precedes the last lines of the nodes that it stops
            if not chunk.kind and chunk.attempt != attempt:
                if attempt is not None and self._messages != "inline":
                    echo(f"-- attempt {chunk.attempt} --", err=True)
                attempt = chunk.attempt
            self._print(chunk)
            if self._printed is not None:
                self._printed(chunk)

    def _print(self, chunk: LogChunk) -> None:
        if chunk.kind and self._messages == "separate":
            if chunk.kind in _NOT_IN_SUMMARY or (chunk.kind == "failure" and self._arrays):
                echo(f"-- {chunk.data.decode().rstrip()} --", err=True)
            return
        stamp = self._stamp(chunk.time_ns) if self._stamp is not None else b""
        self._write(prefixed(self._text(chunk.data), stamp + self._prefix(chunk.stream)))

    def _text(self, data: bytes) -> bytes:
        data = final_lines(data)
        return harmless(data) if self._tty else data

    def _prefix(self, stream: StreamInfo) -> bytes:
        # a stream of an array changes hands: its number says not whose it is
        key = stream.number if stream.group not in self._arrays else stream
        prefix = self._prefixes.get(key)
        if prefix is None:
            name = _SERVICE if stream.rank is None else writer_name(stream, self._arrays)
            if self._processes > 1 and stream.local_rank is not None:
                name += f".{stream.local_rank}"
            name += f" {stream.service}" * bool(stream.service)
            # both streams of a service are in one file
            mark = "!" if stream.stream == "stderr" and not stream.service else "|"
            prefix = self._styled(name, mark, stream.rank).encode()
            if len(self._prefixes) >= _MAX_PREFIXES:
                self._prefixes.clear()
            self._prefixes[key] = prefix
        return prefix

    def _styled(self, name: str, mark: str, rank: int | None) -> str:
        name = f"{name:<{self._width}}"
        if not self._color:
            return f"{name} {mark} "
        if rank is None:
            return click.style(f"{name} {mark} ", dim=True)
        color = _COLORS[rank % len(_COLORS)]
        if mark == "!":
            return f"{click.style(name, fg=color)} {click.style(mark, fg='red')} "
        return click.style(f"{name} {mark} ", fg=color)

    def _write(self, data: bytes) -> None:
        make_room()
        view = memoryview(data)
        while view:
            view = view[write(self._to, view) :]


def writer_name(stream: StreamInfo, arrays: Mapping[str, tuple[int, int]]) -> str:
    """The node that writes a stream: `workers/3`; of an array its replica, and the node in it if
    there are several: `workers/17`, `workers/17/1`. arrays: see `Printer`."""
    rank = stream.rank or 0
    if stream.group not in arrays:
        return f"{stream.group}/{rank}"
    first, nodes = arrays[stream.group]
    replica, index = divmod(rank - first, nodes)
    return f"{stream.group}/{replica}" + (f"/{index}" if nodes > 1 else "")


def prefixed(data: bytes, prefix: bytes) -> bytes:
    """Whole lines with `prefix` before each of them."""
    return prefix + data[:-1].replace(b"\n", b"\n" + prefix) + b"\n"
