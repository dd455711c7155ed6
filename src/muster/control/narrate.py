"""What happened between two statuses, as entries of the run's event log. Pure."""

from __future__ import annotations

from typing import Any

from muster.lifecycle.model import RunStatus

Entry = tuple[str, dict[str, Any]]


def narrate(before: RunStatus | None, after: RunStatus) -> list[Entry]:
    """One entry for each change of the run's state, its intention, and each node's state."""
    entries: list[Entry] = []
    if before is None or before.state is not after.state:
        entries.append(("run", {"state": after.state, "details": after.details}))
    if after.stopping is not None and (before is None or before.stopping is None):
        stopping = after.stopping
        entries.append(("stopping", {"towards": stopping.outcome, "why": stopping.details}))
    for rank, node in enumerate(after.nodes):
        was = before.nodes[rank] if before is not None else None
        if was is not None and was.state is not node.state:
            data: dict[str, Any] = {"rank": rank, "state": node.state}
            if node.state.ended:
                data |= {"exit_code": node.exit_code, "signal": node.signal}
            entries.append(("node", data))
    return entries
