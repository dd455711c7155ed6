"""A session that is opened when something has happened: until then, nothing of the run exists but
its supervisor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from muster.engines.base import Report, Session
from muster.lifecycle.events import SessionClosed
from muster.lifecycle.status import NodeRef


class DeferredSession(ABC):
    """See `engines.base.Session`. The one that it passes everything to is opened by `look`."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._session: Session | None = None
        self._closed = False

    @abstractmethod
    def look(self) -> None:
        """Open the session if that is possible now. It is not open, and was not closed."""

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        """See `Session.start`."""
        if self._session is not None:
            self._session.start(attempt, nodes)

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None:
        """See `Session.signal`."""
        if self._session is not None:
            self._session.signal(nodes, number)

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.stop`."""
        if self._session is not None:
            self._session.stop(nodes)

    def kill(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.kill`."""
        if self._session is not None:
            self._session.kill(nodes)

    def release(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.release`."""
        if self._session is not None:
            self._session.release(nodes)

    def notified(self) -> None:
        """See `Session.notified`."""
        if self._session is not None:
            self._session.notified()
        elif not self._closed:
            self.look()

    def close(self) -> None:
        """See `Session.close`."""
        if self._session is not None:
            self._session.close()
        elif not self._closed:
            self._report([SessionClosed()])
        self._closed = True

    def finish_logs(self) -> None:
        """See `Session.finish_logs`."""
        if self._session is not None:
            self._session.finish_logs()
