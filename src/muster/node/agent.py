"""The node agent: starts the node's processes, watches them and ends every one of them.

The agent ends after its incarnation has ended, or when the supervisor's end of the channel is
closed or sends an invalid message. With `LaunchMessage.keep` it stays after an incarnation, without
processes, and waits for a `Restart` message, or, from a node server, for the `Launch` of a node
that takes over its slot. See `messages` for what it sends and receives.
"""

from __future__ import annotations

import signal
import sys
from typing import Callable, List, Optional, Sequence, Union

from muster.node import processes
from muster.node.channel import Channel
from muster.node.incarnation import Incarnation
from muster.node.launch_message import LaunchMessage
from muster.node.messages import Ended, InvalidMessage, Joined, Launch, Outputs, Restart, Start

#: Prepares the slot of a node for another one, and returns the command line of its program; None
#: if that needs another agent. If it raises OSError or another exception, another agent tries.
Renew = Callable[[Union[Restart, Launch]], Optional[List[str]]]
#: Provides the files that a node which is restarted in place lacks in its output directories.
#: Raises as `Renew`.
TakeOutputs = Callable[[Outputs], None]


class Agent:
    """The agent of one node, or of several in one slot, one after another.

    command: the program's command line, the same for all incarnations of a node; empty if the node
    runs no program. renew: called when another node takes the slot. take_outputs: called if a
    restart brings files.
    """

    def __init__(
        self,
        channel: Channel,
        command: Sequence[str],
        launch: LaunchMessage,
        renew: Renew | None = None,
        take_outputs: TakeOutputs | None = None,
    ) -> None:
        self._channel = channel
        self._command = command
        self._launch = launch
        self._renew = renew
        self._take_outputs = take_outputs
        self._current: Incarnation | None = None

    def run(self) -> bool:
        """Run the incarnations of the node, one after the other. Returns whether the last one has
        ended in order, so that this process could run another node."""
        signal.signal(signal.SIGTERM, lambda *_: self._request_stop())
        wake = processes.wake_on_signals()
        if not self._launch.contained:
            processes.become_subreaper()
        while True:
            self._current = Incarnation(self._channel, self._command, self._launch, wake)
            report = self._current.run()
            kept = self._launch.keep and self._current.restartable
            self._channel.send(Ended(self._launch.incarnation, report, kept))
            if not kept:
                processes.close_wakeup(wake)
                return self._current.restartable and not self._channel.closed
            restart = self._wait_for_restart()
            if restart is None or not self._take_slot(restart):
                return False
            if self._launch.waits and not self._wait_for_start():
                return False

    def _wait_for_restart(self) -> Union[Restart, Launch, None]:
        """Wait for the next incarnation. None if the supervisor has closed the channel, or sent an
        invalid message.

        Only the processes are new in a restart: namespaces, mounts, address, working directory,
        TMPDIR and /dev/shm stay. So compiled kernels, fetched data and checkpoints in memory
        survive, which is why nodes are restarted in place.
        """
        try:
            # what came before is about the incarnation that has ended; that of another node in the
            # slot may have had the same number
            restart = self._channel.wait_for(Restart, Launch, keep_earlier=False)
        except EOFError:
            return None
        except InvalidMessage as error:
            sys.stderr.write("muster: the supervisor sent an invalid message: %s\n" % error)
            return None
        self._launch = restart.launch
        return restart

    def _wait_for_start(self) -> bool:
        """Returns whether it comes; not if the supervisor has closed the channel."""
        self._channel.send(Joined(self._launch.incarnation))
        try:
            self._channel.wait_for(Start)
        except (EOFError, InvalidMessage):
            return False
        return True

    def _take_slot(self, restart: Union[Restart, Launch]) -> bool:
        """Prepare the slot for the next incarnation, and for its node if that is another one. False
        if it cannot be prepared: the supervisor starts another agent when this one ends without a
        report. That agent reports what is wrong with the node, not what a program did to this one.
        """
        try:
            if not self._launch.reuses_slot or self._renew is None:
                if restart.outputs is not None and self._take_outputs is not None:
                    self._take_outputs(restart.outputs)
                return True
            command = self._renew(restart)
        except Exception as error:  # noqa: BLE001
            sys.stderr.write("muster: the slot needs another agent: %s\n" % error)
            return False
        if command is None:
            return False
        self._command = command
        return True

    def _request_stop(self) -> None:
        if self._current is not None:
            self._current.stop_requested = True


def run_agent(
    channel: Channel,
    command: Sequence[str],
    launch: LaunchMessage,
    renew: Renew | None = None,
    take_outputs: TakeOutputs | None = None,
) -> bool:
    """Run a node, reporting on `channel`; returns when the node has ended. See `Agent.run`."""
    return Agent(channel, command, launch, renew, take_outputs).run()
