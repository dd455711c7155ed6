"""Settle what servers that were killed have left, and forget what was deleted long ago."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.server.oci.jobs import RUN_KIND

if TYPE_CHECKING:
    from muster.store.base import Store

#: Seconds for which what was deleted is listed (OCI: 30 days).
_LISTED = 30 * 86400.0
#: Seconds in which a run is started.
_STARTED_WITHIN = 3600.0
_WHY = "the server was ended while it started the run"


def clean_up(store: Store, now: float) -> None:
    """See the module. now: epoch seconds. Raises StoreError."""
    for record in store.resources.in_state(RUN_KIND, "ACCEPTED", now - _STARTED_WITHIN):
        data = {**record.data, "failure": _WHY, "finishedAt": now}
        store.resources.update(record, replace(record, state="FAILED", data=data, updated_at=now))
    store.resources.forget_deleted(now - _LISTED)
