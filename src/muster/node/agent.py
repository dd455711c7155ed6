"""The node agent: starts the node's processes, watches them and ends every one of them.

The agent ends after its incarnation has ended, or when the supervisor's end of the channel is
closed or sends an invalid message. With `LaunchMessage.keep` it stays after an incarnation, without
processes, and waits for a `Restart` message. See `messages` for what it sends and receives.
"""

from __future__ import annotations

import signal
import sys
from typing import Sequence

from muster.node import processes
from muster.node.channel import Channel
from muster.node.incarnation import Incarnation
from muster.node.launch_message import LaunchMessage
from muster.node.messages import Ended, InvalidMessage, Restart


class Agent:
    """The agent of one node. command: the program's command line, the same for all incarnations;
    empty if the node runs no program."""

    def __init__(self, channel: Channel, command: Sequence[str], launch: LaunchMessage) -> None:
        self._channel = channel
        self._command = command
        self._launch = launch
        self._current: Incarnation | None = None

    def run(self) -> None:
        """Run the incarnations of the node, one after the other."""
        signal.signal(signal.SIGTERM, lambda *_: self._request_stop())
        wake = processes.wake_on_signals()
        if not self._launch.contained:
            processes.become_subreaper()
        while True:
            self._current = Incarnation(self._channel, self._command, self._launch, wake)
            report = self._current.run()
            kept = self._launch.keep and self._current.restartable
            self._channel.send(Ended(self._launch.incarnation, report, kept))
            if not kept or not self._wait_for_restart():
                return

    def _wait_for_restart(self) -> bool:
        """Wait for the next incarnation. False if the supervisor has closed the channel, or sent an
        invalid message.

        Only the processes are new in a restart: namespaces, mounts, address, working directory,
        TMPDIR and /dev/shm stay. So compiled kernels, fetched data and checkpoints in memory
        survive, which is why nodes are restarted in place.
        """
        try:
            self._launch = self._channel.wait_for(Restart).launch
        except EOFError:
            return False
        except InvalidMessage as error:
            sys.stderr.write("muster: the supervisor sent an invalid message: %s\n" % error)
            return False
        return True

    def _request_stop(self) -> None:
        if self._current is not None:
            self._current.stop_requested = True


def run_agent(channel: Channel, command: Sequence[str], launch: LaunchMessage) -> None:
    """Run a node, reporting on `channel`; returns when the node has ended. See `Agent`."""
    Agent(channel, command, launch).run()
