"""What has happened, for listeners. An event is recorded in the transaction of what it reports,
if somebody listens to its type in its project. Who handles it for a listener records that in
the transaction of what is done about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from muster.store.outbox_records import ListenerKind, Pending


class Outbox(Protocol):
    """See the module."""

    def pending(self, kind: ListenerKind, *, limit: int, now: float | None = None) -> list[Pending]:
        """Events that listeners of this kind have not handled, the earliest first, and those that
        were postponed after all others. now (epoch seconds): only those that are not postponed any
        more. Records that are damaged are given up."""
        ...

    def postpone(self, pending: Pending, why: str, now: float, until: float | None) -> bool:
        """Record that an event could not be handled, and why. until: when it is pending again; None
        if it is given up. False if another server has done that, or has handled the event."""
        ...

    def forget(self, until: float) -> None:
        """Delete what no listener will handle any more, and deliveries that were given up by this
        time (epoch seconds)."""
        ...
