"""The framework's services on a node: started in order, as soon as their checks hold; stopped in
reverse order."""

from __future__ import annotations

import signal
from typing import Dict, Iterable, List, Union

from muster.node.checks import CheckPoller
from muster.node.exit_report import stderr_tail
from muster.node.files import file_size
from muster.node.launch_message import Check, LaunchMessage, ServiceLaunch
from muster.node.processes import exit_of, signal_group, spawn

_FIRST_PROGRESS = 10.0  # seconds until the first progress message; doubled after each


class ServiceExit:
    """The unexpected end of a service."""

    def __init__(self, service: ServiceLaunch, code: int, number: int, offset: int) -> None:
        #: The exit code; 128 + N for signal N.
        self.code = code
        #: The signal that ended the service, or 0.
        self.signal = number
        self._service = service
        self._offset = offset  # size of its stderr file before it started

    @property
    def stderr_tail(self) -> str:
        """The end of its stderr."""
        return stderr_tail(self._service.stderr, self._offset, killed=self.signal != 0)

    def __str__(self) -> str:
        how = "signal %d ended it" % self.signal if self.signal else "exit code %d" % self.code
        text = "%s ended by itself (%s)" % (self._service.name, how)
        tail = self.stderr_tail
        return "%s\n%s" % (text, tail) if tail else text


class Services:
    """The services of one incarnation of a node. `now` is the caller's monotonic clock, in
    seconds."""

    def __init__(self, launch: LaunchMessage, now: float) -> None:
        self._env = launch.environment_of(0)
        self._steps = _startup_steps(launch)
        self._check: CheckPoller | None = None
        #: Whether there is anything to start or to wait for.
        self.expected = bool(self._steps)
        self._absent = set(launch.absent)
        self._timeout = launch.services_timeout
        self._deadline = now + launch.services_timeout
        self._progress_at, self._progress_interval = now + _FIRST_PROGRESS, _FIRST_PROGRESS
        self._running: Dict[int, ServiceLaunch] = {}  # by pid, in order of their start
        self._offsets: Dict[int, int] = {}  # by pid: size of its stderr file before it started
        self._exits: List[ServiceExit] = []
        self._stopping = False
        self._being_stopped: int | None = None  # pid
        self._kill_at: float | None = None
        #: Process groups of all services that were started.
        self.groups: List[int] = []
        #: Whether all services run and what the program waits for holds.
        self.up = False
        #: The failure message, once the timeout is over.
        self.failed = ""

    @property
    def running(self) -> bool:
        """Whether any service runs."""
        return bool(self._running)

    @property
    def due(self) -> float | None:
        """When to call `step` although no child has ended; None = never."""
        if self._stopping:
            return self._kill_at
        if self.up or self.failed:
            return None
        check_due = self._check.due if self._check is not None else None
        soonest = min(self._deadline, self._progress_at)
        return soonest if check_due is None else min(check_due, soonest)

    def step(self, now: float) -> None:
        """Start what can be started, or kill what did not stop in time. Raises CannotStart."""
        if self._stopping:
            self._stop_next(now)
            return
        while not self.up and not self.failed:
            if self._check is not None:
                self._check.step(now)
                if not self._check.done:
                    if now >= self._deadline:
                        why = self._check.why
                        self.failed = "not ready after %g s: %s" % (self._timeout, why)
                    return
                self._check = None
            if not self._steps:
                self.up = True
                return
            step = self._steps.pop(0)
            if isinstance(step, ServiceLaunch):
                self._start(step)
            else:
                self._check = CheckPoller(step, self._env, now, self._absent)

    def ignore_ranks(self, ranks: Iterable[int]) -> None:
        """No longer wait for nodes of these ranks."""
        self._absent.update(ranks)

    def progress_message(self, now: float) -> str:
        """What is still missing, when it is time to print that; else empty."""
        if self._stopping or self._check is None or now < self._progress_at:
            return ""
        self._progress_interval *= 2
        self._progress_at = now + self._progress_interval
        return "not ready yet: %s" % self._check.why

    def _start(self, service: ServiceLaunch) -> None:
        env = {**self._env, **service.env}
        offset = file_size(service.stderr)
        pid = spawn(service.argv, env, service.stdout, service.stderr)
        self._running[pid] = service
        self._offsets[pid] = offset
        self.groups.append(pid)

    def reaped(self, pid: int, status: int, now: float) -> bool:
        """Handle a child that has ended. Returns whether it was a service or a check's command."""
        if self._check is not None and self._check.reaped(pid, status, now):
            return True
        service = self._running.pop(pid, None)
        if service is None:
            return False
        if not self._stopping:
            code, number = exit_of(status)
            self._exits.append(ServiceExit(service, code, number, self._offsets[pid]))
        if pid == self._being_stopped:
            self._being_stopped = self._kill_at = None
        return True

    def pop_exits(self) -> List[ServiceExit]:
        """The services that ended by themselves since the last call."""
        exits, self._exits = self._exits, []
        return exits

    def stop(self, now: float) -> None:
        """Stop the services one by one, the last started first, each with its grace period."""
        if not self._stopping:
            self._stopping = True
            if self._check is not None:
                self._check.cancel()
            self._stop_next(now)

    def _stop_next(self, now: float) -> None:
        if self._being_stopped is not None:
            if self._kill_at is not None and now >= self._kill_at:
                signal_group(self._being_stopped, signal.SIGKILL)
                self._kill_at = None  # `reaped` is called next
            return
        if self._running:
            self._being_stopped = list(self._running)[-1]
            self._kill_at = now + self._running[self._being_stopped].grace
            signal_group(self._being_stopped, signal.SIGTERM)


def _startup_steps(launch: LaunchMessage) -> List[Union[Check, ServiceLaunch]]:
    """The checks to wait for and the services to start, in order."""
    parts = [part for s in launch.services for part in (s.after, s, s.ready)]
    return [part for part in (*parts, launch.gather) if part is not None]
