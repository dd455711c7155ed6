"""What MPICH's mpiexec wants to have started: a proxy on each node, which starts ranks there."""

from __future__ import annotations

import os
import re
from shlex import quote
from typing import List, Tuple

_ABORT = re.compile(r"^Abort\((\d+)\) on node (\d+) ", re.MULTILINE)

#: In the place of rsh. It stays until its line comes, as mpiexec takes its end before the proxy has
#: connected for a failure.
_AGENT = '#!/bin/sh\nprintf "%%s\\n" "$*" >%s\nread -r line <%s\n'


class Launches:
    """The proxies that mpiexec wants to have started, each with the host it is meant for: those of
    ranks that the program spawns come later, and may be a second one on a node.

    `agent` is the program for `-launcher-exec`. Files are made in folder.
    """

    def __init__(self, folder: str) -> None:
        asked, ended = os.path.join(folder, "asked"), os.path.join(folder, "ended")
        for path in (asked, ended):
            os.mkfifo(path, 0o600)
        self.agent = os.path.join(folder, "rsh")
        with open(self.agent, "w") as file:
            file.write(_AGENT % (quote(asked), quote(ended)))
        os.chmod(self.agent, 0o700)
        flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
        self._asked, self._ended = os.open(asked, flags), os.open(ended, flags)
        self._partial = b""

    def fileno(self) -> int:
        return self._asked

    def read(self) -> List[Tuple[str, str]]:
        """(host, text for the shell) of each proxy that has been asked for since the last time.

        What a proxy says when a rank has failed is about itself, and goes to a file for those who
        want to know.
        """
        *lines, self._partial = (self._partial + os.read(self._asked, 1 << 16)).split(b"\n")
        parts = (line.decode().partition(" ") for line in lines)
        text = 'exec %s >>"${TMPDIR:-/tmp}/hydra.log" 2>&1'
        return [(host, text % command) for host, _, command in parts]

    def close(self) -> None:
        """Agents that are left end then."""
        os.close(self._asked)
        os.close(self._ended)

    def release(self) -> None:
        """Have one agent end: mpiexec waits for as many as there were proxies."""
        os.write(self._ended, b"\n")


def abort_in(words: str) -> Tuple[int, int] | None:
    """(rank, exit code) of a rank that has called MPI_Abort, by what MPICH has it say: it is ended
    before it can exit."""
    found = _ABORT.search(words)
    return None if found is None else (int(found[2]), int(found[1]) & 255)
