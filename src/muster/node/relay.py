"""The relay: runs commands on its node for other nodes of the run, in the place of ssh.

    python -m muster.node.relay serve --address 127.1.2.3 --port 7070
    python -m muster.node.relay run [options of ssh] HOST command...

What starts the ranks of MPI or Horovod on other nodes wants ssh; nodes of a run have none, and
need none. One relay runs on each node. It listens on that node's address only, obeys those only
who show that they know the run's token (`muster.node.trust`), and runs what they ask as a child
with the node's own environment, whose output is the node's own output. Children end when whoever
asked for them goes away (SIGTERM, `--grace` seconds, then SIGKILL for all that is left), and when
the relay does.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import sys
from typing import Any, List, NoReturn, Set

from muster.node import processes, trust
from muster.node.channel import Channel
from muster.node.errand import Errand
from muster.node.last_words import size_of

#: Seconds between SIGTERM and SIGKILL, unless `--grace` says otherwise.
GRACE = 10.0

_ENDING = (signal.SIGTERM, signal.SIGINT)

#: Where what runs here writes, too.
_STDERR = "/proc/self/fd/2"


class Relay:
    """The relay of one node. grace: seconds. Each request is handled by a process of its own:
    whatever becomes of it and its command touches no other."""

    def __init__(self, listener: socket.socket, token: str, grace: float) -> None:
        self._listener = listener
        self._token = token
        self._grace = grace
        self._attendants: Set[int] = set()
        self._verdicts, self._verdict = os.pipe()  # an attendant that was told to end us says how
        self._lifeline, self._alive = os.pipe()  # nobody writes: it is closed when we are gone
        self._called_off = False
        self._written = size_of(_STDERR)

    def run(self) -> int:
        """Serve until it is told to end; returns the exit code (0 on SIGTERM and SIGINT)."""
        wake = processes.wake_on_signals()
        for number in _ENDING:
            signal.signal(number, lambda *_: self._call_off())
        processes.become_subreaper()  # of an attendant that was killed, the command is ours to end
        poll = select.poll()
        for descriptor in (self._listener.fileno(), wake, self._verdicts):
            poll.register(descriptor, select.POLLIN)
        code: int | None = None
        while code is None and not self._called_off:
            for descriptor, _ in poll.poll():
                if descriptor == wake:
                    os.read(wake, 4096)
                    self._tidy_up()
                elif descriptor == self._verdicts:
                    code = os.read(self._verdicts, 1)[0]
                else:
                    self._admit()
        self._listener.close()
        self._end_all()
        return code or 0

    def _call_off(self) -> None:
        self._called_off = True

    def _admit(self) -> None:
        sock, _ = self._listener.accept()
        # a signal that came while our handlers are still the child's would be lost to it
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        pid = os.fork()
        if pid == 0:
            self._attend(sock)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._attendants.add(pid)
        sock.close()

    def _tidy_up(self) -> None:
        for pid, _ in processes.ended_children():
            self._attendants.discard(pid)
        processes.end_children(self._attendants)

    def _end_all(self) -> None:
        """Attendants end their commands, within the grace period; then there is nothing left."""
        for pid in self._attendants:
            os.kill(pid, signal.SIGTERM)
        for pid in self._attendants:
            os.waitpid(pid, 0)
        processes.kill_everything(False, [])

    # --- in a process of its own

    def _attend(self, sock: socket.socket) -> NoReturn:
        code = 0
        try:
            signal.set_wakeup_fd(-1)
            for number in _ENDING:
                signal.signal(number, signal.SIG_DFL)  # nothing has been started that would stay
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            self._listener.close()
            os.close(self._alive)
            self._handle(sock)
        except (trust.Silent, EOFError):
            pass  # it has only looked whether we are there
        except trust.Untrusted as error:
            sys.stderr.write("muster relay: turned somebody away: %s\n" % error)
        except BaseException:  # noqa: BLE001
            sys.excepthook(*sys.exc_info())
            code = 70
        finally:
            os._exit(code)

    def _handle(self, sock: socket.socket) -> None:
        trust.meet_asker(sock, self._token)
        trust.notice_silence(sock)
        channel = Channel(sock)
        request = channel.wait_for("ask")
        if request["what"] == "quit":
            if not request["if_silent"] or size_of(_STDERR) == self._written:
                sys.stderr.write(request["why"])
                sys.stderr.flush()
            os.write(self._verdict, bytes([request["exit_code"] & 255]))
            return
        wake = processes.wake_on_signals()
        errand = Errand(channel, request, wake=wake, lifeline=self._lifeline, grace=self._grace)
        for number in _ENDING:
            signal.signal(number, lambda *_: setattr(errand, "called_off", True))
        channel.send(op="ended", **errand.run())


def serve(address: str, port: int, grace: float) -> int:
    """Be the relay of a node; returns the exit code. Raises OSError if it cannot listen there,
    Untrusted if there is no token."""
    token = trust.token_from_environment()
    with socket.create_server((address, port), backlog=128) as listener:
        return Relay(listener, token, grace).run()


def main(words: List[str]) -> int:
    """The command line."""
    if words[:1] == ["run"]:  # options as ssh has them, which argparse would take for its own
        from muster.node.errands import as_ssh

        return as_ssh(words[1:])
    parser = argparse.ArgumentParser(prog="python -m muster.node.relay")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="run a command on another node: [options of ssh] HOST command")
    server = commands.add_parser("serve", help="run commands for other nodes of the run")
    server.add_argument("--address", required=True, help="the node's own, and no other")
    server.add_argument("--port", required=True, type=int)
    server.add_argument("--grace", type=float, default=GRACE, help="seconds (default: %(default)s)")
    asked: Any = parser.parse_args(words)
    try:
        return serve(asked.address, asked.port, asked.grace)
    except (OSError, trust.Untrusted) as error:
        sys.stderr.write("muster relay: %s:%d: %s\n" % (asked.address, asked.port, error))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
