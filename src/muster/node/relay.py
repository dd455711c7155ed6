"""The relay: runs commands on its node for other nodes of the run, in place of ssh.

    python -m muster.node.relay serve --address 127.1.2.3 --port 7070
    python -m muster.node.relay run [options of ssh] HOST command...

The launchers of MPI and Horovod start ranks on other nodes by ssh, which nodes of a run do not
have. Instead, one relay runs on each node. It listens on that node's address only, accepts only
clients that know the run's token (`muster.node.handshake`), and runs their commands as children
with the node's environment and output. A command is ended (SIGTERM, `--grace` seconds, then SIGKILL
for every process that is left) when its client closes the connection, and when the relay ends.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import sys
from typing import Any, List, NoReturn, Set

from muster.node import handshake, processes
from muster.node.channel import Channel
from muster.node.command_handler import CommandHandler
from muster.node.files import file_size
from muster.node.messages import InvalidMessage, RunCommand, ShutDown

#: Default of `--grace`: seconds between SIGTERM and SIGKILL.
GRACE = 10.0

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: Where commands write, too.
_STDERR = "/proc/self/fd/2"


class Relay:
    """The relay of one node. grace: seconds. Each request is handled by its own process, so that
    the crash of a handler or its command affects no other."""

    def __init__(self, listener: socket.socket, token: str, grace: float) -> None:
        self._listener = listener
        self._token = token
        self._grace = grace
        self._handlers: Set[int] = set()  # pids
        # a handler that gets `ShutDown` writes the exit code
        self._exit_code_reader, self._exit_code_writer = os.pipe()
        # nothing is written: handlers see that the relay has ended when the pipe is closed
        self._alive_reader, self._alive_writer = os.pipe()
        self._stop_requested = False
        self._offset = file_size(_STDERR)

    def run(self) -> int:
        """Serve until stopped; returns the exit code (0 on SIGTERM and SIGINT)."""
        wake = processes.wake_on_signals()
        for number in _STOP_SIGNALS:
            signal.signal(number, lambda *_: self._request_stop())
        processes.become_subreaper()  # to end the command of a handler that was killed
        poll = select.poll()
        for descriptor in (self._listener.fileno(), wake, self._exit_code_reader):
            poll.register(descriptor, select.POLLIN)
        code: int | None = None
        while code is None and not self._stop_requested:
            for descriptor, _ in poll.poll():
                if descriptor == wake:
                    os.read(wake, 4096)
                    self._reap()
                elif descriptor == self._exit_code_reader:
                    code = os.read(self._exit_code_reader, 1)[0]
                else:
                    self._accept()
        self._listener.close()
        self._end_all()
        return code or 0

    def _request_stop(self) -> None:
        self._stop_requested = True

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        # blocked until the child has its own handlers: a signal before would be lost there
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        pid = os.fork()
        if pid == 0:
            self._run_handler(sock)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._handlers.add(pid)
        sock.close()

    def _reap(self) -> None:
        for pid, _ in processes.ended_children():
            self._handlers.discard(pid)
        processes.end_children(self._handlers)

    def _end_all(self) -> None:
        """Stop the handlers, which end their commands within the grace period."""
        for pid in self._handlers:
            os.kill(pid, signal.SIGTERM)
        for pid in self._handlers:
            os.waitpid(pid, 0)
        processes.kill_everything(False, [])

    # --- in the process of a handler

    def _run_handler(self, sock: socket.socket) -> NoReturn:
        code = 0
        try:
            signal.set_wakeup_fd(-1)
            for number in _STOP_SIGNALS:
                signal.signal(number, signal.SIG_DFL)  # no command runs yet
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
            self._listener.close()
            os.close(self._alive_writer)
            self._handle(sock)
        except (handshake.HungUp, EOFError):
            pass  # the client only checked that the relay answers
        except (handshake.Untrusted, InvalidMessage) as error:
            sys.stderr.write("muster relay: rejected a client: %s\n" % error)
        except BaseException:  # noqa: BLE001
            sys.excepthook(*sys.exc_info())
            code = 70
        finally:
            os._exit(code)

    def _handle(self, sock: socket.socket) -> None:
        handshake.authenticate_as_server(sock, self._token)
        handshake.enable_keepalive(sock)
        channel = Channel(sock)
        request = channel.wait_for(RunCommand, ShutDown)
        if isinstance(request, ShutDown):
            if not request.only_if_silent or file_size(_STDERR) == self._offset:
                sys.stderr.write(request.reason)
                sys.stderr.flush()
            os.write(self._exit_code_writer, bytes([request.exit_code & 255]))
            return
        wake = processes.wake_on_signals()
        handler = CommandHandler(
            channel, request, wake=wake, relay_alive=self._alive_reader, grace=self._grace
        )
        for number in _STOP_SIGNALS:
            signal.signal(number, lambda *_: setattr(handler, "stop_requested", True))
        channel.send(handler.run())


def serve(address: str, port: int, grace: float) -> int:
    """Run the relay of a node; returns the exit code. Raises OSError if it cannot listen there,
    Untrusted if no token is set."""
    token = handshake.token_from_environment()
    with socket.create_server((address, port), backlog=128) as listener:
        return Relay(listener, token, grace).run()


def main(argv: List[str]) -> int:
    """The command line."""
    if argv[:1] == ["run"]:  # options of ssh, which argparse would take for its own
        from muster.node.remote_command import run_as_ssh

        return run_as_ssh(argv[1:])
    parser = argparse.ArgumentParser(prog="python -m muster.node.relay")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="run a command on another node: [options of ssh] HOST command")
    server = commands.add_parser("serve", help="run commands for other nodes of the run")
    server.add_argument("--address", required=True, help="the node's own address")
    server.add_argument("--port", required=True, type=int)
    server.add_argument("--grace", type=float, default=GRACE, help="seconds (default: %(default)s)")
    options: Any = parser.parse_args(argv)
    try:
        return serve(options.address, options.port, options.grace)
    except (OSError, handshake.Untrusted) as error:
        sys.stderr.write("muster relay: %s:%d: %s\n" % (options.address, options.port, error))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
