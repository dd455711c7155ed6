"""Dials the supervisor of a node server, over TCP with TLS, whenever there is no contact.

It never gives up. After each failure, and when contact was lost, it waits: up to a second at first,
twice as long each time, and up to 20 seconds at last. How long is drawn each time, so that the
nodes of a large run do not dial at the same instant when their supervisor is gone.

Another supervisor that takes over may listen elsewhere. So the address may be the path of a file
that has it, which is read again at each dial, such as on a file system that all share, or a mounted
ConfigMap; and the name of a host is looked up again at each, such as that of a Service.

Looking up a name and reading a file may take long, where name servers or file servers do not
answer. So a forked process does that, makes the connection, and hands it over.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import socket
import sys
from typing import TYPE_CHECKING, Dict

from muster.node import clock
from muster.node.connection import Transport
from muster.node.files import read_regular
from muster.node.processes import close_others
from muster.node.tls import client_context, supervisor_name, wrap

if TYPE_CHECKING:
    from muster.node.serve import Supervisor

#: Seconds: the longest wait after the first failure, and the longest of all.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 20.0
#: Seconds until a connection has to be up.
_TIMEOUT = 30
#: Bytes of a file with an address, and of the reason of a failure.
_MAX_TEXT = 1000


class Dialer:
    """Makes connections, one after the other.

    token: the node's. Raises ValueError if the certificate is none.
    """

    def __init__(self, supervisor: Supervisor, run_id: str, token: str) -> None:
        self.token = token
        self._address = supervisor.address
        self._name = supervisor_name(run_id)
        self._context = client_context(supervisor.authority)
        self._pause = _FIRST_PAUSE
        #: When to dial, see `clock.now`; None while that is not needed, or it is dialing.
        self.due: float | None = clock.now()
        self._answer: socket.socket | None = None  # from the process that dials
        self._why = ""  # the last failure that was logged

    def interest(self) -> Dict[int, int]:
        """What to wait for: descriptor -> events of `select.poll`."""
        return {} if self._answer is None else {self._answer.fileno(): select.POLLIN}

    def step(self, *, wanted: bool) -> Transport | None:
        """Do what is possible now. wanted: whether a connection is needed. Returns one that is up,
        and whose TLS handshake follows."""
        if not wanted:
            self.close()
            return None
        transport = None
        if self._answer is not None:
            transport = self._take(self._answer)
        elif self.due is not None and clock.now() >= self.due:
            self._begin()
        # at once after a failure: nothing else may happen that has this called again
        if transport is None and self._answer is None and self.due is None:
            self.due = clock.now() + random.uniform(0, self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return transport

    def reached(self) -> None:
        """There is contact."""
        self._pause, self._why = _FIRST_PAUSE, ""

    def failed(self, why: str) -> None:
        """There is no contact. why: for people, who find it in the log, once."""
        if why != self._why:
            self._why = why
            text = "muster: the supervisor at %s cannot be reached: %s\n"
            sys.stderr.write(text % (self._address, why))
            sys.stderr.flush()

    def close(self) -> None:
        """Dial no more, until a connection is needed again. May be repeated."""
        self.due = None
        if self._answer is not None:
            self._answer.close()
            self._answer = None

    def _begin(self) -> None:
        self.due = None
        ours, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError as error:
            ours.close()
            theirs.close()
            self.failed(error.strerror or str(error))
            return
        if pid == 0:
            _dial_and_exit(self._address, theirs)
        theirs.close()
        ours.setblocking(False)
        self._answer = ours

    def _take(self, answer: socket.socket) -> Transport | None:
        """What the process that dials has said."""
        try:
            text, descriptors, _, _ = socket.recv_fds(answer, _MAX_TEXT, 1)
        except BlockingIOError:
            return None
        except OSError as error:
            text, descriptors = (error.strerror or str(error)).encode(), []
        self.close()
        if not descriptors:
            self.failed(text.decode(errors="replace") or "it does not answer")
            return None
        sock = socket.socket(fileno=descriptors[0])
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        try:
            return wrap(self._context, sock, server=False, name=self._name)
        except OSError as error:  # it is closed already
            sock.close()
            self.failed(error.strerror or str(error))
            return None


def _dial_and_exit(address: str, answer: socket.socket) -> None:
    """In a forked process: hand over a connection, or say why there is none."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.alarm(_TIMEOUT)  # which ends it
        close_others((answer.fileno(),))
        try:
            host, port = parse_address(address_in(address))
            with socket.create_connection((host, port), _TIMEOUT) as sock:
                socket.send_fds(answer, [b"up"], [sock.fileno()])
        except (OSError, ValueError) as error:
            text = getattr(error, "strerror", None) or str(error)
            with contextlib.suppress(OSError):  # nobody waits for it any more
                answer.sendall(text.encode()[:_MAX_TEXT])
    finally:
        os._exit(0)


def address_in(address: str) -> str:
    """The address, or what the file has whose path it is. Raises OSError, ValueError."""
    return read_regular(address, _MAX_TEXT).decode().strip() if address[:1] == "/" else address


def parse_address(address: str) -> "tuple[str, int]":
    """The host and the port of an address. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("not an address, HOST:PORT: %.100r" % address)
    return host.strip("[]"), int(port)
