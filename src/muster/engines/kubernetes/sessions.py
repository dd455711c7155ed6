"""What the runs of a process share that call the same API server with the same configuration: its
credentials, whose plug-in runs once for all of them, the connections, and what is known of the
versions there. It is closed with the last one that uses it.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlencode
from weakref import WeakValueDictionary

from msgspec import Struct

from muster.engines.kubernetes.access import Access, Credentials
from muster.engines.kubernetes.answers import LONGEST_OBJECT, explained, no_login
from muster.engines.kubernetes.refusals import CannotCall, Operation, redirect
from muster.engines.kubernetes.versions import Versions

if TYPE_CHECKING:
    import urllib3

T = TypeVar("T")
JSON = "application/json"
#: Seconds to connect, and to wait for an answer to begin or to continue.
_CONNECT, _READ = 10.0, 60.0
#: Seconds for a whole answer. API servers end calls after 60 seconds (`--request-timeout`).
_WHOLE_ANSWER = 120.0
#: Seconds after which a stream of changes that says nothing is given up, as what is on its way may
#: have dropped it. API servers send a bookmark every minute, and remember changes for 75 seconds,
#: so that none is late. One that knows no version to send yet is given up as well.
_WATCH_SILENCE = 75.0
#: The same of the log of a container, which may have nothing to say for as long as it likes.
_LOG_SILENCE = 330.0
#: Connections that are kept for the next calls: some for each of the runs that share them.
_MOST_KEPT = 16
#: Of a long stream, so that the end of a machine or a network on its way is noticed: seconds until
#: it is probed, and between probes; and how many of these are lost before it is given up.
_KEEP_ALIVE = ("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)
#: Verb of a Role -> method.
_METHODS = {"get": "GET", "list": "GET", "watch": "GET", "patch": "PATCH", "create": "POST"}
_METHODS["delete"] = "DELETE"
#: Seconds for which versions that were found are reused.
_VERSIONS_AGE = 60.0


class Request(Struct, frozen=True):
    """One request."""

    operation: Operation
    path: str
    query: Mapping[str, str] = {}
    content: bytes | None = None
    content_type: str = JSON
    #: Whether the answer lasts.
    is_stream: bool = False
    #: Bytes that another answer may have.
    most: int = LONGEST_OBJECT


class Session:
    """A configuration that was read, with the connections that it makes. May be used by several
    threads."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials
        self._pool = _pool(credentials.access())

    def send(self, one: Request) -> urllib3.BaseHTTPResponse:
        """Returns the answer, whose content was not read; it is no redirect. Raises CannotCall."""
        import urllib3

        from muster.engines.kubernetes.answer_deadlines import complete_within

        access = self.credentials.access()
        headers = urllib3.HTTPHeaderDict([*access.headers, ("Accept", JSON)])
        if one.content is not None:
            headers["Content-Type"] = one.content_type
        read = _READ
        if one.is_stream:
            read = _WATCH_SILENCE if one.operation.verb == "watch" else _LOG_SILENCE
        method, url = _METHODS[one.operation.verb], access.url + one.path
        deadline = complete_within(_WHOLE_ANSWER, f"{method} {url}", is_stream=one.is_stream)
        with explained(access.proxy), deadline:
            answer = self._pool.request(
                method,
                url + (f"?{urlencode(one.query)}" if one.query else ""),
                body=one.content,
                headers=headers,
                timeout=urllib3.Timeout(connect=_CONNECT, read=read),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,  # none was requested, and it may be endless
            )
        if answer.status == 407 and access.proxy is not None:
            answer.close()
            raise no_login(access.proxy)
        if 300 <= answer.status < 400:
            answer.close()
            raise redirect(answer.headers.get("Location", ""))
        return answer


class _Found(Generic[T]):
    """What one thread finds for all. Those who wait meanwhile fail with it, instead of trying one
    after the other. is_valid: whether it is not to be found again."""

    def __init__(self, is_valid: Callable[[T], bool]) -> None:
        self._is_valid = is_valid
        self._lock = threading.Lock()
        self._found: T | None = None
        #: Why it could not be found, and when.
        self._failed: tuple[CannotCall, float] | None = None

    def get(self, find: Callable[[], T]) -> T:
        """It, found now if need be. Raises CannotCall, as `find` does."""
        began = time.monotonic()
        with self._lock:
            if self._found is not None and self._is_valid(self._found):
                return self._found
            if self._failed is not None and self._failed[1] >= began:
                raise self._failed[0]  # another thread has tried meanwhile
            try:
                self._found = find()
            except CannotCall as error:
                self._failed = error, time.monotonic()
                raise
            return self._found

    def offer(self, one: T) -> None:
        """One that was found already; it is used unless there is one."""
        with self._lock:
            self._found = self._found or one

    def forget(self, one: T) -> None:
        """It is found again, unless there is another one by now."""
        with self._lock:
            if self._found is one:
                self._found = None


class Shared:
    """What is shared by all with one configuration. May be used by several threads.

    load: makes a session, and may raise CannotCall.
    """

    def __init__(self, load: Callable[[], Session]) -> None:
        self._load = load
        self._session = _Found[Session](lambda one: not one.credentials.is_expired)
        self._versions = _Found[tuple[Versions, float]](
            lambda one: time.monotonic() - one[1] <= _VERSIONS_AGE
        )

    def session(self) -> Session:
        """The session, which is made when it is needed first, and when its credentials have
        expired. Raises CannotCall."""
        return self._session.get(self._load)

    def offer(self, session: Session) -> None:
        """A session that was made already; it is used unless there is one."""
        self._session.offer(session)

    def forget(self, session: Session) -> None:
        """The configuration is read again: its credentials may have been renewed."""
        self._session.forget(session)

    def versions(self, find: Callable[[], Versions]) -> Versions:
        """What is installed. find: calls the API server. Raises CannotCall, as `find` does."""
        return self._versions.get(lambda: (find(), time.monotonic()))[0]


_shared: WeakValueDictionary[Hashable, Shared] = WeakValueDictionary()
_making = threading.Lock()


def shared(configuration: Hashable, load: Callable[[], Session]) -> Shared:
    """That of a configuration. load: see `Shared`; it is kept."""
    with _making:
        found = _shared.get(configuration)
        if found is None:
            found = _shared[configuration] = Shared(load)
        return found


def _pool(one: Access) -> urllib3.PoolManager:
    import urllib3
    from urllib3.connection import HTTPConnection

    from muster.engines.kubernetes.answer_deadlines import POOL_CLASSES

    options = [*HTTPConnection.default_socket_options]
    options.append((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
    for name, value in _KEEP_ALIVE:
        if (number := getattr(socket, name, None)) is not None:
            options.append((socket.IPPROTO_TCP, number, value))
    settings: dict[str, Any] = {"socket_options": options, "maxsize": _MOST_KEPT}
    if one.ssl is not None:
        settings["ssl_context"] = one.ssl
        if one.ssl.verify_mode == ssl.CERT_NONE:  # the configuration wants it so
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    if one.server_name is not None:
        settings["server_hostname"] = settings["assert_hostname"] = one.server_name
    made = urllib3.PoolManager(**settings)
    if one.proxy is not None:
        made = urllib3.ProxyManager(one.proxy, proxy_headers=one.proxy_headers, **settings)
    made.pool_classes_by_scheme = POOL_CLASSES
    return made
