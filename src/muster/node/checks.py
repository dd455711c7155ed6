"""Checks that a node waits for before it continues: a port answers, all expected members have
joined, a command succeeds. A check is a mapping with the fields of `frameworks.base.Check`."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import time
from typing import Any, Collection, Iterator, List, Mapping, Sequence

from muster.node.exit_report import stderr_tail
from muster.node.files import file_size
from muster.node.launch_message import Check
from muster.node.processes import CannotStart, exit_of, signal_group, spawn

_TIMEOUT = 2.0  # seconds for one answer
_CONNECT_INTERVAL = 0.01  # seconds between two tries to connect
_MIN_INTERVAL, _MAX_INTERVAL = 0.02, 0.5  # seconds between two tries; most checks hold soon
_INTERVAL_SHARE = 0.05  # the interval as a share of the time waited so far; commands cost more


class CheckPoller:
    """Polls one check until it holds. `now` is the caller's monotonic clock, in seconds.

    absent: ranks of nodes that the check does not wait for; its owner may add some.
    """

    def __init__(
        self,
        check: Check,
        env: Mapping[str, str],
        now: float,
        absent: Collection[int] = (),
    ) -> None:
        self._check = check
        self._absent = absent
        self._env = env
        self._started = now
        self._interval = _MIN_INTERVAL
        self._child: int | None = None
        self._output = os.path.join(env.get("TMPDIR", "/tmp"), "muster-check-%d" % os.getpid())
        self._offset = 0  # size of the output file before the command
        #: When to call `step`; None = not before `reaped`, or never.
        self.due: float | None = now
        #: Whether the check holds.
        self.done = False
        #: For people: why the check does not hold yet.
        self.why = ""

    def step(self, now: float) -> None:
        """Try once, if it is time to."""
        if self.done or self.due is None or now < self.due:
            return
        if self._check["type"] == "succeeds":
            self._step_command(now)
            return
        self.why = _try_once(self._check, self._expected_names())
        self.done = not self.why
        self._schedule(now)

    def reaped(self, pid: int, status: int, now: float) -> bool:
        """Handle a child that has ended. Returns whether it was the check's command."""
        if pid != self._child:
            return False
        self._child = None
        code, number = exit_of(status)
        self.done = code == 0
        tail = stderr_tail(self._output, self._offset, killed=number != 0)
        how = tail or "it exited with %d" % code
        if self.due is None:
            how = "it took longer than %g s" % self._check["patience"]
        self.why = "%s: %s" % (self._name(), how)
        self._schedule(now)
        if self.done:
            self._remove_output()
        return True

    def cancel(self) -> None:
        """Kill the check's command, if it runs, and remove its output."""
        if self._child is not None:
            signal_group(self._child, signal.SIGKILL)
        self._remove_output()

    def _remove_output(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._output)

    def _schedule(self, now: float) -> None:
        self.due = None if self.done else now + self._interval
        if self._check["type"] == "succeeds":
            self._interval = min(self._interval * 1.5, _MAX_INTERVAL)
        elif self.due is not None:
            waited = self.due - self._started
            self._interval = min(max(_MIN_INTERVAL, waited * _INTERVAL_SHARE), _MAX_INTERVAL)

    def _step_command(self, now: float) -> None:
        if self._child is not None:
            signal_group(self._child, signal.SIGKILL)  # `reaped` is called next
            self.due = None
            return
        try:
            self._offset = file_size(self._output)
            command = [*self._check["command"], *self._expected_names()]
            self._child = spawn(command, self._env, self._output, os.devnull)
            self.due = now + self._check["patience"]
            self.why = self.why or "%s: it has not ended yet" % self._name()
        except CannotStart as error:
            self.why = "%s: %s" % (self._name(), error)
            self._schedule(now)

    def _expected_names(self) -> List[str]:
        """The names of the members that the check waits for."""
        members = self._check.get("expected", ())
        return [name for rank, name in members if rank not in self._absent]

    def _name(self) -> str:
        command = " ".join(map(shlex.quote, self._check["command"]))
        return self._check.get("what") or "`%s`" % command


def _try_once(check: Check, expected: Sequence[str]) -> str:
    """Why the check does not hold; empty if it does. expected: names of members."""
    where = "%s:%s" % (check["address"], check["port"])
    try:
        if check["type"] == "answers" and check.get("path") is None:
            address = (check["address"], int(check["port"]))
            socket.create_connection(address, _TIMEOUT).close()
            return ""
        address, token = check["address"], check.get("token", "")
        answer = fetch(address, int(check["port"]), check["path"], token)
    except OSError as error:
        return "%s does not answer: %s" % (where, error.strerror or error)
    except ValueError as error:
        return "%s%s: %s" % (where, check["path"], error)
    if check["type"] == "answers":
        return ""
    return _missing_members(check, answer, expected)


def fetch(address: str, port: int, path: str, token: str = "") -> bytes:
    """GET `path` over HTTP. Raises OSError, or ValueError for a status other than 200 to 399 or an
    answer that is not HTTP."""
    from http.client import HTTPConnection, HTTPException  # slow to import, and rarely needed

    connection = HTTPConnection(address, port, timeout=_TIMEOUT)
    try:
        bearer = {"Authorization": "Bearer %s" % token} if token else {}
        connection.request("GET", path, headers={"Connection": "close", **bearer})
        with connection.getresponse() as response:
            if not 200 <= response.status < 400:
                raise ValueError("the answer was %d" % response.status)
            return response.read()
    except HTTPException as error:
        raise ValueError("%s: %s" % (type(error).__name__, error)) from None
    finally:
        connection.close()


def _missing_members(check: Check, answer: bytes, expected: Sequence[str]) -> str:
    """A sentence about the expected members that have not joined; empty if all have."""
    try:
        data = json.loads(answer)
    except ValueError:
        return "%s:%s%s: the answer is not JSON" % (check["address"], check["port"], check["path"])
    joined = {
        _value_at(member, check["name"])
        for member in _values_at(data, check["members"])
        if all(_value_at(member, key.split(".")) == v for key, v in check["where"].items())
    }
    missing = [name for name in expected if name not in joined]
    if not missing:
        return ""
    of = len(expected)
    names = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
    return "%d of %d %ss have not joined: %s" % (len(missing), of, check["what"], names)


def _values_at(data: Any, path: Sequence[str]) -> Iterator[Any]:
    """All values at a path of field names; `*` stands for each item of a list or mapping."""
    if not path:
        yield data
    elif path[0] != "*":
        if isinstance(data, dict) and path[0] in data:
            yield from _values_at(data[path[0]], path[1:])
    elif isinstance(data, (list, dict)):
        for item in data.values() if isinstance(data, dict) else data:
            yield from _values_at(item, path[1:])


def _value_at(data: Any, path: Sequence[str]) -> str | None:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return None if data is None else str(data)


def await_listener(address: str, port: int, timeout: float) -> str:
    """Block until a server accepts connections. Returns "", or, after `timeout` seconds, why the
    last try failed."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection((address, port), _TIMEOUT).close()
        except OSError as error:
            if time.monotonic() >= deadline:
                return str(error.strerror or error)
        else:
            return ""
        time.sleep(_CONNECT_INTERVAL)
