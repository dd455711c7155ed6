"""Copy files between this machine and the nodes of runs.

A pipe connects two ends. At a node's end a small program (`node.transfer`) runs inside the node: it
sees the node's files, and nothing that the node's own programs cannot see. Of a node that has
ended, what is left on this machine's disk can be read.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from threading import Event, Thread
from typing import IO, TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from muster.api.node_access import Progress
from muster.api.node_paths import NodePath, parse_path
from muster.engines.base import NodeCommand, NodeProcess, RunningNode, Stdio
from muster.errors import EngineError, InvalidInput, NotFound, Problem, shortage_from
from muster.lifecycle.states import NodeState, RunState
from muster.node import transfer
from muster.node.folder_access import copy_blocks
from muster.service.inside import run_in_node
from muster.service.nodes import choose
from muster.service.saved_files import open_saved

if TYPE_CHECKING:
    from muster.service.embedded import EmbeddedAPI
    from muster.store.records import NodeRecord, RunSummary

#: In place of a path on this machine: standard input or output.
STREAM = "-"


def copy(api: EmbeddedAPI, source: str, target: str, progress: Progress) -> tuple[str, ...]:
    """Copy a file or folder, as `cp -r` does; at least one end is on a node. Returns what was left
    out, with the reasons. Raises InvalidInput, EngineError."""
    places = parse_path(source), parse_path(target)
    if not any(isinstance(place, NodePath) for place in places):
        text = f"neither {source} nor {target} is on a node"
        raise InvalidInput(Problem("", text, "write RUN:RANK:PATH for a path on a node"))
    raw = STREAM in places
    sender = _sender(api, places[0], raw=raw, progress=progress)
    receiver = _receiver(api, places[1], raw=raw, progress=progress)
    return _connect(sender, receiver)


# --- the ends

#: Starts the program with Muster's own Python, with that of a node on another machine, or with the
#: first one: a node may see neither Muster's nor the files of this package.
_START = """
for python in "$0" "$MUSTER_NODE_PYTHON" python3; do
    command -v "$python" >/dev/null && exec "$python" -I -S -c "$@"
done
echo "the node has no Python 3, which copies files there" >&2
exit 127
"""


class _Outcome(Struct, frozen=True):
    """How one end of a copy ended."""

    left_out: tuple[str, ...] = ()
    #: Whether it could not copy. Without an error, the reason is at the other end.
    failed: bool = False
    error: Exception | None = None


class _End(Protocol):
    """One end of a copy."""

    def start(self, descriptor: int) -> None:
        """Start to send to a pipe, or to receive from it; takes over the descriptor."""

    def finish(self) -> _Outcome:
        """Wait for the end of the copy."""

    def stop(self) -> None:
        """End the copy before it is complete. Nothing incomplete is left."""


class _InNode:
    """An end in a running node."""

    def __init__(self, place: NodePath, node: RunningNode, action: str) -> None:
        self._place, self._node, self._action = place, node, action
        self._messages: IO[bytes] | None = None  # from `start` on, until `finish` or `stop`
        self._process: NodeProcess | None = None

    def start(self, descriptor: int) -> None:
        """See `_End`."""
        words = (sys.executable, transfer.program(), self._action, self._place.path or ".")
        argv = ("sh", "-c", _START, *words)
        receives = self._action in ("receive", "write")
        with (
            open(descriptor, "rb" if receives else "wb") as pipe,
            open(os.devnull, "r+b", buffering=0) as unused,
        ):
            stdin, stdout = (pipe, unused) if receives else (unused, pipe)
            messages = tempfile.TemporaryFile()  # noqa: SIM115
            try:
                stdio = Stdio(stdin, stdout, messages)
                self._process = run_in_node(self._node, NodeCommand(argv), stdio)
            except BaseException:
                messages.close()
                raise
            self._messages = messages

    def finish(self) -> _Outcome:
        """See `_End`."""
        assert self._process is not None and self._messages is not None, "it has been started"
        code = self._process.wait()
        with self._messages as file:
            file.seek(0)
            text = file.read().decode(errors="replace").strip()
        if code in (transfer.OK, transfer.INCOMPLETE):
            # a line each, in which names are escaped; str.splitlines would break more
            return _Outcome(tuple(text.split("\n")) if text else ())
        if code != transfer.FAILED:
            return _Outcome(failed=True, error=EngineError(f"{self._place}: {text or code}"))
        problem = InvalidInput(Problem(str(self._place), text)) if text else None
        return _Outcome(failed=True, error=problem)

    def stop(self) -> None:
        """See `_End`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()
        if self._messages is not None:
            self._messages.close()


class _Here:
    """An end on this machine. action: copies to or from a stream, and reports what it leaves
    out."""

    def __init__(
        self,
        place: str,
        mode: str,
        action: Callable[[Any, transfer.Report], object],
        progress: Progress,
    ) -> None:
        self._place, self._mode, self._action, self._progress = place, mode, action, progress
        self._left_out: list[str] = []
        self._outcome = _Outcome()
        # a thread, as the other end may be here as well; standard input may never end
        self._thread = Thread(target=self._run, daemon=True)
        self._stopped = Event()
        self._descriptor = -1

    def start(self, descriptor: int) -> None:
        """See `_End`."""
        self._descriptor = descriptor
        self._thread.start()

    def finish(self) -> _Outcome:
        """See `_End`."""
        self._thread.join()
        return self._outcome

    def stop(self) -> None:
        """See `_End`."""
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
            self._outcome = _Outcome(failed=True)
        except OSError as failure:
            where = self._place if failure.filename is None else os.fsdecode(failure.filename)
            problem = Problem(where, failure.strerror or str(failure))
            no_space = failure.errno in (errno.ENOSPC, errno.EDQUOT)
            error = shortage_from(failure) if no_space else InvalidInput(problem)
            self._outcome = _Outcome(failed=True, error=error)
        except Exception as bug:  # noqa: BLE001  raised by `copy`
            self._outcome = _Outcome(failed=True, error=bug)
        else:
            self._outcome = _Outcome(tuple(self._left_out))


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


def _connect(sender: _End, receiver: _End) -> tuple[str, ...]:
    reading, writing = os.pipe()
    ends = [(sender, writing), (receiver, reading)]
    ends.sort(key=lambda end: isinstance(end[0], _Here))  # fork processes before threads start
    while ends:
        end, descriptor = ends.pop(0)
        try:
            end.start(descriptor)
        except BaseException:
            for _, unused in ends:
                os.close(unused)  # ends what has started
            raise
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


def _sender(api: EmbeddedAPI, place: NodePath | str, *, raw: bool, progress: Progress) -> _End:
    if isinstance(place, NodePath):
        run, node = _find_node(api, place)
        if _is_running(run, node):
            running = api.running_node(run.id, node.rank)
            return _InNode(place, running, "read" if raw else "send")
        return _saved_sender(api, place, run, node, raw=raw, progress=progress)
    elif place == STREAM:
        return _Here(
            "standard input",
            "wb",
            lambda to, _: transfer.send_blocks(sys.stdin.buffer, to),
            progress,
        )
    else:
        descriptor = _open_here(place)
    if raw:
        return _Here(
            str(place), "wb", lambda to, _: transfer.send_content(descriptor, to), progress
        )
    name = transfer.name_of(place)
    return _Here(
        place, "wb", lambda to, report: transfer.send(descriptor, name, to, report), progress
    )


def _saved_sender(
    api: EmbeddedAPI,
    place: NodePath,
    run: RunSummary,
    node: NodeRecord,
    *,
    raw: bool,
    progress: Progress,
) -> _End:
    """The end that sends what is left of a node that has ended."""
    saved = open_saved(api, place, run, node)
    name = transfer.name_of(place.path)

    def send(stream: IO[bytes], report: transfer.Report) -> None:
        if raw:
            transfer.send_content(saved.descriptor, stream)
            return
        if saved.lacks:
            report(f"{name}: {saved.lacks}")
        transfer.send(saved.descriptor, name, stream, report, saved.walk)

    return _Here(str(place), "wb", send, progress)


def _receiver(api: EmbeddedAPI, place: NodePath | str, *, raw: bool, progress: Progress) -> _End:
    if isinstance(place, NodePath):
        run, node = _find_node(api, place)
        if not _is_running(run, node):
            text = f"nothing can be copied to node-{node.rank} of {run.name}: it is {node.state}"
            raise InvalidInput(
                Problem(str(place), text, "to give nodes files when they start, use a mount")
            )
        running = api.running_node(run.id, node.rank)
        return _InNode(place, running, "write" if raw else "receive")
    if place == STREAM:
        return _Here(
            "standard output",
            "rb",
            lambda of, _: copy_blocks(of, sys.stdout.buffer),
            progress,
        )
    return _Here(place, "rb", lambda of, report: transfer.receive(place, of, report), progress)


# --- finding nodes and files


def _find_node(api: EmbeddedAPI, place: NodePath) -> tuple[RunSummary, NodeRecord]:
    """The run and the node of a place. Raises InvalidInput."""
    try:
        run = api.find_run(place.run)
    except NotFound as error:
        if not os.path.lexists(str(place)):
            raise
        hint = f"write ./{place} for the file on this machine"
        raise NotFound(error.problems[0]._replace(hint=hint)) from None
    hint = f"write {place.run}:RANK:{place.path}"
    return run, choose(api.store, run, place.rank, field=str(place), hint=hint)


def _is_running(run: RunSummary, node: NodeRecord) -> bool:
    return not (RunState(run.state).at_rest or NodeState(node.state).ended)


def _open_here(path: str) -> int:
    try:
        return transfer.open_source(path)
    except OSError as error:
        raise InvalidInput(Problem(path, error.strerror or str(error))) from None
