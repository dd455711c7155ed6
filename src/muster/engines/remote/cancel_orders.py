"""What a user orders with the cancellation of a run, in the run's folder: for its supervisor, and
for the next one."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from muster.engines.remote.record import read_record, write_record

#: The file in the run's folder.
_FILE = "cancel.json"


class CancelOrder(Struct, frozen=True):
    """How the run is canceled."""

    #: The run ends soon, also if what it has elsewhere cannot be removed, or does not end.
    force: bool = False
    #: The workload that it has adopted stays as it is.
    keep: bool = False


def read_order(folder: Path) -> CancelOrder:
    """What was ordered. Raises OSError."""
    return read_record(folder / _FILE, CancelOrder) or CancelOrder()


def is_forced(folder: Path) -> bool:
    """Whether a user ends the run by force, as far as that can be read."""
    try:
        return read_order(folder).force
    except OSError:
        return False


def add_order(folder: Path, *, force: bool, keep: bool) -> None:
    """Order more. Raises OSError."""
    before = read_order(folder)
    write_record(folder / _FILE, CancelOrder(before.force or force, before.keep or keep))
