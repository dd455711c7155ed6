"""The node agent: starts the node's processes, watches them, and leaves nothing behind.

It ends when they have ended, when it is told to, or when whoever drives the run is gone. It says
`started`, `ready` and `ended` on its channel and hears `stop` and `kill`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Any, Dict, List, Mapping

from muster.node import processes
from muster.node.channel import Channel, Message
from muster.node.probe import StartupProbe


class Agent:
    """One node.

    launch: `processes` (each `argv`, `env`, `stdout`, `stderr`), `cwd`, `address`,
    `grace_period` (seconds), `probe` (or None), `contained` (we are PID 1 of the node's own
    namespace).
    """

    def __init__(self, channel: Channel, launch: Mapping[str, Any]) -> None:
        self._channel = channel
        self._launch = launch
        self._running: Dict[int, int] = {}  # pid -> local rank
        self._groups: List[int] = []
        self._probe: StartupProbe | None = None
        self._kill_at: float | None = None
        self._failure: Dict[str, Any] | None = None
        self._wake = self._catch_signals()

    def run(self) -> None:
        """Live the node's whole life."""
        if not self._launch["contained"]:
            processes.become_subreaper()
        if not self._told_to_end() and self._start():
            self._watch()
            if self._running:
                self._note_failure(128 + signal.SIGKILL, int(signal.SIGKILL), "exit", "")
        processes.kill_everything(self._launch["contained"], self._groups)
        ended = self._failure or {"exit_code": 0, "signal": 0, "reason": "exit", "message": ""}
        self._channel.send(event="ended", **ended)

    def _told_to_end(self) -> bool:
        """Whether the end came before the beginning: then nothing is started at all."""
        if not any(m["op"] in ("stop", "kill") for m in self._channel.take_waiting()):
            return False
        self._note_failure(128 + signal.SIGTERM, int(signal.SIGTERM), "exit", "")
        return True

    def _catch_signals(self) -> int:
        """A descriptor that becomes readable with every signal (a child's end, mostly)."""
        signal.signal(signal.SIGTERM, lambda *_: self._stop())
        return processes.wake_on_signals()

    def _start(self) -> bool:
        os.chdir(self._launch["cwd"])
        for local_rank, process in enumerate(self._launch["processes"]):
            out, err = process["stdout"], process["stderr"]
            try:
                pid = processes.spawn(process["argv"], process["env"], out, err)
            except processes.CannotStart as error:
                with open(err, "a") as file:
                    file.write("muster: %s\n" % error)
                self._fail(error.code, 0, "exit", str(error))
                return False
            self._running[pid] = local_rank
            self._groups.append(pid)
        self._channel.send(event="started")
        if self._launch["probe"] is None:
            self._channel.send(event="ready")
        else:
            env = self._launch["processes"][0]["env"]
            self._probe = StartupProbe(
                self._launch["probe"], self._launch["address"], env, time.monotonic()
            )
        return True

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while self._running:
            for descriptor, _ in poll.poll(self._timeout()):
                if descriptor == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                elif self._hear():
                    return
            self._reap()
            self._probe_once()
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                return

    def _timeout(self) -> float | None:
        """Milliseconds until something must be done although nothing happens."""
        times = [self._kill_at, self._probe.due if self._probe else None]
        due = [t for t in times if t is not None]
        if not due:
            return None
        # poll takes 24 days at most; looking once a day is as good as never
        return min(max(0.0, (min(due) - time.monotonic()) * 1000 + 1), 86_400_000)

    def _hear(self) -> bool:
        """Act on what was said. Whether the node must end at once."""
        return self._act(self._channel.receive()) or self._channel.closed

    def _act(self, messages: List[Message]) -> bool:
        for message in messages:
            if message["op"] == "stop":
                self._stop()
            elif message["op"] == "kill":
                return True
        return False

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._probe is not None and self._probe.reaped(pid, status, time.monotonic()):
                continue
            if self._running.pop(pid, None) is not None:
                code, number = processes.exit_of(status)
                if code:
                    self._fail(code, number, "exit", "")

    def _probe_once(self) -> None:
        if self._probe is None or not self._running:
            return
        self._probe.step(time.monotonic())
        if self._probe.ready:
            self._channel.send(event="ready")
            self._probe = None
        elif self._probe.failed:
            self._fail(None, 0, "startup_timeout", self._probe.failed)
            self._probe = None

    def _fail(self, code: int | None, number: int, reason: str, message: str) -> None:
        """The first failure of the node is its failure; its other processes are told to end."""
        self._note_failure(code, number, reason, message)
        self._stop()

    def _note_failure(self, code: int | None, number: int, reason: str, message: str) -> None:
        if self._failure is None:
            self._failure = {
                "exit_code": code,
                "signal": number,
                "reason": reason,
                "message": message,
            }

    def _stop(self) -> None:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._launch["grace_period"]
            for pid in self._running:
                processes.signal_group(pid, signal.SIGTERM)


def run_agent(channel: Channel, launch: Mapping[str, Any]) -> None:
    """Run the node described by `launch`, reporting on `channel`; returns when it has ended."""
    Agent(channel, launch).run()
