"""One command that is run for another node: from its start to the last process it has left."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import select
import selectors
import signal
import sys
import tempfile
import time
from typing import Any, Dict, List, Mapping, Tuple

from muster.node import processes
from muster.node.channel import Channel
from muster.node.last_words import last_words, size_of
from muster.node.trust import TOKEN

#: Where a command finds its node's own output: whoever starts it in turn may catch what it writes.
STDOUT = "MUSTER_NODE_STDOUT"
STDERR = "MUSTER_NODE_STDERR"
#: A FIFO for lines about ranks that have ended, which whoever asked hears of (see `RankEnds`).
RANK_ENDS = "MUSTER_RANK_ENDS"
#: The exit code of a rank whose shell was killed, so that nobody can say.
LOST = -1
#: What a shell around a rank is called ($0).
WRAPPER = "muster-rank"
#: Where the node's programs start.
WORK = "MUSTER_NODE_WORK"
#: What MPICH's and Open MPI's launchers set for ranks, and for nothing else.
_RANK = (b"PMI_RANK=", b"PMIX_RANK=")
#: The words, after the interpreter, of what Open MPI starts in the place of ssh.
_SSH = [b"-m", b"muster.node.relay", b"run"]


class Errand:
    """Lives in a process of its own, whose children are the command's processes and no others.

    request: see `errands.Errand`. wake: readable with every signal. lifeline: readable
    when the relay is gone. grace: seconds between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        channel: Channel,
        request: Mapping[str, Any],
        *,
        wake: int,
        lifeline: int,
        grace: float,
    ) -> None:
        self._channel = channel
        self._request = request
        self._wake = wake
        self._lifeline = lifeline
        self._grace = grace
        self._pid = 0
        self._status: int | None = None
        self._kill_at: float | None = None
        #: Set by a signal handler: it is to end.
        self.called_off = False

    def run(self) -> Dict[str, Any]:
        """Run it, to its end. Returns `exit_code` (a signal counts 128 and its number) and
        `last_words`: the last that was written on the node's stderr meanwhile.

        What the command has left running ends with it, in whatever session it is: the processes
        of a rank launcher that was killed alone must not go on without it.
        """
        processes.become_subreaper()
        with tempfile.TemporaryDirectory(prefix="errand-") as folder:
            self._ends = RankEnds(folder)
            return self._run()

    def _run(self) -> Dict[str, Any]:
        stderr = "/proc/self/fd/2"
        written = size_of(stderr)
        try:
            if self._request["cwd"] is not None:
                os.chdir(self._request["cwd"])
            self._pid = processes.spawn(self._argv(), self._environment(), None, None)
        except (OSError, processes.CannotStart) as error:
            sys.stderr.write("muster: %s\n" % error)
            code = error.code if isinstance(error, processes.CannotStart) else 1
            return {"exit_code": code, "last_words": str(error)}
        self._channel.send(op="started", pid=self._pid)
        self._watch()
        processes.kill_everything(False, [self._pid] if self._status is None else [])
        code, number = 128 + signal.SIGKILL, int(signal.SIGKILL)
        if self._status is not None:
            code, number = processes.exit_of(self._status)
        # only a file's can be read again: a pipe's are its reader's
        words = last_words(stderr, written, killed=number != 0) if os.path.isfile(stderr) else ""
        return {"exit_code": int(code), "last_words": words}

    def _argv(self) -> List[str]:
        if self._request.get("shell") is not None:
            return [_shell(), "-c", self._request["shell"]]
        return list(self._request["argv"])

    def _environment(self) -> Dict[str, str]:
        """The node's, with what was asked for, and without the token: programs need it not."""
        env = {k: v for k, v in os.environ.items() if k != TOKEN}
        asked = self._request
        return {**asked["defaults"], **env, **node_places(self._ends.path), **asked["env"]}

    def _watch(self) -> None:
        """Until the command has ended, or has used up its grace period."""
        poll = select.poll()
        for descriptor in (self._channel.fileno(), self._wake, self._lifeline, self._ends.fileno()):
            poll.register(descriptor, select.POLLIN)
        while self._status is None:
            for descriptor, _ in poll.poll(self._timeout()):
                if descriptor == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                elif descriptor == self._ends.fileno():
                    for rank, code in self._ends.read():
                        self._channel.send(op="rank", rank=rank, exit_code=code)
                elif descriptor == self._lifeline:
                    poll.unregister(descriptor)
                    self._stop()
                elif self._hear():
                    poll.unregister(descriptor)
            if self.called_off:
                self._stop()
            for pid, status in processes.ended_children():
                if pid == self._pid:
                    self._status = status
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                return

    def _timeout(self) -> float | None:
        """Milliseconds until the grace period is over, if it has begun."""
        if self._kill_at is None:
            return None
        return max(0.0, (self._kill_at - time.monotonic()) * 1000 + 1)

    def _hear(self) -> bool:
        """Act on what was said. Whether nothing more can be: who asked is gone."""
        for message in self._channel.receive():
            if message["op"] == "signal":
                self._signal(message["number"], message["ranks"])
            elif message["op"] == "cancel":
                self._stop()
        if self._channel.closed:
            self._stop()
        return self._channel.closed

    def _signal(self, number: int, ranks: bool) -> None:
        """ranks: for them alone, where there are some. What starts them may be told to end: any
        other signal that is for ranks would only kill it."""
        if ranks and signal_ranks(self._pid, number):
            return
        if number == signal.SIGTERM or not (ranks and self._request["shield"]):
            processes.signal_group(self._pid, number)

    def _stop(self) -> None:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace
            self._signal(signal.SIGTERM, ranks=self._request["shield"])


def node_places(ends: str) -> Dict[str, str]:
    """Where a program finds what is its node's: for programs that others start in its place."""
    env = {WORK: os.getcwd(), RANK_ENDS: ends}
    for name, number in ((STDOUT, 1), (STDERR, 2)):
        path = "/proc/%d/fd/%d" % (os.getpid(), number)
        if os.path.exists(path):
            env[name] = path
    return env


def signal_ranks(launcher: int, number: int) -> bool:
    """Signal the ranks below a process, and nobody else. Whether there are any."""
    pids = _ranks_below(launcher)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return bool(pids)


def _ranks_below(launcher: int) -> List[int]:
    """Each is below a shell of ours (see `mpi_launchers`), or has been spawned by the program: who
    spawns ranks has no shell put around them. A launcher may have its own processes above them, and
    what stands in for ssh hands a signal on to those of another node."""
    found = []
    for pid in processes.children(launcher):
        words = _read(pid, "cmdline")
        if words[3:4] == [WRAPPER.encode()]:
            found += processes.children(pid)
        elif words[1:4] == _SSH or any(word.startswith(_RANK) for word in _read(pid, "environ")):
            found.append(pid)
        else:
            found += _ranks_below(pid)
    return found


def _read(pid: int, what: str) -> List[bytes]:
    """The strings in a file of /proc; none if the process has ended, or is somebody else's."""
    try:
        with open("/proc/%d/%s" % (pid, what), "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


_RANK_SAYS = re.compile(r"(\d{1,9}) (began|ended) (\d{1,9})")


class RankEnds:
    """How the ranks of a node end, by the shells around them, which say so on a FIFO at `path`:
    `RANK began PID` and `RANK ended CODE`."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, "ends")
        os.mkfifo(self.path, 0o600)
        self._fifo = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._fifo, selectors.EVENT_READ)
        self._shells: Dict[int, int] = {}  # rank -> a descriptor of its shell's process

    def fileno(self) -> int:
        """Readable when there is something to `read`."""
        return self._selector.fileno()

    def read(self) -> List[Tuple[int, int]]:
        """(rank, exit code) of those that have ended since the last time, or LOST for the code."""
        gone = [key.data for key, _ in self._selector.select(0) if key.data is not None]
        ended = self._listen()  # after the look: a shell says how its rank has ended before it goes
        for rank, _ in ended:
            self._forget(rank)
        lost = [rank for rank in gone if rank in self._shells]
        for rank in lost:
            self._forget(rank)
        return ended + [(rank, LOST) for rank in lost]

    def _listen(self) -> List[Tuple[int, int]]:
        try:
            lines = os.read(self._fifo, 1 << 16).decode(errors="replace").splitlines()
        except BlockingIOError:
            return []
        found = []
        for line in lines:  # writes as short as theirs come whole
            said = _RANK_SAYS.fullmatch(line)
            if said is None:
                continue  # any program can write there
            rank, what, number = int(said[1]), said[2], int(said[3])
            if what == "ended":
                found.append((rank, number))
            elif sys.platform == "linux":
                self._forget(rank)
                with contextlib.suppress(OSError):  # it has ended, or the kernel is too old
                    descriptor = os.pidfd_open(number)
                    self._shells[rank] = descriptor
                    self._selector.register(descriptor, selectors.EVENT_READ, rank)
        return found

    def _forget(self, rank: int) -> None:
        descriptor = self._shells.pop(rank, None)
        if descriptor is not None:
            self._selector.unregister(descriptor)
            os.close(descriptor)


def _shell() -> str:
    """Open MPI writes its text for the login shell, which ssh would give it to. One that is no
    shell at all (nologin, in many images) or that speaks like sh is as good as sh."""
    try:
        login = pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:  # a user without a name, as containers have them
        return "/bin/sh"
    return login if os.path.basename(login) in ("csh", "tcsh") else "/bin/sh"
