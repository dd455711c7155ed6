"""Where nodes dial their supervisor: over TCP, with TLS.

A process has one listener for all of its runs. A node says in its first packet for which run it
is, gets that run's certificate (`run_secrets`), and sends its token only when it has verified that.
Then its contact has the connection. Until then it may be anybody who reaches the port: so few
connections wait at a time, and none for long.
"""

from __future__ import annotations

import select
import socket
import ssl
import traceback
from collections.abc import Callable, Mapping
from functools import partial

from muster.engines.loop import EventLoop, RunLoop
from muster.engines.remote.contact import Arrivals
from muster.engines.remote.run_secrets import ContactSecrets
from muster.engines.remote.waiting import Waits
from muster.node.connection import Connection
from muster.node.greeting import Claim, Refusal, claim_of
from muster.node.tls import server_context, supervisor_name, wrap

#: Seconds for a connection to prove itself; and for one that was refused to learn that.
_TIMEOUT, _REFUSED_TIMEOUT = 10.0, 2.0
#: The most connections at a time that have not proven themselves, as each takes a descriptor; the
#: backlog of others; and for how many seconds the oldest keeps its place when all have spoken.
_MOST, _BACKLOG, _MOST_WAIT = 256, 4096, 2.0
#: Connections that are accepted at once: others of the process wait meanwhile.
_AT_ONCE = 16
#: Pause after a failed accept, in seconds.
_ACCEPT_PAUSE = 1.0


class RunListener:
    """One run's share of the listener of its process.

    host, port: where it listens; 0 for any port. Runs that name the same share one. Raises OSError.
    """

    def __init__(
        self,
        loop: RunLoop,
        run_id: str,
        secrets: ContactSecrets,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._loop, self._run_id, self._secrets = loop, run_id, secrets
        #: The run's certificate, for all of its connections.
        self.context = server_context()
        self.context.load_cert_chain(secrets.certificate, secrets.key)
        self._arrivals: dict[int, Arrivals] = {}  # by rank
        self._listener = _listener(loop.process_loop, host, port)
        self._listener.runs[supervisor_name(run_id)] = self

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return self._listener.port

    def of(self, rank: int) -> Arrivals:
        """Where the connections of a node arrive."""
        return self._arrivals.setdefault(rank, Arrivals())

    def take(self, claim: Claim, connection: Connection) -> None:
        """Take the connection of who claims to be a node of the run. Raises Refusal."""
        arrivals = self._arrivals.get(claim.rank)
        server = 0 if arrivals is None else arrivals.server
        if not self._secrets.is_token(claim.token, claim.rank, server):
            raise Refusal(f"its token is not that of node {claim.rank} of run {self._run_id}")
        if arrivals is None or arrivals.take is None:
            raise Refusal(f"the supervisor does not expect node {claim.rank} now")
        try:
            arrivals.take(connection)
        except Refusal:
            raise
        except Exception as error:  # of the run, which the process' other ones survive
            self._loop.post(partial(_raise, error))
            raise Refusal("its supervisor has failed") from error

    def close(self) -> None:
        """Take no more connections of the run. Contacts keep theirs."""
        self._listener.runs.pop(supervisor_name(self._run_id), None)
        self._listener.close_if_unused()


def _raise(error: Exception) -> None:
    raise error


#: The listeners of each loop, by host and port as asked for.
_listeners: dict[tuple[EventLoop, str, int], Listener] = {}


def _listener(loop: EventLoop, host: str, port: int) -> Listener:
    """The listener of a process. Raises OSError."""
    place = (loop, host, port)
    if place not in _listeners:
        _listeners[place] = Listener(*place, closed=lambda: _listeners.pop(place, None))
    return _listeners[place]


class Listener:
    """Accepts connections, and passes those on that have proven themselves. Raises OSError."""

    def __init__(self, loop: EventLoop, host: str, port: int, closed: Callable[[], object]) -> None:
        self._loop, self._closed = loop, closed
        #: The runs, by the names in their certificates.
        self.runs: dict[str, RunListener] = {}
        self._context = server_context()  # which has no certificate: `_choose`
        self._context.sni_callback = self._choose
        self._unproven: dict[_Unproven, None] = {}  # the oldest first
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._participant = loop.add(self._accept)
        self._participant.watch(self._socket.fileno())

    def close_if_unused(self) -> None:
        """Stop to listen if there are no runs any more."""
        if not self.runs:
            self._participant.close()
            self._socket.close()
            for one in [*self._unproven]:
                one.close()
            self._closed()

    def left(self, one: _Unproven) -> None:
        """A connection has proven itself, or is gone."""
        self._unproven.pop(one, None)
        if len(self._unproven) == _MOST - 1 and not self._participant.closed:
            self._participant.notify()  # others may wait

    def take(self, connection: Connection) -> None:
        """Pass on a connection whose other end has said hello. Raises Refusal."""
        assert connection.hello is not None
        claim = claim_of(connection.hello)
        run = self.runs.get(supervisor_name(claim.run_id))
        if run is None:
            raise Refusal(f"run {claim.run_id:.64} has no supervisor here")
        run.take(claim, connection)

    def _choose(
        self, sock: ssl.SSLSocket | ssl.SSLObject, name: str | None, _: ssl.SSLContext
    ) -> int | None:
        """Show the certificate of the run whose supervisor the other end has named."""
        run = self.runs.get(name or "")
        if run is None:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        sock.context = run.context
        return None

    def _accept(self, _ready: Mapping[int, int]) -> None:
        """Accept connections."""
        for _ in range(_AT_ONCE):
            if len(self._unproven) >= _MOST:
                if not self._has_arrivals():
                    break
                if (room_at := self._make_room()) is not None:
                    self._participant.unwatch(self._socket.fileno())
                    self._participant.wake_at(room_at)
                    return
            try:
                sock, _ = self._socket.accept()
            except BlockingIOError:
                break
            except OSError:  # such as too many open files: the listener stays readable
                self._participant.unwatch(self._socket.fileno())
                self._participant.wake_at(self._loop.now() + _ACCEPT_PAUSE)
                return
            self._add(sock)
        self._participant.watch(self._socket.fileno())

    def _has_arrivals(self) -> bool:
        """Whether connections wait that were not accepted."""
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def _make_room(self) -> float | None:
        """Close a connection, as there are too many: the oldest of those that have said nothing, or
        of all. So a node, which speaks at once, gets in however many others connect. Returns when
        there is room if many nodes connect at once, which need some time; None: now."""
        silent = next((one for one in self._unproven if not one.has_spoken), None)
        oldest = next(iter(self._unproven))
        room_at = oldest.since + _MOST_WAIT
        if silent is None and self._loop.now() < room_at:
            return room_at
        (silent or oldest).close()
        return None

    def _add(self, sock: socket.socket) -> None:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
            transport = wrap(self._context, sock, server=True)
        except OSError:  # it is gone already
            sock.close()
            return
        self._unproven[_Unproven(self, self._loop, transport)] = None


class _Unproven:
    """A connection that has not proven itself, or was refused and may not know it yet."""

    def __init__(self, listener: Listener, loop: EventLoop, sock: ssl.SSLSocket) -> None:
        self._spoke = False
        self.since = loop.now()
        self._due = self.since + _TIMEOUT
        self._listener, self._loop = listener, loop
        self._socket, self._connection = sock, Connection(sock)
        self._decided = False
        self._participant = loop.add(self._step, self._failed)
        self._waits = Waits(self._participant)
        self._participant.notify()

    @property
    def has_spoken(self) -> bool:
        """Whether anything has arrived."""
        return self._spoke or _has_data(self._socket)

    def _step(self, _ready: Mapping[int, int]) -> None:
        connection = self._connection
        self._spoke = self.has_spoken
        connection.step()
        if connection.hello is not None and not self._decided and not connection.ended:
            self._decided = True
            try:
                self._listener.take(connection)
            except Refusal as why:
                connection.refuse(str(why))
                connection.step()
                self._due = min(self._due, self._loop.now() + _REFUSED_TIMEOUT)
            else:
                self._leave()
                return
        if connection.ended or self._loop.now() >= self._due:
            self.close()
        else:
            self._waits.set(connection.interest())
            self._participant.wake_at(self._due)

    def _failed(self, _error: Exception) -> None:
        """What others send must not end the process."""
        traceback.print_exc()
        self.close()

    def _leave(self) -> None:
        self._waits.clear()
        self._participant.close()
        self._listener.left(self)

    def close(self) -> None:
        """Close the connection."""
        self._leave()
        self._connection.close()


def _has_data(sock: ssl.SSLSocket) -> bool:
    """Whether something has arrived, encrypted or not, that was not read."""
    try:
        return bool(socket.socket.recv(sock, 1, socket.MSG_PEEK))  # TLS cannot tell
    except OSError:
        return False
