"""Settle what servers that were killed have left, and forget what was deleted long ago."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.errors import Conflict, NotFound
from muster.server.oci.jobs import RUN_KIND
from muster.storage.request_keys import InProgress, held

if TYPE_CHECKING:
    from muster.storage.home import Home
    from muster.store.base import Store

#: Seconds for which what was deleted is listed (OCI: 30 days).
_LISTED = 30 * 86400.0
#: Seconds in which a request that was cut off is sent again: by its client, a schedule or a rule.
REPEATED_WITHIN = 120.0
_WHY = "the server was ended while it started the run"


def settle_cut_off(home: Home, store: Store, now: float) -> None:
    """Fail the job runs that a server has accepted and not started, and that nobody has asked for
    again. now: epoch seconds; a server has to run for REPEATED_WITHIN before. Raises StoreError,
    OSError."""
    for record in store.resources.in_state(RUN_KIND, "ACCEPTED", now - REPEATED_WITHIN):
        data = {**record.data, "failure": _WHY, "finishedAt": now}
        after = replace(record, state="FAILED", data=data, updated_at=now)
        # another server starts it, or has settled it meanwhile
        with suppress(InProgress, Conflict, NotFound), held(home, record.id, RUN_KIND):
            store.resources.update(record, after)


def forget_deleted(store: Store, now: float) -> None:
    """Forget what was deleted long ago. now: epoch seconds. Raises StoreError."""
    store.resources.forget_deleted(now - _LISTED)
