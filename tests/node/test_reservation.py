"""The queue for the units of a machine, with processes that wait, hold and are killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from muster.node import machine
from muster.node.reservation import (
    CannotReserve,
    Demand,
    Owner,
    Place,
    Queue,
    Situation,
    set_visible,
    units_of,
)
from support.faults import until

UNITS = ("gpu0", "gpu1", "gpu2")
#: Draws a ticket, waits for its turn, and holds it until it is killed.
HOLDER = """
import sys, time
from muster.node.reservation import Owner, Queue

folder, name, wanted = sys.argv[1:]
place = Queue(["gpu0", "gpu1", "gpu2"], folder).draw(Owner("ana@a", name, name, 0), int(wanted))
def waits(found):
    print("waits", found.free, *(one.owner.run for one in found.before), flush=True)

place.wait(waits, 0)
print("has", *place.ticket.units, flush=True)
time.sleep(1000)
"""


def owner(name: str, rank: int = 0) -> Owner:
    return Owner("ana@a", name, name, rank)


def never(_found: Situation) -> None:
    raise AssertionError("it does not have to wait")


def take(queue: Queue, name: str, wanted: int, rank: int = 0) -> Place:
    """A place with units, which are free."""
    place = queue.draw(owner(name, rank), wanted)
    reading, writing = os.pipe()
    try:
        assert place.wait(never, reading)
    finally:
        os.close(reading)
        os.close(writing)
    return place


class Holder:
    """A process that waits for units, and holds them."""

    def __init__(self, folder: Path, name: str, wanted: int) -> None:
        argv = [sys.executable, "-c", HOLDER, str(folder), name, str(wanted)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def test_units_are_given_out_and_come_back(tmp_path: Path) -> None:
    queue = Queue(UNITS, str(tmp_path / "q"))
    first = take(queue, "first", 2)
    assert first.ticket.units == ["gpu0", "gpu1"]
    found = queue.look()
    assert (found.free, [one.owner.run for one in found.holders]) == (1, ["first"])
    second = take(queue, "second", 1)
    assert second.ticket.units == ["gpu2"]
    first.leave()
    assert queue.look().free == 2
    third = take(queue, "third", 1)
    assert third.ticket.units == ["gpu0"]
    for place in (second, third):
        place.leave()
    assert queue.look() == Situation(3, [], [])
    assert sorted(os.listdir(tmp_path / "q")) == ["id", "mutex"]


def test_first_come_first_served_also_if_holders_are_killed(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    holders: list[Holder] = []
    for name, wanted in (("a", 2), ("b", 3), ("c", 1)):
        holders.append(Holder(folder, name, wanted))
        said = holders[-1].said()
        assert said == {"a": "has gpu0 gpu1", "b": "waits 1", "c": "waits 1 b"}[name]
    a, b, c = holders
    a.kill()
    assert b.said() == "has gpu0 gpu1 gpu2"
    until(lambda: c.said() == "waits 0", "it is told that b has its units")
    b.kill()
    assert c.said() == "has gpu0"
    c.kill()
    assert Queue(UNITS, str(folder)).look().free == 3


def test_one_that_waits_and_is_killed_lets_the_next_pass(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    place = take(Queue(UNITS, str(folder)), "first", 1)
    large, small = Holder(folder, "large", 3), None
    assert large.said() == "waits 2"
    small = Holder(folder, "small", 1)
    assert small.said() == "waits 2 large"
    large.kill()
    assert small.said() == "has gpu1"
    small.kill()
    place.leave()


def test_who_does_not_want_to_wait_any_more(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    place = take(Queue(UNITS, str(folder)), "first", 3)
    waiting = Holder(folder, "second", 1)
    assert waiting.said() == "waits 0"
    assert waiting.process.stdin is not None
    waiting.process.stdin.close()
    until(lambda: not Queue(UNITS, str(folder)).look().before, "it has left the queue")
    waiting.kill()
    place.leave()


def test_a_forked_process_keeps_what_its_parent_had(tmp_path: Path) -> None:
    queue = Queue(UNITS, str(tmp_path / "q"))
    place = take(queue, "first", 3)
    pid = os.fork()
    if pid == 0:
        time.sleep(1000)
    os.close(place.descriptor)
    assert queue.look().free == 0
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert queue.look().free == 3


def gang(queue: Queue, name: str, rank: int, share: int) -> Place:
    return queue.draw(owner(name, rank), 1, share)


def test_what_a_gang_needs_is_set_aside_with_its_first_ticket(tmp_path: Path) -> None:
    """Else two gangs could have some of the units each, and wait for the rest."""
    queue = Queue(UNITS, str(tmp_path / "q"))
    first, other = gang(queue, "a", 0, 2), gang(queue, "b", 0, 2)
    assert queue.advance(first).free == 3
    assert first.ticket.units == ["gpu0"]
    found = queue.advance(other)
    assert (found.free, other.ticket.units) == (1, ())
    assert queue.look().free == 1
    second = gang(queue, "a", 1, 2)
    queue.advance(second)  # though another one was before
    assert second.ticket.units == ["gpu1"]
    for place in (first, second):
        place.settle()
    single = take_now(queue, "c")
    assert not single.ticket.units, "the other gang is before"
    for place in (first, second):
        place.leave()
    queue.advance(other)
    assert other.ticket.units == ["gpu0"]
    queue.advance(single)
    assert single.ticket.units == ["gpu1"]
    for place in (other, single):
        place.leave()
    assert queue.look() == Situation(3, [], [])


def take_now(queue: Queue, name: str) -> Place:
    """A place that has advanced once."""
    place = queue.draw(owner(name), 1)
    queue.advance(place)
    return place


def test_a_gang_that_is_complete_sets_nothing_aside(tmp_path: Path) -> None:
    """Its other node has got another machine; those that wait are told."""
    folder = tmp_path / "q"
    queue = Queue(UNITS, str(folder))
    first = gang(queue, "a", 0, 3)
    queue.advance(first)
    waiting = Holder(folder, "b", 2)
    assert waiting.said() == "waits 0"
    first.settle()
    assert waiting.said() == "has gpu1 gpu2"
    waiting.kill()
    first.leave()


@pytest.mark.parametrize(
    ("has", "gpus", "reduced", "wanted"),
    [(2, 8, True, 2), (8, 2, True, 2), (0, 8, True, 1), (2, 0, True, 2), (2, 2, False, 2)],
)
def test_what_a_shape_has_is_reduced_to_what_there_is(
    has: int, gpus: int, reduced: bool, wanted: int
) -> None:
    demand = Demand(owner("a"), gpus or None, has_gpus=has, slots=3, reduced=reduced)
    assert demand.wanted(units_of(demand)) == wanted


@pytest.mark.parametrize(("wanted", "share"), [(4, 4), (1, 4)])
def test_more_than_there_is(tmp_path: Path, wanted: int, share: int) -> None:
    queue = Queue(UNITS, str(tmp_path / "q"))
    text = "it has room for 3, and nodes of the run need 4 of it"
    with pytest.raises(CannotReserve, match=text):
        queue.draw(owner("a"), wanted, share)
    assert queue.look().free == 3


def test_a_ticket_with_many_units_can_be_read(tmp_path: Path) -> None:
    units = [f"gpu{number}" for number in range(1024)]
    queue = Queue(units, str(tmp_path / "q"))
    place = take(queue, "run", 1023)
    assert queue.look().free == 1
    place.leave()


def test_what_tickets_say_is_told_in_short(tmp_path: Path) -> None:
    queue = Queue(["slot0"], str(tmp_path / "q"))
    place = queue.draw(Owner("e" * 20_000, "r" * 20_000, "n" * 20_000, 0), 1, 1)
    (found,) = queue.look().before
    assert [len(name) for name in found.owner[:3]] == [200, 200, 200]
    place.leave()


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_whatever_the_umask_others_can_use_the_queue_at_once(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        place = take(Queue(UNITS, str(tmp_path / "q")), "run", 1)
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    names = ("", "id", "mutex", place.name)
    modes = [stat.S_IMODE((tmp_path / "q" / name).stat().st_mode) for name in names]
    assert modes == [0o1777, 0o666, 0o666, 0o644]
    place.leave()


def test_what_is_set_aside_for_a_gang_is_for_its_own_nodes(tmp_path: Path) -> None:
    queue = Queue(["slot0", "slot1"], str(tmp_path / "q"))
    first, second = (queue.draw(owner("run", rank), 1, 2) for rank in range(2))
    queue.advance(first)
    assert queue.look().free == 0, "none for others"
    queue.advance(second)
    assert [*first.ticket.units, *second.ticket.units] == ["slot0", "slot1"]
    first.leave()
    second.leave()


def test_a_run_does_not_wait_for_itself(tmp_path: Path) -> None:
    queue = Queue(["slot0"], str(tmp_path / "q"))
    place = take(queue, "run", 1, rank=0)
    other = queue.draw(owner("run", 1), 1)
    with pytest.raises(CannotReserve, match="rank 0 of this run uses it already"):
        queue.advance(other)
    other.leave()
    again = queue.draw(owner("run", 0), 1)  # its server was killed, and what it left is ending
    assert queue.advance(again).holders
    for one in (place, again):
        one.leave()


def test_a_node_that_has_lost_its_machine_goes_before_all_who_wait(tmp_path: Path) -> None:
    """They wait for what the rest of its run has, which waits for this node."""
    queue = Queue(["slot0", "slot1"], str(tmp_path / "queue"))
    take(queue, "run", 1, rank=0)
    lost = take(queue, "run", 1, rank=1)
    gang = queue.draw(owner("other"), 1, 2)
    assert not queue.advance(gang).before and not gang.ticket.units
    lost.leave()
    assert queue.advance(gang).free == 1 and not gang.ticket.units
    again = queue.draw(owner("run", 1), 1)
    assert len(queue.advance(again).before) == 1 and not again.ticket.units
    again.leave()
    again = queue.draw(owner("run", 1), 1, returns=True)
    assert gang.returning() == owner("run", 1)
    own = queue.draw(owner("run", 2), 1)
    assert own.returning() is None, "it is of the same run"
    own.leave()
    queue.advance(again)
    assert again.ticket.units
    assert gang.returning() is None


def test_nobody_takes_what_a_node_waits_for_that_returns(tmp_path: Path) -> None:
    queue = Queue(["slot0"], str(tmp_path / "queue"))
    gang = take(queue, "gang", 1)
    waits = queue.draw(owner("other"), 1)
    again = queue.draw(owner("run", 1), 1, returns=True)
    gang.leave()
    assert queue.advance(waits).free == 1 and not waits.ticket.units
    queue.advance(again)
    assert again.ticket.units


def test_what_a_machine_has() -> None:
    person = owner("run")
    assert units_of(Demand(person, has_gpus=0)) == ["slot0"]
    assert units_of(Demand(person, has_gpus=0, slots=2)) == ["slot0", "slot1"]
    gpus = units_of(Demand(person, gpus=2, has_gpus=3))
    assert gpus == list(UNITS)
    assert Demand(person, gpus=2).wanted(gpus) == 2
    assert Demand(person).wanted(gpus) == 3
    assert Demand(person).wanted(["slot0", "slot1"]) == 1
    with pytest.raises(CannotReserve, match="it has 3 GPUs, and 4 are needed"):
        units_of(Demand(person, gpus=4, has_gpus=3))
    with pytest.raises(CannotReserve, match="it has no GPUs, and 1 is needed"):
        units_of(Demand(person, gpus=1, has_gpus=0))


def test_gpus_of_the_profile_are_those_that_the_login_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "gpu_numbers", lambda: [2, 3, 5])
    person = owner("run")
    assert units_of(Demand(person, has_gpus=2)) == ["gpu2", "gpu3"]
    assert units_of(Demand(person)) == ["gpu2", "gpu3", "gpu5"]
    # such as of another maker
    assert units_of(Demand(person, has_gpus=4)) == ["gpu0", "gpu1", "gpu2", "gpu3"]


def test_programs_see_the_gpus_that_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    demand = Demand(owner("run"))
    set_visible(["slot0"], demand)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    set_visible(["gpu1", "gpu3"], demand)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1,3"
    set_visible(["slot0"], demand._replace(has_gpus=0))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "", "runs may use none of this machine"


def test_what_other_users_may_do(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    place = take(Queue(UNITS, str(folder)), "first", 1)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    for name in ("id", "mutex"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o666
    (ticket,) = folder.glob("*.*")
    assert stat.S_IMODE(ticket.stat().st_mode) == 0o644
    assert Queue(UNITS, str(folder)).id == Queue(UNITS, str(folder)).id != ""
    place.leave()


def test_files_that_are_no_tickets(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    queue = Queue(UNITS, str(folder))
    (folder / "00000000000000000001.aa").mkdir()
    os.mkfifo(folder / "00000000000000000002.aa")
    (folder / "00000000000000000003.aa").symlink_to("/etc/passwd")
    (folder / "notes").write_text("mine")
    (folder / "00000000000000000004.aa").write_text("of a process that has ended")
    place = take(queue, "run", 3)
    assert not (folder / "00000000000000000004.aa").exists()
    place.leave()


def test_a_ticket_that_cannot_be_read_has_everything(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    queue = Queue(UNITS, str(folder))
    place = queue.draw(owner("run"), 1)
    (ticket,) = folder.glob("*.*")
    ticket.write_text("[" * 100_000)
    found = queue.look()
    assert (found.free, found.holders[0].owner.user) == (0, "somebody")
    place.leave()


def test_a_folder_that_others_could_replace(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(0o755)
    (tmp_path / "link").symlink_to(mine)
    for folder in (mine, tmp_path / "link"):
        with pytest.raises(CannotReserve, match="is not a folder with the mode 1777"):
            Queue(UNITS, str(folder))
