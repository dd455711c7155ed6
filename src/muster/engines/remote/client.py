"""A connection to the supervisor of a run, which passes streams on to its nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from muster.engines.loop import EventLoop
from muster.engines.remote.proxy import SOCKET, hello
from muster.engines.remote.waiting import Waits
from muster.errors import EngineError
from muster.node import unix_sockets
from muster.node.connection import Connection
from muster.node.greeting import PROTOCOL
from muster.node.link import Link
from muster.node.streams import Stream, Streams
from muster.storage.home import RunDir

#: Gets the streams that have changed.
OnChange = Callable[[Sequence[Stream]], None]

#: Seconds for the supervisor to say hello.
_GREETING_TIMEOUT = 30.0


class Client:
    """Makes the connection (see `remote.proxy`). The thread that has made it, or one that continues
    in its place, runs the loop; the others only post to it. Raises EngineError if the supervisor
    does not answer.

    timeout: seconds for that.
    """

    def __init__(self, folder: RunDir, timeout: float = _GREETING_TIMEOUT) -> None:
        self.loop = EventLoop()
        self._on_change: OnChange = lambda _: None
        try:
            self._connection = Connection(unix_sockets.connect(str(folder.path), SOCKET))
        except OSError as error:
            self.loop.close()
            why = error.strerror or str(error)
            raise EngineError(f"the run's supervisor cannot be reached: {why}") from None
        #: The streams, which end with the connection.
        self.streams = Streams(supervisor=True)
        self._participant = self.loop.add(self._step)
        self._waits = Waits(self._participant)
        self._greeted = False
        try:
            self._participant.notify()
            self.wait_for(lambda: self._greeted, timeout)
        except BaseException:
            self.close()
            raise

    @property
    def lost(self) -> str:
        """Why there is no connection any more; "" while there is one."""
        why = self._connection.ended
        if not why:
            return ""
        if not self._greeted:
            return f"the run's supervisor cannot be reached: {why}"
        return f"contact with the run's supervisor was lost: {why}"

    def on_change(self, call: OnChange) -> None:
        """Call this when something has arrived on streams, or they have ended with the
        connection."""
        self._on_change = call

    def open(self, rank: int, kind: str, **more: Any) -> Stream:
        """Open a stream of a node. more: what else it is about."""
        return self.streams.open({"node": rank, "kind": kind, **more})

    def wake(self) -> None:
        """Something is to be written on a stream."""
        self._participant.notify()

    def until(self, done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Run the loop until this holds, or for so many seconds. Returns whether it does. Raises
        EngineError if the connection is lost before."""
        deadline = None if timeout is None else time.monotonic() + timeout
        timer = self.loop.add(lambda _: None)
        timer.wake_at(deadline)
        try:
            while not done():
                if self.lost:
                    raise EngineError(self.lost)
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                self.loop.run_once()
            return True
        finally:
            timer.close()

    def wait_for(self, done: Callable[[], bool], timeout: float) -> None:
        """Wait for something that the supervisor does at once. Raises EngineError."""
        if not self.until(done, timeout):
            raise EngineError("the run's supervisor does not answer")

    def close(self) -> None:
        """End the connection. What runs for it in nodes is hung up."""
        self._waits.clear()
        self._participant.close()
        self._connection.close()
        self.loop.close()

    def _step(self, _ready: Mapping[int, int]) -> None:
        self._connection.step()
        if not self._greeted and self._connection.hello is not None:
            self._greet(self._connection.hello)
        if self._connection.ended:  # which ends the streams
            self._waits.clear()
            self._connection.close()
        if changed := self.streams.changed():
            self._on_change(changed)
        if not self._participant.closed:
            self._waits.set(self._connection.interest())

    def _greet(self, said: Mapping[str, Any]) -> None:
        if said.get("protocol") != PROTOCOL:
            text = "the run was started by another version of Muster, and is driven by it"
            raise EngineError(text)
        self._greeted = True
        self._connection.say(hello())
        link = Link("")  # it carries no messages
        link.attach(self._connection, 0)
        self._connection.talk(link, self.streams)
