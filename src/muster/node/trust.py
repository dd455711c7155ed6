"""How two processes of a run find out that both know its token, without telling it.

Each sends the other 32 random bytes and gets back a digest of both made with the token, so neither
a listener on the wire nor a stranger at the other end learns it, and an old answer is worth
nothing. What follows on the connection is neither encrypted nor signed: who can alter packets
between the nodes can alter that, which is why relays listen on loopback or on a network of the
run's own.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket

#: Where the run's token is, and nowhere else: an environment can be read by its owner alone, a
#: command line by everybody.
TOKEN = "MUSTER_TOKEN"

#: Seconds a peer may take to show that it is one.
PATIENCE = 10.0

_SIZE = 32  # bytes of a challenge, and of a SHA-256
_LABELS = (b"muster relay, who asks", b"muster relay, who answers")


class Untrusted(Exception):  # noqa: N818
    """The other end does not know the token, or does not speak the protocol."""


class Silent(Untrusted):
    """The other end hung up without a word: somebody has looked whether anybody is here."""


def token_from_environment() -> str:
    """The run's token. Raises Untrusted if there is none: it is never optional."""
    token = os.environ.get(TOKEN, "")
    if not token:
        raise Untrusted("the environment variable %s is not set" % TOKEN)
    return token


def meet_asker(sock: socket.socket, token: str) -> None:
    """The side that was called. Raises Untrusted; the socket is then of no more use."""
    with _patience(sock):
        ours = os.urandom(_SIZE)
        sock.sendall(ours)
        answer = _receive(sock, 2 * _SIZE)
        nonces = ours + answer[:_SIZE]
        if not hmac.compare_digest(answer[_SIZE:], _digest(token, 0, nonces)):
            raise Untrusted("the other end does not know the run's token")
        sock.sendall(_digest(token, 1, nonces))


def meet_relay(sock: socket.socket, token: str, patience: float = PATIENCE) -> None:
    """The side that calls. Raises Untrusted; the socket is then of no more use."""
    with _patience(sock, patience):
        nonces = _receive(sock, _SIZE) + os.urandom(_SIZE)
        sock.sendall(nonces[_SIZE:] + _digest(token, 0, nonces))
        if not hmac.compare_digest(_receive(sock, _SIZE), _digest(token, 1, nonces)):
            raise Untrusted("what answers is no relay of this run")


def notice_silence(sock: socket.socket) -> None:
    """Have the kernel find out when the other machine is gone without a word: in half a minute
    where it can be told to, in two hours elsewhere."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _digest(token: str, label: int, nonces: bytes) -> bytes:
    return hmac.new(token.encode(), _LABELS[label] + nonces, hashlib.sha256).digest()


def _receive(sock: socket.socket, size: int) -> bytes:
    """So many bytes and no more: a stranger gets nothing of ours to fill."""
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            kind = Untrusted if data else Silent
            raise kind("it hung up: it does not know the run's token, or is no relay")
        data += piece
    return data


@contextlib.contextmanager
def _patience(sock: socket.socket, seconds: float = PATIENCE):  # type: ignore[no-untyped-def]
    sock.settimeout(seconds)
    try:
        yield
    except OSError as error:
        raise Untrusted("no answer that makes sense: %s" % error) from None
    sock.settimeout(None)
