"""What an allocation does when Slurm does not know its job any more."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from muster.engines.remote.contact import Arrivals
from muster.engines.slurm.hosts import SlurmHosts, _Slot
from muster.engines.slurm.record import Allocation, Record
from muster.lifecycle.status import Reason


class Owner:
    """Notes what it is told of slots."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str]] = []

    def gone(self, slot: int, why: str, _reason: Reason = Reason.NODE_LOST) -> None:
        self.told.append((slot, why))


@pytest.fixture
def hosts(tmp_path: Path) -> Any:
    """With a job that has two nodes: there is contact with both."""
    made: Any = SlurmHosts.__new__(SlurmHosts)  # without a cluster
    made.now = 100.0
    made._loop = SimpleNamespace(now=lambda: made.now)
    made._owner, made._closed, made._over, made._components = Owner(), False, False, {}
    made._watcher = SimpleNamespace(forget=lambda *_: None)
    made._folder, made._file, made._next = tmp_path, tmp_path / "record", 1
    made._record, made._is_unwritten = Record(str(tmp_path)), False
    made._allocations = {0: Allocation(0, (0, 1), 7)}
    made._slots = {slot: _Slot(0, Arrivals()) for slot in (0, 1)}
    return made


UNKNOWN = "Slurm does not know job 7 any more"


def test_nodes_with_contact_are_not_gone(hosts: Any) -> None:
    hosts._seen(0, [])
    assert hosts._owner.told == []


def test_nodes_without_contact_are_gone_after_a_while(hosts: Any) -> None:
    hosts._slots[1].lost_at = 99.0
    hosts._seen(0, [])
    assert hosts._owner.told == []
    hosts.now = 110.0
    hosts._seen(0, [])
    assert hosts._owner.told == [(1, UNKNOWN)]
    assert hosts._allocations[0].slots == (0,)


def test_a_job_without_any_contact_is_gone(hosts: Any) -> None:
    for slot in hosts._slots.values():
        slot.lost_at = 80.0
    hosts._seen(0, [])
    assert hosts._owner.told == [(0, UNKNOWN), (1, UNKNOWN)]
    assert hosts._allocations == {}
