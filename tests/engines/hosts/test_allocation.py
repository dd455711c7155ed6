"""Which machines a gang gets: with fakes of machines, and two gangs with real queues."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engines.hosts.allocation import Choice, Gang, describe
from muster.engines.hosts.profile import Machine
from muster.node.reservation import CannotReserve, Offer, Owner, Place, Queue, Situation, Ticket

A, B, C, D = (Machine(name) for name in "abcd")


def ticket(run: str = "r", *units: str, user: str = "bob@pc", since: float = 0.0) -> Ticket:
    return Ticket(Owner(user, run, run, 0), since, 1, units)


FREE = Situation(1)
BUSY = Situation(0, [ticket("x", "slot0")])
LONG = Situation(0, [ticket("x", "slot0")], [ticket("y")])


class Fake:
    """A machine that was asked."""

    def __init__(self, rank: int, machine: Machine) -> None:
        self.rank, self.machine = rank, machine
        self.failed, self.lacks = "", False
        self.offer: Offer | None = None
        self.entered = self.has = False


class Driven:
    """A gang, and what was asked."""

    def __init__(
        self,
        demands: Mapping[int, int] | int,
        machines: Sequence[Machine],
        wanted: Mapping[int, Machine] | None = None,
        parts: Sequence[Sequence[int]] = (),
    ) -> None:
        if isinstance(demands, int):
            demands = dict.fromkeys(range(demands), 0)
        self.gang = Gang(demands, machines, wanted, parts)
        self.asked: dict[int, Fake] = {}

    def choose(self) -> Choice:
        """Choose, until there is nothing to ask; returns the last choice."""
        while (choice := self.gang.choose()).ask:
            for rank, machine in choice.ask.items():
                self.gang.tries[rank] = self.asked[rank] = Fake(rank, machine)
        return choice

    @property
    def machines(self) -> dict[int, str]:
        return {rank: one.machine.host for rank, one in sorted(self.gang.tries.items())}

    def offer(
        self, rank: int, situation: Situation = FREE, queue: str = "", wanted: int = 1
    ) -> None:
        one = self.asked[rank]
        one.offer = Offer(queue or one.machine.host, wanted, situation)

    def fail(self, rank: int, why: str = "no route", *, lacks: bool = False) -> None:
        self.asked[rank].failed, self.asked[rank].lacks = why, lacks

    def enter(self, rank: int, *, gets: bool) -> None:
        assert self.choose().enter == rank
        self.asked[rank].entered = True
        self.asked[rank].has = gets


def test_the_first_free_machines_in_the_order_of_the_profile() -> None:
    one = Driven(2, [A, B, C, D])
    assert one.choose() == Choice()
    assert one.machines == {0: "a", 1: "b"}
    one.offer(0, BUSY)
    assert one.choose() == Choice()
    assert one.machines == {0: "c", 1: "b"}, "b is not asked again"
    one.offer(0)
    one.fail(1)
    one.choose()
    assert one.machines == {0: "c", 1: "d"}
    one.offer(1)
    one.enter(0, gets=True)
    one.enter(1, gets=True)
    assert one.choose() == Choice(complete=True)


def test_queues_are_entered_in_the_order_of_their_names() -> None:
    one = Driven(3, [A, B, C])
    one.choose()
    for rank, queue in enumerate(("q3", "q1", "q2")):
        one.offer(rank, queue=queue)
    for rank in (1, 2):
        one.enter(rank, gets=False)
        assert one.choose() == Choice(), "it waits"
        one.asked[rank].has = True
    one.enter(0, gets=True)
    assert one.choose().complete


def test_one_that_is_in_use_is_waited_for_with_the_shortest_queue() -> None:
    one = Driven(2, [A, B, C])
    one.choose()
    one.offer(0, LONG)
    one.offer(1)
    one.choose()
    assert one.machines == {0: "c", 1: "b"}
    one.offer(0, BUSY)
    one.choose()
    assert one.machines == {0: "c", 1: "b"}
    one.offer(0, LONG)  # somebody else was faster; it is waited for all the same
    one.enter(1, gets=True)
    one.enter(0, gets=False)


def test_a_machine_for_which_others_wait_is_in_use() -> None:
    one = Driven(1, [A, B])
    one.choose()
    one.offer(0, Situation(1, [], [ticket("y")]))
    one.choose()
    assert one.machines == {0: "b"}


def test_a_server_that_runs_stays_where_it_is() -> None:
    first, second, small = (Machine(name, gpus=n) for name, n in (("f", 4), ("g", 4), ("s", 1)))
    one = Driven({0: 1, 1: 4}, [first, second, small], {0: first})
    one.choose()
    assert one.machines == {0: "f", 1: "g"}
    one.asked[0].has = True
    one.fail(1)
    assert one.choose().refused
    assert one.machines == {0: "f"}, "its node runs there"


def test_another_machine_is_waited_for_when_one_cannot_be_reached_any_more() -> None:
    one = Driven(1, [A, B])
    one.choose()
    one.offer(0, BUSY)
    one.choose()
    one.offer(0, LONG)
    one.choose()
    one.offer(0, BUSY)
    one.enter(0, gets=False)
    assert one.machines == {0: "a"}
    one.fail(0)
    one.choose()
    assert one.machines == {0: "b"}
    one.offer(0, LONG)
    one.enter(0, gets=True)
    assert one.choose().complete


def test_what_was_entered_too_early_is_entered_again() -> None:
    """b was lost, and a takes its place, whose turn was before that of c."""
    one = Driven(2, [C, D, A])
    one.choose()
    one.offer(0)
    one.offer(1)
    one.enter(0, gets=True)
    one.fail(1)
    one.choose()
    assert one.machines == {0: "c", 1: "a"}
    before = one.asked[0]
    one.offer(1)
    one.choose()
    assert one.machines == {0: "c", 1: "a"}
    assert one.asked[0] is not before, "its connection is closed, and it has nothing any more"
    one.offer(0)
    one.enter(1, gets=True)
    one.enter(0, gets=True)
    assert one.choose().complete


def test_a_server_that_runs_is_not_asked_to_wait() -> None:
    one = Driven(2, [A, B, C], {1: A})
    one.choose()
    assert one.machines == {0: "b", 1: "a"}
    one.asked[1].has = True
    one.offer(0, BUSY)
    one.choose()
    one.offer(0)
    one.enter(0, gets=True)
    assert (one.machines, one.choose().complete) == ({0: "c", 1: "a"}, True)


def test_parts_for_which_there_is_no_machine_now_are_dropped() -> None:
    one = Driven(4, [A, B, C, D], parts=[[0, 1], [2, 3]])
    one.choose()
    for rank, situation in enumerate((FREE, BUSY, FREE, FREE)):
        one.offer(rank, situation)
    for rank in (2, 3):
        one.enter(rank, gets=True)
    assert one.gang.dropped == [[0, 1]]
    assert one.choose().complete


def test_one_part_is_waited_for() -> None:
    one = Driven(2, [A, B], parts=[[0], [1]])
    one.choose()
    one.offer(0, LONG)
    one.offer(1, BUSY)
    one.choose()
    assert (one.gang.dropped, one.machines) == ([[1]], {0: "b"})
    one.offer(0, BUSY)
    one.enter(0, gets=False)
    assert one.choose() == Choice()


def test_parts_whose_machines_cannot_be_reached_are_dropped() -> None:
    one = Driven(3, [A, B, C], parts=[[0], [1], [2]])
    one.choose()
    one.fail(0)
    one.offer(1)
    assert one.choose() == Choice(), "c has not answered"
    one.offer(2)
    one.choose()
    assert one.gang.dropped == [[0]]
    for rank in (1, 2):
        one.enter(rank, gets=True)
    assert one.choose().complete


def test_no_machine_for_any_part() -> None:
    one = Driven(2, [A, B], parts=[[0], [1]])
    one.choose()
    one.fail(0)
    one.fail(1)
    choice = one.choose()
    assert choice.refused == "no machine can be used; a: no route; b: no route"


def test_a_wanted_machine_that_is_not_listed_any_more() -> None:
    one = Driven(1, [A], {0: B})
    one.choose()
    assert one.machines == {0: "a"}


def test_several_nodes_of_a_machine() -> None:
    """Its queue is entered with what all of them need; what is free has to suffice for all."""
    one = Driven(3, [A, A, A, B])
    one.choose()
    for rank in range(3):
        one.offer(rank, Situation(2))
    one.choose()
    assert one.machines == {0: "a", 1: "a", 2: "b"}
    one.offer(2)
    choice = one.choose()
    assert (choice.enter, choice.share) == (0, 2)
    one.enter(0, gets=True)
    choice = one.choose()
    assert (choice.enter, choice.share) == (1, 2)
    one.enter(1, gets=True)
    assert one.choose().share == 1


def test_nodes_that_need_many_gpus_get_the_machines_that_have_them() -> None:
    small, large = Machine("s", gpus=1), Machine("l", gpus=4)
    one = Driven({0: 1, 1: 4}, [large, small])
    one.choose()
    assert one.machines == {0: "s", 1: "l"}


def test_a_node_leaves_a_machine_to_one_that_needs_more() -> None:
    first, second, small = (Machine(name, gpus=n) for name, n in (("f", 4), ("g", 4), ("s", 1)))
    one = Driven({0: 1, 1: 4}, [first, second, small])
    one.choose()
    assert one.machines == {0: "g", 1: "f"}
    one.offer(0)
    one.fail(1)
    one.choose()
    assert one.machines == {0: "s", 1: "g"}
    assert one.asked[1].offer is None, "it is asked again, for what this node needs"


def test_a_machine_with_too_few_gpus_is_left_for_others() -> None:
    one = Driven({0: 4, 1: 0}, [A, B])
    one.choose()
    one.fail(0, "it has no GPUs, and 4 are needed", lacks=True)
    one.choose()
    assert one.machines == {0: "b", 1: "a"}
    one.fail(0, "it has no GPUs, and 4 are needed", lacks=True)
    one.offer(1)
    choice = one.choose()
    assert choice.hopeless
    assert choice.refused == (
        "2 machines are needed at the same time, and fewer can be used; "
        "a: it has no GPUs, and 4 are needed; b: it has no GPUs, and 4 are needed"
    )


def test_refused_with_the_reasons() -> None:
    one = Driven(1, [A, B])
    one.choose()
    one.fail(0)
    one.choose()
    one.fail(0, "it refuses the key")
    choice = one.choose()
    assert choice.refused == "no machine can be used; a: no route; b: it refuses the key"
    assert not choice.hopeless, "they may be reached later"


def test_a_refusal_waits_for_the_other_answers() -> None:
    one = Driven(2, [A, B])
    one.choose()
    one.fail(1, "it refuses the key")
    assert one.choose() == Choice(), "too few, but the other one may say why, too"
    one.fail(0)
    assert one.choose().refused.endswith("; a: no route; b: it refuses the key")


def test_a_refusal_names_some_machines() -> None:
    one = Driven(1, [Machine(f"m{number}") for number in range(9)])
    for _ in range(9):
        assert not one.choose().refused
        one.fail(0)
    assert one.choose().refused.endswith("; m4: no route; and 4 more")


def test_more_nodes_than_machines() -> None:
    assert Driven(3, [A, B]).choose().hopeless


# --- any machines, any order

KINDS = st.sampled_from(["free", "busy", "down", "lacks"])
machines_of = st.lists(
    st.tuples(KINDS, st.sampled_from([None, 0, 1, 2, 4])), min_size=1, max_size=7
)
demands_of = st.lists(st.sampled_from([0, 1, 2, 4]), min_size=1, max_size=5)


@settings(max_examples=200)
@given(machines_of, demands_of, st.data())
def test_any_machines_in_any_order(
    kinds: list[tuple[str, int | None]], demands: list[int], data: st.DataObject
) -> None:
    """Never two nodes on one slot; queues are entered in order; complete only if all have one;
    refused only if too few can be used."""
    kind_of = {f"m{n}": kind for n, (kind, _) in enumerate(kinds)}
    machines = [Machine(f"m{n}", gpus=gpus) for n, (_, gpus) in enumerate(kinds)]
    queues = dict(zip(kind_of, data.draw(st.permutations(sorted(kind_of))), strict=True))
    one = Driven(dict(enumerate(demands)), machines)
    held: list[str] = []
    for _ in range(300):
        choice = one.choose()
        hosts = list(one.machines.values())
        assert len(set(hosts)) == len(hosts), "two nodes on one machine"
        for rank, asked in one.gang.tries.items():
            assert asked.machine.gpus is None or asked.machine.gpus >= demands[rank]
        if choice.refused or choice.complete:
            break
        if choice.enter is not None:
            entering = one.asked[choice.enter]
            entering.entered = True
            later = [
                queues[other.machine.host] for other in one.gang.tries.values() if other.entered
            ]
            assert max(later) == queues[entering.machine.host], "out of order"
            lost = data.draw(st.integers(0, 9)) == 0
            entering.failed, entering.has = "lost" * lost, not lost
            if lost:
                kind_of[entering.machine.host] = "down"
            held.append(entering.machine.host)
            continue
        waiting = [r for r, a in one.gang.tries.items() if a.offer is None and not a.has]
        rank = data.draw(st.sampled_from(sorted(waiting)))
        kind = kind_of[one.machines[rank]]
        if kind == "down":
            one.fail(rank)
        elif kind == "lacks" and demands[rank] > 0:
            one.fail(rank, lacks=True)
        else:
            found = BUSY if kind == "busy" else FREE
            one.offer(rank, found, queues[one.machines[rank]])
    else:
        pytest.fail("it continues forever")
    usable = sorted(
        (
            (0 if kind_of[one.host] == "lacks" else 9 if one.gpus is None else one.gpus)
            for one in machines
            if kind_of[one.host] != "down"
        ),
        reverse=True,
    )
    needed = sorted(demands, reverse=True)
    possible = len(usable) >= len(needed) and all(map(int.__le__, needed, usable))
    assert choice.complete == possible, (choice, usable, needed)
    if choice.complete:
        assert all(asked.has for asked in one.gang.tries.values())
        assert len(one.gang.tries) == len(demands)


# --- two gangs on the same machines


class Contender:
    """A gang of a run, on machines with real queues, without processes."""

    def __init__(self, run: str, nodes: int, machines: Sequence[Machine], folder: Path) -> None:
        self.run, self.folder = run, folder
        self.driven = Driven(nodes, machines)
        self.places: dict[int, tuple[Fake, Place]] = {}
        self.done = False

    def queue(self, machine: Machine) -> Queue:
        return Queue([f"slot{n}" for n in range(machine.slots)], str(self.folder / machine.host))

    def step(self, choose: st.DataObject) -> bool:
        """Do one thing. Returns whether there was something to do."""
        choice = self.driven.choose()
        for rank, (fake, place) in list(self.places.items()):
            if self.driven.gang.tries.get(rank) is not fake:  # its connection is closed
                place.leave()
                del self.places[rank]
        if choice.complete:
            self.release()
            return True
        assert not choice.refused, choice.refused
        if choice.enter is not None:
            fake = self.driven.asked[choice.enter]
            owner = Owner("ana@a", self.run, self.run, choice.enter)
            place = self.queue(fake.machine).draw(owner, 1, choice.share)
            fake.entered = True
            self.places[choice.enter] = fake, place
            return True
        waiting = [f for f in self.driven.gang.tries.values() if f.offer is None]
        if waiting:
            fake = choose.draw(st.sampled_from(waiting))
            queue = self.queue(fake.machine)
            fake.offer = Offer(fake.machine.host, 1, queue.look())
            return True
        for fake, place in self.places.values():
            if not fake.has:
                self.queue(fake.machine).advance(place)
                fake.has = bool(place.ticket.units)
                return fake.has
        return False

    def release(self) -> None:
        """The run is over."""
        self.done = True
        for _, place in self.places.values():
            place.leave()
        self.places.clear()


@settings(max_examples=40)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.data())
def test_gangs_never_wait_for_each_other_forever(slots: list[int], data: st.DataObject) -> None:
    machines = [Machine(f"m{n}", slots=count) for n, count in enumerate(slots)]
    with tempfile.TemporaryDirectory() as name:
        gangs = []
        for run in "xyz":
            order = data.draw(st.permutations(machines))
            listed = [machine for machine in order for _ in range(machine.slots)]
            nodes = data.draw(st.integers(1, sum(slots)))
            gangs.append(Contender(run, nodes, listed, Path(name)))
        idle: set[str] = set()
        while left := [one for one in gangs if not one.done]:
            able = [one for one in left if one.run not in idle]
            assert able, "each waits for another one"
            chosen = data.draw(st.sampled_from(able))
            try:
                moved = chosen.step(data)
            except CannotReserve as error:
                pytest.fail(str(error))
            idle = set() if moved else idle | {chosen.run}


# --- sentences


def clock(at: float, form: str = "%H:%M") -> str:
    return time.strftime(form, time.localtime(at))


NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("situation", "text"),
    [
        (Situation(1), "a is not free"),
        (
            Situation(0, [ticket("r", "slot0", since=NOW - 60)]),
            f"a is not free: bob@pc's run r has used it since {clock(NOW - 60)}",
        ),
        (
            Situation(0, [ticket("r", "slot0", since=NOW - 90_000)], [ticket()]),
            "a is not free: bob@pc's run r has used it since "
            f"{clock(NOW - 90_000, '%Y-%m-%d %H:%M')}; 1 other node comes first",
        ),
        (Situation(1, [], [ticket(), ticket()]), "a is not free; 2 other nodes come first"),
        (
            Situation(0, [ticket("", "slot0", user="somebody")]),
            "a is not free: somebody uses it",
        ),
        (
            Situation(0, [ticket("r", "slot0", since=1e300)]),
            "a is not free: bob@pc's run r has used it since an unknown time",
        ),
        (
            Situation(0, [ticket("r\x1b[2J", "slot0", user="eva\nb" + 1000 * "b")]),
            f"a is not free: eva\\n{96 * 'b'}'s run r\\x1b[2J uses it",
        ),
    ],
)
def test_what_a_run_waits_for(situation: Situation, text: str) -> None:
    assert describe(A, situation, NOW) == text


def test_a_run_is_named_once() -> None:
    both = [ticket("r", f"slot{n}", since=NOW) for n in range(2)]
    other = ticket("s", "slot2", user="eve@pc", since=NOW)
    assert describe(A, Situation(0, [*both, other]), NOW) == (
        f"a is not free: bob@pc's run r has used it since {clock(NOW)}, "
        f"eve@pc's run s has used it since {clock(NOW)}"
    )
