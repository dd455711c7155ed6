"""Looking whether something is as it must be before a node goes on: a port answers, all who are
expected have joined, a command succeeds. See `frameworks.base.Check`, whose fields these have.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
from typing import Any, Collection, Iterator, List, Mapping, Sequence

from muster.node.last_words import last_words, size_of
from muster.node.processes import CannotStart, exit_of, signal_group, spawn

_PATIENCE = 2.0  # seconds for one answer
_SOONEST, _LATEST = 0.02, 0.5  # seconds between looks: often at first, as most things come soon
_LATE = 0.05  # a look comes so late at most, as a share of what was waited; commands cost more


class Waiting:
    """One check, looked at again and again, by its caller's clock (seconds, monotonic).

    absent: ranks of nodes that are not awaited; its owner may add some. `done`: it holds. `due`:
    when to look next. `why`: for people, why it does not hold yet.
    """

    def __init__(
        self,
        check: Mapping[str, Any],
        env: Mapping[str, str],
        now: float,
        absent: Collection[int] = (),
    ) -> None:
        self._check = check
        self._absent = absent
        self._env = env
        self._begun = now
        self._gap = _SOONEST
        self._child: int | None = None
        self._words = os.path.join(env.get("TMPDIR", "/tmp"), "muster-check-%d" % os.getpid())
        self._written = 0  # bytes in there before the command
        self.due: float | None = now
        self.done = False
        self.why = ""

    def step(self, now: float) -> None:
        """Look, if it is time to."""
        if self.done or self.due is None or now < self.due:
            return
        if self._check["type"] == "succeeds":
            self._step_command(now)
            return
        self.why = _look(self._check, self._expected())
        self.done = not self.why
        self._again(now)

    def reaped(self, pid: int, status: int, now: float) -> bool:
        """Whether the process that ended was ours."""
        if pid != self._child:
            return False
        self._child = None
        code, number = exit_of(status)
        self.done = code == 0
        words = last_words(self._words, self._written, killed=number != 0)
        how = words or "it exited with %d" % code
        if self.due is None:
            how = "it took longer than %g s" % self._check["patience"]
        self.why = "%s: %s" % (self._what(), how)
        self._again(now)
        if self.done:
            self._forget_words()
        return True

    def end(self) -> None:
        """Let go of the command that is asked, if one is, and of what it wrote."""
        if self._child is not None:
            signal_group(self._child, signal.SIGKILL)
        self._forget_words()

    def _forget_words(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._words)

    def _again(self, now: float) -> None:
        self.due = None if self.done else now + self._gap
        if self._check["type"] == "succeeds":
            self._gap = min(self._gap * 1.5, _LATEST)
        elif self.due is not None:
            self._gap = min(max(_SOONEST, (self.due - self._begun) * _LATE), _LATEST)

    def _step_command(self, now: float) -> None:
        if self._child is not None:
            signal_group(self._child, signal.SIGKILL)  # `reaped` goes on from there
            self.due = None
            return
        try:
            self._written = size_of(self._words)
            command = [*self._check["command"], *self._expected()]
            self._child = spawn(command, self._env, self._words, os.devnull)
            self.due = now + self._check["patience"]
            self.why = self.why or "%s: it has not ended yet" % self._what()
        except CannotStart as error:
            self.why = "%s: %s" % (self._what(), error)
            self._again(now)

    def _expected(self) -> List[str]:
        """The names of those who are awaited."""
        everybody = self._check.get("expected", ())
        return [name for rank, name in everybody if rank not in self._absent]

    def _what(self) -> str:
        command = " ".join(map(shlex.quote, self._check["command"]))
        return self._check.get("what") or "`%s`" % command


def _look(check: Mapping[str, Any], expected: Sequence[str]) -> str:
    """Why the check does not hold; empty if it does. expected: who is awaited."""
    where = "%s:%s" % (check["address"], check["port"])
    try:
        if check["type"] == "answers" and check.get("path") is None:
            address = (check["address"], int(check["port"]))
            socket.create_connection(address, _PATIENCE).close()
            return ""
        address, token = check["address"], check.get("token", "")
        answer = fetch(address, int(check["port"]), check["path"], token)
    except OSError as error:
        return "%s does not answer: %s" % (where, error.strerror or error)
    except ValueError as error:
        return "%s%s: %s" % (where, check["path"], error)
    if check["type"] == "answers":
        return ""
    return _missing(check, answer, expected)


def fetch(address: str, port: int, path: str, token: str = "") -> bytes:
    """What is there. Raises OSError, or ValueError if the answer is no good."""
    from http.client import HTTPConnection, HTTPException  # slow to import, and seldom needed

    connection = HTTPConnection(address, port, timeout=_PATIENCE)
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


def _missing(check: Mapping[str, Any], answer: bytes, expected: Sequence[str]) -> str:
    """Who has not joined."""
    try:
        told = json.loads(answer)
    except ValueError:
        return "%s:%s%s: the answer is no JSON" % (check["address"], check["port"], check["path"])
    there = {
        _at(member, check["name"])
        for member in _each(told, check["members"])
        if all(_at(member, key.split(".")) == value for key, value in check["where"].items())
    }
    missing = [name for name in expected if name not in there]
    if not missing:
        return ""
    of = len(expected)
    names = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
    return "%d of %d %ss have not joined: %s" % (len(missing), of, check["what"], names)


def _each(told: Any, way: Sequence[str]) -> Iterator[Any]:
    if not way:
        yield told
    elif way[0] != "*":
        if isinstance(told, dict) and way[0] in told:
            yield from _each(told[way[0]], way[1:])
    elif isinstance(told, (list, dict)):
        for member in told.values() if isinstance(told, dict) else told:
            yield from _each(member, way[1:])


def _at(member: Any, way: Sequence[str]) -> str | None:
    for key in way:
        member = member.get(key) if isinstance(member, dict) else None
    return None if member is None else str(member)
