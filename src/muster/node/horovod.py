"""What Horovod needs beside its ranks, on the main node, without horovodrun and ssh.

    python -m muster.node.horovod rendezvous --address A --port P --hosts node-0:2,node-1:2
    python -m muster.node.horovod elastic --address A --port P --slots 1 --min 1 --max 4 -- words

`rendezvous` is the HTTP store at which ranks meet that know who they are. `elastic` is Horovod's
driver: it starts ranks on the nodes that are there, and goes on with those that live. Other than
horovodrun, it has each rank started by its node's relay, so no environment is on a command line;
and its store listens on the node's own address only, as an elastic one unpickles what it is sent.

It runs where Horovod is installed, and is not imported elsewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from typing import Any, Dict, List, Tuple

from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.elastic.discovery import HostDiscovery
from horovod.runner.elastic.driver import ElasticDriver
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.http.http_server import (
    RendezvousHandler,
    RendezvousHTTPServer,
    RendezvousServer,
)

from muster.node import errands, trust

#: What a rank ends with that Horovod has removed from the job: SIGABRT, of an uncaught exception.
REMOVED = 134


class Store(RendezvousServer):  # type: ignore[misc]
    """Horovod's own, on one address and a port that is known before."""

    def __init__(self, address: str, port: int) -> None:
        super().__init__()
        self._where = (address, port)

    def start(self, handler_cls: Any = RendezvousHandler) -> int:
        """Listen. Raises OSError if it cannot."""
        self._httpd = RendezvousHTTPServer(self._where, handler_cls, 0)
        self._listen_thread = threading.Thread(target=self._httpd.serve_forever, daemon=True)
        self._listen_thread.start()
        return self._where[1]


class Roster(HostDiscovery):  # type: ignore[misc]
    """The nodes whose relays answer, with their slots."""

    def __init__(self, slots: int, token: str) -> None:
        self._slots = slots
        self._token = token

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        found = {}
        for rank, where in enumerate(errands.relays()):
            if errands.answers(where, self._token):
                found["node-%d" % rank] = self._slots
        return found


class Elastic:
    """One elastic job. words: the program's. env: what every rank needs of Horovod's variables."""

    def __init__(self, words: List[str], env: Dict[str, str], token: str) -> None:
        self._words = words
        self._env = env
        self._token = token
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._running: Dict[str, errands.Errand] = {}

    def start_rank(self, slot: Any, events: List[threading.Event]) -> Tuple[int, float]:
        """Run one rank to its end, which Horovod's driver asks for in a thread of its own.

        Returns (exit code, time of the end).
        """
        name = "%s[%d]" % (slot.hostname, slot.local_rank)
        env = {
            **self._env,
            "HOROVOD_HOSTNAME": slot.hostname,
            "HOROVOD_RANK": slot.rank,
            "HOROVOD_SIZE": slot.size,
            "HOROVOD_LOCAL_RANK": slot.local_rank,
            "HOROVOD_LOCAL_SIZE": slot.local_size,
            "HOROVOD_CROSS_RANK": slot.cross_rank,
            "HOROVOD_CROSS_SIZE": slot.cross_size,
        }
        try:
            where = errands.relay_of(slot.hostname)
            strings = {key: str(value) for key, value in env.items()}
            errand = errands.Errand(where, self._token, argv=self._words, env=strings)
        except errands.CannotAsk as error:
            say("%s: %s" % (name, error))
            return 1, time.time()
        with self._lock:
            self._running[name] = errand
        for event in events:
            threading.Thread(target=_cancel_when, args=(event, errand), daemon=True).start()
        try:
            code = errand.wait()
        except errands.CannotAsk as error:
            say("%s: %s" % (name, error))
            code = 1
        if code == REMOVED:
            say("%s was removed" % name)
        elif code:
            say("%s ended with %d" % (name, code))
        return code, time.time()

    def end(self) -> None:
        """Have every rank end."""
        with self._lock:
            for errand in self._running.values():
                with contextlib.suppress(OSError):
                    errand.cancel()

    def signal(self, number: int) -> None:
        """Send every rank a signal."""
        with self._lock:
            for errand in self._running.values():
                with contextlib.suppress(OSError):
                    errand.signal(number)


def _cancel_when(event: threading.Event, errand: errands.Errand) -> None:
    event.wait()
    with contextlib.suppress(OSError):
        errand.cancel()


def say(text: str) -> None:
    sys.stderr.write("muster horovod: %s\n" % text)
    sys.stderr.flush()


def rendezvous(asked: argparse.Namespace) -> int:
    """Serve until SIGTERM."""
    hosts = parse_hosts(asked.hosts)
    slots = get_host_assignments(hosts, sum(host.slots for host in hosts))
    store = Store(asked.address, asked.port)
    store.start()
    store.init(slots)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    return 0


def elastic(asked: argparse.Namespace) -> int:
    """Run the job to its end; returns the exit code."""
    token = trust.token_from_environment()
    store = Store(asked.address, asked.port)
    env = {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": asked.address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(asked.port),
        "HOROVOD_GLOO_IFACE": os.environ["HOROVOD_GLOO_IFACE"],
        "HOROVOD_ELASTIC": "1",
    }
    job = Elastic(asked.program[asked.program[:1] == ["--"] :], env, token)
    driver = ElasticDriver(
        store,
        Roster(asked.slots, token),
        asked.min,
        asked.max,
        timeout=asked.timeout,
        reset_limit=asked.resets,
        cooldown_range=(asked.cooldown, max(asked.cooldown * 12, 60)),
    )
    told: List[int] = []

    def end(number: int, _: object) -> None:
        told.append(number)
        threading.Thread(target=job.end, daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda n, _: threading.Thread(target=job.signal, args=(n,)).start())
    store.start(create_rendezvous_handler(driver))
    driver.wait_for_available_slots(asked.start)
    driver.start(asked.start, job.start_rank)
    results = driver.get_results()
    if told:
        return 128 + told[0]
    if results.error_message is not None:
        say(results.error_message)
        return 1
    ends = sorted(results.worker_results.items(), key=lambda item: item[1][1])
    failed = [(name, code) for name, (code, _) in ends if code]
    if failed:
        say("%s was the first to fail for good, with exit code %d" % failed[0])
        return int(failed[0][1])
    return 0


def main(words: List[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m muster.node.horovod")
    commands = parser.add_subparsers(required=True)
    for name, run in (("rendezvous", rendezvous), ("elastic", elastic)):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("--address", required=True)
        command.add_argument("--port", type=int, required=True)
        if name == "rendezvous":
            command.add_argument("--hosts", required=True)
            continue
        command.add_argument("--slots", type=int, required=True, help="ranks a node")
        command.add_argument("--min", type=int, required=True, help="ranks")
        command.add_argument("--max", type=int, required=True, help="ranks")
        command.add_argument("--start", type=int, required=True, help="ranks at first")
        command.add_argument("--timeout", type=int, required=True, help="seconds for --min ranks")
        command.add_argument("--cooldown", type=int, required=True, help="seconds without a node")
        command.add_argument("--resets", type=int, default=None)
        command.add_argument("program", nargs=argparse.REMAINDER)
    asked = parser.parse_args(words)
    try:
        code: int = asked.run(asked)
    except (OSError, trust.Untrusted) as error:
        say("%s:%d: %s" % (asked.address, asked.port, error))
        return 1
    return code


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Horovod leaves threads that wait for nobody
