"""What supervisors and agents say first, whom they refuse, and where they continue."""

from __future__ import annotations

from typing import Any

import pytest

from muster.node.greeting import (
    PROTOCOL,
    AgentHello,
    OtherProcess,
    Outdated,
    Refusal,
    SupervisorHello,
    agent_hello,
    attach,
    check_conversation,
    conversation,
    supervisor_hello,
)
from muster.node.link import Link
from muster.node.messages import Stop

SUPERVISOR = SupervisorHello(PROTOCOL, "0.2.0", "desk", "r1", 4, "s1", 0)
AGENT = AgentHello(PROTOCOL, "0.2.0", "gpu-7", "r1", 3, "p1", 1, "", 0)
OTHER = "use the same version on both"


def test_both_are_understood() -> None:
    assert agent_hello(AGENT._asdict(), SUPERVISOR) == AGENT
    assert supervisor_hello(SUPERVISOR._asdict(), AGENT, turn=4) == SUPERVISOR
    assert agent_hello({**AGENT._asdict(), "new": 1}, SUPERVISOR) == AGENT


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            {"protocol": 99, "version": "0.3.0", "rank": None, "received": None},
            "the agent on gpu-7 has Muster 0.3.0 (protocol 99), "
            f"the supervisor on desk has 0.2.0 (protocol {PROTOCOL}): {OTHER}",
        ),
        ({"protocol": "1"}, "has Muster 0.2.0 (protocol unknown), the supervisor on desk"),
        ({"protocol": 10**5000}, "has Muster 0.2.0 (protocol unknown), the supervisor on desk"),
        ({"protocol": True}, "(protocol unknown)"),
        ({"protocol": 0, "host": [[]]}, "the agent on an unknown host has Muster 0.2.0"),
        ({"run_id": "r2"}, "the agent belongs to run r2, the supervisor to r1"),
        ({"rank": "3"}, "its hello has no valid rank"),
        ({"rank": True}, "its hello has no valid rank"),
        ({"received": -1}, "its hello has no valid received"),
        ({"session": None, "host": 1}, "its hello has no valid host and no valid session"),
    ],
)
def test_others_are_refused_in_words(change: dict[str, Any], error: str) -> None:
    with pytest.raises(Refusal) as refused:
        agent_hello({**AGENT._asdict(), **change}, SUPERVISOR)
    assert error in str(refused.value)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            {"protocol": 99, "version": "0.3.0"},
            "the supervisor on desk has Muster 0.3.0 (protocol 99), "
            f"the agent on gpu-7 has 0.2.0 (protocol {PROTOCOL}): {OTHER}",
        ),
        ({"turn": 3}, "another supervisor has taken over the run"),
        ({"session": ""}, "its hello has no valid session"),
        ({"compress": 1}, "its hello has no valid compress"),
    ],
)
def test_an_agent_refuses_supervisors(change: dict[str, Any], error: str) -> None:
    with pytest.raises(Refusal) as refused:
        supervisor_hello({**SUPERVISOR._asdict(), **change}, AGENT, turn=4)
    assert str(refused.value) == error


def test_what_says_nothing_of_itself_is_refused() -> None:
    with pytest.raises(Refusal, match="on an unknown host has Muster of an unknown version"):
        supervisor_hello({}, AGENT, turn=0)


def talked() -> tuple[Link, Link]:
    """The ends of a conversation in which each has received a message."""
    ends = Link("s1"), Link("s1")
    for end in ends:
        end.send(Stop(0))
        end.attach("wire", 0)
    for end, other in (ends, ends[::-1]):
        data = end.next_message()
        assert data is not None
        assert other.take(data) == Stop(0)
    return ends


def test_a_conversation_goes_on() -> None:
    supervisor, agent = talked()
    hello = AGENT._replace(session="s1", received=agent.received)
    assert check_conversation(supervisor, hello._replace(number=2), hello) == 1
    answer = SUPERVISOR._replace(received=supervisor.received)
    assert conversation(agent, answer) is agent
    attach(supervisor, "next", 1)
    attach(agent, "next", 1)
    assert [end.unacknowledged for end in (supervisor, agent)] == [0, 0]


def test_another_supervisor_begins_another_conversation() -> None:
    _, agent = talked()
    other = Link("s2")
    agent.attach("wire", 1)
    assert check_conversation(other, AGENT._replace(session="s1", received=1), None) == 0
    found = conversation(agent, SUPERVISOR._replace(session="s2", turn=5))
    assert found is not agent
    assert (found.session, found.fresh) == ("s2", True)
    assert not agent.carried_by("wire"), "the former supervisor is not listened to"


def test_another_process_is_another_agent() -> None:
    """What the one before was told is lost, and its node with it."""
    supervisor, _ = talked()
    with pytest.raises(Refusal, match="the agent has lost the conversation"):
        check_conversation(supervisor, AGENT, None)
    with pytest.raises(Refusal, match="the agent talks to another supervisor"):
        check_conversation(supervisor, AGENT._replace(session="s2"), None)
    with pytest.raises(OtherProcess, match="the agent was started again"):
        check_conversation(Link("s1"), AGENT._replace(process="p2", number=9), AGENT)
    with pytest.raises(Refusal, match="a conversation that this agent was not in"):
        conversation(None, SUPERVISOR._replace(received=1))


def test_a_connection_that_comes_late_takes_no_other_s_place() -> None:
    for number in (1, 2):
        with pytest.raises(Outdated, match="another connection by now"):
            check_conversation(Link("s1"), AGENT._replace(number=number), AGENT._replace(number=2))


def test_an_end_that_has_lost_messages_is_refused() -> None:
    supervisor, _ = talked()
    supervisor.attach("wire", 1)
    with pytest.raises(Refusal, match="it has lost messages that it had received"):
        attach(supervisor, "next", 0)
