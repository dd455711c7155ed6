"""The record of a run's jobs in the service, in the run's folder."""

from __future__ import annotations

from msgspec import field

from muster.engines.remote import allocations

#: The file in the run's folder.
RECORD = "oci.json"


class Allocation(allocations.Allocation, frozen=True):
    """Slots that share a job and its run. Recorded before these are created: whoever finds it
    creates them with the same retry tokens, or looks for their names."""

    #: OCIDs; None: not created, or that is not known.
    job: str | None = None
    run: str | None = None
    #: slot -> the name of its host, of those that are known.
    hosts: dict[int, str] = field(default_factory=dict)


#: The jobs of a run.
Record = allocations.Record[Allocation]
