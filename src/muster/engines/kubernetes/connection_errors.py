"""What goes wrong with a connection, in words: without numbers of errors, names of classes, and the
objects that texts of urllib3 have."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from collections.abc import Iterator

_PLACE = re.compile(r"host='([^']*)', port=(\d+)")
#: How urllib3 begins, and what the system adds.
_BEFORE = re.compile(
    r"\w+\(host='[^']*', port=\d+\): |Failed to establish a new connection: |\[Errno -?\d+\] "
    r"|\[SSL[^]]*\] "
)
_AFTER = re.compile(r" ?\(_ssl\.c:\d+\)")
#: OpenSSL's reasons, as they are often seen -> words about the other side.
_TLS = {
    "HTTP_REQUEST": "does not speak TLS",
    "WRONG_VERSION_NUMBER": "does not speak TLS",
    "RECORD_LAYER_FAILURE": "does not speak TLS",
    "UNEXPECTED_EOF_WHILE_READING": "has closed the connection in its TLS handshake",
}
#: Characters of a text.
_LONGEST = 200


def in_words(error: BaseException) -> str:
    """A sentence about an error of a socket, of TLS, or of urllib3."""
    found = [*_inner(error)]
    places = (_PLACE.search(str(one)) for one in found)
    place = next((":".join(known.groups()) for known in places if known is not None), "")
    for one in found:
        if words := _known(one, place):
            return words[:_LONGEST]
    words = plain(str(found[-1])) or type(found[-1]).__name__
    return (f"{place}: {words}" if place else words)[:_LONGEST]


def certificate_in_words(error: BaseException) -> str:
    """What is wrong with a certificate."""
    return plain(str(getattr(error, "verify_message", "") or error))[:_LONGEST]


def plain(text: str) -> str:
    """A text of the system or of urllib3, as people read it."""
    words = " ".join(text.split()).rpartition(">: ")[2]
    return _AFTER.sub("", _BEFORE.sub("", words)).removesuffix(".")


def _inner(error: BaseException, depth: int = 4) -> Iterator[BaseException]:
    """An error and those that it was raised for, which know more."""
    yield error
    parts = [getattr(error, "reason", None), getattr(error, "original_error", None)]
    for one in dict.fromkeys([*parts, *error.args, error.__cause__]) if depth else ():
        if isinstance(one, BaseException):
            yield from _inner(one, depth - 1)


def _known(error: BaseException, place: str) -> str:
    """A sentence about an error that is often seen; "" about another one."""
    who = place or "it"
    if isinstance(error, ssl.SSLError):
        given = str(getattr(error, "reason", None) or "")
        reason = given.removeprefix("SSLV3_").replace(" ", "_").upper()
        usual = reason.replace("_", " ").lower() or plain(str(error))
        return f"{who} {_TLS.get(reason, f'cannot be reached over TLS: {usual}')}"
    if isinstance(error, socket.gaierror):
        return f"the name {place.rpartition(':')[0] or 'of the server'} cannot be resolved"
    if isinstance(error, ConnectionRefusedError):
        return f"{who} refuses connections"
    if isinstance(error, http.client.RemoteDisconnected):
        return f"{who} has closed the connection without an answer"
    if isinstance(error, (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)):
        return f"{who} has closed the connection"
    if isinstance(error, http.client.IncompleteRead):
        return "its answer was cut off"
    if isinstance(error, TimeoutError):
        return f"{who} has not answered in time"
    return ""
