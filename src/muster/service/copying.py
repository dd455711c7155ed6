"""Copy files between this machine and the nodes of runs.

At a node's end a small program (`node.transfer`) runs inside the node: it sees the node's files,
and nothing that the node's own programs cannot see. Of a node that has ended, what is left on this
machine's disk can be read.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from typing import IO, TYPE_CHECKING

from muster.api.copies import (
    STREAM,
    End,
    EndHere,
    Outcome,
    connect,
    hints_at_files_here,
    parse_places,
    receiver_here,
    send_opened,
    sender_here,
)
from muster.api.node_access import Progress
from muster.api.node_paths import NodePath
from muster.engines.base import NodeCommand, NodeProcess, RunningNode, Stdio
from muster.errors import EngineError, InvalidInput, Problem
from muster.lifecycle.states import NodeState, RunState
from muster.node import transfer
from muster.node.files import write_all
from muster.service.inside import run_in_node
from muster.service.nodes import choose
from muster.service.saved_files import open_saved

if TYPE_CHECKING:
    from muster.service.embedded import EmbeddedAPI
    from muster.store.records import NodeRecord, RunSummary


def copy(api: EmbeddedAPI, source: str, target: str, progress: Progress) -> tuple[str, ...]:
    """Copy a file or folder, as `cp -r` does; at least one end is on a node. Returns what was left
    out, with the reasons. Raises InvalidInput, EngineError."""
    start, end = parse_places(source, target)
    raw = STREAM in (start, end)
    sender: End
    receiver: End
    with hints_at_files_here(start):
        if isinstance(start, NodePath):
            sender = node_sender(api, start, raw=raw, progress=progress)
        else:
            sender = sender_here(start, raw=raw, progress=progress)
    with hints_at_files_here(end):
        if isinstance(end, NodePath):
            receiver = node_receiver(api, end, raw=raw)
        else:
            receiver = receiver_here(end, progress=progress)
    return connect(sender, receiver)


def node_sender(api: EmbeddedAPI, place: NodePath, *, raw: bool, progress: Progress) -> End:
    """The end that sends a file or folder of a node. raw: only a file's content. progress: is
    called for a node that has ended, whose files are read here. Raises InvalidInput, NotFound,
    Forbidden."""
    run, node = _find_node(api, place)
    if _is_running(run, node):
        running = api.node_to_copy(run.id, node.rank, f"from {place.path}")
        return EndInNode(place, running, "read" if raw else "send")
    api.record_copy(run.id, node.rank, f"from {place.path}")
    saved = open_saved(api, place, run, node)
    name = transfer.name_of(place.path)

    def send(stream: IO[bytes], report: transfer.Report) -> None:
        if raw:
            transfer.send_content(saved.descriptor, stream)
            return
        if saved.lacks:
            report(f"{name}: {saved.lacks}")
        send_opened(saved.descriptor, name, stream, report, saved.walk)

    return EndHere(str(place), "wb", send, progress)


def node_receiver(api: EmbeddedAPI, place: NodePath, *, raw: bool) -> End:
    """The end that receives to a path of a running node. Raises as `node_sender`."""
    run, node = _find_node(api, place)
    if not _is_running(run, node):
        text = f"nothing can be copied to node-{node.rank} of {run.name}: it is {node.state}"
        raise InvalidInput(
            Problem(str(place), text, "to give nodes files when they start, use a mount")
        )
    running = api.node_to_copy(run.id, node.rank, f"to {place.path}")
    return EndInNode(place, running, "write" if raw else "receive")


def _find_node(api: EmbeddedAPI, place: NodePath) -> tuple[RunSummary, NodeRecord]:
    """The run and the node of a place. Raises InvalidInput."""
    run = api.find_run(place.run)
    hint = f"write {place.run}:RANK:{place.path}"
    return run, choose(api.store, run, place.rank, field=str(place), hint=hint)


def _is_running(run: RunSummary, node: NodeRecord) -> bool:
    return not (RunState(run.state).at_rest or NodeState(node.state).ended)


#: Starts the program with Muster's own Python, with that of a node on another machine, or with the
#: first one: a node may see neither Muster's nor the files of this package.
_START = """
for python in "$0" "$MUSTER_NODE_PYTHON" python3; do
    command -v "$python" >/dev/null && exec "$python" -I -S -c "$@"
done
echo "the node has no Python 3, which copies files there" >&2
exit 127
"""


def _file(content: bytes) -> IO[bytes]:
    """A file without a name, to be read from its start. Raises OSError."""
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
    try:
        write_all(file.fileno(), content)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


class EndInNode:
    """An end in a running node."""

    def __init__(self, place: NodePath, node: RunningNode, action: str) -> None:
        self._place, self._node, self._action = place, node, action
        self._messages: IO[bytes] | None = None  # from `start` on, until `finish` or `stop`
        self._process: NodeProcess | None = None
        #: The program, which an end that sends has in a file.
        self.preamble = transfer.program()

    def start(self, descriptor: int) -> None:
        """See `End`."""
        words = (sys.executable, transfer.LOADER, str(len(self.preamble)), self._action)
        argv = ("sh", "-c", _START, *words, self._place.path or ".")
        receives = self._action in ("receive", "write")
        with (
            open(descriptor, "rb" if receives else "wb") as pipe,
            open(os.devnull, "wb", buffering=0) if receives else _file(self.preamble) as other,
        ):
            stdin, stdout = (pipe, other) if receives else (other, pipe)
            messages = tempfile.TemporaryFile()  # noqa: SIM115
            try:
                stdio = Stdio(stdin, stdout, messages)
                self._process = run_in_node(self._node, NodeCommand(argv), stdio)
            except BaseException:
                messages.close()
                raise
            self._messages = messages

    def finish(self) -> Outcome:
        """See `End`."""
        assert self._process is not None and self._messages is not None, "it has been started"
        code = self._process.wait()
        with self._messages as file:
            file.seek(0)
            text = file.read().decode(errors="replace").strip()
        if code in (transfer.OK, transfer.INCOMPLETE):
            # a line each, in which names are escaped; str.splitlines would break more
            return Outcome(tuple(text.split("\n")) if text else ())
        if code != transfer.FAILED:
            return Outcome(failed=True, error=EngineError(f"{self._place}: {text or code}"))
        problem = InvalidInput(Problem(str(self._place), text)) if text else None
        return Outcome(failed=True, error=problem)

    def stop(self) -> None:
        """See `End`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()
        if self._messages is not None:
            self._messages.close()
