"""Runs one command for another node: from its start to the end of every process it left behind."""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import signal
import sys
import tempfile
import time
from typing import Dict, List

from muster.node import processes
from muster.node.channel import Channel
from muster.node.exit_report import stderr_tail
from muster.node.files import file_size
from muster.node.handshake import TOKEN
from muster.node.messages import (
    CancelCommand,
    CommandEnded,
    CommandStarted,
    RankEnded,
    RunCommand,
    SignalCommand,
)
from muster.node.mpi_ranks import RankExits, rank_environment, signal_ranks


class CommandHandler:
    """Runs in its own process, whose only children are the processes of the command.

    wake: a descriptor that becomes readable with every signal. relay_alive: one that becomes
    readable when the relay has ended. grace: seconds between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        channel: Channel,
        request: RunCommand,
        *,
        wake: int,
        relay_alive: int,
        grace: float,
    ) -> None:
        self._channel = channel
        self._request = request
        self._wake = wake
        self._relay_alive = relay_alive
        self._grace = grace
        self._pid = 0
        self._status: int | None = None
        self._kill_at: float | None = None
        #: Set by a signal handler.
        self.stop_requested = False

    def run(self) -> CommandEnded:
        """Run the command to its end.

        Every process that it has left behind is killed then, in any session: if a rank
        launcher is killed, its ranks must not continue without it.
        """
        processes.become_subreaper()
        with tempfile.TemporaryDirectory(prefix="command-") as folder:
            self._rank_exits = RankExits(folder)
            return self._run()

    def _run(self) -> CommandEnded:
        stderr = "/proc/self/fd/2"
        offset = file_size(stderr)
        try:
            if self._request.cwd is not None:
                os.chdir(self._request.cwd)
            self._pid = processes.spawn(self._argv(), self._environment(), None, None)
        except (OSError, processes.CannotStart) as error:
            sys.stderr.write("muster: %s\n" % error)
            code = error.code if isinstance(error, processes.CannotStart) else 1
            return CommandEnded(code, str(error))
        self._channel.send(CommandStarted(self._pid))
        self._watch()
        processes.kill_everything(False, [self._pid] if self._status is None else [])
        code, number = 128 + signal.SIGKILL, int(signal.SIGKILL)
        if self._status is not None:
            code, number = processes.exit_of(self._status)
        # only a file can be read a second time; a pipe belongs to its reader
        tail = stderr_tail(stderr, offset, killed=number != 0) if os.path.isfile(stderr) else ""
        return CommandEnded(int(code), tail)

    def _argv(self) -> List[str]:
        if self._request.shell is not None:
            return [_shell(), "-c", self._request.shell]
        return list(self._request.argv or ())

    def _environment(self) -> Dict[str, str]:
        """The node's variables with the requested ones, without the token: programs do not need
        it."""
        env = {k: v for k, v in os.environ.items() if k != TOKEN}
        ranks = rank_environment(self._rank_exits.path)
        return {**self._request.defaults, **env, **ranks, **self._request.env}

    def _watch(self) -> None:
        """Watch until the command has ended, or its grace period is over."""
        poll = select.poll()
        exits = self._rank_exits.fileno()
        for descriptor in (self._channel.fileno(), self._wake, self._relay_alive, exits):
            poll.register(descriptor, select.POLLIN)
        while self._status is None:
            for descriptor, _ in poll.poll(self._timeout()):
                if descriptor == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                elif descriptor == exits:
                    for rank, code in self._rank_exits.read():
                        self._channel.send(RankEnded(rank, code))
                elif descriptor == self._relay_alive:
                    poll.unregister(descriptor)
                    self._stop()
                elif self._handle_messages():
                    poll.unregister(descriptor)
            if self.stop_requested:
                self._stop()
            for pid, status in processes.ended_children():
                if pid == self._pid:
                    self._status = status
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                return

    def _timeout(self) -> float | None:
        """Milliseconds until the grace period is over; None if the command is not being stopped."""
        if self._kill_at is None:
            return None
        return max(0.0, (self._kill_at - time.monotonic()) * 1000 + 1)

    def _handle_messages(self) -> bool:
        """Handle what has arrived. Returns whether the other end has closed the channel, or sent an
        invalid message."""
        for message in self._channel.receive():
            if isinstance(message, SignalCommand):
                self._signal(message.number, message.ranks_only)
            elif isinstance(message, CancelCommand):
                self._stop()
        if self._channel.invalid is not None:
            sys.stderr.write("muster relay: ended a command: %s\n" % self._channel.invalid)
        if self._channel.closed:
            self._stop()
        return self._channel.closed

    def _signal(self, number: int, ranks_only: bool) -> None:
        """Signal the ranks below the command, or its process group.

        Without ranks, a shielded command gets SIGTERM only: any other signal for ranks would kill
        the program that is about to start them.
        """
        if ranks_only and signal_ranks(self._pid, number):
            return
        if number == signal.SIGTERM or not (ranks_only and self._request.shield):
            processes.signal_group(self._pid, number)

    def _stop(self) -> None:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace
            self._signal(signal.SIGTERM, ranks_only=self._request.shield)


def _shell() -> str:
    """The user's login shell if it is a C shell, else /bin/sh.

    Open MPI writes its commands for the login shell, which ssh would start. Shells of the Bourne
    family can be replaced by sh, and so can nologin, which many images have.
    """
    try:
        login = pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:  # a user without a name, as in containers
        return "/bin/sh"
    return login if os.path.basename(login) in ("csh", "tcsh") else "/bin/sh"
