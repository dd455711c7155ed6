"""The node agent: starts the node's processes, watches them, and leaves nothing behind.

It ends when they have ended, when it is told to, or when whoever drives the run is gone. A node
that is to be kept stays when they have ended, without a process of theirs, and begins again when it
is told to. It says `started`, `ready` and `ended` on its channel and hears `begin`, `stop`, `kill`,
`signal` and `absent`; each names the incarnation it is about.
"""

from __future__ import annotations

import signal
from typing import Any, Mapping

from muster.node import processes
from muster.node.channel import Channel
from muster.node.life import Life


class Agent:
    """One node.

    launch: `processes` (each `argv`, `env`, `stdout`, `stderr` (files, or `processes.INHERITED`),
    and `error_file` if it is told to
    note its errors there), `ranks` (`stdout` and `stderr` of each rank that the launcher starts, if
    it is to separate them), `node_args` (behind the `argv` of each), `cwd`, `folder` (the node's
    own), `fresh` (folders each life finds empty), `address`, `incarnation`, `grace_period` and
    `hang_timeout` (seconds, the latter or None), `probe` (or None), `program` (whether the
    processes run at all; else the services stand in for them), `launcher` (in front of the `argv`
    of each), `services`, `gather`, `absent` and
    `ready_timeout` (see `services.Services`), `contained` (we are PID 1 of the node's own
    namespace), `keep`. That of a later life comes with `begin`; `env` is what its
    processes have in common, and `argv` stays.
    """

    def __init__(self, channel: Channel, launch: Mapping[str, Any]) -> None:
        self._channel = channel
        self._launch = launch
        self._life: Life | None = None

    def run(self) -> None:
        """Live the node's whole life, or all its lives."""
        signal.signal(signal.SIGTERM, lambda *_: self._call_off())
        wake = processes.wake_on_signals()
        if not self._launch["contained"]:
            processes.become_subreaper()
        while True:
            self._life = Life(self._channel, self._launch, wake)
            ended = self._life.run()
            kept = self._launch["keep"] and self._life.intact
            incarnation = self._launch["incarnation"]
            self._channel.send(event="ended", incarnation=incarnation, kept=kept, **ended)
            if not kept or not self._begin_again():
                return

    def _begin_again(self) -> bool:
        """Wait to be told to. False if nobody is left who could.

        Nothing but the processes is new then: namespaces, mounts, address, working directory,
        TMPDIR and /dev/shm stay as they are. That is the point of staying: compiled kernels, data
        that was fetched and checkpoints in memory are still there for the next life.
        """
        try:
            message = self._channel.wait_for("begin")
        except EOFError:
            return False
        argv = self._launch["processes"][0]["argv"]  # found out when the code was laid out
        self._launch = message["launch"]
        for process in self._launch["processes"]:
            process.setdefault("argv", argv)
            process["env"] = {**self._launch["env"], **process["env"]}
        return True

    def _call_off(self) -> None:
        if self._life is not None:
            self._life.called_off = True


def run_agent(channel: Channel, launch: Mapping[str, Any]) -> None:
    """Run the node described by `launch`, reporting on `channel`; returns when it has ended."""
    Agent(channel, launch).run()
