"""The ranks of an MPI program on one node: how they are started, signalled and seen to end.

A launcher (MPICH's or Open MPI's) starts each rank through a shell of ours, `rank_command`, which
reports the start and the end of the rank on a FIFO that `RankExits` reads.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shutil
import sys
from typing import Dict, List, Sequence, Tuple

from muster.node import processes

#: Where a command finds the output of its node, as a launcher may capture the command's own.
STDOUT = "MUSTER_NODE_STDOUT"
STDERR = "MUSTER_NODE_STDERR"
#: The FIFO on which ranks are reported (see `RankExits`).
RANK_ENDS = "MUSTER_RANK_ENDS"
#: Where the node's programs start.
WORK = "MUSTER_NODE_WORK"
#: The exit code of a rank whose shell was killed: the real exit code is unknown.
LOST = -1

#: The name ($0) of the shell around a rank.
_SHELL_NAME = "muster-rank"
#: Each rank writes to its node's output and starts in its node's working directory: a launcher
#: would use those of the main node. Its exit code is reported, as launchers may hang when a rank
#: fails, or take that for success. The shell ignores signals that are meant for the program.
_SHELL = (
    'unset MUSTER_TOKEN; cd "${MUSTER_NODE_WORK:-.}" || exit; trap : TERM USR1 USR2; '
    'rank="${PMI_RANK:-$OMPI_COMM_WORLD_RANK}"; echo "$rank started $$" >"$MUSTER_RANK_ENDS"; '
    '"$@" >>"${MUSTER_NODE_STDOUT:-/dev/stdout}" 2>>"${MUSTER_NODE_STDERR:-/dev/stderr}"; code=$?; '
    'echo "$rank ended $code" >"$MUSTER_RANK_ENDS"; exit $code'
)
_REPORT = re.compile(r"(\d{1,9}) (started|ended) (\d{1,9})")
#: Variables that MPICH's and Open MPI's launchers set for ranks only.
_RANK_VARIABLES = (b"PMI_RANK=", b"PMIX_RANK=")
#: The arguments, after the interpreter and a path, of what Open MPI starts in place of ssh.
_SSH_ARGUMENTS = [b"muster.node.relay", b"run"]


def rank_command(program: Sequence[str]) -> List[str]:
    """The command line that a launcher has to start for each rank."""
    return ["/bin/sh", "-c", _SHELL, _SHELL_NAME, *_with_mpi4py(program)]


def _with_mpi4py(program: Sequence[str]) -> List[str]:
    """Run a Python script by `python -m mpi4py`, where mpi4py is installed: it aborts the job when
    a rank raises an exception. Otherwise that rank would wait in MPI_Finalize for the others, which
    wait for it."""
    words = list(program)
    if len(words) < 2 or words[1].startswith("-") or not _is_our_python(words[0]):
        return words
    from importlib.util import find_spec

    return [words[0], "-m", "mpi4py", *words[1:]] if find_spec("mpi4py") else words


def _is_our_python(word: str) -> bool:
    """Whether it is the interpreter of this process; what others have installed is not known."""
    path = shutil.which(word)
    return path is not None and os.path.abspath(path) == os.path.abspath(sys.executable)


def rank_environment(fifo: str) -> Dict[str, str]:
    """Variables by which the shell of a rank finds its node's output, folder and FIFO."""
    env = {WORK: os.getcwd(), RANK_ENDS: fifo}
    for name, number in ((STDOUT, 1), (STDERR, 2)):
        path = "/proc/%d/fd/%d" % (os.getpid(), number)
        if os.path.exists(path):
            env[name] = path
    return env


def signal_ranks(launcher: int, number: int) -> bool:
    """Signal only the ranks below a process. Returns whether there are any."""
    pids = _ranks_below(launcher)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return bool(pids)


def _ranks_below(launcher: int) -> List[int]:
    """The children of the ranks' shells; ranks that the program has spawned, which have no shell;
    and stand-ins for ssh, which forward a signal to the ranks of another node."""
    found = []
    for pid in processes.children(launcher):
        words = _read(pid, "cmdline")
        if words[3:4] == [_SHELL_NAME.encode()]:
            found += processes.children(pid)
        elif words[2:4] == _SSH_ARGUMENTS or _has_rank(pid):
            found.append(pid)
        else:
            found += _ranks_below(pid)
    return found


def _has_rank(pid: int) -> bool:
    return any(word.startswith(_RANK_VARIABLES) for word in _read(pid, "environ"))


def _read(pid: int, name: str) -> List[bytes]:
    """The strings in a file of /proc; none if the process has ended or belongs to another user."""
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


class RankExits:
    """Reports from the shells of a node's ranks, on a FIFO at `path`: `RANK started PID` and
    `RANK ended CODE`."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, "ends")
        os.mkfifo(self.path, 0o600)
        self._fifo = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._fifo, selectors.EVENT_READ)
        self._shells: Dict[int, int] = {}  # rank -> pidfd of its shell

    def fileno(self) -> int:
        """Readable when `read` has something to return."""
        return self._selector.fileno()

    def read(self) -> List[Tuple[int, int]]:
        """(rank, exit code) of the ranks that ended since the last call; LOST as exit code if the
        shell of a rank was killed."""
        ended_shells = [key.data for key, _ in self._selector.select(0) if key.data is not None]
        ended = self._read_reports()  # after select, as a shell reports its rank before it ends
        for rank, _ in ended:
            self._forget(rank)
        lost = [rank for rank in ended_shells if rank in self._shells]
        for rank in lost:
            self._forget(rank)
        return ended + [(rank, LOST) for rank in lost]

    def _read_reports(self) -> List[Tuple[int, int]]:
        try:
            lines = os.read(self._fifo, 1 << 16).decode(errors="replace").splitlines()
        except BlockingIOError:
            return []
        ended = []
        for line in lines:  # writes of this size are atomic
            report = _REPORT.fullmatch(line)
            if report is None:
                continue  # any program can write there
            rank, what, number = int(report[1]), report[2], int(report[3])
            if what == "ended":
                ended.append((rank, number))
            elif sys.platform == "linux":
                self._forget(rank)
                with contextlib.suppress(OSError):  # it has ended, or the kernel is too old
                    pidfd = os.pidfd_open(number)
                    self._shells[rank] = pidfd
                    self._selector.register(pidfd, selectors.EVENT_READ, rank)
        return ended

    def _forget(self, rank: int) -> None:
        pidfd = self._shells.pop(rank, None)
        if pidfd is not None:
            self._selector.unregister(pidfd)
            os.close(pidfd)
