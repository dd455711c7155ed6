"""The programs that run on a node beside the owner's, or in its place: started one after the
other, as soon as what each waits for is there; ended in the opposite order."""

from __future__ import annotations

import signal
from typing import Any, Dict, Iterable, List, Mapping, Sequence

from muster.node.checks import Waiting
from muster.node.last_words import last_words, size_of
from muster.node.processes import exit_of, signal_group, spawn

_SPEAK = 10.0  # seconds until we first say what is still missing; each time later twice as long


class Left:
    """A service that ended unasked. code: what it exited with; number: the signal, or 0."""

    def __init__(self, service: Mapping[str, Any], code: int, number: int, written: int) -> None:
        self.code, self.number = code, number
        self._service, self._written = service, written

    @property
    def words(self) -> str:
        """The last it wrote."""
        return last_words(self._service["stderr"], self._written, killed=self.number != 0)

    def __str__(self) -> str:
        """A sentence about it, and its last words."""
        how = "signal %d ended it" % self.number if self.number else "exit code %d" % self.code
        text = "%s ended by itself (%s)" % (self._service["name"], how)
        return "%s\n%s" % (text, self.words) if self.words else text


class Services:
    """Those of one life of a node, driven by its caller's clock (seconds, monotonic).

    launch: `services` (each `name`, `argv`, `env` on top of what all have, `stdout`, `stderr`,
    `after`, `ready`, `grace`), `gather` (a check or None), `absent` (ranks of nodes that nobody
    waits for), `ready_timeout`. `up`: all of them run, and what the program waits for is there.
    `failed`: what took too long.
    """

    def __init__(self, launch: Mapping[str, Any], env: Mapping[str, str], now: float) -> None:
        self._waiting: Waiting | None = None
        self._env = env
        self._steps: List[Mapping[str, Any]] = _steps(launch["services"], launch["gather"])
        #: Whether there is anything to start or to wait for.
        self.expected = bool(self._steps)
        self._absent = set(launch["absent"])
        self._deadline: float = now + launch["ready_timeout"]
        self._patience = launch["ready_timeout"]
        self._speak_at, self._pause = now + _SPEAK, _SPEAK
        self._running: Dict[int, Mapping[str, Any]] = {}  # pid -> service, in order
        self._written: Dict[int, int] = {}  # bytes in its stderr before it
        self._left: List[Left] = []
        self._stopping: int | None = None
        self._kill_at: float | None = None
        self._told = False
        self.groups: List[int] = []
        self.up = False
        self.failed = ""

    @property
    def running(self) -> bool:
        return bool(self._running)

    @property
    def due(self) -> float | None:
        """When `step` wants to be called although nothing happened."""
        if self._told:
            return self._kill_at
        if self.up or self.failed:
            return None
        look = self._waiting.due if self._waiting is not None else None
        soonest = min(self._deadline, self._speak_at)
        return soonest if look is None else min(look, soonest)

    def step(self, now: float) -> None:
        """Do what can be done by now. Raises CannotStart."""
        if self._told:
            self._end_next(now)
            return
        while not self.up and not self.failed:
            if self._waiting is not None:
                self._waiting.step(now)
                if not self._waiting.done:
                    if now >= self._deadline:
                        self.failed = "not ready after %g s: %s" % (
                            self._patience,
                            self._waiting.why,
                        )
                    return
                self._waiting = None
            if not self._steps:
                self.up = True
                return
            step = self._steps.pop(0)
            if "argv" in step:
                self._start(step)
            else:
                self._waiting = Waiting(step, self._env, now, self._absent)

    def forget(self, ranks: Iterable[int]) -> None:
        """Wait for nodes of these ranks no more."""
        self._absent.update(ranks)

    def still_missing(self, now: float) -> str:
        """What is waited for, for people, when it is time to say so again; else empty."""
        if self._told or self._waiting is None or now < self._speak_at:
            return ""
        self._pause *= 2
        self._speak_at = now + self._pause
        return "not ready yet: %s" % self._waiting.why

    def _start(self, service: Mapping[str, Any]) -> None:
        env = {**self._env, **service["env"]}
        written = size_of(service["stderr"])
        pid = spawn(service["argv"], env, service["stdout"], service["stderr"])
        self._running[pid] = service
        self._written[pid] = written
        self.groups.append(pid)

    def reaped(self, pid: int, status: int, now: float) -> bool:
        """Whether the process that ended was one of ours."""
        if self._waiting is not None and self._waiting.reaped(pid, status, now):
            return True
        service = self._running.pop(pid, None)
        if service is None:
            return False
        if not self._told:
            code, number = exit_of(status)
            self._left.append(Left(service, code, number, self._written[pid]))
        if pid == self._stopping:
            self._stopping = self._kill_at = None
        return True

    def take_left(self) -> List[Left]:
        """Those that have ended unasked since the last time."""
        left, self._left = self._left, []
        return left

    def stop(self, now: float) -> None:
        """Have them end, the last that was started first; each has its time."""
        if not self._told:
            self._told = True
            if self._waiting is not None:
                self._waiting.end()
            self._end_next(now)

    def _end_next(self, now: float) -> None:
        if self._stopping is not None:
            if self._kill_at is not None and now >= self._kill_at:
                signal_group(self._stopping, signal.SIGKILL)
                self._kill_at = None  # `reaped` goes on from there
            return
        if self._running:
            self._stopping = list(self._running)[-1]
            self._kill_at = now + self._running[self._stopping]["grace"]
            signal_group(self._stopping, signal.SIGTERM)


def _steps(
    services: Sequence[Mapping[str, Any]], gather: Mapping[str, Any] | None
) -> List[Mapping[str, Any]]:
    """What has to be waited for, and started, in order."""
    parts = [part for s in services for part in (s["after"], s, s["ready"])]
    return [part for part in (*parts, gather) if part is not None]
