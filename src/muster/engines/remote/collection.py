"""Collects what a node that has ended has left on its host: the rest of its output, and the files
of its output directories. Its end is reported when they are here.

While its host cannot be reached, an end is reported without them if they cannot change what
follows: a failure at once, and an end that was wanted after a while (`Collection.waits_until`). The
end of a program that has succeeded waits: without its outputs, it has not.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from muster.engines.loop import RunLoop
from muster.engines.remote.contact import Contact
from muster.engines.remote.output import NodeOutput
from muster.escapes import visible_line
from muster.lifecycle.events import NodeEnded
from muster.lifecycle.status import Reason
from muster.node.records import InvalidRecord, read
from muster.node.streams import Stream, Streams

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

#: Seconds for which an end that was requested, or a session that closes, waits for the outputs of a
#: host that cannot be reached.
OUTPUT_TIMEOUT = 30.0
#: Bytes of a folder that are kept in memory until it is unpacked; more are in a file.
_IN_MEMORY = 64 << 10
#: Unpacks a file into a folder. Raises OSError.
Receive = Callable[[IO[bytes], Path], None]
#: Whether a file that has arrived is to be written: (folder that it is unpacked into, path in it).
Wanted = Callable[[Path, str], bool]


class Unpacker:
    """Unpacks what was received, in a thread: it may be large."""

    def __init__(self, loop: RunLoop) -> None:
        self._loop = loop
        self._threads: ThreadPoolExecutor | None = None

    def unpack(
        self, spool: IO[bytes], target: Path, receive: Receive, done: Callable[[str], None]
    ) -> None:
        """Unpack a file into a folder, with a function. done: gets why it failed, or "", in the
        loop's thread."""
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor  # few nodes leave files

            self._threads = ThreadPoolExecutor(1)
        self._threads.submit(self._run, spool, target, receive, done)

    def _run(
        self, spool: IO[bytes], target: Path, receive: Receive, done: Callable[[str], None]
    ) -> None:
        why = ""
        try:
            with spool:
                spool.seek(0)
                receive(spool, target)
        except OSError as error:
            why = f"{error.filename or target}: {error.strerror or error}"
        except Exception as error:  # noqa: BLE001  a bug, which must not hold the node's end back
            why = f"{type(error).__name__}: {error}"
        self._loop.post(lambda: done(why))

    def close(self) -> None:
        """Unpack nothing more than what was begun."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)


def receive_tree(spool: IO[bytes], target: Path, wanted: Wanted) -> None:
    """Unpack what has arrived into a folder, which is created. Raises OSError."""
    from muster.node.transfer import receive  # few supervisors have nodes elsewhere

    target.mkdir(parents=True, exist_ok=True)
    receive(str(target), spool, report_left_out, lambda name, _: wanted(target, name))


def report_left_out(text: str) -> None:
    """Log what cannot be copied, and why."""
    sys.stderr.write(f"muster: an output was not copied: {text}\n")


class TreeResult(NamedTuple):
    """What a node server says when it has sent a tree (`node.tree_streams`)."""

    left_out: Sequence[str] = ()
    error: str = ""


class TreeCopy:
    """One folder on its way here. path: on the host. target: here. changed: called when it was
    unpacked. receive: unpacks what has arrived. spool: the folder with what has, until then; None:
    that of the target. own: see `node.tree_streams`."""

    def __init__(
        self,
        path: str,
        target: Path,
        unpacker: Unpacker,
        changed: Callable[[], None],
        receive: Receive,
        spool: Path | None = None,
        own: str = "",
    ) -> None:
        self._about = {"kind": "tree", "path": path, "own": own}
        self._target, self._unpacker = target, unpacker
        self._changed = changed
        self._unpack, self._place = receive, spool or target.parent
        self._stream: Stream | None = None
        self._streams: Streams | None = None  # of the connection of the stream
        self._spool: IO[bytes] | None = None  # None while it is unpacked
        self.done = False
        #: Why it could not be copied, for people; "" if it was.
        self.failure = ""

    def step(self, contact: Contact) -> None:
        """Receive what has arrived. contact: with the node's server."""
        if self.done:
            return
        try:
            if self._stream is None:
                self._open(contact)
            elif self._spool is not None:
                self._receive(contact, self._stream, self._spool)
        except OSError as error:  # such as a full disk
            self._end(contact, error.strerror or str(error))

    def _open(self, contact: Contact) -> None:
        if contact.up:
            # most nodes leave little, and thousands may end together: few of them take a file
            place = str(self._place)
            self._spool = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=place)  # noqa: SIM115
            self._streams = contact.streams
            self._stream = self._streams.open(self._about)
            contact.wake()

    def _receive(self, contact: Contact, stream: Stream, spool: IO[bytes]) -> None:
        if data := stream.take():
            spool.write(data)
            contact.wake()  # to make room for more
        if stream.result is not None:
            self._log_left_out(stream.result)
            if not spool.tell():  # the folder does not exist there, or is empty
                self._end(contact, "")
                return
            self._spool = None
            unpack = self._unpacker.unpack
            unpack(spool, self._target, self._unpack, lambda why: self._unpacked(contact, why))
        elif stream.canceled:
            self.close()
            self._stream = None
            if contact.up and self._streams is contact.streams:
                self._end(contact, stream.canceled)

    def _log_left_out(self, result: Mapping[str, object]) -> None:
        """Say what the host has not sent. Raises OSError if it does not say that as it should."""
        try:
            texts = read(TreeResult, result).left_out
        except InvalidRecord as error:
            raise OSError(f"its host has sent an invalid result: {error}") from None
        for text in texts:
            report_left_out(visible_line(text))

    def _unpacked(self, contact: Contact, why: str) -> None:
        self._end(contact, why)
        self._changed()

    def _end(self, contact: Contact, why: str) -> None:
        """It was kept here, or cannot be copied."""
        why = visible_line(why)  # it may name a file whose name is no text
        if self._stream is not None and self._streams is contact.streams:
            if why:
                self._stream.cancel(why)
            else:
                self._stream.finish({})
            contact.wake()
        self.close()
        self.done, self.failure = True, why

    def close(self) -> None:
        """Receive no more. May be repeated."""
        spool, self._spool = self._spool, None
        if spool is not None:
            with contextlib.suppress(OSError):  # it writes what it has in memory: a full disk
                spool.close()


class Collection:
    """What is collected when an incarnation has ended. attempt: that it belonged to. output: None
    if there is none. wanted: whether it was to end. folder: the node's on its host."""

    def __init__(
        self,
        event: NodeEnded,
        attempt: int | None,
        output: NodeOutput | None,
        trees: Sequence[TreeCopy],
        *,
        wanted: bool = False,
        folder: str = "",
    ) -> None:
        self._event, self._output, self._trees = event, output, trees
        self._folder = folder
        self.attempt = attempt
        self.wanted = wanted
        #: Whether the end was reported.
        self.reported = False
        if output is not None:
            output.finish()

    @property
    def done(self) -> bool:
        """Whether everything is here, or cannot be had."""
        return (self._output is None or self._output.done) and all(t.done for t in self._trees)

    @property
    def has_failed(self) -> bool:
        """Whether some files could not be copied."""
        return any(tree.failure for tree in self._trees)

    def waits_until(self, lost_at: float) -> float | None:
        """When to report the end without what is not here. lost_at: since when there is no contact
        with the host. None: not before there is contact, or the host is gone."""
        if self._event.exit_code != 0:
            return lost_at
        return lost_at + OUTPUT_TIMEOUT if self.wanted else None

    def step(self, contact: Contact) -> None:
        """Receive what has arrived."""
        if self._output is not None:
            self._output.step(contact)
        for tree in self._trees:
            tree.step(contact)

    def close(self) -> None:
        """Receive no more."""
        if self._output is not None:
            self._output.close()
        for tree in self._trees:
            tree.close()

    def event(self, lost: str = "", reason: Reason = Reason.NODE_LOST) -> NodeEnded:
        """The end to report. lost: why the rest cannot be had, as the host is gone. reason: why it
        is, if the infrastructure says so."""
        failures = [tree.failure for tree in self._trees if tree.failure]
        if lost and not all(tree.done for tree in self._trees):
            if not (failures or self.wanted or reason is Reason.NODE_LOST):
                # what ended the host may have ended the program, too, which then saved its work:
                # its exit code says nothing, and no rule of the user is about it
                end = replace(self._event, exit_code=None, signal=0)
                return replace(end, reason=reason, message=lost)
            failures.append(lost)
        if not failures:
            return self._event
        text = f"its outputs could not be copied from {self._folder} on its host: {failures[0]}"
        sys.stderr.write(f"muster: node {self._event.rank}: {text}\n")
        if self._event.exit_code != 0:
            return self._event  # it has failed for another reason
        return replace(self._event, exit_code=1, reason=Reason.OUTPUT_LOST, message=text)
