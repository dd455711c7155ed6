"""Horovod's rendezvous store and elastic driver on the main node, without horovodrun and ssh.

    python -m muster.node.horovod rendezvous --address A --port P --hosts node-0:2,node-1:2
    python -m muster.node.horovod elastic --address A --port P --slots 1 --min 1 --max 4 -- program

`rendezvous` is the HTTP store through which ranks that know their number find each other. `elastic`
is Horovod's driver: it starts ranks on the available nodes and continues with those that are left.
Unlike horovodrun, it starts each rank through its node's relay, so that no environment is visible
on a command line; and its store listens on the node's own address only, as an elastic store
unpickles what it receives.

Imported only where Horovod is installed.
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

from muster.node import handshake, remote_command

#: The exit code of a rank that Horovod has removed from the job: SIGABRT, by an uncaught exception.
REMOVED = 134


class Store(RendezvousServer):  # type: ignore[misc]
    """Horovod's store, on one address and a given port."""

    def __init__(self, address: str, port: int) -> None:
        super().__init__()
        self._where = (address, port)

    def start(self, handler_cls: Any = RendezvousHandler) -> int:
        """Start to listen; returns the port. Raises OSError."""
        self._httpd = RendezvousHTTPServer(self._where, handler_cls, 0)
        self._listen_thread = threading.Thread(target=self._httpd.serve_forever, daemon=True)
        self._listen_thread.start()
        return self._where[1]


class RelayDiscovery(HostDiscovery):  # type: ignore[misc]
    """The nodes whose relays answer, with their slots."""

    def __init__(self, slots: int, token: str) -> None:
        self._slots = slots
        self._token = token

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        found = {}
        for rank, relay in enumerate(remote_command.relay_addresses()):
            if remote_command.is_answering(relay, self._token):
                found["node-%d" % rank] = self._slots
        return found


class Elastic:
    """One elastic job. program: its command line. env: Horovod's variables for every rank."""

    def __init__(self, program: List[str], env: Dict[str, str], token: str) -> None:
        self._program = program
        self._env = env
        self._token = token
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._running: Dict[str, remote_command.RemoteCommand] = {}

    def start_rank(self, slot: Any, events: List[threading.Event]) -> Tuple[int, float]:
        """Run one rank to its end; Horovod's driver calls this in a separate thread.

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
            relay = remote_command.find_relay(slot.hostname)
            strings = {key: str(value) for key, value in env.items()}
            command = remote_command.RemoteCommand(
                relay, self._token, argv=self._program, env=strings
            )
        except remote_command.NodeUnreachable as error:
            say("%s: %s" % (name, error))
            return 1, time.time()
        with self._lock:
            self._running[name] = command
        for event in events:
            threading.Thread(target=_cancel_when, args=(event, command), daemon=True).start()
        try:
            code = command.wait()
        except remote_command.NodeUnreachable as error:
            say("%s: %s" % (name, error))
            code = 1
        if code == REMOVED:
            say("%s was removed" % name)
        elif code:
            say("%s ended with %d" % (name, code))
        return code, time.time()

    def end(self) -> None:
        """End every rank."""
        with self._lock:
            for command in self._running.values():
                with contextlib.suppress(OSError):
                    command.cancel()

    def signal(self, number: int) -> None:
        """Send every rank a signal."""
        with self._lock:
            for command in self._running.values():
                with contextlib.suppress(OSError):
                    command.signal(number)


def _cancel_when(event: threading.Event, command: remote_command.RemoteCommand) -> None:
    event.wait()
    with contextlib.suppress(OSError):
        command.cancel()


def say(text: str) -> None:
    sys.stderr.write("muster horovod: %s\n" % text)
    sys.stderr.flush()


def rendezvous(options: argparse.Namespace) -> int:
    """Serve until SIGTERM."""
    hosts = parse_hosts(options.hosts)
    slots = get_host_assignments(hosts, sum(host.slots for host in hosts))
    store = Store(options.address, options.port)
    store.start()
    store.init(slots)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    return 0


def elastic(options: argparse.Namespace) -> int:
    """Run the job to its end; returns the exit code."""
    token = handshake.token_from_environment()
    store = Store(options.address, options.port)
    program = options.program[options.program[:1] == ["--"] :]
    job = Elastic(program, _rank_environment(options), token)
    driver = ElasticDriver(
        store,
        RelayDiscovery(options.slots, token),
        options.min,
        options.max,
        timeout=options.timeout,
        reset_limit=options.resets,
        cooldown_range=(options.cooldown, max(options.cooldown * 12, 60)),
    )
    received = _handle_signals(job)
    store.start(create_rendezvous_handler(driver))
    driver.wait_for_available_slots(options.start)
    driver.start(options.start, job.start_rank)
    results = driver.get_results()
    return 128 + received[0] if received else _exit_code(results)


def _rank_environment(options: argparse.Namespace) -> Dict[str, str]:
    """The variables that Horovod reads in every rank."""
    return {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": options.address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(options.port),
        "HOROVOD_GLOO_IFACE": os.environ["HOROVOD_GLOO_IFACE"],
        "HOROVOD_ELASTIC": "1",
    }


def _handle_signals(job: Elastic) -> List[int]:
    """End the job on SIGTERM and SIGINT, and forward SIGUSR1 and SIGUSR2 to its ranks.

    Returns a list to which the numbers of signals that end the job are appended.
    """
    received: List[int] = []

    def end(number: int, _: object) -> None:
        received.append(number)
        threading.Thread(target=job.end, daemon=True).start()

    def forward(number: int, _: object) -> None:
        threading.Thread(target=job.signal, args=(number,)).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, forward)
    return received


def _exit_code(results: Any) -> int:
    """The exit code of the job from Horovod's results: that of the first rank that failed for good.
    Reports the failure on stderr."""
    if results.error_message is not None:
        say(results.error_message)
        return 1
    ends = sorted(results.worker_results.items(), key=lambda item: item[1][1])
    failed = [(name, code) for name, (code, _) in ends if code]
    if failed:
        say("%s was the first to fail for good, with exit code %d" % failed[0])
        return int(failed[0][1])
    return 0


def main(argv: List[str]) -> int:
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
        command.add_argument("--start", type=int, required=True, help="ranks at the start")
        command.add_argument("--timeout", type=int, required=True, help="seconds for --min ranks")
        command.add_argument("--cooldown", type=int, required=True, help="seconds without a node")
        command.add_argument("--resets", type=int, default=None)
        command.add_argument("program", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    try:
        code: int = options.run(options)
    except (OSError, handshake.Untrusted) as error:
        say("%s:%d: %s" % (options.address, options.port, error))
        return 1
    return code


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Horovod leaves threads that never end
