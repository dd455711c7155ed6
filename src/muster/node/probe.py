"""The probes of a node: of its start, until it is ready, and of its life from then on."""

from __future__ import annotations

import os
import signal
import socket
from typing import Mapping

from muster.node.launch_message import Probe
from muster.node.processes import CannotStart, exit_of, signal_group, spawn


class _Probe:
    """Tries one thing again and again. `now` is the caller's monotonic clock, in seconds. address:
    the node's; env: of the probe's command."""

    #: For people.
    _name = ""

    def __init__(self, probe: Probe, address: str, env: Mapping[str, str], now: float) -> None:
        self._probe = probe
        self._address = address
        self._env = env
        self._failures = 0
        self._last_error = ""  # of the last try, if the probe alone does not say it
        self._child: int | None = None
        #: When to call `step`; None = not before `reaped`, or never.
        self.due: float | None = now + probe.initial_delay
        #: The failure message, once too many tries have failed.
        self.failed = ""

    def step(self, now: float) -> None:
        """Try once, if it is time to. Past the threshold, sets `failed`."""
        probe = self._probe
        if self.due is None or now < self.due:
            return
        if self._child is not None:
            signal_group(self._child, signal.SIGKILL)  # `reaped` counts it as a failure
            self._last_error = "it took longer than %g s" % probe.timeout
            self.due = None
            return
        if probe.command is not None:
            self._start_command(now)
        elif probe.port is not None and probe.http is not None:
            self._count(now, self._http_succeeds(probe.port, probe.http))
        elif probe.port is not None:
            self._count(now, self._port_answers(probe.port))
        else:
            assert probe.file is not None, "one of command, port and file is set"
            self._count(now, os.path.exists(probe.file))

    def reaped(self, pid: int, status: int, now: float) -> bool:
        """Handle a child that has ended. Returns whether it was the probe's command."""
        if pid != self._child:
            return False
        self._child = None
        code = exit_of(status)[0]
        self._last_error = self._last_error or "it exited with %d" % code
        self._count(now, code == 0)
        return True

    def _start_command(self, now: float) -> None:
        self._last_error = ""
        try:
            command = self._probe.command or ()
            self._child = spawn(command, self._env, os.devnull, os.devnull)
            self.due = now + self._probe.timeout
        except CannotStart as error:
            self.failed = "%s: %s" % (self._name, error)
            self.due = None

    def _port_answers(self, port: int) -> bool:
        # only at the node's own address: other nodes cannot reach 127.0.0.1, and what listens there
        # may not belong to this node
        try:
            socket.create_connection((self._address, port), self._probe.timeout).close()
        except OSError:
            return False
        return True

    def _http_succeeds(self, port: int, path: str) -> bool:
        from http.client import HTTPConnection, HTTPException  # slow to import, and rarely needed

        connection = HTTPConnection(self._address, port, timeout=self._probe.timeout)
        try:
            connection.request("GET", path, headers={"Connection": "close"})
            with connection.getresponse() as response:
                status = response.status
        except OSError as error:
            self._last_error = error.strerror or str(error)
            return False
        except (HTTPException, UnicodeError) as error:
            self._last_error = "%s: %s" % (type(error).__name__, str(error).strip())
            return False
        finally:
            connection.close()
        self._last_error = "the answer was %d" % status
        return 200 <= status < 400

    def _count(self, now: float, success: bool) -> None:
        """Count the result of a try and schedule the next one."""
        self.due = now + self._probe.period
        if success:
            self._succeeded()
            return
        self._failures += 1
        if self._failures >= self._probe.threshold:
            what = (self._name, self._failures, self._description())
            self.failed = "%s failed %d times: %s" % what
            self.due = None

    def _succeeded(self) -> None:
        """A try has succeeded."""
        raise NotImplementedError

    def _description(self) -> str:
        """What was tried, and why it failed."""
        probe = self._probe
        if probe.command is not None:
            from shlex import quote  # only for this message

            command = " ".join(map(quote, probe.command))
            return "command `%s`: %s" % (command, self._last_error)
        if probe.port is not None and probe.http is not None:
            where = (self._address, probe.port, probe.http)
            return "http://%s:%d%s: %s" % (*where, self._last_error)
        if probe.port is not None:
            return "nothing listens on port %d of %s" % (probe.port, self._address)
        return "no file %s" % probe.file


class StartupProbe(_Probe):
    """Tries until the node is ready, or has failed too often."""

    _name = "startup probe"
    #: Whether a try succeeded.
    ready = False

    def _succeeded(self) -> None:
        self.ready = True
        self.due = None


class LivenessProbe(_Probe):
    """Tries as long as the node runs, until it has failed too often in a row."""

    _name = "liveness probe"

    def _succeeded(self) -> None:
        self._failures = 0
