"""A startup probe: asks again and again until the node is up, or has failed too often."""

from __future__ import annotations

import os
import shlex
import signal
import socket
from typing import Any, Mapping

from muster.node.processes import CannotStart, exit_of, signal_group, spawn


class StartupProbe:
    """One probe of one node, driven by its caller's clock (seconds, monotonic).

    plan: `period`, `timeout`, `threshold`, `initial_delay`, and one of `command`, `port`, `file`;
    `http` beside a port is the path to ask for there, which any answer from 200 to 399 satisfies.
    """

    def __init__(
        self, plan: Mapping[str, Any], address: str, env: Mapping[str, str], now: float
    ) -> None:
        self._plan = plan
        self._address = address
        self._env = env
        self._failures = 0
        self._last = ""  # why the last look failed, where the plan alone does not say
        self._child: int | None = None
        self.due: float | None = now + plan["initial_delay"]
        self.ready = False
        self.failed = ""

    def step(self, now: float) -> None:
        """Look once, if it is time to. Sets `ready` or, past the threshold, `failed`."""
        if self.due is None or now < self.due:
            return
        if self._child is not None:
            signal_group(self._child, signal.SIGKILL)  # `reaped` counts it as a failure
            self._last = "it took longer than %g s" % self._plan["timeout"]
            self.due = None
            return
        if self._plan["command"] is not None:
            self._start_command(now)
        elif self._plan.get("http") is not None:
            self._note(now, self._answers_well(self._plan["port"], self._plan["http"]))
        elif self._plan["port"] is not None:
            self._note(now, self._answers(self._plan["port"]))
        else:
            self._note(now, os.path.exists(self._plan["file"]))

    def reaped(self, pid: int, status: int, now: float) -> bool:
        """Whether the process that ended was ours."""
        if pid != self._child:
            return False
        self._child = None
        code = exit_of(status)[0]
        self._last = self._last or "it exited with %d" % code
        self._note(now, code == 0)
        return True

    def _start_command(self, now: float) -> None:
        self._last = ""
        try:
            self._child = spawn(self._plan["command"], self._env, os.devnull, os.devnull)
            self.due = now + self._plan["timeout"]
        except CannotStart as error:
            self.failed = "startup probe: %s" % error
            self.due = None

    def _answers(self, port: int) -> bool:
        # at the node's own address and no other: what listens on 127.0.0.1 no node can reach, and
        # it may be somebody else's
        try:
            socket.create_connection((self._address, port), self._plan["timeout"]).close()
        except OSError:
            return False
        return True

    def _answers_well(self, port: int, path: str) -> bool:
        from http.client import HTTPConnection, HTTPException  # slow to import, and seldom needed

        connection = HTTPConnection(self._address, port, timeout=self._plan["timeout"])
        try:
            connection.request("GET", path, headers={"Connection": "close"})
            with connection.getresponse() as response:
                status = response.status
        except OSError as error:
            self._last = error.strerror or str(error)
            return False
        except (HTTPException, UnicodeError) as error:
            self._last = "%s: %s" % (type(error).__name__, str(error).strip())
            return False
        finally:
            connection.close()
        self._last = "the answer was %d" % status
        return 200 <= status < 400

    def _note(self, now: float, success: bool) -> None:
        self.due = now + self._plan["period"]
        if success:
            self.ready = True
        else:
            self._failures += 1
            if self._failures >= self._plan["threshold"]:
                self.failed = "startup probe failed %d times: %s" % (self._failures, self._what())
        if self.ready or self.failed:
            self.due = None

    def _what(self) -> str:
        if self._plan["command"] is not None:
            command = " ".join(map(shlex.quote, self._plan["command"]))
            return "command `%s`: %s" % (command, self._last)
        if self._plan.get("http") is not None:
            where = (self._address, self._plan["port"], self._plan["http"])
            return "http://%s:%d%s: %s" % (*where, self._last)
        if self._plan["port"] is not None:
            return "nothing listens on port %d of %s" % (self._plan["port"], self._address)
        return "no file %s" % self._plan["file"]
