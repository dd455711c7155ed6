"""Agents that wait for another node: in a shared supervisor, the next run takes over those of the
runs before it.

To fork an agent takes most of what a short run costs: afterwards supervisor and agent copy each
page that they write to. An agent whose node has ended gives back everything of it
(`initial_state`), says that it is idle, and gets the setup of its next node on a socket of its own.
What is left of the former run is the process and its PID namespace, which is empty.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
from typing import TYPE_CHECKING

from muster.engines.local.node_process import MAX_SETUP, fork_node
from muster.node.counters import NodeReading
from muster.storage.usage import NOTHING

if TYPE_CHECKING:
    from muster.engines.local.node_process import NodeSetup
    from muster.node.messages import Idle

#: The most agents that wait, and the seconds for which one does: they take memory.
_MOST, _LINGER = 16, 1.0


class PooledAgent:
    """An agent that may run other nodes after its first one.

    sock: takes the setup of its next node.
    """

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.pid = pid
        #: What its former nodes have used; None before it was idle.
        self.used: NodeReading | None = None
        self.idle_since = 0.0
        self._ended = False
        self._sock = sock
        self._sock.setblocking(False)

    def send(self, setup: bytes, channel: socket.socket) -> bool:
        """Have it run a node. Returns False if it has ended."""
        try:
            socket.send_fds(self._sock, [setup], [channel.fileno()])
        except OSError:
            return False
        return True

    def ended(self) -> bool:
        """Whether it has ended; it is reaped then. For an agent that no session has."""
        self._ended = self._ended or os.waitpid(self.pid, os.WNOHANG)[0] != 0
        return self._ended

    def close(self) -> None:
        """Send it no more nodes: an idle agent ends."""
        self._sock.close()


class AgentPool:
    """The agents of one process that run nodes of several runs, one after the other."""

    def __init__(self) -> None:
        self._idle: list[PooledAgent] = []  # that which became idle last is the last one
        self._ending: list[PooledAgent] = []

    def start(self, setup: NodeSetup, channel: socket.socket) -> PooledAgent:
        """Start a node in an idle agent, or in a new one. Raises OSError.

        channel: the agent's end of the connection to the supervisor.
        """
        data = pickle.dumps(setup) if self._idle else b""
        while self._idle and len(data) <= MAX_SETUP:
            agent = self._idle.pop()
            if not agent.ended() and agent.send(data, channel):
                return agent
            self._end(agent)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                return PooledAgent(fork_node(setup, channel, theirs), ours)
            except BaseException:
                ours.close()
                raise

    def keep(self, agent: PooledAgent, found: Idle) -> None:
        """Keep an agent, which has become idle, for another node. found: its message."""
        disk_read, disk_written = found.disk_read, found.disk_written
        used = NOTHING._replace(
            cpu=found.programs_cpu, disk_read=disk_read, disk_written=disk_written
        )
        agent.used = NodeReading(used, found.agent_cpu)
        agent.idle_since = time.monotonic()
        self._idle.append(agent)
        if len(self._idle) > _MOST:
            self._end(self._idle.pop(0))

    def timeout(self) -> float | None:
        """Seconds until `step` is due; None while no agent is idle."""
        if not self._idle:
            return None
        return max(0.0, self._idle[0].idle_since + _LINGER - time.monotonic())

    def step(self) -> None:
        """End the agents that have been idle for a while, and reap those that have ended."""
        until = time.monotonic() - _LINGER
        while self._idle and self._idle[0].idle_since <= until:
            self._end(self._idle.pop(0))
        self._ending = [agent for agent in self._ending if not agent.ended()]

    def _end(self, agent: PooledAgent) -> None:
        agent.close()
        if not agent.ended():
            self._ending.append(agent)
