"""Allocations and their record: what a later supervisor finds, and what is removed when."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.conftest import PlanOf
from muster.engines.base import RunContext
from muster.engines.loop import EventLoop, RunLoop
from muster.engines.remote import allocations
from muster.engines.remote.allocations import Allocation, Allocations, NotRemoved, Record
from muster.engines.remote.cancel_orders import add_order
from muster.engines.remote.record import read_record
from muster.storage.home import Home

TIMEOUT = 20.0
FILE = "allocations.json"


class Rooms(Allocations[Allocation, Record[Allocation]]):
    """Allocations that are removed when the test says so."""

    place = "in the house"
    problem: NotRemoved | None = None

    def begin(self) -> None:
        self.removed: list[int] = []
        self.writes = 0
        self.keeps_problem = False
        self.may_remove = threading.Event()

    def add(self, *slots: int) -> Allocation:
        one = Allocation(self._record.next, slots, slots)
        self._add(one)
        return one

    def _label(self, one: Allocation) -> str:
        return f"room {one.number}"

    def _remove(self, one: Allocation) -> NotRemoved | None:
        assert self.may_remove.wait(TIMEOUT)
        self.removed.append(one.number)
        problem = self.problem
        self.problem = problem if self.keeps_problem else None
        return problem

    def _write(self) -> None:
        super()._write()
        self.writes += 1

    @property
    def recorded(self) -> dict[int, tuple[int, ...]]:
        """Number -> slots, as a later supervisor finds them."""
        found = read_record(self._file, Record[Allocation])
        return {} if found is None else {one.number: one.slots for one in found.allocations}


class World:
    """A run and its loop."""

    def __init__(self, context: RunContext) -> None:
        self.context, self.loop = context, EventLoop()
        self.failures: list[Exception] = []
        self.freeing: list[bool] = []
        self.left = ""

    def session(self) -> Rooms:
        run = RunLoop(self.loop, self.failures.append)
        made = Rooms(self.context, FILE, Record[Allocation], run, self._free)
        made.begin()
        return made

    def _free(self, busy: bool, left: str) -> None:
        self.freeing.append(busy)
        self.left = left

    def until(self, holds: Callable[[], object]) -> None:
        late = self.loop.add(lambda _: pytest.fail("nothing has happened"))
        late.wake_at(self.loop.now() + TIMEOUT)
        while not holds():
            self.loop.run_once()
            assert self.failures == []
        late.close()


def context_in(folder: Path, plan_of: PlanOf) -> RunContext:
    home, plan = Home(folder), plan_of(nodes=4)
    home.run_dir(plan.run_id).path.mkdir(parents=True)
    return RunContext(plan, home, {}, sys.executable)


@pytest.fixture
def world(tmp_path: Path, plan_of: PlanOf) -> Iterator[World]:
    made = World(context_in(tmp_path, plan_of))
    yield made
    made.loop.close()


def test_an_allocation_is_recorded_at_once(world: World) -> None:
    one = world.session()
    one.add(0, 1)
    one.add(2)
    assert one.recorded == {0: (0, 1), 1: (2,)}
    later = world.session()
    assert [(a.number, a.slots) for a in later] == [(0, (0, 1)), (1, (2,))]
    assert later.of_slot(2) == later.get(1)
    assert later.add(3).number == 2


def test_slots_that_leave_together_are_written_once(world: World) -> None:
    one = world.session()
    one.add(0, 1, 2, 3)
    before = one.writes
    for slot in (0, 1, 2):
        one.leave(slot)
        assert one.of_slot(slot) is None
    assert one.writes == before
    world.until(lambda: one.writes == before + 1)
    assert one.recorded == {0: (3,)}
    assert one.of_slot(3) is not None


def test_what_is_not_written_yet_is_when_the_session_ends(world: World) -> None:
    one = world.session()
    one.add(0, 1)
    one.leave(0)
    one.close()
    assert one.recorded == {0: (1,)}


def test_an_allocation_without_slots_is_removed_once(world: World) -> None:
    one = world.session()
    first, second = one.add(0), one.add(1)
    one.leave(0)
    one.remove_unneeded()
    assert world.freeing[-1]
    one.may_remove.set()
    world.until(lambda: not world.freeing[-1])
    assert one.removed == [first.number] and [*one] == [second]
    assert one.recorded == {1: (1,)}


def test_one_that_cannot_be_removed_stays_recorded(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    one = world.session()
    one.problem = NotRemoved("it may not be", is_final=True)
    one.may_remove.set()
    one.abandon(one.add(0, 1))
    world.until(lambda: not world.freeing[-1])
    assert capsys.readouterr().err == "muster: room 0 could not be removed: it may not be\n"
    assert world.left == (
        "room 0 is left in the house: it may not be; `muster rm demo-1` tries it again"
    )
    assert one.recorded == {0: ()}
    one.remove_unneeded()  # the run does not wait for it again
    assert one.removed == [0] and not world.freeing[-1]


def test_one_that_cannot_be_removed_now_is_removed_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocations, "_FIRST_PAUSE", 0.01)
    one = world.session()
    one.problem = NotRemoved("no answer", is_final=False)
    one.may_remove.set()
    one.abandon(one.add(0, 1))
    world.until(lambda: one.removed)
    world.until(lambda: world.left)
    assert world.left == "room 0 cannot be deleted: no answer; this is tried again"
    assert world.freeing[-1]
    one.remove_unneeded()  # which is called often: there is one attempt at a time
    world.until(lambda: not world.freeing[-1])
    assert one.removed == [0, 0] and one.recorded == {}
    assert world.left == ""


def test_one_that_is_never_removed_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocations, "_REMOVE_TIMEOUT", 0.0)
    one = world.session()
    one.problem = NotRemoved("no answer", is_final=False)
    one.may_remove.set()
    one.abandon(one.add(0, 1))
    world.until(lambda: not world.freeing[-1])
    assert one.removed == [0] and one.recorded == {0: ()}


def test_one_that_cannot_be_removed_now_is_given_up_by_force(world: World) -> None:
    one = world.session()
    one.problem = NotRemoved("no answer", is_final=False)
    one.may_remove.set()
    add_order(world.context.home.run_dir(world.context.plan.run_id).path, force=True, keep=False)
    one.abandon(one.add(0, 1))
    world.until(lambda: not world.freeing[-1])
    assert one.removed == [0] and one.recorded == {0: ()}
    assert "room 0 is left in the house: no answer" in world.left


def test_those_that_are_left_for_the_same_reason_are_one_sentence(world: World) -> None:
    one = world.session()
    many = [one.add(slot) for slot in range(4)]
    one.problem = NotRemoved("it may not be", is_final=True)
    one.keeps_problem = True
    one.may_remove.set()
    for each in many:
        one.abandon(each)
    world.until(lambda: not world.freeing[-1])
    assert world.left.startswith("room 0, room 1, room 2 and 1 more are left in the house: it may")
    assert "\n" not in world.left


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sets(st.integers(0, 5), min_size=1)),
        st.tuples(st.just("leave"), st.integers(0, 5)),
        st.tuples(st.just("abandon"), st.integers(0, 5)),
        st.tuples(st.just("again"), st.none()),
    )
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # `plan_of` keeps nothing
@given(steps=STEPS)
def test_a_later_session_finds_what_was_left(
    steps: list[tuple[str, Any]], tmp_path_factory: pytest.TempPathFactory, plan_of: PlanOf
) -> None:
    """Whatever is added, left and abandoned, in as many sessions as there are."""
    world = World(context_in(tmp_path_factory.mktemp("home"), plan_of))
    model, serves = dict[int, list[int]](), dict[int, int]()
    one = world.session()
    one.may_remove.set()
    for what, given_ in steps:
        if what == "add":
            free = [slot for slot in given_ if all(slot not in slots for slots in model.values())]
            made = one.add(*free)
            model[made.number] = free
            serves |= dict.fromkeys(free, made.number)
        elif what == "leave" and given_ in serves:
            model[serves.pop(given_)].remove(given_)
        elif what == "abandon" and given_ in model:
            gone = one.get(given_)
            assert gone is not None
            one.abandon(gone)
            serves = {slot: number for slot, number in serves.items() if number != given_}
            model[given_] = []
        elif what == "again":
            one.close()
            one = world.session()
            one.may_remove.set()
        if what == "leave":
            one.leave(given_)
        assert {a.number: [*a.slots] for a in one} == model
    assert {s: a.number for s in range(6) if (a := one.of_slot(s)) is not None} == serves
    one.close()
    assert one.recorded == {number: tuple(slots) for number, slots in model.items()}
    world.loop.close()


def test_a_slot_that_has_moved_is_not_taken_from_its_new_allocation(world: World) -> None:
    one = world.session()
    first = one.add(0, 1)
    second = one.add(0)
    one.may_remove.set()
    one.abandon(first)
    assert one.of_slot(0) == second and one.of_slot(1) is None
    world.until(lambda: one.removed == [0] and one.get(0) is None)
    assert one.recorded == {1: (0,)}
