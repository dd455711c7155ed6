"""Runs commands on other nodes of the run through their relays: the client side of `relay`."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from typing import Callable, Dict, List, Mapping, Sequence, Tuple

from muster.node import handshake
from muster.node.channel import Channel
from muster.node.messages import (
    CancelCommand,
    CommandEnded,
    RankEnded,
    RunCommand,
    ShutDown,
    SignalCommand,
)
from muster.node.mpi_ranks import RANK_ENDS
from muster.node.roster import read_roster

#: ADDRESS:PORT of each node's relay, by rank, separated by commas.
RELAYS = "MUSTER_RELAYS"

#: The exit code of ssh when ssh itself fails, and not the command.
SSH_FAILED = 255

#: Options of OpenSSH that take a value.
_SSH_OPTIONS_WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"

#: Variables that `run_as_ssh` passes to commands whose node does not set them.
_PASSED_ON = ("MPI4PY_LIBMPI", "OMPI_MCA_btl_tcp_if_include")

RelayAddress = Tuple[str, int]


class NodeUnreachable(Exception):  # noqa: N818
    """A node's relay does not answer, or was lost before the command ended."""


class RemoteCommand:
    """A command on another node. It is ended when this end is closed, or this process ends.

    argv, or shell: text for the shell. env: variables on top of the node's. defaults: variables
    below the node's. shield: send SIGTERM only to the command's ranks; the command ends after them.

    Raises NodeUnreachable if no relay of this run answers at `relay`.
    """

    def __init__(
        self,
        relay: RelayAddress,
        token: str,
        *,
        argv: Sequence[str] | None = None,
        shell: str | None = None,
        env: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] | None = None,
        cwd: str | None = None,
        shield: bool = False,
    ) -> None:
        self._relay = "%s:%d" % relay
        #: The end of what the command wrote to its node's stderr, once it has ended.
        self.stderr_tail = ""
        #: Exit codes of the ranks that have ended, by rank, in the order of their ends.
        self.ranks: Dict[int, int] = {}
        self._channel = _connect(relay, token)
        env, defaults = dict(env or {}), dict(defaults or {})
        self._channel.send(RunCommand(argv, shell, env, defaults, cwd, shield))

    def fileno(self) -> int:
        return self._channel.fileno()

    def receive(self) -> int | None:
        """Handle the next messages; blocks until there are some. Returns the exit code (128 + N for
        signal N), or None if the command has not ended. Raises NodeUnreachable if the node is
        lost."""
        for message in self._channel.receive():
            if isinstance(message, RankEnded):
                self.ranks[message.rank] = message.exit_code
            elif isinstance(message, CommandEnded):
                self.stderr_tail = message.stderr_tail
                return message.exit_code
        if self._channel.invalid is not None:
            text = "the node at %s sent an invalid message: %s"
            raise NodeUnreachable(text % (self._relay, self._channel.invalid))
        if self._channel.closed:
            raise NodeUnreachable("the node at %s has ended" % self._relay)
        return None

    def wait(self) -> int:
        """Wait for the end and close the connection; returns the exit code. Raises NodeUnreachable
        if the node is lost first."""
        while True:
            code = self.receive()
            if code is not None:
                self.close()
                return code

    def signal(self, number: int, *, ranks_only: bool = False) -> None:
        """Send a signal to the command's process group, or only to its ranks."""
        self._channel.send(SignalCommand(int(number), ranks_only))

    def cancel(self) -> None:
        """End the command: SIGTERM, and SIGKILL after the relay's grace period."""
        self._channel.send(CancelCommand())

    def close(self) -> None:
        self._channel.close()


def shut_down_relay(
    relay: RelayAddress,
    token: str,
    exit_code: int,
    reason: str = "",
    *,
    only_if_silent: bool = False,
) -> None:
    """End a relay and all it runs, so that its node fails with this exit code.

    reason: for people, if the node's own output does not explain the failure. only_if_silent: write
    the reason only if the node has written nothing. Raises NodeUnreachable.
    """
    channel = _connect(relay, token)
    channel.send(ShutDown(exit_code, reason, only_if_silent))
    channel.close()


def relay_addresses() -> List[RelayAddress]:
    """The addresses of the run's relays, by rank. Raises NodeUnreachable if the run has none."""
    text = os.environ.get(RELAYS, "")
    if not text:
        raise NodeUnreachable("%s is not set: the nodes of this run have no relay" % RELAYS)
    found = []
    for place in text.split(","):
        address, _, port = place.rpartition(":")
        found.append((address, int(port)))
    return found


def find_relay(host: str) -> RelayAddress:
    """The address of the relay of a node, given by its name, address, id or `node-RANK`, or by the
    relay's own ADDRESS:PORT. Raises NodeUnreachable."""
    relays = relay_addresses()
    for rank, relay in enumerate(relays):
        if host in (relay[0], "node-%d" % rank, "%s:%d" % relay):
            return relay
    for entry in read_roster():
        if host in (entry["FQDN"], entry["FQDN"].split(".")[0], entry["NodeId"]):
            return relays[int(entry["Rank"])]
    raise NodeUnreachable("no node of this run is named %r" % host)


def is_answering(relay: RelayAddress, token: str) -> bool:
    """Whether a relay of this run answers there."""
    try:
        _connect(relay, token, 2.0).close()
    except NodeUnreachable:
        return False
    return True


def await_relays(
    relays: Sequence[RelayAddress],
    token: str,
    timeout: float,
    should_stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Wait until all relays answer. Returns False if `should_stop` did before.

    Raises NodeUnreachable after `timeout` seconds, naming those that do not answer, and why.
    """
    deadline = time.monotonic() + timeout
    interval = 0.02
    missing = list(enumerate(relays))
    while True:
        why = {}
        for rank, relay in missing:
            if should_stop():
                return False
            try:
                _connect(relay, token).close()
            except NodeUnreachable as error:
                why[rank] = str(error)
        missing = [(rank, relay) for rank, relay in missing if rank in why]
        if not missing:
            return True
        if time.monotonic() > deadline:
            reasons = "; ".join("node-%d: %s" % pair for pair in sorted(why.items())[:10])
            numbers = (len(missing), len(relays), timeout)
            text = "%d of %d nodes do not answer after %g s: %s"
            raise NodeUnreachable(text % (*numbers, reasons))
        time.sleep(interval)  # another node's port cannot be watched, only tried
        interval = min(interval * 1.5, 0.5)


def _connect(relay: RelayAddress, token: str, timeout: float = handshake.TIMEOUT) -> Channel:
    try:
        sock = socket.create_connection(relay, timeout)
    except OSError as error:
        raise NodeUnreachable("no relay answers at %s:%d: %s" % (*relay, error)) from None
    try:
        handshake.authenticate_as_client(sock, token, timeout)
        handshake.enable_keepalive(sock)
    except handshake.Untrusted as error:
        sock.close()
        raise NodeUnreachable("%s:%d: %s" % (*relay, error)) from None
    return Channel(sock)


# --- in place of ssh


def run_as_ssh(arguments: Sequence[str]) -> int:
    """Behave as `ssh` does for rank launchers: [options] HOST [options] command..., with the words
    of the command joined to a text for the shell. Returns the command's exit code, or 255."""
    host, command = parse_ssh_arguments(arguments)
    if host is None or not command:
        sys.stderr.write("usage: python -m muster.node.relay run [options] HOST command...\n")
        return SSH_FAILED
    try:
        token = handshake.token_from_environment()
        ours = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        shield = RANK_ENDS in os.environ
        remote = RemoteCommand(find_relay(host), token, shell=command, defaults=ours, shield=shield)
        return _wait_and_forward(remote)
    except (NodeUnreachable, handshake.Untrusted) as error:
        sys.stderr.write("muster relay: %s: %s\n" % (host, error))
        return SSH_FAILED


def parse_ssh_arguments(arguments: Sequence[str]) -> Tuple[str | None, str]:
    """The host and the command in the arguments of ssh. Its options are ignored."""
    host: str | None = None
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            if host is None and rest:
                host = rest.pop(0)
            break
        if word.startswith("-") and len(word) > 1:
            takes = next((i for i, c in enumerate(word[1:]) if c in _SSH_OPTIONS_WITH_VALUE), None)
            if takes == len(word) - 2 and rest:
                rest.pop(0)  # the value is the next word, and not the rest of this one
        elif host is None:
            host = word
        else:
            rest.insert(0, word)
            break
    if host is not None:
        host = host.rpartition("@")[2]
    return host, " ".join(rest)


def _wait_and_forward(command: RemoteCommand) -> int:
    """Wait for the command's end; returns its exit code. A signal to end cancels the command, with
    the relay's grace period; other signals are forwarded, and reports of ranks that ended too."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: command.cancel())
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda n, _: command.signal(n, ranks_only=True))
    reported = 0
    while True:
        code = command.receive()
        if RANK_ENDS in os.environ:
            for rank in list(command.ranks)[reported:]:
                with open(os.environ[RANK_ENDS], "w") as file:
                    file.write("%d ended %d\n" % (rank, command.ranks[rank]))
            reported = len(command.ranks)
        if code is not None:
            return code
