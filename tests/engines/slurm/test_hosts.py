"""What follows from what Slurm says of the job of an allocation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engines.conftest import PlanOf
from muster.engines.remote.contact import Arrivals
from muster.engines.remote.few_threads import FewThreads
from muster.engines.remote.wanted_slots import WantedSlots
from muster.engines.slurm import jobs as jobs_module
from muster.engines.slurm.client import Job
from muster.engines.slurm.hosts import SlurmHosts
from muster.engines.slurm.jobs import Jobs
from muster.engines.slurm.nodes import Nodes, Slot
from muster.engines.slurm.profile import SlurmProfile
from muster.engines.slurm.record import Allocation, Record
from muster.engines.slurm.run_folder import RunFolder
from muster.engines.slurm.time_limits import TimeLimits
from muster.lifecycle.status import Reason


class Owner:
    """Notes what it is told of slots."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str]] = []
        self.saving: list[tuple[list[int], bool]] = []
        self.ended: set[int] = set()

    def placed(self, _slot: int, _host: object) -> None:
        pass

    def gone(self, slot: int, why: str, _reason: Reason = Reason.NODE_LOST) -> None:
        self.told.append((slot, why))

    def refused(self, slot: int, why: str) -> None:
        self.told.append((slot, why))

    def expiring(self, slots: Sequence[int], *, signaled: bool = False) -> list[int]:
        self.saving.append((list(slots), signaled))
        return [slot for slot in slots if slot not in self.ended]

    def queued(self, slots: Sequence[int], why: str) -> None:
        self.told += [(slot, why) for slot in slots]


class Timer:
    """Stands for a participant of the loop."""

    at = 0.0

    def wake_at(self, at: float) -> None:
        self.at = at

    def notify(self) -> None:
        pass


@pytest.fixture
def hosts(tmp_path: Path) -> Any:
    """With a job that has two nodes: there is contact with both."""
    made: Any = SlurmHosts.__new__(SlurmHosts)  # without a cluster
    made.now = 100.0
    made._in_use, made._wanted = set(), WantedSlots()
    made._owner, made._closed, made._over, made._waiting = Owner(), False, False, {}
    loop: Any = SimpleNamespace(
        now=lambda: made.now,
        post=lambda call: call(),
        in_thread=lambda work, done: done(work()),
    )
    made._jobs = jobs = Jobs.__new__(Jobs)
    jobs._watcher = SimpleNamespace(forget=lambda *_: None)  # type: ignore[assignment]
    jobs._file, jobs._next, jobs._components = tmp_path / "record", 1, {}
    jobs._loop = loop
    jobs._commands, jobs._to_cancel, jobs._canceling = [], {}, Timer()  # type: ignore[assignment]
    jobs._record, jobs._is_unwritten, jobs._closed = Record(str(tmp_path)), False, False
    jobs._allocations = {0: Allocation(0, (0, 1), 7)}
    jobs._dropped = made._dropped
    made._limits = limits = TimeLimits(loop, None, print, print)
    profile = SlurmProfile(scratch=str(tmp_path / "nodes"), python="/python")
    context: Any = SimpleNamespace(plan=SimpleNamespace(run_id="r1"))
    folder = RunFolder(tmp_path, context, profile)
    made._nodes = Nodes(loop, made._owner, jobs, folder, limits)
    made._nodes._slots = {slot: Slot(0, 0, Arrivals()) for slot in (0, 1)}
    return made


UNKNOWN = "Slurm does not know job 7 any more"


def test_nodes_with_contact_are_not_gone(hosts: Any) -> None:
    hosts._seen(0, [])
    assert hosts._owner.told == []


def test_nodes_without_contact_are_gone_after_a_while(hosts: Any) -> None:
    hosts._nodes._slots[1].lost_at = 99.0
    hosts._seen(0, [])
    assert hosts._owner.told == []
    hosts.now = 110.0
    hosts._seen(0, [])
    assert hosts._owner.told == [(1, UNKNOWN)]
    assert hosts._jobs._allocations[0].slots == (0,)


def test_a_job_without_any_contact_is_gone(hosts: Any) -> None:
    for slot in hosts._nodes._slots.values():
        slot.lost_at = 80.0
    hosts._seen(0, [])
    assert hosts._owner.told == [(0, UNKNOWN), (1, UNKNOWN)]
    assert hosts._jobs._allocations == {}


@pytest.mark.parametrize("way", ["lost", "ended", "given up", "not started"])
def test_a_node_that_is_gone_is_refused_from_then_on(hosts: Any, tmp_path: Path, way: str) -> None:
    """Its server may live on for a while, and dial."""
    nodes, dialed = hosts._nodes, {slot: Arrivals() for slot in (0, 1)}
    nodes.listen(SimpleNamespace(of=dialed.__getitem__))
    one = hosts._jobs._allocations[0] = Allocation(0, (0, 1), 7, servers={1: 5})
    for slot in (0, 1):
        nodes.expect(slot, one)
    for name in ("0-0.settings", "5-1.settings", "5-1.token"):
        (tmp_path / name).touch()
    files = tmp_path / "nodes" / "r1-5-1"
    (files / "node").mkdir(parents=True)
    assert (dialed[0].server, dialed[1].server) == (0, 5) and dialed[1].take is not None
    if way == "lost":
        nodes._lose(1, "lost")
    elif way == "ended":
        hosts._end(one, "ended")
    elif way == "given up":
        hosts.give_up(1)
    else:
        nodes._server_ended(1, nodes._slots[1], "n1", 1)
    assert dialed[1].take is None
    assert not [*tmp_path.glob("5-1.*")]
    assert files.exists() is (way != "ended")  # else its processes may write there
    assert (tmp_path / "0-0.settings").exists() is (way != "ended")


def test_a_node_on_which_nothing_can_be_started(hosts: Any) -> None:
    jobs, codes, canceled = hosts._jobs, [75, 1, 1, 1], list[int]()
    jobs.start_server = lambda *args: args[-1](codes.pop(0))
    jobs.cancel = lambda one: canceled.append(one.number)
    jobs._allocations = {0: Allocation(0, (0, 1), 7, hosts={0: "n1", 1: "n2"})}
    running = [Job(7, 7, "muster-r1.0", "RUNNING", "", ("n1", "n2"), "None")]
    slot = hosts._nodes._slots[1]
    slot.lost_at = 100.0
    hosts.now = 106.0
    hosts._seen(0, running)
    hosts.now = 500.0
    hosts._seen(0, running)
    assert (len(codes), canceled) == (3, [])  # a server runs there, and may dial again
    slot.lost_at, slot.restarted_at = 500.0, None
    for hosts.now in (506.0, 530.0, 540.0, 799.0):
        hosts._seen(0, running)
    assert (codes, canceled) == ([], [])
    hosts.now = 801.0
    for _ in range(2):
        hosts._seen(0, running)
    assert canceled == [0]
    hosts._ended(jobs._allocations[0], [Job(7, 7, "muster-r1.0", "CANCELLED", "", (), "None")])
    text = "nothing could be started on node n2 for 300 s, so Slurm job 7 was canceled"
    assert hosts._owner.told == [(0, text), (1, text)]


def waiting(reason: str, start: str = "", number: int = 7) -> Job:
    return Job(number, 7, "muster-r1.0", "PENDING", start, (), reason)


def test_why_a_job_waits_is_told_once(hosts: Any) -> None:
    hosts._nodes._slots = {0: Slot(0, 0), 1: Slot(0, 0, Arrivals())}
    hosts._seen(0, [waiting("None")])
    assert hosts._owner.told == []  # most start soon
    hosts._seen(0, [waiting("None")])
    assert hosts._owner.told == [(0, "Slurm job 7: Slurm has not looked at it yet")]
    hosts._owner.told.clear()
    for second in range(3):  # the start moves with every look
        hosts._seen(0, [waiting("Resources", f"2026-01-02T03:04:5{second}")])
    text = "Slurm job 7: nodes are not free, start expected 2026-01-02 03:04"
    assert hosts._owner.told == [(0, text)]
    hosts._owner.told.clear()
    hosts._seen(0, [waiting("Resources"), waiting("PartitionTimeLimit", number=8)])
    assert len(hosts._owner.told) == 1
    assert "exceeds that of its partition" in hosts._owner.told[0][1]


def test_a_job_is_canceled_by_its_id_and_name(hosts: Any, tmp_path: Path) -> None:
    """Slurm may have given the id to a job of others."""
    (tmp_path / "scancel").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n')
    (tmp_path / "scancel").chmod(0o755)
    hosts._jobs._plan = SimpleNamespace(run_id="r1")
    hosts._jobs._environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    for number in (2, 3):
        hosts._jobs.cancel(Allocation(number, (number,), 8, array=2))
    hosts._jobs.cancel(Allocation(5, (9,)))  # it is being submitted
    hosts._jobs.cancel(hosts._jobs._allocations[0])
    hosts._jobs._cancel()
    for command in hosts._jobs._commands:
        assert command.wait(timeout=60) == 0
    asked = ["--name=muster-r1.0 7", "--name=muster-r1.2 8_0 8_1", "--name=muster-r1.5"]
    assert sorted((tmp_path / "asked").read_text().splitlines()) == asked


@pytest.mark.parametrize(
    ("why", "asked"), [("Unable to contact slurm controller", 2), ("Invalid job id specified", 1)]
)
def test_a_job_is_canceled_until_slurm_answers(
    hosts: Any, tmp_path: Path, why: str, asked: int
) -> None:
    script = f"[ $(wc -l <{tmp_path}/asked) = 1 ] && {{ echo 'error: {why}' >&2; exit 1; }}; exit 0"
    (tmp_path / "scancel").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n{script}\n')
    (tmp_path / "scancel").chmod(0o755)
    hosts._jobs._plan = SimpleNamespace(run_id="r1")
    hosts._jobs._environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    hosts._jobs.cancel(hosts._jobs._allocations[0])
    hosts._jobs._cancel()
    (command,) = hosts._jobs._commands
    assert command.wait(timeout=60) == 0
    assert (tmp_path / "asked").read_text() == asked * "--name=muster-r1.0 7\n"


def test_a_cancellation_for_which_no_process_can_be_started(hosts: Any) -> None:
    jobs = hosts._jobs
    jobs._plan, jobs._environ = SimpleNamespace(run_id="r1"), {"PATH": "/no/such/folder"}
    jobs._loop = SimpleNamespace(now=lambda: 100.0)
    jobs.cancel(jobs._allocations[0])
    jobs._cancel()
    assert jobs._canceling.at == 105.0 and jobs._to_cancel == {"muster-r1.0": ["7"]}


@pytest.mark.parametrize(
    ("nodes", "spare"), [(("n1", "n2"), None), (("n1", "n2", "n3"), "n3"), (("n1",), None)]
)
def test_a_node_that_has_not_dialed_yet_is_not_spare(
    hosts: Any, plan_of: PlanOf, nodes: tuple[str, ...], spare: str | None
) -> None:
    """The node of slot 1 has dialed, that of slot 0 not yet; slot 2 needs one."""
    jobs, added = hosts._jobs, list[str]()
    jobs._plan, jobs._options = plan_of(nodes=3), {}
    jobs._allocations = {0: Allocation(0, (0, 1), 7, hosts={1: "n1"})}
    jobs._components = {0: [Job(7, 7, "muster-r1.0", "RUNNING", "", nodes, "None")]}
    hosts._nodes._slots = {0: Slot(0, 0), 1: Slot(0, 0, Arrivals())}
    hosts._nodes._add = lambda _one, _slot, host: added.append(host)
    assert hosts._nodes.use_spare(2) is bool(spare)
    assert added == ([spare] if spare else [])


def test_a_node_of_a_job_that_is_ending_is_not_spare(hosts: Any, plan_of: PlanOf) -> None:
    jobs, nodes = hosts._jobs, ("n1", "n2", "n3")
    jobs._plan, jobs._options = plan_of(nodes=3), {}
    jobs._allocations = {0: Allocation(0, (0, 1), 7, hosts={0: "n1", 1: "n2"}, ending=True)}
    jobs._components = {0: [Job(7, 7, "muster-r1.0", "RUNNING", "", nodes, "None")]}
    assert not hosts._nodes.use_spare(2)


PREEMPTED = [Job(7, 7, "muster-r1.0", "RUNNING", "", ("n1", "n2"), "None", preempted=True)]


def test_nodes_of_a_job_that_is_preempted_end_together(hosts: Any) -> None:
    """Otherwise the run starts again while one of them is still where it was."""
    hosts._jobs.cancel = print
    slots, told = hosts._nodes._slots, hosts._owner.told
    slots[0].terminated_at = 100.0
    hosts._explained(0, PREEMPTED)
    assert told == [] and hosts._jobs._allocations[0].ending
    slots[1].terminated_at = 101.0
    hosts._explained(0, PREEMPTED)
    assert told == [(slot, "Slurm job 7 was preempted") for slot in (0, 1)]


def test_a_node_of_a_job_that_is_preempted_does_not_wait_long_for_others(hosts: Any) -> None:
    hosts._nodes._slots[0].terminated_at = 100.0
    hosts._nodes._slots[1].lost_at = 100.0
    hosts.now = 109.0
    hosts._explained(0, PREEMPTED)
    assert hosts._owner.told == []
    hosts.now = 110.0
    hosts._explained(0, PREEMPTED)
    assert hosts._owner.told == [(0, "Slurm job 7 was preempted")]
    hosts.now = 1000.0  # the job runs: slot 1 is not started there again
    hosts._jobs.start_server = None
    hosts._seen(0, PREEMPTED)
    assert hosts._owner.told == [(0, "Slurm job 7 was preempted")]


def test_a_node_on_which_a_job_has_ended_first_is_not_lost(hosts: Any) -> None:
    """A job that was canceled would start again otherwise."""
    jobs, told = hosts._jobs, hosts._owner.told
    jobs._allocations = {0: Allocation(0, (0, 1), 7, hosts={0: "n1", 1: "n2"})}
    jobs.start_server = None
    hosts._nodes._slots[1].lost_at = 100.0
    for hosts.now in (100.0, 200.0):
        hosts._seen(0, [Job(7, 7, "muster-r1.0", "COMPLETING", "", ("n1",), "None")])
    assert told == []
    hosts._ended(jobs._allocations[0], [Job(7, 7, "muster-r1.0", "CANCELLED", "", (), "None")])
    assert told == [(slot, "Slurm job 7 was canceled in Slurm") for slot in (0, 1)]


EXPIRES = "Slurm job 7 is about to reach its time limit"


def test_a_node_that_has_ended_keeps_no_others_that_have_saved(hosts: Any) -> None:
    hosts._owner.ended = {0}
    hosts._jobs.cancel = print
    hosts._warn(0)
    assert hosts._owner.told == []
    hosts._nodes._terminated(1)
    assert sorted(hosts._owner.told) == [(0, EXPIRES), (1, EXPIRES)]


def test_a_node_that_is_lost_keeps_no_others_that_have_saved(hosts: Any) -> None:
    hosts._jobs._allocations = {0: Allocation(0, (0, 1), 7, hosts={0: "n1", 1: "n2"})}
    hosts._jobs.cancel = print
    hosts._warn(0)
    hosts._nodes._terminated(0)
    hosts._nodes._slots[1].lost_at = 100.0
    hosts._seen(0, [Job(7, 7, "muster-r1.0", "RUNNING", "", ("n1",), "None")])
    lost = "node n2 was lost, and Slurm job 7 goes on without it"
    assert hosts._owner.told == [(1, lost), (0, EXPIRES)]


def test_nodes_are_told_to_save_by_one_session(hosts: Any) -> None:
    """Another one that takes over takes their ends for what they are."""
    hosts._jobs.cancel = print
    hosts._warn(0)
    one = hosts._jobs._allocations[0]
    assert one.warned and hosts._owner.saving == [([0, 1], False)]
    hosts._owner.saving.clear()
    nodes = hosts._nodes
    nodes.listen(SimpleNamespace(of=lambda _slot: Arrivals()))
    for slot in (0, 1):
        nodes.expect(slot, one)
        nodes.place_found(slot, one)
    hosts._warn(0)
    assert hosts._owner.saving == [([0], True), ([1], True)]
    for slot in (0, 1):
        nodes._terminated(slot)
    assert hosts._owner.told == [(0, EXPIRES), (1, EXPIRES)]


def test_nodes_that_end_together_are_recorded_once(
    hosts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, later, written = hosts._jobs, list[Any](), list[Record]()
    monkeypatch.setattr(jobs_module, "write_record", lambda _file, one: written.append(one))
    jobs._loop.post, jobs.cancel = later.append, lambda _one: None
    jobs._allocations = {0: Allocation(0, tuple(range(50)), 7)}
    hosts._nodes._slots = {slot: Slot(0, 0, Arrivals()) for slot in range(50)}
    for slot in range(50):
        (tmp_path / f"0-{slot}.settings").touch()
        hosts._nodes._lose(slot, "lost")
    while later:
        later.pop(0)()
    assert [record.allocations for record in written] == [()]
    assert not [*tmp_path.glob("*.settings")]


@pytest.mark.parametrize("given_up", [(), (1,)])
def test_settings_are_written_for_nodes_that_are_needed(
    hosts: Any, tmp_path: Path, given_up: tuple[int, ...]
) -> None:
    """They are written in a thread, while nodes may be given up."""
    nodes = hosts._nodes
    nodes.listen(SimpleNamespace(of=lambda _slot: Arrivals()))
    one = hosts._jobs._allocations[0]
    for slot in (0, 1):
        nodes.expect(slot, one)
    for slot in given_up:
        hosts.give_up(slot)
    nodes._folder.write_settings = lambda slot, server, _: (
        tmp_path / f"{server}-{slot}.settings"
    ).touch()
    nodes.write_settings([one])
    left = sorted(path.name for path in tmp_path.glob("*.settings"))
    assert left == [f"0-{slot}.settings" for slot in (0, 1) if slot not in given_up]


def test_a_job_that_is_given_up_while_it_waits_for_its_turn(hosts: Any, plan_of: PlanOf) -> None:
    """It is not submitted. Eight are at a time."""
    jobs, started, answers = hosts._jobs, list[Any](), list[Any]()
    jobs._plan, jobs._options, jobs._environ = plan_of(nodes=10), {}, {"PATH": "/no/such/folder"}
    jobs._threads = FewThreads(jobs._loop, 8)
    jobs._loop.in_thread = lambda work, done: started.append((work, done))
    jobs._allocations = {number: Allocation(number, (number,)) for number in range(10)}
    for one in [*jobs]:
        jobs.submit([one], print, lambda one, answer: answers.append(one.number), again=False)
    assert len(started) == 8
    del jobs._allocations[9]
    for work, done in started:  # which grows
        done(work())
    assert len(started) == 10 and started[9][0]().get() is None
    assert answers == [*range(9)]
