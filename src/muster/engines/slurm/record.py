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
    #: Whether the job was there before the run, which may not end it.
    lent: bool = False
    #: slot -> the name of its node in Slurm, of those that are known.
    hosts: dict[int, str] = {}


class Record(Struct, frozen=True):
    """The jobs of a run."""

    #: The folder of the run that nodes share.
    folder: str
    allocations: tuple[Allocation, ...] = ()
    #: The number of the next one.
    next: int = 0
