"""The machines of a run, with a real sshd: each loopback address is a machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.engines.hosts import hosts
from muster.engines.hosts.hosts import RunHosts
from muster.engines.hosts.profile import HostsProfile, Machine
from muster.engines.hosts.record import Record
from muster.engines.hosts.ssh import HostPipes, SshSettings, socket_folder
from muster.engines.loop import EventLoop, RunLoop
from muster.engines.remote.hosts import Host
from muster.engines.remote.record import read_record
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef, NodeStatus
from muster.node.connection import Connection, Transport
from muster.node.leftovers import VARIABLE
from muster.node.reservation import Owner, Place, Queue, Situation
from muster.plan.model import RunPlan
from muster.storage.home import Home
from support.faults import until
from support.node_servers import kill, server_pid_if_any
from support.sessions import make_plan
from support.ssh_hosts import Sshd, needs_sshd, shared_sshd

pytestmark = needs_sshd

ONE, TWO, THREE = "127.0.0.1", "127.0.0.2", "127.0.0.3"


class World:
    """Machines that ssh reaches, each with a queue of its own."""

    def __init__(self, folder: Path, sshd: Sshd) -> None:
        self.folder, self.sshd = folder, sshd
        self.home = Home(folder)
        self.loop = EventLoop()
        self.errors: list[Exception] = []
        self._ticks = self.loop.add(lambda _: None)
        self.runs: list[Run] = []

    def run(
        self,
        machines: Sequence[str],
        nodes: int = 1,
        plan: RunPlan | None = None,
        *,
        state: NodeState | None = None,
        **settings: Any,
    ) -> Run:
        self.runs.append(Run(self, machines, plan or make_plan("true", nodes), state, settings))
        return self.runs[-1]

    def until(self, done: Callable[[], object]) -> None:
        end = self.loop.now() + 60
        while not done():
            assert self.loop.now() < end, [one.said for one in self.runs]
            self._ticks.wake_at(self.loop.now() + 1)
            self.loop.run_once()
            assert not self.errors, self.errors

    def queue(self, slots: int = 1) -> Queue:
        return Queue([f"slot{n}" for n in range(slots)], str(self.folder / "q"))

    def hold(self, slots: int = 1) -> Place:
        """Somebody else has all slots."""
        queue = self.queue(slots)
        place = queue.draw(Owner("bob@b", "x", "x-1", 0), slots)
        queue.advance(place)
        assert place.ticket.units
        return place

    def close(self) -> None:
        for run in self.runs:
            run.hosts.close()
            for transport in run.transports:
                transport.close()
        self.loop.close()
        for lock in self.folder.glob("nodes/*/lock"):
            pid = server_pid_if_any(lock.parent)
            if pid is not None:
                kill(pid)


class Run:
    """The hosts of a run, and what it was told of them."""

    def __init__(
        self,
        world: World,
        machines: Sequence[str],
        plan: RunPlan,
        state: NodeState | None,
        settings: dict[str, Any],
    ) -> None:
        self.world, self.plan = world, plan
        world.home.run_dir(plan.run_id).path.mkdir(parents=True, exist_ok=True)
        context = RunContext(plan, world.home, dict(os.environ), sys.executable)
        if state is not None:
            alive = {NodeRef(node.rank, 0): NodeStatus(state=state) for node in plan.nodes}
            context = replace(context, alive=alive)
        slots, python = settings.pop("slots", 1), settings.pop("python", sys.executable)
        profile = HostsProfile(
            tuple(Machine(name, slots=slots, gpus=0, python=python) for name in machines),
            folder=settings.pop("folder", str(world.folder / "nodes")),
            queue=str(world.folder / "q"),
            **settings,
        )
        ssh = SshSettings(socket_folder(), str(world.sshd.config))
        self.said: list[tuple[str, Any]] = []
        self.placed_on: dict[int, str] = {}
        self.isolations: dict[int, float | None] = {}
        self.leaving: dict[int, Callable[[], object]] = {}
        self.dials: dict[int, Callable[[], Transport]] = {}
        self.transports: list[Transport] = []
        loop = RunLoop(world.loop, world.errors.append)
        self.hosts = RunHosts(context, profile, ssh, "ana@a", loop, self)

    def allocate(self) -> None:
        self.hosts.allocate([node.rank for node in self.plan.nodes])

    @property
    def has_all(self) -> bool:
        return len(self.placed_on) == len(self.plan.nodes)

    def refusals(self) -> list[tuple[int, str]]:
        return [what for kind, what in self.said if kind == "refused"]

    def waits(self) -> list[str]:
        return [why for kind, (_, why) in self.said if kind == "queued"]

    def dial(self, rank: int = 0) -> Transport:
        """Connect, and wait for the hello of the server."""
        transport = self.dials[rank]()
        self.transports.append(transport)
        connection = Connection(transport)

        def answered() -> bool:
            connection.step()
            return connection.hello is not None or bool(connection.ended)

        until(answered, pause=0.002)
        assert connection.hello is not None, connection.ended
        assert connection.hello["rank"] == rank
        return transport

    def redial(self, rank: int = 0) -> str:
        """Connect to a node that is not there. Returns why."""
        transport = self.dials[rank]()
        self.transports.append(transport)
        connection = Connection(transport)

        def ended() -> str:
            connection.step()
            return connection.ended

        until(ended, pause=0.002)
        return connection.ended

    def folder(self, rank: int = 0) -> Path:
        return self.world.folder / "nodes" / f"{self.plan.run_id}-{rank}"

    def server(self, rank: int = 0) -> int | None:
        folder = self.folder(rank)
        return server_pid_if_any(folder) if (folder / "lock").exists() else None

    # --- as HostsOwner

    def queued(self, ranks: Sequence[int], why: str) -> None:
        self.said.append(("queued", (list(ranks), why)))

    def placed(self, rank: int, host: Host) -> None:
        self.said.append(("placed", (rank, host.name)))
        self.placed_on[rank], self.dials[rank] = host.name, host.dial
        self.isolations[rank] = host.isolation
        assert host.leaving is not None
        self.leaving[rank] = host.leaving

    def refused(self, rank: int, why: str) -> None:
        self.said.append(("refused", (rank, why)))

    def gone(self, rank: int, why: str) -> None:
        del self.placed_on[rank]
        self.said.append(("gone", (rank, why)))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, shared_sshd())
    yield made
    made.close()


def test_free_machines(world: World) -> None:
    run = world.run([ONE, TWO, THREE], 2, slots=4)
    run.allocate()
    world.until(lambda: run.has_all)
    assert run.said == [("placed", (0, ONE)), ("placed", (1, ONE))]
    record = read_record(world.home.run_dir(run.plan.run_id).hosts, Record)
    assert record is not None
    assert {rank: machine.host for rank, machine in record.machines.items()} == run.placed_on
    for rank in range(2):
        run.dial(rank)
        assert run.server(rank) is not None
    assert world.queue(4).look().free == 2


def test_a_machine_that_cannot_be_reached_is_passed_over(world: World) -> None:
    run = world.run([f"{ONE}.invalid", ONE])
    run.allocate()
    world.until(lambda: run.has_all)
    assert run.placed_on == {0: ONE}


def test_refused_with_the_reasons(world: World) -> None:
    run = world.run([f"{ONE}.invalid"])
    run.allocate()
    world.until(run.refusals)
    ((rank, why),) = run.refusals()
    assert rank == 0
    assert why.startswith(f"no machine can be used; {ONE}.invalid: ssh: Could not resolve hostname")


def test_no_python_there(world: World) -> None:
    run = world.run([ONE], python="/no/python")
    run.allocate()
    world.until(run.refusals)
    ((_, why),) = run.refusals()
    assert f"{ONE}: it cannot run /no/python: install Python 3.9 or newer there" in why


def test_one_that_is_in_use_is_waited_for(world: World) -> None:
    other = world.hold()
    run = world.run([ONE])
    run.allocate()
    world.until(run.waits)
    since = time.strftime("%H:%M", time.localtime(other.ticket.since))
    why = f"{ONE} is not free: bob@b's run x-1 has used it since {since}"
    assert run.said == [("queued", ([0], why))]
    assert [ticket.owner.user for ticket in world.queue().look().before] == ["ana@a"]
    other.leave()
    world.until(lambda: run.has_all)
    run.dial()


def test_what_it_waits_for_is_told_also_if_it_is_known_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine may answer before the step is over in which the queue was entered."""
    advance = RunHosts._advance

    def advance_late(self: RunHosts, asked: Any) -> None:
        advance(self, asked)
        if asked.entered and asked.pipes is not None and asked.offer is not None:
            end = time.monotonic() + 60
            while asked.waits_for is None and not asked.has and time.monotonic() < end:
                advance(self, asked)

    monkeypatch.setattr(RunHosts, "_advance", advance_late)
    other = world.hold()
    run = world.run([ONE])
    run.allocate()
    world.until(run.waits)
    monkeypatch.undo()
    other.leave()
    world.until(lambda: run.has_all)


def test_two_runs_that_need_both_machines_in_opposite_orders(world: World) -> None:
    """Here they share one queue with two slots: each could have one of them."""
    both = [world.run(order, 2, slots=2) for order in ([ONE, TWO], [TWO, ONE])]
    for run in both:
        run.allocate()
    world.until(lambda: any(run.has_all for run in both) and any(run.waits() for run in both))
    first, second = sorted(both, key=lambda run: not run.has_all)
    assert not second.placed_on
    for rank in range(2):
        first.dial(rank)
    assert not second.placed_on
    for rank in range(2):
        pid = first.server(rank)
        assert pid is not None
        kill(pid)
    world.until(lambda: second.has_all)
    assert not first.refusals() + second.refusals()


def test_a_gang_that_waits_holds_nothing_when_it_is_given_up(world: World) -> None:
    other = world.hold()
    run = world.run([ONE, TWO], 2, slots=2)
    run.allocate()
    world.until(run.waits)
    assert len(world.queue(2).look().before) == 1
    run.hosts.give_up(0)
    run.hosts.give_up(1)
    until(lambda: not world.queue(2).look().before, "it has left the queue")
    other.leave()
    assert world.queue(2).look() == Situation(2, [], [])
    assert [run.server(rank) for rank in range(2)] == [None, None]
    assert read_record(world.home.run_dir(run.plan.run_id).hosts, Record) is None


def test_what_was_dropped_is_not_forgotten_when_a_slot_is_given_up(world: World) -> None:
    other = world.hold(2)
    run = world.run([ONE], 3, slots=2)
    run.hosts.allocate_parts([[0], [1], [2]])
    world.until(run.waits)
    run.hosts.give_up(0)
    other.leave()
    world.until(lambda: set(run.placed_on) == {1, 2})


def test_closing_gives_back_what_was_not_used_yet(world: World) -> None:
    run = world.run([ONE])
    run.allocate()
    world.until(lambda: run.has_all)
    run.hosts.close()
    run.hosts.close()
    until(lambda: world.queue().look().free == 1)
    assert run.server() is None


def test_it_waits_on_while_the_machine_cannot_be_reached(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "_FIRST_PAUSE", 0.01)
    sshd = Sshd(tmp_path / "sshd")
    world.sshd = sshd
    try:
        other = world.hold()
        run = world.run([ONE])
        run.allocate()
        world.until(run.waits)
        sshd.stop()
        sshd.end_connections()
        world.until(lambda: any("Connection refused" in why for why in run.waits()))
        assert not run.refusals()
        other.leave()
        sshd.start()
        world.until(lambda: run.has_all)
        run.dial()
    finally:
        sshd.stop()
        sshd.end_connections()


def test_a_server_that_runs_is_found_again(world: World) -> None:
    first = world.run([ONE, TWO])
    first.allocate()
    world.until(lambda: first.has_all)
    first.dial()
    server = first.server()
    first.hosts.close()
    # the profile lists them in another order now, and names another folder
    elsewhere = str(world.folder / "elsewhere")
    second = world.run([TWO, ONE], plan=first.plan, state=NodeState.READY, folder=elsewhere)
    second.allocate()
    assert second.placed_on == {0: ONE}
    second.dial()
    assert second.server() == server
    second.hosts.close()
    # a supervisor was killed after the server had started, and before it was recorded
    third = world.run([TWO, ONE], plan=first.plan, state=NodeState.QUEUED)
    third.allocate()
    world.until(lambda: third.has_all)
    assert third.placed_on == {0: ONE}
    third.dial()
    assert third.server() == server
    third.hosts.give_up(0)
    record = read_record(world.home.run_dir(first.plan.run_id).hosts, Record)
    assert record is not None
    assert record.machines == {}


def test_files_stay_in_the_folder_with_which_the_run_started(world: World) -> None:
    """Though the profile names another one now, and the server is started again."""
    first = world.run([ONE])
    start_and_kill(first)
    first.hosts.close()
    second = world.run([ONE], plan=first.plan, state=NodeState.READY, folder="/elsewhere")
    second.allocate()
    transport = second.dial()
    assert second.server() is not None
    assert isinstance(transport, HostPipes)
    assert transport.opening._settings["archives"] == f"{world.folder}/nodes/code"


@pytest.mark.parametrize(("then", "now"), [(None, 60.0), (600.0, 60.0), (600.0, None)])
def test_servers_that_run_keep_the_isolation_timeout_with_which_they_started(
    world: World, then: float | None, now: float | None
) -> None:
    """One that has none would continue beside the node that takes its place."""
    first = world.run([ONE], isolation_timeout=then)
    first.allocate()
    world.until(lambda: first.has_all)
    first.dial()
    first.hosts.close()
    second = world.run([ONE], plan=first.plan, state=NodeState.READY, isolation_timeout=now)
    second.allocate()
    assert first.isolations == second.isolations == {0: then}


def test_a_connection_that_is_lost_is_made_again(world: World) -> None:
    run = world.run([ONE])
    run.allocate()
    world.until(lambda: run.has_all)
    run.dial().close()
    server = run.server()
    run.dial()
    assert run.server() == server


def start_and_kill(run: Run) -> None:
    """Have a node get a machine, and kill its server."""
    run.allocate()
    run.world.until(lambda: run.has_all)
    run.dial().close()
    pid = run.server()
    assert pid is not None
    kill(pid)


def test_a_server_that_was_killed_is_started_again(world: World) -> None:
    run = world.run([ONE])
    start_and_kill(run)
    run.dial()
    assert run.said == [("placed", (0, ONE))]


def test_a_server_that_was_killed_waits_its_turn_if_others_use_the_machine(world: World) -> None:
    """Its node has ended, and the next one waits in the queue like any other."""
    run = world.run([ONE])
    start_and_kill(run)
    left = subprocess.Popen(["sleep", "1000"], env={VARIABLE: str(run.folder())})
    other = world.hold()
    assert run.redial() == "its server does not run any more"
    assert left.wait(60) == -signal.SIGKILL, "nothing is left of the node"
    world.until(lambda: len(run.said) > 1)
    why = f"its node server was killed, or {ONE} was restarted, and others use it now"
    assert run.said[1:] == [("gone", (0, why))]
    assert run.server() is None
    run.allocate()
    world.until(run.waits)
    assert not run.placed_on
    other.leave()
    world.until(lambda: run.has_all)
    run.dial()


def test_a_killed_server_of_an_earlier_supervisor_waits_its_turn(world: World) -> None:
    first = world.run([ONE])
    start_and_kill(first)
    first.hosts.close()
    other = world.hold()
    run = world.run([ONE], plan=first.plan, state=NodeState.READY)
    run.allocate()
    run.redial()
    world.until(lambda: len(run.said) > 1)
    run.allocate()
    world.until(run.waits)
    other.leave()
    world.until(lambda: run.has_all)


def test_a_server_that_is_to_leave_is_not_started_again(world: World) -> None:
    run = world.run([ONE])
    start_and_kill(run)
    run.leaving[0]()
    assert run.redial() == "its server does not run any more"
    world.until(lambda: len(run.said) > 1)
    assert run.said[1:] == [("gone", (0, "its server does not run any more"))]
    assert run.server() is None
    assert world.queue().look() == Situation(1, [], [])


def test_a_machine_that_does_not_answer_is_passed_over(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "_ANSWER_TIMEOUT", 0.3)
    hangs = tmp_path / "python"
    hangs.write_text("#!/bin/sh\nexec sleep 1000\n")
    hangs.chmod(0o755)
    run = world.run([ONE], python=str(hangs))
    run.allocate()
    world.until(run.refusals)
    text = f"no machine can be used; {ONE}: it does not answer within 0 s"
    assert run.refusals() == [(0, text)]


def test_a_damaged_record(world: World) -> None:
    plan = make_plan("true")
    folder = world.home.run_dir(plan.run_id)
    folder.path.mkdir(parents=True)
    folder.hosts.write_text("{")
    with pytest.raises(OSError, match="is damaged"):
        world.run([ONE], plan=plan)
