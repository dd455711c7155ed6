"""The proxies of MPICH's mpiexec (hydra), one on each node, which start its ranks."""

from __future__ import annotations

import os
import re
from shlex import quote
from typing import List, Tuple

_ABORT = re.compile(r"^Abort\((\d+)\) on node (\d+) ", re.MULTILINE)

#: The program that mpiexec calls in place of rsh. It writes the command to one FIFO and waits for a
#: line on another: mpiexec takes it for a failure if rsh ends before the proxy has connected.
_RSH = '#!/bin/sh\nprintf "%%s\\n" "$*" >%s\nread -r line <%s\n'


class ProxyRequests:
    """Requests of mpiexec to start a proxy on a host.

    Ranks that the program spawns need further proxies, so requests may arrive at any time, and
    several for one node. Creates its files in `folder`.
    """

    def __init__(self, folder: str) -> None:
        requests, releases = os.path.join(folder, "requests"), os.path.join(folder, "releases")
        for path in (requests, releases):
            os.mkfifo(path, 0o600)
        #: The path of the program for `-launcher-exec`.
        self.rsh = os.path.join(folder, "rsh")
        with open(self.rsh, "w") as file:
            file.write(_RSH % (quote(requests), quote(releases)))
        os.chmod(self.rsh, 0o700)
        flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
        self._requests, self._releases = os.open(requests, flags), os.open(releases, flags)
        self._partial = b""

    def fileno(self) -> int:
        return self._requests

    def read(self) -> List[Tuple[str, str]]:
        """(host, text for the shell) of each proxy requested since the last call.

        What a proxy prints when a rank has failed is about the proxy, so it goes to a log file.
        """
        *lines, self._partial = (self._partial + os.read(self._requests, 1 << 16)).split(b"\n")
        parts = (line.decode().partition(" ") for line in lines)
        text = 'exec %s >>"${TMPDIR:-/tmp}/hydra.log" 2>&1'
        return [(host, text % command) for host, _, command in parts]

    def close(self) -> None:
        """Close the FIFOs, which ends every rsh that still waits."""
        os.close(self._requests)
        os.close(self._releases)

    def release(self) -> None:
        """End one rsh: mpiexec waits for one per proxy."""
        os.write(self._releases, b"\n")


def find_abort(stderr: str) -> Tuple[int, int] | None:
    """(rank, exit code) of a rank that has called MPI_Abort, by MPICH's message: the rank is killed
    before it can exit."""
    found = _ABORT.search(stderr)
    return None if found is None else (int(found[2]), int(found[1]) & 255)
