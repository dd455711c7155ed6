"""The process of this node's agent, as the bootstrap sees it."""

from __future__ import annotations

import os
import signal
from typing import Any, cast

import pytest

from muster.bootstrap import agent_process
from muster.bootstrap.agent_process import AgentProcess, NodeExit
from muster.node.channel import Channel


def exit_of(agent: Any, monkeypatch: pytest.MonkeyPatch) -> NodeExit:
    """How the node ends with this agent."""
    monkeypatch.setattr(agent_process, "run_agent", lambda channel, *_: agent(channel))
    process = AgentProcess([], cast("Any", None), lambda: None, 60.0)
    return process.run(lambda: None)


def test_an_agent_that_sends_an_invalid_message_fails_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def agent(channel: Channel) -> None:
        os.write(channel.fileno(), b'{"type": []}\n')
        while not channel.closed:
            channel.receive()

    ended = exit_of(agent, monkeypatch)
    text = "the node's agent sent an invalid message: unknown message: {'type': []}"
    assert (ended.exit_code, ended.details) == (None, text)


def test_an_agent_that_is_killed_fails_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = exit_of(lambda _: os.kill(os.getpid(), signal.SIGKILL), monkeypatch)
    assert (ended.exit_code, ended.details) == (None, "the node's agent was killed")
