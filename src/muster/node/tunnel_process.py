"""The node's end of connections through a bucket (`node.tunnel`): a process beside the node server,
which dials it as it would a supervisor.

The bucket is reached by a pre-authenticated request: a URL with which objects of the run can be
read and written until it expires, without keys or a library of the service.
"""

from __future__ import annotations

import http.client
import os
import re
import select
import signal
import socket
import ssl
import sys
import threading
import time
from typing import Callable, Mapping, NamedTuple
from urllib.parse import quote, urlsplit

from muster.node import tunnel
from muster.node.tunnel import BadPart, End, Objects, Unavailable

#: Seconds to connect, and to wait for an answer.
_TIMEOUT = 30.0
#: Seconds after which a connection checks again whether its session is the current one.
_SESSION_PAUSE = 5.0
#: Seconds that connections have to send their last parts when this process ends.
_CLOSE_TIMEOUT = 10.0
#: The most bytes of the name of a session.
_MAX_SESSION = 64
_LOOPBACK = re.compile(r"(localhost|127(\.\d+){3}|::1)\Z")


class Place(NamedTuple):
    """Where parts of connections are."""

    #: The URL of the bucket's objects, which ends with a slash.
    url: str
    #: The folder of the run there.
    folder: str

    def seen_from(self, environ: Mapping[str, str]) -> Place:
        """The same place for a node with these variables. A Muster that serves its own machine only
        (loopback) has another name in nodes with a network of their own, and gives them that."""
        link, server = urlsplit(self.url), urlsplit(environ.get("OCI_CLI_ENDPOINT", ""))
        if not _LOOPBACK.match(link.hostname or "") or (
            (link.scheme, link.port) != (server.scheme, server.port)
        ):
            return self
        return self._replace(url=link._replace(netloc=server.netloc).geturl())


class LinkedObjects:
    """Objects behind a pre-authenticated request, over one connection, which is opened again if it
    was closed. For one thread."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._path = parts.path
        if parts.scheme == "https":
            context = ssl.create_default_context()
            self._http: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=_TIMEOUT, context=context
            )
        else:
            self._http = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT)

    def put(self, name: str, content: bytes) -> None:
        """See `Objects`, as of the others."""
        status, _ = self._request("PUT", name, content)
        if status >= 300:
            raise Unavailable(_refusal("PUT", status))

    def get(self, name: str) -> bytes | None:
        status, content = self._request("GET", name)
        if status == 404:
            return None
        if status >= 300:
            raise Unavailable(_refusal("GET", status))
        return content

    def discard(self, name: str) -> None:
        """The supervisor removes objects: the URL does not allow it."""

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _request(self, method: str, name: str, content: bytes | None = None) -> tuple[int, bytes]:
        is_new = self._http.sock is None
        try:
            return self._request_once(method, name, content)
        except (OSError, http.client.HTTPException) as error:
            self._http.close()
            why = error
        if not is_new:  # the other end may have closed it since the last request
            try:
                return self._request_once(method, name, content)
            except (OSError, http.client.HTTPException) as error:
                self._http.close()
                why = error
        raise Unavailable("the bucket does not answer: %s" % (str(why) or type(why).__name__))

    def _request_once(self, method: str, name: str, content: bytes | None) -> tuple[int, bytes]:
        self._http.request(method, self._path + quote(name), content)
        answer = self._http.getresponse()
        found = answer.read(tunnel.MAX_PART + 1)
        if not answer.isclosed():  # there is more
            self._http.close()
        return answer.status, found


def _refusal(method: str, status: int) -> str:
    text = "the bucket answers %s with %d" % (method, status)
    if status in (401, 403, 404):
        text += ": its pre-authenticated request has expired, was deleted, or lacks a right"
    return text


class TunnelProcess:
    """The process, for the one that forks it and outlives it: it ends with that.

    Raises OSError if it cannot listen.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ended, self._running = os.pipe()
        #: Where a node server dials.
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self.pid = 0
        self.start()

    def start(self) -> None:
        """Start the process; again, if it was killed. Raises OSError."""
        self.pid = os.fork()
        if self.pid == 0:
            _serve_and_exit(self)

    def leave(self) -> None:
        """Close its descriptors, in a forked process that does not use it."""
        self._listener.close()
        os.close(self._running)
        os.close(self._ended)

    def close(self) -> None:
        """End the process once its connections have sent their last parts, and wait for it."""
        self._listener.close()
        os.close(self._running)
        os.waitpid(self.pid, 0)

    def serve(self) -> None:
        """In the forked process: carry connections until the other one is gone."""
        os.close(self._running)
        poll = select.poll()
        for one in (self._listener.fileno(), self._ended):
            poll.register(one, select.POLLIN)
        connections: list[threading.Thread] = []
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._ended in ready:
                break
            sock, _ = self._listener.accept()
            connections = [one for one in connections if one.is_alive()]
            thread = threading.Thread(target=_carry, args=(sock, self._place), daemon=True)
            thread.start()
            connections.append(thread)
        self._listener.close()
        deadline = time.monotonic() + _CLOSE_TIMEOUT
        for thread in connections:
            thread.join(max(0.0, deadline - time.monotonic()))


def _serve_and_exit(process: TunnelProcess) -> None:
    """In the forked process. It ends with its parent, whose signals are not meant for it."""
    code = 1
    try:
        for one in (signal.SIGTERM, signal.SIGINT):
            signal.signal(one, signal.SIG_IGN)
        process.serve()
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def _carry(sock: socket.socket, place: Place) -> None:
    """Carry a connection of the node server."""
    objects = LinkedObjects(place.url)
    try:
        carry(sock, objects, place.folder)
    except (BadPart, Unavailable) as error:
        _report(str(error))
    finally:
        sock.close()
        objects.close()


def carry(sock: socket.socket, objects: Objects, folder: str) -> None:
    """Carry a connection through a bucket, to the supervisor that is there now. Returns when it has
    ended, or there is another supervisor, or none. Raises Unavailable, BadPart."""
    session = _session(objects, folder)
    if session is None:
        return
    connection = os.urandom(8).hex()
    is_served = _Every(_SESSION_PAUSE, lambda: _session(objects, folder) == session)
    folders = tunnel.up_folder(folder, session), tunnel.down_folder(folder, session)
    End(sock, objects, connection, *folders, is_served, _report).run()


def _session(objects: Objects, folder: str) -> str | None:
    """The session that there is; None if there is none. Raises Unavailable."""
    found = objects.get(tunnel.supervisor_name(folder))
    if found is None or not found.isalnum() or len(found) > _MAX_SESSION:
        return None
    return found.decode()


class _Every:
    """Caches the answer to a question for some seconds."""

    def __init__(self, seconds: float, ask: Callable[[], bool]) -> None:
        self._seconds, self._ask = seconds, ask
        self._due = time.monotonic() + seconds
        self._answer = True

    def __call__(self) -> bool:
        if time.monotonic() >= self._due:
            self._answer = self._ask()
            self._due = time.monotonic() + self._seconds
        return self._answer


_reported = ""


def _report(why: str) -> None:
    """Write to stderr what is wrong, once."""
    global _reported  # noqa: PLW0603  one for the process
    if why and why != _reported:
        sys.stderr.write("muster: cannot reach the supervisor: %s\n" % why)
        sys.stderr.flush()
    _reported = why
