"""What nodes on other machines use is recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from muster.engines.remote import usage as usage_module
from muster.engines.remote.usage import RemoteUsage
from muster.node.counters import Counters
from muster.storage.home import Home, RunDir
from muster.storage.usage import NodeUsage, read_usage
from support.faults import until
from support.sessions import Session

MakeSession = Callable[..., Session]


@pytest.fixture
def kind(prepare: Callable[[str], str]) -> str:
    return prepare("servers")


def usage_of(one: Session) -> dict[int, NodeUsage]:
    return read_usage(Home(one.home).run_dir(one.plan.run_id))


#: A little more than 0.3 s: the kernel counts hundredths.
BURN = 'python -c "import time\nwhile time.process_time() < 0.33: pass"'


@pytest.mark.parametrize("keep", [True, False])
def test_a_node_that_ends_between_two_samples(session: MakeSession, keep: bool) -> None:
    one = session(BURN, nodes=2, keep=keep)
    for incarnation in (0, 1):
        one.start(0, 1, incarnation=incarnation)
        one.ended(0, 1, incarnation=incarnation)
    assert one.close() == 0
    found = usage_of(one)
    assert found.keys() == {0, 1}
    for used in found.values():
        assert 0.5 <= used.cpu_seconds < 1.2, "of both incarnations"
        assert used.seconds > 0


def test_a_node_that_runs_is_asked(session: MakeSession) -> None:
    one = session(f"{BURN}; echo burnt; exec sleep 1000")
    one.start(0)
    one.ready(0)
    one.wait_for_output("burnt")

    def is_recorded() -> bool:  # every 10 s
        return usage_of(one).get(0, NodeUsage()).memory_average is not None

    until(is_recorded, "the file is written")
    one.kill(0)
    one.ended(0)
    assert one.close() == 0
    used = usage_of(one)[0]
    assert used.memory_peak is not None and used.memory_peak > 100_000
    assert 0.3 <= used.cpu_seconds < 1.0


# --- without nodes


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(usage_module, "time", self)

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def recorder(folder: Path, clock: Clock) -> RemoteUsage:
    return RemoteUsage(RunDir(folder), clock.time, lambda rank: rank >= 100)


def heard(one: RemoteUsage, cpu: float) -> None:
    one._add(0, Counters(cpu, 1 << 20, 0, 0, None, None, 1))


def test_another_supervisor_goes_on(tmp_path: Path, clock: Clock) -> None:
    first = recorder(tmp_path, clock)
    first.start(0, 2, 0)
    clock.now += 10
    heard(first, 4.0)
    first.close()
    clock.now += 100
    second = recorder(tmp_path, clock)
    second.start(0, 2, 0)
    clock.now += 10
    second.end(0, 9.0)
    second.close()
    used = read_usage(RunDir(tmp_path))[0]
    assert (used.cpu_seconds, used.seconds) == (9.0, 120.0)
    assert second.due is None


def test_another_agent_begins_at_nothing(tmp_path: Path, clock: Clock) -> None:
    one = recorder(tmp_path, clock)
    one.start(0, 0, 0)
    one.end(0, 5.0, kept_in=0)
    one.start(0, 1, 0)  # the same one
    one.end(0, 7.0, kept_in=0)
    one.start(0, 2, 0)  # it had ended
    one.end(0, 3.0)
    one.end(0, 3.0)
    one.close()
    assert read_usage(RunDir(tmp_path))[0].cpu_seconds == 10.0


def test_a_node_that_takes_over_an_agent_begins_with_what_that_has_used(
    tmp_path: Path, clock: Clock
) -> None:
    one = recorder(tmp_path, clock)
    one.start(100, 0, 3)
    one.end(100, 5.0, kept_in=3)
    one.start(104, 0, 3)
    one.end(104, 7.0, kept_in=3)
    one.close()
    found = read_usage(RunDir(tmp_path))
    assert {rank: used.cpu_seconds for rank, used in found.items()} == {100: 5.0, 104: 2.0}


def test_of_an_array_the_usage_of_the_nodes_that_have_ended_last_is_kept(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.storage.usage.MOST_ENDED", 2)
    one = recorder(tmp_path, clock)
    for rank in (0, 100, 101, 102):
        one.start(rank, 0, rank)
        one.end(rank, 1.0)
    one.close()
    assert read_usage(RunDir(tmp_path)).keys() == {0, 101, 102}


def test_many_nodes_are_asked_less_often(tmp_path: Path, clock: Clock) -> None:
    one = recorder(tmp_path, clock)
    one.start(0, 0, 0)
    assert one.due == clock.now + 1
    clock.now += 1000
    one.ask({})
    assert one.due == clock.now + 10
    for rank in range(2000):
        one.start(rank, 0, rank)
    one.ask({})
    assert one.due == clock.now + 40
