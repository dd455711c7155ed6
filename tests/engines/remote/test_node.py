"""A node on another machine, as a supervisor knows it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from muster.engines.remote.node import RemoteNode, Stage
from muster.lifecycle.events import (
    DiskExceeded,
    EngineEvent,
    NodeEnded,
    NodeReachable,
    NodeReady,
    NodeStarted,
    NodeUnreachable,
)
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef, NodeStatus, Reason
from muster.node import messages
from muster.node.messages import ExitReport, HostFacts, Message
from support.node_servers import launch

FACTS = HostFacts("me", "/n", "10.0.0.1", [], 2, 1 << 30, [], "3.9.18", 1e9, -1, "", "", "/n", {})
END = ExitReport(3, 0, "exit", "boom", 1.5, '{"loss": 1}')


def of(incarnation: int) -> messages.Launch:
    return launch(Path("/n"), incarnation, "true")


def taken(node: RemoteNode) -> tuple[list[EngineEvent], list[Message]]:
    """What the session takes."""
    events, sent = node.events[:], node.messages[:]
    node.events.clear()
    node.messages.clear()
    return events, sent


def ready(incarnation: int = 0, *, rank: int = 4) -> RemoteNode:
    """A node whose program runs."""
    node = RemoteNode(rank)
    node.start(incarnation)
    node.receive(FACTS)
    node.launch(of(incarnation))
    node.receive(messages.Launched(incarnation))
    node.receive(messages.Joined(incarnation))
    node.begin()
    node.receive(messages.Started(incarnation))
    node.receive(messages.Ready(incarnation))
    taken(node)
    return node


def found(state: NodeState, incarnation: int = 0) -> RemoteNode:
    """A node that an earlier session was asked for."""
    return RemoteNode(4, (NodeRef(4, incarnation), NodeStatus(state=state)))


def test_from_start_to_end() -> None:
    node = RemoteNode(4)
    assert not node.running
    assert node.start(0)
    node.receive(FACTS)
    assert node.facts == FACTS
    assert taken(node) == ([], [])
    node.launch(of(0))
    node.launch(of(0))
    assert taken(node) == ([], [of(0)])
    node.receive(messages.Launched(0))
    node.begin()
    assert taken(node) == ([], [])  # it has not joined
    node.receive(messages.Joined(0))
    node.begin()
    node.begin()
    assert taken(node) == ([], [messages.Start(0)])
    node.receive(messages.Started(0))
    node.receive(messages.Ready(0))
    node.receive(messages.DiskExceeded(0, 20, 10))
    node.receive(messages.DiskExceeded(0, 20, 10))
    assert taken(node)[0] == [NodeStarted(4), NodeReady(4), DiskExceeded(4, 20, 10)]
    node.receive(messages.ProgramDone(0))
    assert node.program_done
    node.receive(messages.Ended(0, END, kept=True))
    assert taken(node)[0] == [
        NodeEnded(4, 3, 0, Reason.EXIT, "boom", 0, 1.5, '{"loss": 1}'),
    ]
    assert (node.running, node.kept) == (False, True)
    assert node.start(1)
    assert (node.kept, node.program_done, node.ref) == (False, False, NodeRef(4, 1))


def test_what_is_ignored() -> None:
    node = ready(2)
    assert not node.start(3)  # it runs
    node.receive(messages.Ready(1))
    node.receive(messages.Ended(1, END, kept=False))
    node.receive(messages.Started(2))
    assert taken(node) == ([], [])
    node.receive(messages.Ended(2, END, kept=False))
    taken(node)
    assert not node.start(2)
    for call in (node.stop, node.kill):
        call()
    node.signal(10)
    node.receive(messages.Ended(2, END, kept=False))
    node.gone("it is gone")
    assert taken(node) == ([], [])
    assert node.start(3)


def test_requests_of_a_node_that_runs() -> None:
    node = ready()
    node.signal(10)
    node.stop()
    node.kill()
    sent = [messages.Signal(0, 10), messages.Stop(0), messages.Kill(0)]
    assert taken(node) == ([], sent)


@pytest.mark.parametrize("call", ["stop", "kill"])
def test_a_node_that_was_not_launched_ends_at_once(call: str) -> None:
    node = RemoteNode(4)
    node.start(0)
    getattr(node, call)()
    assert taken(node) == ([NodeEnded(4, 143, 15)], [])
    node.signal(10)
    node.launch(of(0))
    assert taken(node) == ([], [])


def test_a_kept_node_is_given_up() -> None:
    node = ready()
    node.release()
    assert taken(node) == ([], [])  # it runs
    node.receive(messages.Ended(0, END, kept=True))
    node.release()
    assert taken(node)[1] == [messages.Release()]
    assert not node.kept


# --- contact


def test_contact_is_lost_and_found() -> None:
    node = ready()
    for _ in range(2):
        node.lost("no route to host")
    assert taken(node) == ([NodeUnreachable(4, 0, "no route to host")], [])
    node.stop()
    for _ in range(2):
        node.reached(begins=False)
    assert taken(node) == ([NodeReachable(4)], [messages.Stop(0)])


def test_a_node_that_does_not_run_is_not_reported() -> None:
    node = RemoteNode(4)
    node.lost("connection refused")
    node.reached(begins=False)
    assert taken(node) == ([], [])
    node.lost("connection refused")
    node.start(0)
    assert taken(node)[0] == [NodeUnreachable(4, 0, "connection refused")]
    node.reached(begins=False)
    assert taken(node)[0] == [NodeReachable(4)]


def test_its_infrastructure_says_that_it_is_gone() -> None:
    node = ready()
    node.lost("timed out")
    taken(node)
    node.gone("the host was restarted")
    node.gone("the host was restarted")
    lost = NodeEnded(4, None, 0, Reason.NODE_LOST, "the host was restarted")
    assert taken(node)[0] == [lost]
    assert (node.facts, node.kept) == (None, False)


def test_the_host_of_the_next_incarnation_is_not_that_of_the_last() -> None:
    node = ready()
    node.gone("evicted")
    node.start(1)
    taken(node)
    node.gone("evicted")
    assert taken(node) == ([], [])
    assert (node.stage, node.facts) == (Stage.WANTED, None)


def test_a_reason_that_is_not_known_here() -> None:
    node = ready()
    node.receive(messages.Ended(0, END._replace(reason="of_tomorrow"), kept=False))
    assert [event.reason for event in taken(node)[0]] == [Reason.EXIT]  # type: ignore[union-attr]


# --- a server that was started again begins a new conversation


def test_what_the_server_says_again_is_reported_once() -> None:
    node = ready(2)
    node.receive(FACTS._replace(incarnation=2))
    for kind in (messages.Launched, messages.Joined, messages.Started, messages.Ready):
        node.receive(kind(2))
    node.begin()
    assert taken(node) == ([], [])
    node.receive(messages.Ended(2, ExitReport(None, 0, "node_lost", "killed"), kept=False))
    assert taken(node)[0] == [NodeEnded(4, None, 0, Reason.NODE_LOST, "killed", 2)]


def test_what_it_was_told_before_is_told_again() -> None:
    node = ready()
    node.stop()
    taken(node)
    node.receive(FACTS._replace(incarnation=0))
    assert taken(node) == ([], [messages.Stop(0)])


def test_a_start_that_was_lost_is_sent_again() -> None:
    node = RemoteNode(4)
    node.start(0)
    node.launch(of(0))
    node.receive(messages.Launched(0))
    node.receive(messages.Joined(0))
    node.begin()
    taken(node)
    node.receive(FACTS._replace(incarnation=0))
    node.receive(messages.Launched(0))
    node.receive(messages.Joined(0))
    node.begin()
    assert taken(node) == ([], [messages.Start(0)])


def test_a_launch_that_was_lost_is_wanted_again() -> None:
    node = RemoteNode(4)
    node.start(1)
    node.launch(of(1))
    taken(node)
    node.receive(FACTS._replace(incarnation=0))
    assert node.stage is Stage.WANTED
    node.launch(of(1))
    assert taken(node) == ([], [of(1)])


def test_a_launch_that_was_lost_is_not_wanted_any_more() -> None:
    node = RemoteNode(4)
    node.start(1)
    node.launch(of(1))
    node.stop()
    taken(node)
    node.receive(FACTS)
    assert taken(node) == ([NodeEnded(4, 143, 15, incarnation=1)], [])


def test_a_host_that_has_forgotten_its_node() -> None:
    node = ready(1)
    node.receive(FACTS._replace(incarnation=0))
    why = "its host does not know it any more"
    assert taken(node)[0] == [NodeEnded(4, None, 0, Reason.NODE_LOST, why, 1)]


# --- a session that attaches


@pytest.mark.parametrize("state", [NodeState.STARTING, NodeState.RUNNING, NodeState.READY])
def test_what_an_earlier_session_started_is_found(state: NodeState) -> None:
    node = found(state, 2)
    assert node.running
    node.lost("not reached yet")
    node.reached(begins=True)
    node.receive(FACTS._replace(incarnation=2))
    assert not node.start(2)
    for kind in (messages.Launched, messages.Joined, messages.Started, messages.Ready):
        node.receive(kind(2))
    node.receive(messages.Ended(2, END, kept=False))
    events, sent = taken(node)
    kinds = [NodeUnreachable, NodeReachable, NodeStarted, NodeReady, NodeEnded]
    assert ([type(event) for event in events], sent) == (kinds, [])


def test_a_node_that_has_joined_goes_on_from_there() -> None:
    node = found(NodeState.STARTING)
    node.receive(FACTS._replace(incarnation=0))
    node.receive(messages.Launched(0))
    node.receive(messages.Joined(0))
    node.begin()
    assert taken(node) == ([], [messages.Start(0)])


def test_a_node_that_was_never_launched() -> None:
    node = found(NodeState.STARTING)
    assert node.start(0)  # before its server was heard, or after
    node.receive(FACTS)
    node.launch(of(0))
    assert taken(node) == ([], [of(0)])
    late = found(NodeState.STARTING)
    late.receive(FACTS)
    assert late.start(0)
    late.launch(of(0))
    assert taken(late) == ([], [of(0)])


def test_a_node_that_waited_in_a_queue_when_its_supervisor_died() -> None:
    node = found(NodeState.QUEUED)
    node.signal(10)
    node.receive(FACTS)  # it was scheduled meanwhile, and nobody has launched it
    node.launch(of(0))
    assert taken(node) == ([], [of(0)])
    launched = found(NodeState.QUEUED)
    launched.receive(FACTS._replace(incarnation=0))
    launched.receive(messages.Launched(0))
    launched.launch(of(0))
    launched.receive(messages.Started(0))
    assert taken(launched) == ([NodeStarted(4)], [])


@pytest.mark.parametrize("heard_first", [False, True])
@pytest.mark.parametrize("state", [NodeState.QUEUED, NodeState.STARTING])
def test_a_node_that_was_never_launched_and_is_to_end(
    state: NodeState, *, heard_first: bool
) -> None:
    node = found(state)
    if heard_first:
        node.receive(FACTS)
        node.kill()
    else:
        node.kill()
        node.receive(FACTS)
    assert taken(node)[0] == [NodeEnded(4, 143, 15)]


def test_a_node_whose_host_does_not_know_it() -> None:
    node = found(NodeState.RUNNING, 3)
    node.receive(FACTS._replace(incarnation=2))
    why = "its host does not know it any more"
    assert taken(node)[0] == [NodeEnded(4, None, 0, Reason.NODE_LOST, why, 3)]


# --- any order


class Server:
    """A node server that may be killed, and forget what it has said or not."""

    def __init__(self) -> None:
        self.said: list[Message] = []
        self.launched: list[int] = []

    def incarnation(self) -> int:
        first = self.said[0] if self.said else None
        return first.incarnation if isinstance(first, messages.Launched) else -1

    def take(self, message: Message) -> list[Message]:
        """What it says then."""
        ended = not self.said or isinstance(self.said[-1], messages.Ended)
        answer: list[Message] = []
        if isinstance(message, messages.Launch):
            if ended and message.incarnation > self.incarnation():
                self.launched.append(message.incarnation)
                answer = [messages.Launched(message.incarnation)]
                self.said = []
                answer.append(messages.Joined(message.incarnation))
        elif ended or getattr(message, "incarnation", None) != self.incarnation():
            return []
        elif isinstance(message, messages.Start):
            if not any(isinstance(one, messages.Started) for one in self.said):
                answer = [
                    messages.Started(message.incarnation),
                    messages.Ready(message.incarnation),
                ]
        elif isinstance(message, messages.Stop | messages.Kill):
            answer = [self.end("killed")]
        self.said += answer
        return answer

    def end(self, why: str) -> Message:
        report = ExitReport(None, 0, "node_lost", why)
        return messages.Ended(self.incarnation(), report, kept=False)


class Play:
    """A node, its server and its supervisor, of which each may be lost at any time.

    Each incarnation is launched at most once, ends exactly once, and nothing is reported of it
    after that.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.server, self.node = Server(), RemoteNode(4)
        self.node.receive(FACTS)
        self.to_server: list[Message] = []
        self.to_node: list[Message] = []
        self.incarnation = -1
        self.stopping = False
        self.started: set[int] = set()
        self.ends: set[int] = set()

    def play(self) -> None:
        steps = [self.start, self.stop, self.kill_server, self.replace_supervisor]
        weights = [4, 2, 2, 1]
        for _ in range(self.rng.randrange(5, 80)):
            carry = [self.carry_to_server, self.carry_to_node]
            (step,) = self.rng.choices([*steps, *carry], [*weights, 6, 6])
            step()
            self.settle()
        while self.to_node or self.to_server or self.node.running:
            if not (self.to_node or self.to_server):
                assert not self.stopping, "it does not end"
            self.carry_to_node()
            self.settle()
            self.carry_to_server()
            self.stop()
            self.settle()
        assert self.ends == set(range(self.incarnation + 1))
        assert self.server.launched == sorted(set(self.server.launched))

    def start(self) -> None:
        if not self.node.running:
            self.incarnation, self.stopping = self.incarnation + 1, False
            assert self.node.start(self.incarnation)

    def stop(self) -> None:
        if self.node.running and not self.stopping:
            self.stopping = True
            self.rng.choice((self.node.stop, self.node.kill))()

    def kill_server(self) -> None:
        """Its successor knows what it had said."""
        if self.server.said and not isinstance(self.server.said[-1], messages.Ended):
            self.server.said.append(self.server.end("its server was killed"))
        self.begin_conversation()

    def replace_supervisor(self) -> None:
        """What was reported is recorded; what was decided is requested again."""
        running, started = self.node.running, self.incarnation in self.started
        state = NodeState.RUNNING if started else NodeState.STARTING
        self.node = found(state, self.incarnation) if running else RemoteNode(4)
        self.node.incarnation = self.incarnation
        self.begin_conversation()
        if running and self.stopping:
            self.node.kill()
        elif running and not started:
            self.node.start(self.incarnation)

    def begin_conversation(self) -> None:
        """What was on its way is lost."""
        self.to_server.clear()
        self.node.reached(begins=True)
        facts = FACTS._replace(incarnation=self.server.incarnation())
        self.to_node[:] = [facts, *self.server.said]

    def carry_to_server(self) -> None:
        if self.to_server:
            self.to_node += self.server.take(self.to_server.pop(0))

    def carry_to_node(self) -> None:
        if self.to_node:
            self.node.receive(self.to_node.pop(0))

    def settle(self) -> None:
        """What a session does when it can."""
        if self.node.facts is not None:
            self.node.launch(of(self.node.incarnation))
        self.node.begin()
        events, sent = taken(self.node)
        self.to_server += sent
        for event in events:
            assert isinstance(event, NodeStarted | NodeReady | NodeEnded)
            assert event.incarnation not in self.ends
            if isinstance(event, NodeEnded):
                self.ends.add(event.incarnation)
            else:
                self.started.add(event.incarnation)


def test_any_order_of_losses_keeps_the_contract(rng: random.Random) -> None:
    for _ in range(1000):
        Play(rng).play()


def test_a_node_that_is_being_ended_is_reported_once_and_may_have_contact() -> None:
    node = ready()
    for _ in range(2):
        node.ending("its pod is being deleted")
    assert taken(node)[0] == [NodeUnreachable(4, 0, "its pod is being deleted")]
    node.collect()  # over the contact that there is
    node.lost("its node server has closed the connection")
    assert taken(node)[0] == []
    node.reached(begins=False)
    assert taken(node)[0] == [NodeReachable(4, 0)]


def test_the_next_incarnation_is_not_being_ended() -> None:
    node = ready()
    node.ending("its pod is being deleted")
    node.gone("its pod was deleted")
    taken(node)
    node.start(1)
    assert taken(node)[0] == []
    node.ending("its pod is being deleted")
    assert taken(node)[0] == [NodeUnreachable(4, 1, "its pod is being deleted")]
