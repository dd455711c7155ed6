"""The spec of a stored Job or run, with its secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.storage.home import Home
from muster.storage.sealing import unseal
from muster.store.records import JobRecord, RunRecord

if TYPE_CHECKING:
    from muster.spec.models import JobSpec


def spec_of(home: Home, record: JobRecord | RunRecord) -> JobSpec:
    """The decoded spec. Raises InvalidInput if it has secrets and the key for them is missing."""
    from muster.spec.resolve import spec_from_json

    what = f"job {record.handle}" if isinstance(record, JobRecord) else f"run {record.name}"
    return spec_from_json(unseal(home, record.spec, what))
