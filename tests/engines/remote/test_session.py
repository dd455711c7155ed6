"""Sessions whose nodes outlive them, with real node servers. See also the contract tests."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from muster.control import run_lock
from muster.engines.base import NodeCommand, RunContext, RunningNode, Stdio
from muster.engines.loop import EventLoop, RunLoop
from muster.engines.remote import collection, node_contact, session
from muster.engines.remote.contact import Contact, SupervisorId
from muster.engines.remote.hosts import Host, HostsOwner
from muster.engines.remote.node import RemoteNode
from muster.engines.remote.node_contact import NodeContact
from muster.engines.remote.session import RemoteSession
from muster.lifecycle.events import (
    EngineEvent,
    NodeEnded,
    NodeLocated,
    NodeQueued,
    NodeReachable,
    NodeReady,
    NodeStarted,
    NodeUnreachable,
    ResourcesLeft,
    RunRestarted,
    SessionClosed,
)
from muster.lifecycle.incarnations import of_native_restart
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef, NodeStatus, Reason
from muster.node import link, server
from muster.node.connection import Transport
from muster.node.machine import own_address
from muster.node.messages import (
    Joined,
    Launch,
    Launched,
    Message,
    ProgramDone,
    Start,
    WriteFiles,
    decode,
)
from muster.node.serve import end
from muster.plan.model import PrincipalPlan, RunPlan
from muster.storage.home import Home
from muster.storage.log_index import is_finished
from support import remote_engine
from support.command import json_of, muster, output_of
from support.faults import until
from support.node_servers import kill, server_pid_if_any
from support.remote_engine import Folders, Servers
from support.sessions import make_plan


class Driven:
    """A session, and what it reports."""

    def __init__(self, context: RunContext) -> None:
        self.folder = context.home.run_dir(context.plan.run_id)
        self.events: list[EngineEvent] = []
        #: Where the node is.
        self.located: list[NodeLocated] = []
        self.loop = EventLoop()
        errors: list[Exception] = []
        self._run, self._errors = RunLoop(self.loop, errors.append), errors
        self._ticks = self.loop.add(lambda _: None)
        self.session: RemoteSession = Servers().open(context, self._run, self._report)

    def until(self, done: Callable[[], bool]) -> None:
        end = self.loop.now() + 60
        while not done():
            assert self.loop.now() < end, self.events
            self._ticks.wake_at(self.loop.now() + 0.1)
            self.loop.run_once()
            assert not self._errors, self._errors

    def _report(self, events: Sequence[EngineEvent]) -> None:
        self.located += [event for event in events if isinstance(event, NodeLocated)]
        self.events += [event for event in events if not isinstance(event, NodeLocated)]

    def expect(self, *kinds: type[EngineEvent]) -> None:
        """Until as many events are reported, which are of these kinds."""
        self.until(lambda: len(self.events) >= len(kinds))
        assert [type(event) for event in self.events] == list(kinds), self.events
        self.events.clear()

    def end(self) -> None:
        self._run.close()
        self.loop.close()


Open = Callable[..., Driven]


@pytest.fixture
def command() -> str:
    """What the node runs."""
    return "echo hello; exec sleep 1000"


@pytest.fixture
def nodes() -> int:
    """How many nodes there are."""
    return 1


@pytest.fixture
def plan(command: str, nodes: int) -> RunPlan:
    return make_plan(command, nodes)


@pytest.fixture
def open_session(tmp_path: Path, plan: RunPlan) -> Iterator[Open]:
    """Opens sessions of one run, one after the other."""
    made: list[Driven] = []
    home = Home(tmp_path)
    home.run_dir(plan.run_id).path.mkdir(parents=True)
    context = RunContext(plan, home, dict(os.environ), sys.executable)

    def one(state: NodeState | None = None) -> Driven:
        alive = {} if state is None else {NodeRef(0, 0): NodeStatus(state=state)}
        made.append(Driven(replace(context, alive=alive)))
        return made[-1]

    yield one
    for driven in made:
        driven.end()
    for folder in (home.run_dir(plan.run_id).path / "hosts").glob("*"):
        server = server_pid_if_any(folder)
        if server is not None:
            kill(server)


#: Prints 300 lines, the second half of them when a file is there.
PRINT = """
import os, sys, time
for number in range(300):
    while number > 150 and not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    print("line", number, flush=True)
    time.sleep(0.01)
"""


def test_output_goes_on_where_a_killed_supervisor_has_stopped(
    prepare: Callable[[str], str], own_home: Path
) -> None:
    prepare("servers")
    script = own_home / "lines.py"
    script.write_text(PRINT)
    flag = own_home / "go-on"
    words = ("--engine", "servers", "--nodes", "2", "-d", str(script), "--", str(flag))
    muster("run", *words, code=0)
    run = json_of("runs", "show", "last", "--json")
    folder = own_home / "runs" / run["id"]
    files = [folder / f"logs/0/workers-{rank}.out" for rank in range(2)]

    def written(lines: int) -> bool:
        return all(file.exists() and file.read_text().count("\n") > lines for file in files)

    for lines in (20, 120):
        until(partial(written, lines), "some output")
        pid = run_lock.last_holder(folder / "lease")
        assert pid is not None
        kill(pid)
        muster("status", "last", code=0)  # starts another one
    flag.touch()
    muster("wait", "last", code=0)
    expected = "".join(f"line {number}\n" for number in range(300))
    assert [file.read_text() for file in files] == [expected] * 2
    shown = output_of("logs", "last").splitlines()
    assert len([line for line in shown if "| line " in line]) == 600
    assert json_of("runs", "show", "last", "--json")["state"] == "SUCCEEDED"


def close(driven: Driven) -> None:
    driven.session.close()
    driven.until(lambda: any(isinstance(event, SessionClosed) for event in driven.events))
    driven.session.finish_logs()


def test_a_node_outlives_its_session(open_session: Open) -> None:
    first = open_session()
    first.session.start(0, [NodeRef(0, 0)])
    first.expect(NodeStarted, NodeReady)
    (place,) = first.located
    assert (place.host, place.address) == (socket.gethostname(), own_address())
    first.session.leave()
    first.expect(SessionClosed)
    for _ in range(2):
        other = open_session(NodeState.READY)
        other.expect(NodeUnreachable)  # before it is opened
        other.expect(NodeReachable, NodeStarted, NodeReady)
        assert other.located == [place]
        other.session.leave()
        other.expect(SessionClosed)
    last = open_session(NodeState.READY)
    last.session.kill([NodeRef(0, 0)])
    last.expect(NodeUnreachable, NodeReachable, NodeStarted, NodeReady, NodeEnded)
    close(last)


def test_a_session_that_closes_ends_nodes_of_an_earlier_one(open_session: Open) -> None:
    first = open_session()
    first.session.start(0, [NodeRef(0, 0)])
    first.expect(NodeStarted, NodeReady)
    first.session.leave()
    other = open_session(NodeState.READY)
    close(other)
    assert [type(event) for event in other.events[-2:]] == [NodeEnded, SessionClosed]


def test_a_start_that_was_recorded_only(open_session: Open) -> None:
    other = open_session(NodeState.STARTING)
    other.session.start(0, [NodeRef(0, 0)])
    other.expect(NodeUnreachable, NodeReachable, NodeStarted, NodeReady)
    close(other)


def test_a_start_that_was_recorded_only_and_a_stop(open_session: Open) -> None:
    other = open_session(NodeState.STARTING)
    other.session.stop([NodeRef(0, 0)])
    other.expect(NodeUnreachable, NodeReachable, NodeEnded)
    close(other)


def test_a_node_that_its_host_has_forgotten(open_session: Open) -> None:
    other = open_session(NodeState.RUNNING)
    other.expect(NodeUnreachable)
    other.until(lambda: len(other.events) == 2)
    (ended,) = [event for event in other.events if isinstance(event, NodeEnded)]
    assert (ended.reason, ended.message) == ("node_lost", "its host does not know it any more")
    close(other)


def test_a_success_that_is_said_again_holds_no_failure_back(open_session: Open) -> None:
    """As it is when a node that has ended begins another conversation."""
    other = open_session(NodeState.READY)
    other.session.kill([NodeRef(0, 0)])
    other.until(lambda: isinstance(other.events[-1], NodeEnded))
    (owner,) = other.session._contacts.values()
    other.session.heard(owner, [ProgramDone(0)])
    assert other.session._output._end_order._succeeded == set()
    close(other)


def test_commands_go_through_the_supervisor_that_has_attached(open_session: Open) -> None:
    first = open_session()
    first.session.start(0, [NodeRef(0, 0)])
    first.expect(NodeStarted, NodeReady)
    first.session.leave()
    other = open_session(NodeState.READY)
    other.expect(NodeUnreachable)
    other.expect(NodeReachable, NodeStarted, NodeReady)
    node = RunningNode(other.folder, 0, os.getpid(), "servers")

    def run() -> int:
        with open(os.devnull, "r+b") as null:
            command = NodeCommand(("sh", "-c", "exit 7"))
            return Servers().run_in_node(node, command, Stdio(null, null, null)).wait()

    with ThreadPoolExecutor(1) as pool:
        code = pool.submit(run)
        other.until(code.done)
    assert code.result() == 7
    close(other)


@pytest.mark.parametrize("command", ["echo said"])
@pytest.mark.parametrize("restarts", [True, False])
def test_logs_of_nodes_that_had_ended_are_completed(open_session: Open, restarts: bool) -> None:
    """They had ended when their supervisor was killed."""
    first = open_session()
    first.session.start(0, [NodeRef(0, 0)])
    first.expect(NodeStarted, NodeReady, NodeEnded)
    first.session.leave()
    assert not is_finished(first.folder.logs(0))
    other = open_session()
    if restarts:
        other.session.start(1, [NodeRef(0, 1)])
        assert is_finished(first.folder.logs(0))
        other.expect(NodeStarted, NodeReady, NodeEnded)
    close(other)
    assert is_finished(first.folder.logs(0))


@pytest.mark.parametrize("nodes", [3])
def test_a_step_is_about_what_has_changed(
    open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Message] = []
    send = Contact.send

    def note(contact: Contact, message: Message) -> None:
        sent.append(message)
        send(contact, message)

    monkeypatch.setattr(Contact, "send", note)
    one = open_session()
    one.session.start(0, [NodeRef(rank, 0) for rank in range(3)])
    one.until(lambda: sum(isinstance(event, NodeReady) for event in one.events) == 3)
    assert not any(isinstance(message, WriteFiles) for message in sent), "each has its roster"
    for rank in range(3):
        path = one.folder.path / f"hosts/{rank}/cluster/cluster.json"
        assert [node["Rank"] for node in json.loads(path.read_text())] == ["0", "1", "2"]
    advanced: list[int] = []
    advance = one.session._advance

    def note_advance(rank: int) -> None:
        advanced.append(rank)
        advance(rank)

    monkeypatch.setattr(one.session._usage, "due", None)  # all are asked for that now and then
    monkeypatch.setattr(one.session, "_advance", note_advance)
    heard: set[int] = set()  # slots of which something arrives now, such as output
    changed = one.session.contact_changed

    def note_changed(slot: int) -> None:
        heard.add(slot)
        changed(slot)

    monkeypatch.setattr(one.session, "contact_changed", note_changed)
    one.session.kill([NodeRef(1, 0)])
    one.until(lambda: isinstance(one.events[-1], NodeEnded))
    assert {1} <= set(advanced) <= {1} | heard
    close(one)


def test_a_node_that_is_given_up_waits_for_no_host(
    open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up: list[int] = []
    monkeypatch.setattr(Folders, "allocate", lambda hosts, ranks: None)
    monkeypatch.setattr(Folders, "give_up", lambda hosts, rank: given_up.append(rank))
    one = open_session()
    one.session.start(0, [NodeRef(0, 0)])
    one.session.stop([NodeRef(0, 0)])
    one.expect(NodeEnded)
    one.session.release([NodeRef(0, 1)])
    assert given_up == [0]
    close(one)
    assert given_up == [0]


@pytest.mark.parametrize("state", [NodeState.QUEUED, NodeState.STARTING])
@pytest.mark.parametrize("call", [RemoteSession.stop, RemoteSession.kill])
def test_a_node_of_an_earlier_session_that_waits_for_a_host_ends_at_once(
    open_session: Open,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[RemoteSession, Sequence[NodeRef]], None],
    state: NodeState,
) -> None:
    """It may never get one."""

    def allocate(hosts: Folders, slots: Sequence[int]) -> None:
        if state is NodeState.STARTING:
            hosts._owner.queued(slots, "for a host")

    monkeypatch.setattr(Folders, "allocate", allocate)
    monkeypatch.setattr(Folders, "give_up", lambda hosts, rank: None)
    one = open_session(state)
    waits = [NodeQueued] if state is NodeState.STARTING else []
    one.expect(NodeUnreachable, *waits)
    call(one.session, [NodeRef(0, 0)])
    one.expect(NodeEnded)
    close(one)


class TestCredentials:
    @pytest.fixture
    def plan(self) -> RunPlan:
        principal = PrincipalPlan("tenancy", "compartment", "muster.invalid", "http://127.0.0.1:1")
        return make_plan("exec sleep 1000", 1, principal=principal)

    @pytest.mark.parametrize("when", [Launched, Joined])
    def test_those_that_are_replaced_while_a_node_is_launched_are_there_when_it_starts(
        self, open_session: Open, monkeypatch: pytest.MonkeyPatch, when: type[Message]
    ) -> None:
        """What its agent writes meanwhile are those of the launch."""
        said: list[Message] = []
        send = Contact.send
        one = open_session()
        made = one.session._launcher._credentials
        assert made is not None

        def note(contact: Contact, message: Message) -> None:
            said.append(message)
            send(contact, message)

        heard = RemoteSession.heard

        def hear(session: RemoteSession, owner: NodeContact, received: Sequence[Message]) -> None:
            said.extend(received)
            heard(session, owner, received)
            if any(isinstance(message, when) for message in received):
                made._holders[0].renew_at = 0.0
                made._find_due()

        monkeypatch.setattr(Contact, "send", note)
        monkeypatch.setattr(RemoteSession, "heard", hear)
        one.session.start(0, [NodeRef(0, 0)])
        one.expect(NodeStarted, NodeReady)
        (launch,) = (message for message in said if isinstance(message, Launch))
        there = one.folder.path / "hosts/0/run/principal"
        assert {name: (there / name).read_text() for name in made.read(0)} == made.read(0)
        assert launch.files[str(there / "0/rpst")] != made.read(0)["0/rpst"]
        kinds = [type(message) for message in said]
        assert kinds.index(Joined) < kinds.index(WriteFiles) < kinds.index(Start)
        close(one)


# --- nodes that have ended, on hosts that cannot be reached then


class Network:
    """The way to all hosts."""

    def __init__(self, dial: Callable[[Folders, int], Transport]) -> None:
        self._dial = dial
        self.is_down = False
        #: The slots whose hosts cannot be reached.
        self.cut = set[int]()

    def dial(self, hosts: Folders, slot: int) -> Transport:
        if self.is_down or slot in self.cut:
            raise OSError("the network is down")
        return self._dial(hosts, slot)

    def cut_at_end(self, driven: Driven) -> None:
        """Cut it when the end of a node is known, before its outputs are here."""
        driven.until(lambda: bool(driven.session._output._collections))
        self.is_down = True
        for owner in driven.session._contacts.values():
            owner.contact._fail("the network is down")

    def cut_one_at_end(self, driven: Driven) -> int:
        """Cut the way to the host of the only node that has ended. Returns its slot."""
        driven.until(lambda: bool(driven.session._output._collections))
        (slot,) = driven.session._output._collections
        self.cut = {slot}
        driven.session._contacts[slot].contact._fail("the network is down")
        return slot


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    network = Network(Folders._dial)
    monkeypatch.setattr(Folders, "_dial", lambda hosts, slot: network.dial(hosts, slot))  # noqa: PLW0108  to be bound
    return network


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (collection, session):
        monkeypatch.setattr(module, "OUTPUT_TIMEOUT", 0.0)


def output(driven: Driven) -> Path:
    return driven.folder.outputs / "rank-0" / "own"


WRITE = 'echo x > "$MUSTER_OUTPUTS/own"; echo said; exit '
succeeds = pytest.mark.parametrize("command", [WRITE + "0"])


@pytest.mark.parametrize("command", [WRITE + "3"])
def test_a_failure_does_not_wait_for_outputs_of_a_host_that_cannot_be_reached(
    open_session: Open, network: Network
) -> None:
    one = open_session()
    one.session.start(0, [NodeRef(0, 0)])
    network.cut_at_end(one)
    one.until(lambda: isinstance(one.events[-1], NodeEnded))
    ended = one.events[-1]
    assert isinstance(ended, NodeEnded)
    assert (ended.exit_code, ended.reason) == (3, "exit")
    assert not output(one).exists()
    one.events.clear()
    one.session.start(1, [NodeRef(0, 1)])
    network.is_down = False
    one.expect(NodeUnreachable, NodeReachable, NodeStarted, NodeReady, NodeEnded)
    assert output(one).read_text() == "x\n", "they were copied before the next start"
    for attempt in (0, 1):
        assert (one.folder.logs(attempt) / "workers-0.out").read_text() == "said\n"
    close(one)


@succeeds
def test_a_success_waits_for_outputs_of_a_host_that_cannot_be_reached(
    open_session: Open, network: Network, impatient: None
) -> None:
    one = open_session()
    one.session.start(0, [NodeRef(0, 0)])
    network.cut_at_end(one)
    one.expect(NodeStarted, NodeReady, NodeUnreachable)
    network.is_down = False
    one.until(lambda: len(one.events) == 2)
    reachable, ended = one.events
    assert isinstance(reachable, NodeReachable)
    assert isinstance(ended, NodeEnded) and ended.exit_code == 0
    assert output(one).read_text() == "x\n"
    close(one)


@succeeds
@pytest.mark.parametrize(
    ("why", "code", "found"),
    [(Reason.NODE_LOST, 1, "output_lost"), (Reason.PREEMPTED, None, "preempted")],
)
def test_a_success_on_a_host_that_is_gone_has_failed_for_the_reason_of_the_host(
    open_session: Open,
    network: Network,
    impatient: None,
    why: Reason,
    code: int | None,
    found: str,
) -> None:
    """A program that is told to end with its host may exit with 0, and be heard before that."""
    one = open_session()
    one.session.start(0, [NodeRef(0, 0)])
    network.cut_at_end(one)
    one.expect(NodeStarted, NodeReady, NodeUnreachable)
    one.session.gone(0, "job 1 has ended", why)
    one.until(lambda: bool(one.events))
    (ended,) = one.events
    assert isinstance(ended, NodeEnded)
    assert (ended.exit_code, ended.reason) == (code, found)
    assert ended.message.endswith("job 1 has ended")
    network.is_down = False
    close(one)


@pytest.mark.parametrize("ends_with_slot", [False, True])
def test_a_host_is_given_up_without_contact_if_that_ends_what_runs_there(
    open_session: Open,
    network: Network,
    impatient: None,
    monkeypatch: pytest.MonkeyPatch,
    ends_with_slot: bool,
) -> None:
    given_up: list[int] = []
    monkeypatch.setattr(Folders, "ends_with_slot", ends_with_slot)
    monkeypatch.setattr(Folders, "give_up", lambda hosts, slot: given_up.append(slot))
    one = open_session()
    network.is_down = True
    one.session.start(0, [NodeRef(0, 0)])
    one.expect(NodeUnreachable)
    one.session.stop([NodeRef(0, 0)])
    one.expect(NodeEnded)
    close(one)
    assert given_up == [0] * ends_with_slot
    left = [event.why for event in one.events if isinstance(event, ResourcesLeft)]
    assert bool(left) is not ends_with_slot
    assert all("the node server of node 0 was left on" in why for why in left)


class TestReplicas:
    @pytest.fixture
    def plan(self, plan_of: Callable[..., RunPlan]) -> RunPlan:
        script = "cd $MUSTER_OUTPUTS && echo $$ > own; echo $$ > only-$$; exit 3"
        group = {"name": "workers", "nodes": 1, "replicas": 3, "parallelism": 2}
        return plan_of(command=["sh", "-c", script], node_groups=[group], grace_period=0.2)

    def test_outputs_that_come_late_do_not_replace_those_of_a_later_incarnation(
        self, open_session: Open, network: Network
    ) -> None:
        one = open_session()
        one.session.start(0, [NodeRef(0, 0)])
        first = network.cut_one_at_end(one)
        one.until(lambda: isinstance(one.events[-1], NodeEnded))
        assert not output(one).exists()
        one.events.clear()
        one.session.start(1, [NodeRef(0, 1)])
        one.until(lambda: bool(one.events) and isinstance(one.events[-1], NodeEnded))
        newest = output(one).read_text()
        network.cut.clear()
        before = (one.folder.path / f"hosts/{first}/run/outputs/rank-0/own").read_text()
        only_there = output(one).parent / f"only-{before.strip()}"
        one.until(only_there.exists)
        assert newest != before
        assert output(one).read_text() == newest
        close(one)
        assert output(one).read_text() == newest

    def test_outputs_that_come_late_replace_those_of_an_earlier_incarnation(
        self, open_session: Open, network: Network, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = open_session()
        for incarnation in (0, 1):
            one.session.start(incarnation, [NodeRef(0, incarnation)])
            if incarnation:
                first = output(one).read_text()
                network.cut_one_at_end(one)
            one.until(lambda: bool(one.events) and isinstance(one.events[-1], NodeEnded))
            one.events.clear()
        assert output(one).read_text() == first
        accept = one.session._accept
        monkeypatch.setattr(one.session, "_is_usable", lambda slot: False)
        assert accept(NodeRef(0, 2)) is not None, "which leaves nothing"
        network.cut.clear()
        one.until(lambda: output(one).read_text() != first)
        one.session.kill([NodeRef(0, 2)])
        monkeypatch.undo()
        close(one)

    def test_urls_are_not_waited_for_by_the_slot_of_a_replica_that_is_killed(
        self, open_session: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = open_session()
        for rank in (0, 1):
            one.session.start(0, [NodeRef(rank, 0)])
            one.until(lambda: bool(one.events) and isinstance(one.events[-1], NodeEnded))
            one.events.clear()
        one.session.start(0, [NodeRef(2, 0)])
        one.until(lambda: bool(one.events))
        canceled: list[Sequence[int]] = []
        monkeypatch.setattr(one.session._mounts, "canceled", canceled.append)
        one.session.kill([NodeRef(1, 0), NodeRef(2, 0)])
        slots = {owner.node.rank: slot for slot, owner in one.session._contacts.items()}
        assert canceled == [[slots[rank] for rank in (1, 2) if rank in slots]]
        close(one)


@succeeds
@pytest.mark.parametrize("call", [RemoteSession.stop, RemoteSession.kill])
def test_a_success_that_is_to_end_is_not_waited_for(
    open_session: Open,
    network: Network,
    impatient: None,
    call: Callable[[RemoteSession, Sequence[NodeRef]], None],
) -> None:
    one = open_session()
    one.session.start(0, [NodeRef(0, 0)])
    network.cut_at_end(one)
    one.expect(NodeStarted, NodeReady, NodeUnreachable)
    call(one.session, [NodeRef(0, 0)])
    one.until(lambda: bool(one.events))
    (ended,) = one.events
    assert isinstance(ended, NodeEnded)
    assert (ended.exit_code, ended.reason) == (1, "output_lost")
    network.is_down = False
    one.until(lambda: output(one).exists() and not one.session._output._collections)
    assert one.events == [ended], "it is reported once"
    close(one)


@succeeds
def test_a_session_closes_though_the_host_of_a_node_that_has_ended_cannot_be_reached(
    open_session: Open, network: Network, impatient: None
) -> None:
    one = open_session()
    one.session.start(0, [NodeRef(0, 0)])
    network.cut_at_end(one)
    close(one)
    ended_, left, closed = one.events[-3:]
    assert isinstance(ended_, NodeEnded) and isinstance(closed, SessionClosed)
    assert isinstance(left, ResourcesLeft)
    assert "the node server of node 0 was left on" in left.why
    assert (one.folder.path / "hosts/0/run/outputs/rank-0/own").read_text() == "x\n"


# --- hosts that end their nodes by themselves


@pytest.mark.parametrize(("isolation", "seconds"), [(1.0, 81.0), (600.0, 680.0), (None, None)])
def test_a_host_has_noticed_that_contact_was_lost_before_its_node_is_replaced(
    isolation: float | None, seconds: float | None
) -> None:
    def dial() -> Transport:
        raise OSError("no route to host")

    assert node_contact.SERVER_TIMEOUT >= server.SERVER_TIMEOUT
    loop = EventLoop()
    host = Host(dial, "gpu1", isolation=isolation)
    errors: list[Exception] = []
    run = RunLoop(loop, errors.append)
    owner: Any = None
    one = NodeContact(owner, RemoteNode(0, slot=0), host, run, SupervisorId("r1", 1))
    assert one.lost_at is not None
    found = None if one.isolated_at is None else round(one.isolated_at - one.lost_at, 3)
    assert found == seconds
    one.close()
    loop.close()


def test_a_node_whose_host_has_ended_it_is_lost(
    open_session: Open, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SERVER_TIMEOUT", "_ISOLATION_MARGIN"):
        monkeypatch.setattr(node_contact, name, 0.0)
    monkeypatch.setattr(remote_engine, "Host", partial(Host, isolation=1.0))
    one = open_session()
    one.session.start(0, [NodeRef(0, 0)])
    one.expect(NodeStarted, NodeReady)
    network.is_down = True
    for owner in one.session._contacts.values():
        owner.contact._fail("the network is down")
    one.until(lambda: isinstance(one.events[-1], NodeEnded) if one.events else False)
    unreachable, ended = one.events
    assert isinstance(unreachable, NodeUnreachable)
    assert isinstance(ended, NodeEnded)
    assert ended.reason == "node_lost"
    assert ended.message == "there was no contact for 1s, and its host has ended it"
    close(one)


@pytest.mark.parametrize(
    ("after", "why", "text"),
    [
        (0.0, "deleted", r"deleted; what it has written in its last \d+s is not here"),
        (600.0, "deleted", "deleted"),
        # below lines of its log
        (0.0, "killed\nup", r"killed\nup\n\(more of what it .* in its last \d+s is not here\)"),
    ],
)
def test_the_end_of_a_node_that_was_not_reached_says_what_is_missing(
    open_session: Open,
    network: Network,
    monkeypatch: pytest.MonkeyPatch,
    after: float,
    why: str,
    text: str,
) -> None:
    monkeypatch.setattr(session, "_MISSING_AFTER", after)
    one = open_session()
    one.session.start(0, [NodeRef(0, 0)])
    one.expect(NodeStarted, NodeReady)
    network.is_down = True
    for owner in one.session._contacts.values():
        owner.contact._fail("the network is down")
    one.expect(NodeUnreachable)
    one.session.gone(0, why)
    one.until(lambda: bool(one.events))
    (ended,) = one.events
    assert isinstance(ended, NodeEnded)
    assert re.fullmatch(text, ended.message)
    network.is_down = False
    close(one)


@pytest.mark.parametrize(
    ("kind", "field", "value", "text"),
    [
        ("host_facts", "interfaces", [[]], "interfaces[0] must be an object, not []"),
        ("host_facts", "cpus", -1, "cpus cannot be -1"),
        ("joined", "incarnation", "0", "incarnation must be an integer"),
    ],
)
def test_a_node_that_breaks_the_rules_cannot_be_reached(
    open_session: Open,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    field: str,
    value: object,
    text: str,
) -> None:
    """That is said of the node; the run continues, and can end."""

    def wrong(data: Any) -> Message:
        return decode({**data, field: value} if data["type"] == kind else data)

    monkeypatch.setattr(link, "decode", wrong)
    monkeypatch.setattr(session, "OUTPUT_TIMEOUT", 1.0)
    driven = open_session()
    driven.session.start(0, [NodeRef(0, 0)])
    driven.until(lambda: any(isinstance(event, NodeUnreachable) for event in driven.events))
    (why,) = {event.why for event in driven.events if isinstance(event, NodeUnreachable)}
    assert "message " in why
    assert text in why
    driven.session.close()
    if kind == "joined":  # its programs are ended when the rest can be heard
        monkeypatch.setattr(link, "decode", decode)
    driven.until(lambda: isinstance(driven.events[-1], SessionClosed))
    assert [type(event) for event in driven.events if not _is_about_contact(event)] == [
        NodeEnded,
        SessionClosed,
    ]


def _is_about_contact(event: object) -> bool:
    return isinstance(event, NodeReachable | NodeUnreachable | ResourcesLeft)


def ended(driven: Driven) -> list[NodeEnded]:
    """The ends that were reported, in rank order."""
    found = [event for event in driven.events if isinstance(event, NodeEnded)]
    return sorted(found, key=lambda event: event.rank)


class Refusing:
    """Hosts of which no slot gets one, as is said of each in a round of the loop of its own."""

    def __init__(self, loop: RunLoop, owner: HostsOwner) -> None:
        self._loop, self._owner = loop, owner

    def allocate_parts(self, parts: Sequence[Sequence[int]]) -> None:
        def refuse(left: list[int]) -> None:
            if left:
                self._owner.refused(left[0], "there is no such partition")
                self._loop.post(lambda: refuse(left[1:]))

        self._loop.post(lambda: refuse([slot for part in parts for slot in part]))

    def place_ended(self) -> None:
        pass

    def give_up(self, slot: int) -> None:
        pass

    def close(self) -> None:
        pass


class TestReplicasWithoutHosts:
    @pytest.fixture
    def plan(self, plan_of: Callable[..., RunPlan]) -> RunPlan:
        group = {"name": "workers", "nodes": 1, "replicas": 6, "parallelism": 3}
        return plan_of(command=["true"], node_groups=[group])

    def test_all_end_and_the_session_closes(
        self, open_session: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            Servers, "make_hosts", lambda _self, _context, loop, owner: Refusing(loop, owner)
        )
        one = open_session()
        for first in (0, 3):
            refs = [NodeRef(rank, 0) for rank in range(first, first + 3)]
            one.session.start(0, refs)
            one.until(lambda: len(one.events) >= 3)
            assert [event.rank for event in ended(one)] == [ref.rank for ref in refs]
            one.events.clear()
        for _ in range(10):  # until the session has nothing left to do
            one.loop.post(lambda: None)
            one.loop.run_once()
        one.session.close()
        one.until(lambda: bool(one.events))
        assert one.events == [SessionClosed()]


class Restarting(Folders):
    """Hosts of an infrastructure that restarts runs by itself."""

    made: list[Restarting]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.made.append(self)

    def restart(self, restarts: int, slots: Sequence[int]) -> None:
        """End all servers, and have new ones in these slots."""
        for folder in self._folder.glob("*"):
            end(str(folder))
        self._owner.restarted(restarts, slots, "node-0 has failed")
        self.allocate(slots)


class Leaving(Folders):
    """Hosts of an infrastructure that ends them by itself."""

    made: list[Leaving]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.made.append(self)

    def begin_to_end(self, slot: int, why: str) -> None:
        self._owner.ending([slot], why)

    def end(self, slot: int, why: str, reason: Reason) -> None:
        end(str(self._folder / str(slot)))
        self._owner.gone(slot, why, reason)


class TestHostsThatEnd:
    @pytest.fixture
    def nodes(self) -> int:
        return 2

    def test_their_nodes_cannot_be_reached_before_their_end_is_known(
        self, open_session: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Leaving, "made", [], raising=False)
        monkeypatch.setattr(remote_engine, "Folders", Leaving)
        one = open_session()
        one.session.start(0, [NodeRef(rank, 0) for rank in range(2)])
        one.until(lambda: len(one.events) == 4)
        one.events.clear()
        (hosts,) = Leaving.made
        for _ in range(2):  # it is said again
            hosts.begin_to_end(1, "its pod is being deleted")
        one.expect(NodeUnreachable)
        hosts.end(1, "its pod was evicted", Reason.PREEMPTED)
        one.until(lambda: bool(one.events))
        (event,) = one.events
        assert isinstance(event, NodeEnded)
        assert (event.rank, event.reason) == (1, Reason.PREEMPTED)
        one.events.clear()
        one.session.kill([NodeRef(0, 0)])
        one.expect(NodeEnded)
        close(one)


class TestNativeRestarts:
    @pytest.fixture
    def command(self) -> str:
        return "echo incarnation $MUSTER_RESTART of attempt $MUSTER_ATTEMPT; exec sleep 1000"

    @pytest.fixture
    def nodes(self) -> int:
        return 3

    @pytest.fixture
    def hosts(self, monkeypatch: pytest.MonkeyPatch) -> list[Restarting]:
        monkeypatch.setattr(Restarting, "made", [], raising=False)
        monkeypatch.setattr(remote_engine, "Folders", Restarting)
        return Restarting.made

    def test_nodes_run_where_the_infrastructure_has_started_them(
        self, open_session: Open, hosts: list[Restarting]
    ) -> None:
        one = open_session()
        logs = one.folder.path / "logs"

        def have_written(attempt: int, incarnation: int) -> bool:
            """Whether each node's program has: nodes are ready before, and may be killed then."""
            line = f"incarnation {incarnation} of attempt {attempt}\n"
            files = [logs / f"{attempt}/workers-{rank}.out" for rank in range(3)]
            return all(file.exists() and file.read_text() == line for file in files)

        one.session.start(0, [NodeRef(rank, 0) for rank in range(3)])
        one.until(lambda: len(one.events) == 6 and have_written(0, 0))
        one.events.clear()
        hosts[0].restart(2, [0, 1])
        number = of_native_restart(2)
        one.until(lambda: len(one.events) == 5)
        assert one.events[0] == RunRestarted(2, (0, 1), why="node-0 has failed")
        kinds = (NodeStarted, NodeReady)
        expected = {kind(rank, number) for kind in kinds for rank in (0, 1)}
        assert set(one.events[1:]) == expected
        one.events.clear()
        for old in (0, number - 1):  # nobody asks for these any more
            one.session.kill([NodeRef(rank, old) for rank in range(3)])
            one.session.start(2, [NodeRef(2, old)])
        one.session.start(2, [NodeRef(2, number)])
        one.until(lambda: len(one.events) == 2 and have_written(2, number))
        assert set(one.events) == {kind(2, number) for kind in kinds}
        one.events.clear()
        close(one)
        assert sorted(folder.name for folder in logs.iterdir()) == ["0", "2"]
        assert have_written(0, 0)
        for attempt in (0, 2):
            assert is_finished(logs / str(attempt))

    def test_a_node_that_had_ended_runs_again(
        self, open_session: Open, hosts: list[Restarting]
    ) -> None:
        one = open_session()
        one.session.start(0, [NodeRef(rank, 0) for rank in range(3)])
        one.until(lambda: len(one.events) == 6)
        one.session.kill([NodeRef(1, 0)])
        one.until(lambda: any(isinstance(event, NodeEnded) for event in one.events))
        one.events.clear()
        hosts[0].restart(1, [0, 1, 2])
        one.until(lambda: len(one.events) == 7)
        assert one.events[0] == RunRestarted(1, (0, 1, 2), why="node-0 has failed")
        close(one)

    def test_a_session_attaches_to_what_was_restarted(
        self, open_session: Open, hosts: list[Restarting]
    ) -> None:
        first = open_session()
        first.session.start(0, [NodeRef(rank, 0) for rank in range(3)])
        first.until(lambda: len(first.events) == 6)
        first.session.leave()
        one = open_session(NodeState.READY)
        one.expect(NodeUnreachable, NodeReachable, NodeStarted, NodeReady)
        hosts[-1].restart(1, [0, 1, 2])
        number = of_native_restart(1)
        one.until(lambda: len(one.events) == 7)
        assert one.events[0] == RunRestarted(1, (0, 1, 2), why="node-0 has failed")
        assert {event.incarnation for event in one.events[1:] if isinstance(event, NodeReady)} == {
            number
        }
        close(one)
