"""Mutual authentication of two processes of a run by the run's token, which is never sent.

Each side sends 32 random bytes and receives a digest of both nonces made with the token. So neither
an eavesdropper nor an impostor learns the token, and answers cannot be replayed. What follows on
the connection is neither encrypted nor signed, and could be altered by anyone who can alter
packets between the nodes: relays therefore listen only on loopback or on a network of the run.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket

#: Holds the run's token. Only its owner can read a process's environment; a command line is public.
TOKEN = "MUSTER_TOKEN"

#: Seconds that the handshake may take.
TIMEOUT = 10.0

_SIZE = 32  # bytes of a nonce, and of a SHA-256 digest
_LABELS = (b"muster relay, who asks", b"muster relay, who answers")


class Untrusted(Exception):  # noqa: N818
    """The other end does not know the token, or does not speak the protocol."""


class HungUp(Untrusted):
    """The other end closed the connection at once, as a check for a listener does."""


def token_from_environment() -> str:
    """The run's token. Raises Untrusted if it is not set: it is never optional."""
    token = os.environ.get(TOKEN, "")
    if not token:
        raise Untrusted("the environment variable %s is not set" % TOKEN)
    return token


def authenticate_as_server(sock: socket.socket, token: str) -> None:
    """The accepting side. Raises Untrusted; the socket cannot be used any more then."""
    with _time_limit(sock, TIMEOUT):
        ours = os.urandom(_SIZE)
        sock.sendall(ours)
        answer = _receive(sock, 2 * _SIZE)
        nonces = ours + answer[:_SIZE]
        if not hmac.compare_digest(answer[_SIZE:], _digest(token, 0, nonces)):
            raise Untrusted("the other end does not know the run's token")
        sock.sendall(_digest(token, 1, nonces))


def authenticate_as_client(sock: socket.socket, token: str, timeout: float = TIMEOUT) -> None:
    """The connecting side. Raises Untrusted; the socket cannot be used any more then."""
    with _time_limit(sock, timeout):
        nonces = _receive(sock, _SIZE) + os.urandom(_SIZE)
        sock.sendall(nonces[_SIZE:] + _digest(token, 0, nonces))
        if not hmac.compare_digest(_receive(sock, _SIZE), _digest(token, 1, nonces)):
            raise Untrusted("what answers is not a relay of this run")


def enable_keepalive(sock: socket.socket) -> None:
    """Let the kernel detect that the other machine is lost: within half a minute where the
    intervals can be set, within two hours elsewhere."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _digest(token: str, label: int, nonces: bytes) -> bytes:
    return hmac.new(token.encode(), _LABELS[label] + nonces, hashlib.sha256).digest()


def _receive(sock: socket.socket, size: int) -> bytes:
    """Receive exactly `size` bytes, so that a stranger cannot make this process buffer more."""
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            kind = Untrusted if data else HungUp
            raise kind("it hung up: it does not know the run's token, or is not a relay")
        data += piece
    return data


@contextlib.contextmanager
def _time_limit(sock: socket.socket, seconds: float):  # type: ignore[no-untyped-def]
    sock.settimeout(seconds)
    try:
        yield
    except OSError as error:
        raise Untrusted("no valid answer: %s" % error) from None
    sock.settimeout(None)
