"""The spec of a stored Job or run, and the overrides of a run, with their secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.errors import InvalidInput, Problem
from muster.storage.home import Home
from muster.storage.sealing import unseal
from muster.store.records import JobRecord, RunRecord

if TYPE_CHECKING:
    from muster.spec.models import JobSpec
    from muster.spec.override_models import RunOverrides


def spec_of(home: Home, record: JobRecord | RunRecord) -> JobSpec:
    """The decoded spec. Raises InvalidInput if it has secrets and the key for them is missing."""
    from muster.spec.resolve import spec_from_json

    what = f"job {record.handle}" if isinstance(record, JobRecord) else f"run {record.name}"
    return spec_from_json(unseal(home, record.spec, what))


def overrides_of(home: Home, run: RunRecord) -> RunOverrides:
    """Those that a run was started with. Raises InvalidInput as `spec_of`."""
    from muster.spec.decode import decode
    from muster.spec.override_models import RunOverrides

    problems: list[Problem] = []
    overrides = decode(RunOverrides, unseal(home, run.overrides, f"run {run.name}"), problems)
    if overrides is None:
        raise InvalidInput(*problems)
    return overrides
