"""The reservations of all runs of one MUSTER_HOME on this host: a table in a file, with a lock.

A reservation lasts as long as the run's liveness pipe is held open, by the process that submits the
run and then by its supervisor. The kernel closes the pipe when they end, however they end, which
wakes the supervisors that have it open. Reservations that have lapsed are dropped with the next
change.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from muster.engines import admission
from muster.engines.admission import Amounts, Capacity, Reservation
from muster.engines.reservations.demands import count_gpus_of, demand_of, uses_gpus
from muster.file_locks import flock
from muster.node.files import open_or_replace, read_regular, replace_file
from muster.node.machine import count_cpus, count_memory, gpu_numbers
from muster.plan.model import RunPlan
from muster.storage.home import Home
from muster.storage.liveness import has_supervisor, watch_liveness
from muster.storage.wakeup import notify
from muster.unix_account import as_root

_DECODER = msgspec.json.Decoder(tuple[Reservation, ...])

#: Makes the table if there is none: the reservations of the runs in progress.
Rebuild = Callable[[], Iterable[Reservation]]


def machine_capacity() -> Capacity:
    """What this machine has."""
    return Capacity(count_cpus(), count_memory())


def visible_gpus(plan: RunPlan) -> tuple[int, ...]:
    """The GPUs that a run may be given that reserves for the first time."""
    return tuple(gpu_numbers()) if uses_gpus(plan) else ()


def needs_of(plan: RunPlan, replicas: Mapping[str, int], gpus: int) -> Amounts:
    """What the nodes of a run need together: the CPUs and the memory that the job asks for, and the
    GPUs that the nodes get. A shape asks for GPUs alone: its nodes share CPUs and memory.

    replicas: how many of each group. gpus: how many the run may be given.
    """
    cpus, memory = 0.0, 0
    for group in plan.groups:
        nodes, demand = replicas[group.name] * group.nodes, demand_of(group.resources)
        cpus += nodes * (demand.cpus or 0)
        memory += nodes * (demand.memory or 0)
    return Amounts(round(cpus, 6), memory, count_gpus_of(plan, replicas, gpus))


class Reservations:
    """The table of one MUSTER_HOME."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._path = home.of_host("reservations.json")
        self._lock = home.of_host("reservations.lock")

    def read(self) -> list[Reservation]:
        """The reservations of all runs that have a supervisor."""
        return [one for one in self._stored() or () if has_supervisor(self._home, one.run_id)]

    def find(self, run_id: str) -> Reservation | None:
        """The reservation of a run; None if it has none, or no supervisor."""
        return next((one for one in self.read() if one.run_id == run_id), None)

    @contextmanager
    def change(self, rebuild: Rebuild = tuple) -> Iterator[dict[str, Reservation]]:
        """Lock the table and yield it, by run id, to be changed. Nothing changes if an exception is
        raised."""
        with as_root(), _locked(self._lock):
            stored = self._stored()
            table = {one.run_id: one for one in (rebuild() if stored is None else stored)}
            live = {key: one for key, one in table.items() if has_supervisor(self._home, key)}
            yield live
            changed = tuple(sorted(live.values(), key=admission.order))
            if changed != stored:
                replace_file(self._path, msgspec.json.encode(changed), 0o600)

    def drop_lapsed(self) -> None:
        """Drop reservations that have lapsed: for a run that is to reserve anew, before its pipe is
        opened again."""
        if self._path.exists():
            with self.change():
                pass

    def watch(self, runs: Sequence[Reservation]) -> list[int] | None:
        """Descriptors that hang up when one of these runs ends; None if one has ended already."""
        opened: list[int] = []
        for one in runs:
            descriptor = watch_liveness(self._home, one.run_id)
            if descriptor is None:
                for other in opened:
                    os.close(other)
                return None
            opened.append(descriptor)
        return opened

    def wake(self, runs: Iterable[Reservation]) -> None:
        """Wake the supervisors of waiting runs, which then look whether they may start."""
        for one in runs:
            notify(self._home.run_dir(one.run_id).wakeup)

    @as_root()
    def _stored(self) -> tuple[Reservation, ...] | None:
        """None if there is no table, or none that can be read."""
        try:
            return _DECODER.decode(read_regular(self._path))
        except (OSError, msgspec.DecodeError):
            return None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = open_or_replace(path, os.O_RDWR, 0o600)
    try:
        flock(descriptor, fcntl.LOCK_EX, path)
        yield
    finally:
        os.close(descriptor)
