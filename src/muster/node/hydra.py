"""What MPICH's mpiexec says: the commands it wants to have run, how a rank has died, and the rest,
which is for people."""

from __future__ import annotations

import re
import shlex
from typing import List, Sequence, Tuple

_LAUNCH = "HYDRA_LAUNCH: "
_END = "HYDRA_LAUNCH_END"
_WHERE = re.compile(r"PID (\d+) RUNNING AT (\S+)")
_HOW = re.compile(r"WITH THE EXIT STRING: (.+)")
_ABORT = re.compile(r"^Abort\((\d+)\) on node (\d+) ", re.MULTILINE)


class HydraOutput:
    """The output of one mpiexec, as it comes. hosts: what mpiexec calls the nodes, by rank.

    `died`: of the rank that ended it, for people; empty if none has.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = list(hosts)
        self._partial = b""
        self.died = ""

    def feed(self, data: bytes) -> Tuple[List[Tuple[int, str]], List[str]]:
        """(node rank and shell text of each command to run, lines for people)."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        commands, others = [], []
        for line in lines:
            text = line.decode(errors="replace")
            if text.startswith(_LAUNCH):
                commands.append(_proxy(text[len(_LAUNCH) :]))
            elif text.strip() and text.strip() != _END:
                self._note(text)
                others.append(text)
        return commands, others

    def _note(self, text: str) -> None:
        where = _WHERE.search(text)
        if where is not None:
            pid, host = where.groups()
            name = "node-%d" % self._hosts.index(host) if host in self._hosts else host
            self.died = "a rank on %s (process %s there) died" % (name, pid)
        how = _HOW.search(text)
        if how is not None and self.died:
            self.died += ": " + how[1]


def abort_in(words: str) -> Tuple[int, int] | None:
    """(rank, exit code) of a rank that has called MPI_Abort, by what MPICH has it say: it is ended
    before it can exit."""
    found = _ABORT.search(words)
    return None if found is None else (int(found[2]), int(found[1]) & 255)


def _proxy(command: str) -> Tuple[int, str]:
    """Its words are separated by single blanks and not quoted; only its path may have blanks. What
    it says when a rank has failed is about itself, and goes to a file for those who want to know.
    """
    rank = re.search(r"--proxy-id (\d+)", command)
    assert rank is not None, command
    program, flag, arguments = command.partition(" --control-port")
    text = 'exec %s%s%s >>"${TMPDIR:-/tmp}/hydra.log" 2>&1'
    return int(rank[1]), text % (shlex.quote(program), flag, arguments)
