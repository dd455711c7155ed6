"""Printing a run's output, each line with the group and rank it came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

import click

from muster.cli.output import GROUP_COLORS
from muster.cli.streams import write
from muster.cli.terminal import echo, use_color
from muster.storage.log_reader import prefixed
from muster.storage.logs import MESSAGES, StreamInfo

if TYPE_CHECKING:
    from muster.client.messages import RunChunk
    from muster.client.run import JobRun

#: Before a message of the service.
_SERVICE = "muster"
#: Kinds of messages that the summary at a run's end does not repeat.
_BESIDES = frozenset(
    {"restart", "scaled", "supervisor_lost", "cancel_requested", "suspend_requested"}
)


class Printer:
    """Writes chunks of whole lines to a descriptor, in bulk: as fast as the nodes write them.

    groups: name -> number of nodes, in order; for colours and the width of the prefix. messages:
    what becomes of those of the service. Among the lines they tell the whole story; besides, on
    stderr, are those that whoever follows a run to its end learns from nothing else; or none.
    """

    def __init__(
        self,
        groups: Mapping[str, int],
        *,
        processes: int = 1,
        to: int = 1,
        messages: Literal["among", "besides", "none"] = "none",
    ) -> None:
        self._to = to
        self._messages = messages
        self._color = use_color(to)
        self._colors = {name: GROUP_COLORS[i % len(GROUP_COLORS)] for i, name in enumerate(groups)}
        nodes = sum(groups.values())
        self._processes = processes
        deepest = len(str(nodes - 1)) + (1 + len(str(processes - 1)) if processes > 1 else 0)
        self._width = max((len(name) for name in groups), default=0) + 1 + deepest
        if messages == "among":
            self._width = max(self._width, len(_SERVICE))
        self._prefixes: dict[int, bytes] = {}

    def print(self, chunks: Iterable[RunChunk]) -> None:
        """Print as it comes; returns when nothing more does. Where a later attempt begins, a line
        on stderr says so, unless the messages do."""
        newest: int | None = None
        for chunk in chunks:
            if newest is None or chunk.attempt > newest:
                if newest is not None and self._messages != "among":
                    echo(f"-- attempt {chunk.attempt} --", err=True)
                newest = chunk.attempt
            if chunk.kind and self._messages == "besides":
                if chunk.kind in _BESIDES:
                    echo(f"-- {chunk.data.decode().rstrip()} --", err=True)
                continue
            self._write(prefixed(chunk, self._prefix(chunk.stream)))

    def _prefix(self, stream: StreamInfo) -> bytes:
        known = self._prefixes.get(stream.number)
        if known is None:
            name = _SERVICE if stream is MESSAGES else f"{stream.group}/{stream.rank}"
            if self._processes > 1 and stream.local_rank is not None:
                name += f".{stream.local_rank}"
            name += f" {stream.service}" * bool(stream.service)
            text = f"{name:<{self._width}} | "
            if self._color:
                dim = stream is MESSAGES
                text = click.style(text, fg=self._colors.get(stream.group), dim=dim)
            known = self._prefixes[stream.number] = text.encode()
        return known

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[write(self._to, view) :]


def tell_if_suspended(run: JobRun, *, follow: bool) -> None:
    """Say why following a run is over although it has not ended."""
    if follow and run.refresh().state == "SUSPENDED":
        text = f"{run.name} is suspended; `muster runs resume {run.name}` has it go on"
        echo(text, err=True)
