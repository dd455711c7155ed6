"""The jobs of a run in Slurm, kept in the run's folder: a later supervisor finds them there.

A job is recorded before it is submitted. So one without an id may exist: its name tells.
"""

from __future__ import annotations

from msgspec import Struct

#: The file in the run's folder.
RECORD = "slurm.json"


class Allocation(Struct, frozen=True):
    """A job that has nodes for slots of a run, or is to get them."""

    number: int
    #: The slots that it is to serve and that were not given up.
    slots: tuple[int, ...]
    #: Slurm's id; None: it is being submitted, or was, and the answer is not known.
    job: int | None = None
    #: Whether the run borrows a job that it did not submit and must not cancel.
    lent: bool = False
    #: slot -> the name of its node in Slurm, of those that are known.
    hosts: dict[int, str] = {}
    #: Whether its nodes were told to save, as its job is about to reach its time limit.
    warned: bool = False
    #: Whether Slurm is ending its job, as it was preempted or has reached its time limit: nothing
    #: more starts there.
    ending: bool = False
    #: slot -> the number of its server (`Arrivals.server`), for slots that were added later. Of all
    #: others, it is that of the allocation.
    servers: dict[int, int] = {}
    #: The number of the first allocation of its job array, of which it is one task; None: its job
    #: is no array.
    array: int | None = None

    def server(self, slot: int) -> int:
        """The number of a slot's server: no other server of the run has the same one and slot."""
        return self.servers.get(slot, self.number)

    @property
    def task(self) -> int | None:
        """The number of its task in the array."""
        return None if self.array is None else self.number - self.array

    @property
    def key(self) -> str:
        """What Slurm calls its job, such as `4711`, or `4711_3` for a task of an array."""
        return f"{self.job}" if self.task is None else f"{self.job}_{self.task}"

    @property
    def name_number(self) -> int:
        """The number in the name of its job."""
        return self.number if self.array is None else self.array

    @property
    def file(self) -> str:
        """The name of the file by which its job is known, in the run's folder."""
        task = "" if self.task is None else f"_{self.task}"
        return f"job-{self.name_number}{task}"


class Record(Struct, frozen=True):
    """The jobs of a run."""

    #: The folder of the run that nodes share.
    folder: str
    allocations: tuple[Allocation, ...] = ()
    #: The number of the next one, or of the next server that is added to one.
    next: int = 0
