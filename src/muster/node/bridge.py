"""The command `open` of the node program: connects standard input and output with a node server.

The first line of its input has the settings of the server (`node.serve.Settings`), which is started
unless it runs. If it is started, and needs something of the machine (`Settings.reserve`), the
command first says what there is, and its caller decides whether to wait for it. The command writes
lines of JSON, its caller plain words. Once the server runs, the bytes of the connection follow:

    {"offer": ...}    what the caller would find in the queue (`Offer`)
    enter SHARE       the caller enters the queue. SHARE: how many units all nodes of its gang need
                      here
    {"waits": ...}    what it waits for (`node.reservation.Situation`); again whenever that changes
    {"has": [...]}    the units that it has got, while the connection lasts; none if the server runs
                      already, which talks then
    start             the server starts, and has them from now on
    {"lacks": ...}    why the machine cannot be used for the node: text, the last that it says

Until the server starts, it gives up what it has if somebody returns to the machine
(`Demand.returns`), who may hold what the rest of the caller's gang waits for.
"""

from __future__ import annotations

import json
import os
import select
import socket
from typing import Any, Dict, Mapping, Sequence

from muster.node.control_groups import CannotLimit, check
from muster.node.files import write_all
from muster.node.reservation import (
    CannotReserve,
    Demand,
    Offer,
    Place,
    Queue,
    set_visible,
    units_of,
)
from muster.node.serve import (
    CannotServe,
    Settings,
    connect,
    connect_if_running,
    connect_when_running,
    run_command,
    run_in_folder,
)

#: Bytes of a read; of a line of the caller.
_CHUNK, _MAX_LINE = 1 << 18, 64
#: Seconds between two looks at who has entered the queue.
_LOOK_PAUSE = 1.0


def open_command(words: Sequence[str], version: str) -> int:
    """`open FOLDER`. version: Muster's. Returns the exit code."""
    return run_command(words, version, _open)


def connect_command(words: Sequence[str]) -> int:
    """`connect FOLDER`: connects standard input and output with the server of a folder, which
    somebody else starts: it is waited for. Returns the exit code."""
    return run_in_folder(words, _connect)


def _connect(folder: str) -> int:
    """Returns the exit code. Raises CannotServe, OSError."""
    return _bridge_to(connect_when_running(folder))


def _open(folder: str, settings: Settings) -> int:
    """Returns the exit code. Raises CannotServe, OSError."""
    if settings.reserve is None:
        return _bridge_to(connect(folder, settings))
    running = connect_if_running(folder)
    if running is not None:
        _say("has", [])
        return _bridge_to(running)
    try:
        check(settings.amounts)
        place = _reserve(folder, settings.reserve)
        if place is None or not _starts(place):
            return 0  # what it has is free again
    except (CannotLimit, CannotReserve) as error:
        _say("lacks", str(error))
        return 1
    set_visible(place.ticket.units, settings.reserve)
    sock = connect(folder, settings, (place.descriptor,))
    os.close(place.descriptor)  # the server's is open
    return _bridge_to(sock)


def _reserve(folder: str, demand: Demand) -> Place | None:
    """A place whose turn it is; None if the caller has gone. folder: that of the server. Raises
    CannotReserve, OSError."""
    units = units_of(demand)
    queue, wanted = Queue(units, demand.queue), demand.wanted(units)
    _say("offer", _plain(Offer(queue.id, wanted, queue.look())))
    words = _read_line().split()
    if not words:
        return None
    if len(words) != 2 or words[0] != b"enter" or not words[1].isdigit():
        raise CannotReserve("unknown request %r" % b" ".join(words))
    check_folder(os.path.dirname(folder))
    place = queue.draw(demand.owner, wanted, int(words[1]), returns=demand.returns)
    return place if place.wait(lambda found: _say("waits", _plain(found)), 0) else None


def check_folder(folder: str) -> None:
    """Create the folder of the servers' folders unless it exists. Raises CannotReserve if no server
    could have one there."""
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        tried = os.path.join(folder, ".muster-" + os.urandom(8).hex())
        os.mkdir(tried, 0o700)
        os.rmdir(tried)
    except OSError as error:
        text = "no folder can be made in %s: %s" % (folder, error.strerror)
        raise CannotReserve("%s (`folder` of the profile names another one)" % text) from None


def _starts(place: Place) -> bool:
    """Tell the caller what it has. Returns whether the server is to start; False if the caller has
    gone. Raises CannotReserve, OSError, and CannotServe if another run gets it first."""
    _say("has", list(place.ticket.units))
    while not select.select([0], [], [], _LOOK_PAUSE)[0]:
        owner = place.returning()
        if owner is not None:
            place.leave()
            names = (owner.user, owner.run)
            raise CannotServe("%s's run %s, which has lost a node there, gets it first" % names)
    line = _read_line()
    if line and line != b"start\n":
        raise CannotReserve("unknown request %r" % line)
    if line:
        place.settle()
    return bool(line)


def _read_line() -> bytes:
    """A line of the caller, and nothing after it; empty if the caller has gone. Raises
    CannotReserve, OSError."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 1)
        if not part:
            return b""
        line += part
        if len(line) > _MAX_LINE:
            raise CannotReserve("unknown request %r" % line)
    return line


def _plain(value: Any) -> Any:
    """A record as JSON-ready data."""
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def _say(kind: str, value: Any) -> None:
    data: Mapping[str, Any] = {kind: value}
    write_all(1, json.dumps(data).encode() + b"\n")


def _bridge_to(sock: socket.socket) -> int:
    with sock:
        bridge(sock, 0, 1)
    return 0


def bridge(sock: socket.socket, reading: int, writing: int) -> None:
    """Carry bytes both ways between a socket and two descriptors, until one of them is closed."""
    sock.setblocking(False)
    for descriptor in (reading, writing):
        os.set_blocking(descriptor, False)
    number = sock.fileno()
    ways = (_Way(reading, number), _Way(number, writing))
    while not any(way.done for way in ways):
        waits: Dict[int, int] = {}
        for way in ways:
            descriptor, events = way.interest()
            waits[descriptor] = waits.get(descriptor, 0) | events
        poll = select.poll()
        for descriptor, events in waits.items():
            poll.register(descriptor, events)
        poll.poll()
        for way in ways:
            way.step()


class _Way:
    """One direction of a bridge."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._data = b""
        #: Whether the source has ended and everything is written, or the target is closed.
        self.done = False

    def interest(self) -> "tuple[int, int]":
        """The descriptor to poll, and the events."""
        if self._data:
            return self._target, select.POLLOUT
        return self._source, select.POLLIN

    def step(self) -> None:
        """Read and write what is possible now."""
        try:
            if not self._data:
                self._data = os.read(self._source, _CHUNK)
                self.done = not self._data
            while self._data:
                self._data = self._data[os.write(self._target, self._data) :]
        except BlockingIOError:
            return
        except OSError:  # the other end has closed it
            self.done = True
