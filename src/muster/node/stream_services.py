"""What a node does for the streams that the other end of a connection opens.

Kinds of streams are described in `file_streams`, `command_streams`, `port_streams` and
`query_streams`. One of kind "node" has a line when the node runs, and
is done when it has ended.
"""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Dict, List

from muster.node.command_streams import NO_PROGRAM, CommandStreams, Program
from muster.node.file_streams import FileStreams
from muster.node.port_streams import PortStreams
from muster.node.streams import Stream, Streams
from muster.node.tree_streams import TreeStreams

if TYPE_CHECKING:
    from muster.node.query_streams import QueryStreams

#: Descriptors that no stream takes: the server needs some for connections, its node and files.
_RESERVED = 32


class StreamServices:
    """The services of one connection. streams: of this end. place: for `TreeStreams`."""

    def __init__(self, streams: Streams, place: str) -> None:
        self._streams = streams
        self._files = FileStreams()
        self._commands = CommandStreams()
        self._ports = PortStreams()
        self._queries: QueryStreams | None = None
        self._trees = TreeStreams(place)
        self._waiting: List[Stream] = []  # for the end of the node

    def interest(self) -> Dict[int, int]:
        """What to wait for: descriptor -> events of `select.poll`."""
        services = (self._files, self._commands, self._ports, self._queries, self._trees)
        return {
            descriptor: events
            for service in services
            if service is not None
            for descriptor, events in service.interest().items()
        }

    def timeout(self) -> float | None:
        """Seconds after which to call `step` though nothing is ready; None for never."""
        return self._files.timeout()

    def step(self, program: Program | None) -> None:
        """Do what is possible now. program: that of the node; None if none runs."""
        self._streams.changed()  # which would grow: each service looks at all of its streams
        for stream in self._streams.opened():
            kind = stream.about.get("kind")
            if not _has_descriptors():
                stream.cancel("the node server has too many open files")
            elif kind == "read":
                self._files.add(stream)
            elif kind in ("input", "output", "errors"):
                self._commands.add_part(stream)
            elif kind == "command":
                self._commands.add(stream, program)
            elif kind == "connect":
                self._ports.add(stream, program)
            elif kind in ("counters", "stacks"):
                self._ask(stream, program)
            elif kind == "node":
                self._wait_for_end(stream, program)
            elif kind == "tree":
                self._trees.add(stream)
            else:
                stream.cancel("unknown kind of stream: %.100r" % (kind,))
        self._files.step()
        self._commands.step()
        self._ports.step()
        if self._queries is not None:
            self._queries.step()
        self._trees.step()

    def _ask(self, stream: Stream, program: Program | None) -> None:
        if self._queries is None:
            try:
                from muster.node.query_streams import QueryStreams  # few nodes are asked
            except ImportError:  # of a node program that was removed from the user's cache
                stream.cancel("the node program was removed from that machine")
                return
            self._queries = QueryStreams()
        self._queries.add(stream, program)

    def _wait_for_end(self, stream: Stream, program: Program | None) -> None:
        self._waiting = [one for one in self._waiting if not one.canceled]
        if program is None:
            stream.cancel(NO_PROGRAM)
        else:
            stream.send(b"\n")
            self._waiting.append(stream)

    def node_ended(self, *, kept: bool) -> None:
        """The node has ended. kept: whether it is to be restarted in place."""
        self._commands.kill()
        if not kept:
            for stream in self._waiting:
                stream.finish({})
            self._waiting.clear()

    def reaped(self, pid: int, status: int) -> None:
        """Handle the end of a child process that is not the node's agent."""
        services = (self._commands, self._trees, self._queries)
        any(service is not None and service.reaped(pid, status) for service in services)

    def close(self) -> None:
        """The connection is lost."""
        self._files.close()
        self._commands.close()
        self._ports.close()
        if self._queries is not None:
            self._queries.close()
        self._trees.close()


def _has_descriptors() -> bool:
    """Whether this process may open files for another stream."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return True
    try:
        number = os.dup(0)  # the lowest that is free
    except OSError:
        return False
    os.close(number)
    return number < limit - _RESERVED
