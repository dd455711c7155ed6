"""Looks at a node, and from it at the others: `python -m muster.node.survey`. Prints one line of
JSON: `rank`, `address`, `found` (what it tried), each {"what", "ok", "text"}, of a port
{"name", "port", "of", "address"} besides, and `offset`: how far the clock of rank 0 is from ours,
in seconds, or null if that is not known.

Every node listens where the framework would, and on a port by which they greet each other; each
tries the others', answers meanwhile, and stays until all have tried its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Tuple

from muster.node.needs import NEEDS, missing

_PATIENCE = 20.0  # seconds for the others to come up
_TRY = 3.0  # seconds for one connection
_MOST = 32  # of the others that one node tries
_AT_ONCE = 64  # connections
_LEAST_FREE = 1 << 30  # bytes
_TIMES = 5  # that the time is asked for
_QUICK = 0.2  # seconds there and back: what takes longer says nothing of a clock


class Survey:
    """members: the cluster file's, by rank. ports: name -> rank -> number."""

    def __init__(self, rank: int, members: Mapping[int, Any], ports: Mapping[str, Any]) -> None:
        self._rank = rank
        self._members = members
        self._ports = ports
        self._found: List[Dict[str, Any]] = []
        self._offset: float | None = None
        self._servers = selectors.DefaultSelector()
        self._greeted: set[int] = set()

    def run(self) -> Dict[str, Any]:
        """Look at everything; from then on answer, for as long as this process lives."""
        self._listen()
        # whoever waits for our answer cannot give one: two that ask each other would wait
        threading.Thread(target=self._answer, daemon=True).start()
        self._look_at_names()
        self._look_at_folders()
        self._try_ports()
        return {
            "rank": self._rank,
            "address": self._members[self._rank]["IpAddress"],
            "found": self._found,
            "offset": self._offset,
        }

    # --- listening

    def _listen(self) -> None:
        address = self._members[self._rank]["IpAddress"]
        with socket.socket() as probe:
            try:
                probe.bind((address, 0))
                self._note("address", True, "%s is this node's own" % address)
            except OSError as error:
                text = "%s is not this node's own: %s" % (address, error.strerror)
                self._note("address", False, text)
        for name, ranks in self._ports.items():
            if str(self._rank) in ranks:
                self._serve(name, int(ranks[str(self._rank)]))

    def _serve(self, name: str, number: int) -> None:
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((self._members[self._rank]["IpAddress"], number))
        except OSError as error:
            text = "port %d (%s) cannot be listened on: %s" % (number, name, error.strerror)
            self._note("ports", False, text)
            return
        server.listen(128)
        server.setblocking(False)
        self._servers.register(server, selectors.EVENT_READ)

    def _answer(self) -> None:
        """Tell whoever tries our ports what time it is here."""
        while self._servers.get_map():
            for key, _ in self._servers.select():
                server: Any = key.fileobj
                with contextlib.suppress(OSError):
                    asker, _ = server.accept()
                    with asker:
                        asker.sendall(b"%.6f\n" % time.time())

    # --- looking

    def _look_at_names(self) -> None:
        wrong = []
        for member in list(self._members.values())[:_MOST]:
            try:
                found = socket.gethostbyname(member["FQDN"])
            except OSError:
                wrong.append("%s is not known" % member["FQDN"])
                continue
            if found != member["IpAddress"]:
                wrong.append("%s is %s, not %s" % (member["FQDN"], found, member["IpAddress"]))
        self._note("names", not wrong, "; ".join(wrong) or "every node is known by its name")

    def look_for(self, framework: str) -> None:
        """Whether what a framework's nodes need is installed for this Python."""
        why = missing(framework)
        self._note("framework", not why, why or "%s is installed" % NEEDS[framework].name)

    def _look_at_folders(self) -> None:
        places = {"working directory": os.getcwd(), "TMPDIR": tempfile.gettempdir()}
        places.update(
            (name[len("MUSTER_MOUNT_") :].lower(), path)
            for name, path in os.environ.items()
            if name.startswith("MUSTER_MOUNT_")
        )
        for name, path in places.items():
            try:
                os.listdir(path)
            except OSError as error:
                self._note("folders", False, "%s (%s) cannot be read: %s" % (name, path, error))
                continue
            how = "read and written" if _writable(path) else "read, not written"
            self._note("folders", True, "%s (%s) can be %s" % (name, path, how))
            free = shutil.disk_usage(path).free
            text = "%.1f GiB free for %s (%s)" % (free / (1 << 30), name, path)
            self._note("disk", free >= _LEAST_FREE, text)

    def _try_ports(self) -> None:
        """All at once: where a firewall drops what is sent, each takes as long as we wait."""
        others = [rank for rank in self._members if rank != self._rank][:_MOST]
        places = [
            (rank, self._members[rank]["IpAddress"], name, int(ranks[str(rank)]))
            for rank in others
            for name, ranks in self._ports.items()
            if str(rank) in ranks
        ]
        deadline = time.monotonic() + _PATIENCE
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            tries = pool.map(lambda at: (at, _reach(at[1], at[3], deadline)), places)
            for (rank, address, name, number), why in tries:
                more = {"port": number, "name": name, "of": rank, "address": address}
                if why is None:
                    text = "port %d (%s) of node-%d is reached" % (number, name, rank)
                    if rank == 0 and self._offset is None:
                        self._offset = offset(_times(address, number))
                else:
                    text = "cannot reach port %d of node-%d (%s; %s): %s"
                    text %= (number, rank, address, name, why)
                self._note("ports", why is None, text, **more)

    def _note(self, what: str, ok: bool, text: str, **more: Any) -> None:
        self._found.append({"what": what, "ok": ok, "text": text, **more})


def _reach(address: str, port: int, deadline: float) -> str | None:
    """Try until somebody answers. Why nobody has when the time is over; None if one has."""
    while True:
        try:
            _ask(address, port)
        except OSError as error:
            why = error.strerror or str(error)
        else:
            return None
        if time.monotonic() >= deadline:
            return why
        time.sleep(0.1)


def _ask(address: str, port: int) -> float:
    """The time there. Raises OSError."""
    with socket.create_connection((address, port), _TRY) as connection:
        connection.settimeout(_TRY)
        data = b""
        while not data.endswith(b"\n"):
            more = connection.recv(64)
            if not more:
                raise OSError("it hung up")
            data += more
    try:
        return float(data)
    except ValueError:
        raise OSError("something else answers there") from None


def _times(address: str, port: int) -> Iterator[Tuple[float, float, float]]:
    """The time here, then there, then here again, some times."""
    for _ in range(_TIMES):
        before = time.time()
        try:
            there = _ask(address, port)
        except OSError:
            return
        yield before, there, time.time()


def offset(times: Iterable[Tuple[float, float, float]]) -> float | None:
    """How far the other clock is from ours, by the answer that came quickest: it was given between
    asking and hearing it, halfway at best. None if even that took long."""
    quickest = min(times, key=lambda one: one[2] - one[0], default=None)
    if quickest is None or quickest[2] - quickest[0] > _QUICK:
        return None
    before, there, after = quickest
    return there - (before + after) / 2


def _writable(path: str) -> bool:
    try:
        with tempfile.NamedTemporaryFile(dir=path, prefix=".muster-check-"):
            return True
    except OSError:
        return False


def _members(path: str, count: int) -> Dict[int, Any]:
    """The cluster file, once all are in it, or what is there when the patience is over."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        with open(path) as file:
            found = {int(member["Rank"]): member for member in json.load(file)}
        if len(found) >= count or time.monotonic() >= deadline:
            return found
        time.sleep(0.05)


def main() -> int:
    """Look, tell, and stay until the others are through: told by the end of our input, or by a
    signal."""
    environ = os.environ
    members = _members(environ["CLUSTER_NODES_METADATA_FILE"], int(environ["INITIAL_CLUSTER_SIZE"]))
    survey = Survey(int(environ["NODE_RANK"]), members, json.loads(environ["MUSTER_SURVEY"]))
    absent = int(environ["INITIAL_CLUSTER_SIZE"]) - len(members)
    if absent > 0:
        survey._note("address", False, "%d nodes have not joined" % absent)
    if environ.get("MUSTER_SURVEY_NEEDS"):
        survey.look_for(environ["MUSTER_SURVEY_NEEDS"])
    print(json.dumps(survey.run()), flush=True)  # noqa: T201
    while True:  # until whoever asked has heard from all and ends the run
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
