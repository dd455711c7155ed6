"""The record of a run's jobs in the service, in the run's folder."""

from __future__ import annotations

from msgspec import Struct

#: The file in the run's folder.
RECORD = "oci.json"


class Allocation(Struct, frozen=True):
    """Slots that share a job and its run. Recorded before these are created: whoever finds it
    creates them with the same retry tokens, or looks for their names."""

    number: int
    #: The slots that it is to serve and that were not given up.
    slots: tuple[int, ...]
    #: All slots for which it was made.
    made_for: tuple[int, ...]
    #: OCIDs; None: not created, or that is not known.
    job: str | None = None
    run: str | None = None
    #: slot -> the name of its host, of those that are known.
    hosts: dict[int, str] = {}

    @property
    def is_unneeded(self) -> bool:
        """Whether its job is to be ended and deleted."""
        return not self.slots


class Record(Struct, frozen=True):
    """The jobs of a run."""

    allocations: tuple[Allocation, ...] = ()
    #: The number of the next one.
    next: int = 0
    #: The port where nodes dial: a later supervisor listens there, as their settings have it.
    port: int = 0
