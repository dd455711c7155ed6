"""Copies of files between two ends, of which at least one is on a node: what an end is, the end on
this machine, and the pipe that connects two.

The ends in nodes depend on where the nodes are: see `service.copying`, for nodes that this process
reaches, and `client.http.copying`, for those behind a server.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Thread
from typing import IO, Any, Protocol

from msgspec import Struct

from muster.api.node_access import Progress
from muster.api.node_paths import NodePath, parse_path
from muster.errors import EngineError, InvalidInput, NotFound, Problem, shortage_from
from muster.node import transfer
from muster.node.files import write_all
from muster.node.folder_access import Walk, copy_blocks, walk

#: In place of a path on this machine: standard input or output.
STREAM = "-"


def parse_places(source: str, target: str) -> tuple[NodePath | str, NodePath | str]:
    """Where a copy comes from and goes to. Raises InvalidInput if neither is on a node."""
    places = parse_path(source), parse_path(target)
    if not any(isinstance(place, NodePath) for place in places):
        text = f"neither {source} nor {target} is on a node"
        raise InvalidInput(Problem("", text, "write RUN:RANK:PATH for a path on a node"))
    return places


class Outcome(Struct, frozen=True):
    """How one end of a copy ended."""

    left_out: tuple[str, ...] = ()
    #: Whether it could not copy. Without an error, the reason is at the other end.
    failed: bool = False
    error: Exception | None = None


class End(Protocol):
    """One end of a copy."""

    #: What an end that receives reads first, before what is copied.
    preamble: bytes

    def start(self, descriptor: int) -> None:
        """Start to send to a pipe, or to receive from it; takes over the descriptor."""

    def finish(self) -> Outcome:
        """Wait for the end of the copy."""

    def stop(self) -> None:
        """End the copy before it is complete, also if it was not started. Nothing incomplete is
        left."""


class EndHere:
    """An end on this machine. action: copies to or from a stream, and reports what it leaves
    out."""

    preamble = b""

    def __init__(
        self,
        place: str,
        mode: str,
        action: Callable[[Any, transfer.Report], object],
        progress: Progress,
    ) -> None:
        self._place, self._mode, self._action, self._progress = place, mode, action, progress
        self._left_out: list[str] = []
        self._outcome = Outcome()
        # a thread, as the other end may be here as well; standard input may never end
        self._thread = Thread(target=self._run, daemon=True)
        self._stopped = Event()
        self._descriptor = -1

    def start(self, descriptor: int) -> None:
        """See `End`."""
        self._descriptor = descriptor
        try:
            self._thread.start()
        except RuntimeError:  # there are too many
            os.close(descriptor)
            raise

    def finish(self) -> Outcome:
        """See `End`."""
        self._thread.join()
        return self._outcome

    def stop(self) -> None:
        """See `End`."""
        self._stopped.set()
        # standard input may never end, so that a sender is not waited for
        if self._thread.is_alive() and self._mode == "rb":
            self._thread.join()

    def _run(self) -> None:
        error: Exception | None = None
        try:
            with os.fdopen(self._descriptor, self._mode) as stream:
                counted = _Counted(stream, self._progress, self._stopped)
                self._action(counted, self._left_out.append)
        except BrokenPipeError:
            self._outcome = Outcome(failed=True)
        except OSError as failure:
            where = self._place if failure.filename is None else os.fsdecode(failure.filename)
            problem = Problem(where, failure.strerror or str(failure))
            no_space = failure.errno in (errno.ENOSPC, errno.EDQUOT)
            error = shortage_from(failure) if no_space else InvalidInput(problem)
            self._outcome = Outcome(failed=True, error=error)
        except Exception as bug:  # noqa: BLE001  raised by `copy`
            self._outcome = Outcome(failed=True, error=bug)
        else:
            self._outcome = Outcome(tuple(self._left_out))


class _Counted:
    """A stream that reports the size of each block, and fails once the copy is stopped."""

    def __init__(self, stream: IO[bytes], progress: Progress, stopped: Event) -> None:
        self._stream, self._progress, self._stopped = stream, progress, stopped

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes."""
        self._check()
        data = self._stream.read(size)
        self._check()
        self._progress(len(data))
        return data

    def write(self, data: bytes) -> int:
        """Write all of it."""
        self._check()
        self._progress(len(data))
        return self._stream.write(data)

    def flush(self) -> None:
        """Pass on what is buffered."""
        self._stream.flush()

    def _check(self) -> None:
        if self._stopped.is_set():
            raise BrokenPipeError


def connect(sender: End, receiver: End) -> tuple[str, ...]:
    """Copy from one end to the other. Returns what was left out, with the reasons. Raises what kept
    an end from copying, and EngineError."""
    start(sender, receiver)
    return finish(sender, receiver)


def start(sender: End, receiver: End) -> None:
    """Start both ends, with a pipe between them."""
    reading, writing = os.pipe()
    # the receiver first, as it reads the preamble; and processes fork before threads start
    ends = [(receiver, reading), (sender, writing)]
    ends.sort(key=lambda end: isinstance(end[0], EndHere))
    while ends:
        end, descriptor = ends.pop(0)
        try:
            end.start(descriptor)
            if end is receiver and receiver.preamble:
                with suppress(BrokenPipeError):  # it has ended, and says why
                    write_all(writing, receiver.preamble)
        except BaseException:
            for _, unused in ends:
                os.close(unused)
            sender.stop()
            receiver.stop()
            raise


def finish(sender: End, receiver: End) -> tuple[str, ...]:
    """Wait for the end of a copy that was started. Returns and raises as `connect`."""
    try:
        outcomes = [receiver.finish(), sender.finish()]
    except BaseException:  # a signal
        sender.stop()
        receiver.stop()
        raise
    if any(outcome.failed for outcome in outcomes):
        errors = [outcome.error for outcome in reversed(outcomes) if outcome.error is not None]
        raise errors[0] if errors else EngineError("the copy was interrupted")
    return tuple(line for outcome in outcomes for line in outcome.left_out)


def sender_here(place: str, *, raw: bool, progress: Progress) -> EndHere:
    """The end that sends a file or folder of this machine, or standard input. raw: only a file's
    content. Raises InvalidInput."""
    if place == STREAM:
        return EndHere(
            "standard input",
            "wb",
            lambda to, _: transfer.send_blocks(sys.stdin.buffer, to),
            progress,
        )
    try:
        descriptor = transfer.open_source(place)
    except OSError as error:
        raise InvalidInput(Problem(place, error.strerror or str(error))) from None
    if raw:
        return EndHere(place, "wb", lambda to, _: transfer.send_content(descriptor, to), progress)
    send = partial(send_opened, descriptor, transfer.name_of(place))
    return EndHere(place, "wb", send, progress)


def send_opened(
    descriptor: int,
    name: str,
    stream: IO[bytes],
    report: transfer.Report,
    each_folder: Walk = walk,
) -> None:
    """See `transfer.send`. Takes over the descriptor."""
    try:
        transfer.send(descriptor, name, stream, report, each_folder)
    finally:
        os.close(descriptor)


def receiver_here(place: str, *, progress: Progress) -> EndHere:
    """The end that receives to a path of this machine, or to standard output."""
    if place == STREAM:
        return EndHere(
            "standard output",
            "rb",
            lambda of, _: copy_blocks(of, sys.stdout.buffer),
            progress,
        )
    return EndHere(place, "rb", lambda of, report: transfer.receive(place, of, report), progress)


@contextmanager
def hints_at_files_here(*places: NodePath | str) -> Iterator[None]:
    """Add to the error for a run that does not exist how the file on this machine that has this
    name is written."""
    try:
        yield
    except NotFound as error:
        for place in places:
            if isinstance(place, NodePath) and os.path.lexists(str(place)):
                hint = f"write ./{place} for the file on this machine"
                raise NotFound(error.problems[0]._replace(hint=hint)) from None
        raise
