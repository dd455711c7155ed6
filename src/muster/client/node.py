"""The Python API of a node of a run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from muster.client.item import ItemRecord
from muster.describe.times import optional_moment, span
from muster.lifecycle.states import NodeState

if TYPE_CHECKING:
    from muster.store.records import NodeRecord

#: Whether a node whose program runs is ready is shown beside its state.
_RUNNING = (NodeState.RUNNING, NodeState.READY)


class Node(ItemRecord, frozen=True):
    """One node of a run. Times are aware, in UTC; None: has not happened yet."""

    rank: int
    group: str
    replica: int
    index: int
    node_id: str
    fqdn: str
    address: str
    state: str
    exit_code: int | None
    started_at: datetime | None
    finished_at: datetime | None
    unreachable_since: datetime | None = None
    """Since when it cannot be reached: its processes may run or not."""
    unreachable_why: str = ""
    """Why it cannot be reached; empty if it can."""
    waits_for: str = ""
    """What it waits for while it is QUEUED."""
    host: str = ""
    """The machine that it is on, if that is not this one."""
    host_id: str = ""
    """What its infrastructure calls the place that it has there: the name of its pod or container,
    the id of its job of Slurm, or the OCID of its job run; empty if there is none, or none yet."""

    def _cells(self) -> dict[str, str]:
        runs = self.state in _RUNNING
        return {
            "RANK": str(self.rank),
            "GROUP": self.group,
            "NAME": self.fqdn,
            "STATE": "RUNNING" if runs else self.state,
            "READY": self._ready() if runs or self.unreachable_since else "-",
            "EXIT": "-" if self.exit_code is None else str(self.exit_code),
            "TIME": "-" if (seconds := self.seconds) is None else span(seconds),
        }

    def _ready(self) -> str:
        if self.unreachable_since is not None:
            return "unreachable"
        return "yes" if self.state == NodeState.READY else "no"

    @property
    def seconds(self) -> float | None:
        """Seconds from its start to its end or until now; None before it starts."""
        if self.started_at is None:
            return None
        return ((self.finished_at or datetime.now(UTC)) - self.started_at).total_seconds()

    def __str__(self) -> str:
        cells = self._cells()
        ready = {"yes": ", ready", "no": ", not ready", "-": ""}
        note = ready.get(cells["READY"], f", cannot be reached ({self.unreachable_why})")
        if self.waits_for:
            note = f" ({self.waits_for}){note}"
        took = "" if self.seconds is None else f" after {cells['TIME']}"
        return f"{self.fqdn} ({self.group}) is {cells['STATE']}{note}{took}"


def node_from(record: NodeRecord) -> Node:
    """The node of a stored record."""
    return Node(
        rank=record.rank,
        group=record.group,
        replica=record.replica,
        index=record.index,
        node_id=record.node_id,
        fqdn=record.fqdn,
        address=record.known_address,
        state=str(record.state),
        exit_code=record.exit_code,
        started_at=optional_moment(record.started_at),
        finished_at=optional_moment(record.finished_at),
        unreachable_since=optional_moment(record.unreachable_since),
        unreachable_why=record.unreachable_why,
        waits_for=record.waits_for,
        host=record.host,
        host_id=record.host_id,
    )
