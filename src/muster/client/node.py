"""The Python API of a node of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from datetime import datetime

    from muster.store.records import NodeRecord


class Node(Struct, frozen=True):
    """One node of a run. Times are timezone-aware; None = has not happened yet."""

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

    def to_dict(self) -> dict[str, Any]:
        """The node as JSON-ready data; times as RFC 3339 text."""
        from muster.describe.times import rfc3339

        data = {name: getattr(self, name) for name in self.__struct_fields__}
        return data | {k: rfc3339(data[k]) for k in ("started_at", "finished_at")}


def node_from(record: NodeRecord) -> Node:
    """The node of a stored record."""
    from muster.describe.times import moment

    return Node(
        rank=record.rank,
        group=record.group,
        replica=record.replica,
        index=record.index,
        node_id=record.node_id,
        fqdn=record.fqdn,
        address=record.address,
        state=str(record.state),
        exit_code=record.exit_code,
        started_at=moment(record.started_at),
        finished_at=moment(record.finished_at),
    )
