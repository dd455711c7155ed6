"""What the ends of a connection say first: who they are, what they speak, and what has arrived.

The agent speaks first, whichever side has dialed. The supervisor answers, or says why it does not
talk to the agent; then the agent, too, may say why not. So neither gets messages of the other
before it knows whom it talks to, and versions of Muster with different protocols refuse each other
in words: `protocol`, `version` and `host` keep their names and meanings in all versions. So do
`run_id`, `rank` and `token`, by which an agent that has dialed proves who it is (`Claim`).

Another supervisor that takes over a run does not know what its predecessor was sent. It begins
another conversation, with another session, and the agent reports the state of its node again.
"""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Union

from muster.node.link import Link, LinkError

#: To be raised with every change of messages (`node.messages`), of their fields, or of frames
#: (`node.connection`): an end refuses what it does not know.
PROTOCOL = 6
#: Seconds of silence after which a node server gives a connection up.
SERVER_TIMEOUT = 60.0


def node_key(secret: bytes, slot: int) -> bytes:
    """From which the tokens of a slot are made: from it, those of other slots cannot be found.
    secret: the run's."""
    return _hmac(secret, b"node %d" % slot)


def node_token(key: bytes, server: int = 0) -> str:
    """The token by which a node that dials its supervisor proves who it is (`Claim`). key: that of
    its slot. server: which of the servers that the slot has one after the other."""
    return (_hmac(key, b"server %d" % server) if server else key).hex()


def _hmac(key: bytes, text: bytes) -> bytes:
    import hmac  # servers do without

    return hmac.digest(key, text, "sha256")


class Refusal(Exception):  # noqa: N818
    """This end does not talk to the other one. The text says why, to both."""


class Outdated(Refusal):
    """The other end has a newer connection. Nothing is wrong with it."""


class OtherProcess(Refusal):
    """The agent's process is another one than before, which knows nothing of the conversation. A
    new conversation with it may begin."""


class AgentHello(NamedTuple):
    """An agent's first words."""

    protocol: int
    #: Muster's.
    version: str
    #: The name of its host.
    host: str
    run_id: str
    #: The node's rank in the run.
    rank: int
    #: Drawn at the start of the agent's process: another process knows nothing of what this one has
    #: received.
    process: str
    #: Grows with each connection of the agent, so that one that comes late takes no other's place.
    number: int
    #: The conversation that it is in; "" for none.
    session: str
    #: The number of messages of that conversation which it has received.
    received: int


class SupervisorHello(NamedTuple):
    """A supervisor's answer."""

    protocol: int
    #: Muster's.
    version: str
    #: The name of its host.
    host: str
    run_id: str
    #: Grows with each supervisor that takes over the run: no agent goes back to an earlier one.
    turn: int
    #: Its conversation with the agent.
    session: str
    #: The number of messages of that conversation which it has received.
    received: int
    #: Whether the agent compresses what it sends over streams: output and files, over a network.
    compress: bool = False


class Claim(NamedTuple):
    """Who an agent that has dialed says it is, and what proves it."""

    run_id: str
    rank: int
    #: See `engines.remote.run_secrets`.
    token: str


Hello = Union[AgentHello, SupervisorHello]


def claim_of(data: Mapping[str, Any]) -> Claim:
    """Who has said this hello, if its token is that one's. Raises Refusal."""
    return Claim(*_fields(data, Claim))


def agent_hello(data: Mapping[str, Any], own: SupervisorHello) -> AgentHello:
    """What an agent has said to a supervisor. Raises Refusal."""
    _check_protocol(data, own, "agent", "supervisor")
    hello = AgentHello(*_fields(data, AgentHello))
    _check_run(hello.run_id, own.run_id, "agent", "supervisor")
    return hello


def supervisor_hello(data: Mapping[str, Any], own: AgentHello, turn: int) -> SupervisorHello:
    """What a supervisor has answered an agent. turn: that of the last one. Raises Refusal."""
    _check_protocol(data, own, "supervisor", "agent")
    hello = SupervisorHello(*_fields(data, SupervisorHello))
    _check_run(hello.run_id, own.run_id, "supervisor", "agent")
    if not hello.session:
        raise Refusal("its hello has no valid session")
    if hello.turn < turn:
        raise Refusal("another supervisor has taken over the run")
    return hello


def check_conversation(link: Link, hello: AgentHello, before: AgentHello | None) -> int:
    """The number of messages of a supervisor's conversation which the agent has received.

    before: what the agent said on its last connection in this conversation. Raises Outdated,
    OtherProcess, and Refusal if it is in another conversation.
    """
    if before is not None and hello.process != before.process:
        raise OtherProcess("the agent was started again")
    if before is not None and hello.number <= before.number:
        raise Outdated("the agent has another connection by now")
    if hello.session == link.session:
        return hello.received
    if not link.fresh:
        talks = "talks to another supervisor" if hello.session else "has lost the conversation"
        raise Refusal("the agent %s" % talks)
    return 0


def conversation(link: Link | None, hello: SupervisorHello) -> Link:
    """The agent's end of the conversation that a supervisor has answered with: the one that it is
    in, or a new one, in which it has to report the state of its node. Raises Refusal."""
    if link is not None and link.session == hello.session:
        return link
    if hello.received:
        raise Refusal("the supervisor knows of a conversation that this agent was not in")
    if link is not None:
        link.detach()
    return Link(hello.session)


def attach(link: Link, carrier: object, received: int) -> None:
    """As `Link.attach`. Raises Refusal."""
    try:
        link.attach(carrier, received)
    except LinkError as error:
        raise Refusal(str(error)) from None


def _check_protocol(data: Mapping[str, Any], own: Hello, other: str, this: str) -> None:
    protocol = data.get("protocol")
    if protocol == own.protocol and type(protocol) is int:
        return
    host, version = data.get("host"), data.get("version")
    theirs = "the %s on %.64s has Muster %.32s (protocol %.9s)" % (
        other,
        host if type(host) is str else "an unknown host",
        version if type(version) is str else "of an unknown version",
        protocol if type(protocol) is int and 0 <= protocol < 10**9 else "unknown",
    )
    ours = "the %s on %s has %s (protocol %d)" % (this, own.host, own.version, own.protocol)
    raise Refusal("%s, %s: use the same version on both" % (theirs, ours))


def _check_run(theirs: str, ours: str, other: str, this: str) -> None:
    if theirs != ours:
        raise Refusal("the %s belongs to run %.64s, the %s to %s" % (other, theirs, this, ours))


_NUMBERS = ("protocol", "rank", "number", "turn", "received")


def _fields(data: Mapping[str, Any], kind: Any) -> List[Any]:
    """The fields of a hello, each of its type. Raises Refusal."""
    wrong = [name for name in kind._fields if not _is_valid(name, data.get(name))]
    if wrong:
        raise Refusal("its hello has no valid %s" % " and no valid ".join(wrong))
    return [data[name] for name in kind._fields]


def _is_valid(name: str, value: Any) -> bool:
    if name in _NUMBERS:
        return type(value) is int and value >= 0
    return type(value) is (bool if name == "compress" else str)
