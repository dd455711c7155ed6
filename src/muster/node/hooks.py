"""A command of the job that runs on a node beside its program, at a certain moment."""

from __future__ import annotations

from typing import Mapping, Sequence

from muster.node.processes import CannotStart, exit_of, spawn


class Hook:
    """Runs the command. name: for people. stdout, stderr: files that it appends its output to."""

    def __init__(
        self, name: str, command: Sequence[str], env: Mapping[str, str], stdout: str, stderr: str
    ) -> None:
        self._name = name
        #: None: it has ended, or could not be started.
        self.pid: int | None = None
        #: The failure message; "" while it runs, and if it has succeeded.
        self.failed = ""
        #: Its exit code.
        self.code = 0
        try:
            self.pid = spawn(command, env, stdout, stderr)
        except CannotStart as error:
            self.code, self.failed = error.code, "%s: %s" % (name, error)

    def reaped(self, pid: int, status: int) -> bool:
        """Handle a child that has ended. Returns whether it was the command."""
        if pid != self.pid:
            return False
        self.pid = None
        self.code = exit_of(status)[0]
        if self.code:
            self.failed = "%s failed with exit code %d" % (self._name, self.code)
        return True
