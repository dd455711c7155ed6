"""The event logs of runs. Entries are numbered from 1 within their run, without gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from muster.store.records import EventRecord


class Events(Protocol):
    """See the module."""

    def since(self, run_id: str, seq: int = 0, limit: int | None = None) -> list[EventRecord]:
        """Entries after number `seq`, in order. limit: only the first ones. Raises
        CorruptRecord."""
        ...

    def count(self, run_id: str, kind: str) -> int:
        """The number of entries of a kind."""
        ...

    def count_since_last_node_entry(self, run_id: str, kind: str, after: float = 0.0) -> int:
        """The number of entries of a kind after the last entry about nodes. after: without those
        that were recorded by then (epoch seconds)."""
        ...

    def last(self, run_id: str) -> int:
        """The number of the newest entry; 0 if there is none."""
        ...

    def last_time(self, run_id: str, kind: str | None = None) -> float:
        """When the newest entry was recorded, or the newest of a kind (epoch seconds); 0 if there
        is none."""
        ...
