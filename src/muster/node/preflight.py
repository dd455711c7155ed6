"""Checks a node, and its connections to other nodes: `python -m muster.node.preflight`.

Prints one line of JSON:

* `rank`, `address`: of this node.
* `found`: the checks, each {"what", "ok", "text"}, of ports with {"name", "port", "of", "address"}.
* `offset`: how far the clock of rank 0 is ahead of this node's, in seconds; null if unknown.

Every node listens on the ports that the framework would use and on one more. Each node connects to
the others' ports, answers meanwhile, and stays until all have tried its ports.
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

from muster.node.requirements import REQUIREMENTS, find_missing, is_importable

#: Holds the ports to try: name -> rank -> number, as JSON.
PORTS = "MUSTER_PREFLIGHT"
#: Holds the framework whose requirements are checked, if they are.
FRAMEWORK = "MUSTER_PREFLIGHT_FRAMEWORK"
#: Holds the packages that other frameworks need: name -> modules of which any will do, as JSON.
PACKAGES = "MUSTER_PREFLIGHT_PACKAGES"

_TIMEOUT = 20.0  # seconds for the other nodes to start
_CONNECT_TIMEOUT = 3.0  # seconds
_MAX_PEERS = 32  # nodes that one node tries
_MAX_CONNECTIONS = 64  # at once
_MIN_FREE = 1 << 30  # bytes
_CLOCK_SAMPLES = 5
_MAX_ROUND_TRIP = 0.2  # seconds; a slower answer tells nothing about a clock


class Preflight:
    """The checks of one node. members: entries of the cluster metadata file, by rank. ports: name
    -> rank -> number."""

    def __init__(self, rank: int, members: Mapping[int, Any], ports: Mapping[str, Any]) -> None:
        self._rank = rank
        self._members = members
        self._ports = ports
        self._found: List[Dict[str, Any]] = []
        self._offset: float | None = None
        self._servers = selectors.DefaultSelector()

    def run(self) -> Dict[str, Any]:
        """Do all checks; returns what to print. Answers other nodes from then on, until this
        process ends."""
        self._listen()
        # in a thread, since two nodes that wait for each other's answer would deadlock
        threading.Thread(target=self._answer, daemon=True).start()
        self._check_names()
        self._check_folders()
        self._check_ports()
        return {
            "rank": self._rank,
            "address": self._members[self._rank]["IpAddress"],
            "found": self._found,
            "offset": self._offset,
        }

    def add(self, what: str, ok: bool, text: str, **more: Any) -> None:
        """Add the result of a check."""
        self._found.append({"what": what, "ok": ok, "text": text, **more})

    # --- listening

    def _listen(self) -> None:
        address = self._members[self._rank]["IpAddress"]
        with socket.socket() as probe:
            try:
                probe.bind((address, 0))
                self.add("address", True, "%s is this node's own" % address)
            except OSError as error:
                text = "%s is not this node's own: %s" % (address, error.strerror)
                self.add("address", False, text)
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
            self.add("ports", False, text)
            return
        server.listen(128)
        server.setblocking(False)
        self._servers.register(server, selectors.EVENT_READ)

    def _answer(self) -> None:
        """Answer every connection with the time of this node."""
        while self._servers.get_map():
            for key, _ in self._servers.select():
                server: Any = key.fileobj
                with contextlib.suppress(OSError):
                    client, _ = server.accept()
                    with client:
                        client.sendall(b"%.6f\n" % time.time())

    # --- checking

    def _check_names(self) -> None:
        wrong = []
        for member in list(self._members.values())[:_MAX_PEERS]:
            try:
                found = socket.gethostbyname(member["FQDN"])
            except OSError:
                wrong.append("%s is not known" % member["FQDN"])
                continue
            if found != member["IpAddress"]:
                wrong.append("%s is %s, not %s" % (member["FQDN"], found, member["IpAddress"]))
        self.add("names", not wrong, "; ".join(wrong) or "every node is known by its name")

    def check_framework(self, framework: str) -> None:
        """Check that the requirements of a framework are installed for this Python."""
        missing = find_missing(framework)
        installed = "%s is installed" % REQUIREMENTS[framework].name
        self.add("framework", not missing, missing or installed)

    def check_packages(self, packages: Mapping[str, List[str]]) -> None:
        """Check that packages are installed for this Python. They need not be where a program may
        have another one: that is for the caller of `muster check` to say."""
        missing = [
            name for name, several in packages.items() if not any(map(is_importable, several))
        ]
        names, python = " and ".join(packages), sys.executable
        text = "no %s for %s: pip install %s" % (" and ".join(missing), python, " ".join(missing))
        found = "%s is installed for %s" % (names, python)
        self.add("packages", not missing, text if missing else found)

    def _check_folders(self) -> None:
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
                self.add("folders", False, "%s (%s) cannot be read: %s" % (name, path, error))
                continue
            how = "read and written" if _is_writable(path) else "read, not written"
            self.add("folders", True, "%s (%s) can be %s" % (name, path, how))
            free = shutil.disk_usage(path).free
            text = "%.1f GiB free for %s (%s)" % (free / (1 << 30), name, path)
            self.add("disk", free >= _MIN_FREE, text)

    def _check_ports(self) -> None:
        """Try all ports at once: where a firewall drops packets, each takes the whole timeout."""
        others = [rank for rank in self._members if rank != self._rank][:_MAX_PEERS]
        places = [
            (rank, self._members[rank]["IpAddress"], name, int(ranks[str(rank)]))
            for rank in others
            for name, ranks in self._ports.items()
            if str(rank) in ranks
        ]
        deadline = time.monotonic() + _TIMEOUT
        with ThreadPoolExecutor(_MAX_CONNECTIONS) as pool:
            results = pool.map(lambda place: (place, _reach(place[1], place[3], deadline)), places)
            for (rank, address, name, number), error in results:
                more = {"port": number, "name": name, "of": rank, "address": address}
                if error is None:
                    text = "port %d (%s) of node-%d is reachable" % (number, name, rank)
                    if rank == 0 and self._offset is None:
                        self._offset = clock_offset(_clock_samples(address, number))
                else:
                    text = "cannot reach port %d of node-%d (%s; %s): %s"
                    text %= (number, rank, address, name, error)
                self.add("ports", error is None, text, **more)


def _reach(address: str, port: int, deadline: float) -> str | None:
    """Try until a node answers. Returns None, or the last error when the time is over."""
    while True:
        try:
            _remote_time(address, port)
        except OSError as error:
            text = error.strerror or str(error)
        else:
            return None
        if time.monotonic() >= deadline:
            return text
        time.sleep(0.1)


def _remote_time(address: str, port: int) -> float:
    """The time of the node that listens there. Raises OSError."""
    with socket.create_connection((address, port), _CONNECT_TIMEOUT) as connection:
        connection.settimeout(_CONNECT_TIMEOUT)
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


def _clock_samples(address: str, port: int) -> Iterator[Tuple[float, float, float]]:
    """Some samples of (time here, time there, time here)."""
    for _ in range(_CLOCK_SAMPLES):
        before = time.time()
        try:
            there = _remote_time(address, port)
        except OSError:
            return
        yield before, there, time.time()


def clock_offset(samples: Iterable[Tuple[float, float, float]]) -> float | None:
    """How far the other clock is ahead, by the sample with the shortest round trip, whose remote
    time lies about in the middle. None if even that one took too long."""
    best = min(samples, key=lambda sample: sample[2] - sample[0], default=None)
    if best is None or best[2] - best[0] > _MAX_ROUND_TRIP:
        return None
    before, there, after = best
    return there - (before + after) / 2


def _is_writable(path: str) -> bool:
    try:
        with tempfile.NamedTemporaryFile(dir=path, prefix=".muster-check-"):
            return True
    except OSError:
        return False


def _read_members(path: str, count: int) -> Dict[int, Any]:
    """The entries of the cluster metadata file by rank, once `count` nodes have joined or the
    timeout is over."""
    deadline = time.monotonic() + _TIMEOUT
    while True:
        with open(path) as file:
            found = {int(member["Rank"]): member for member in json.load(file)}
        if len(found) >= count or time.monotonic() >= deadline:
            return found
        time.sleep(0.05)


def main() -> int:
    """Check, print, and stay until a signal ends this process: other nodes may still need its
    answers."""
    environ = os.environ
    size = int(environ["INITIAL_CLUSTER_SIZE"])
    members = _read_members(environ["CLUSTER_NODES_METADATA_FILE"], size)
    preflight = Preflight(int(environ["NODE_RANK"]), members, json.loads(environ[PORTS]))
    if len(members) < size:
        preflight.add("address", False, "%d nodes have not joined" % (size - len(members)))
    if environ.get(FRAMEWORK):
        preflight.check_framework(environ[FRAMEWORK])
    if environ.get(PACKAGES):
        preflight.check_packages(json.loads(environ[PACKAGES]))
    print(json.dumps(preflight.run()), flush=True)  # noqa: T201
    while True:  # the run is canceled once all nodes have reported
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
