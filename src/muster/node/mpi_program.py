"""One execution of an MPI program on the run's nodes, driven from the main node.

Starts mpiexec here, and what mpiexec has to start on each node through that node's relay. Makes up
for gaps of the launchers: mpiexec waits for ever for a proxy that does not start, and meanwhile
ignores SIGTERM; Open MPI's mpirun may exit with 0 when a node is lost, and hang when a rank died.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from typing import Callable, Dict, List, Mapping, Sequence, Set, Tuple

from muster.node import processes, remote_command
from muster.node.files import write_all
from muster.node.mpi_launchers import (
    Launcher,
    distinct_host_names,
    find_failed_rank,
    hydra_command,
    hydra_environment,
    open_mpi_command,
    write_ssh_program,
)
from muster.node.mpi_ranks import LOST, RankExits, rank_command, rank_environment, signal_ranks
from muster.node.mpich_proxies import ProxyRequests, find_abort
from muster.node.remote_command import NodeUnreachable, RelayAddress, RemoteCommand

#: Seconds for other processes to end, or to report why, once something has failed.
SETTLE = 2.0
#: Seconds for ranks to end after a signal to end.
GRACE = 10.0
#: Bytes of the launcher's output that are kept.
_MAX_OUTPUT = 1 << 14
#: Exit code of ranks that the launcher has ended after another rank has failed.
_TERMINATED = 128 + signal.SIGTERM
#: MPI_ERR_OTHER of MPICH: a rank aborts with it when another one that it sends to has gone.
_PEER_GONE = 15
#: How likely a rank has failed first: others ended it, its shell was killed, the launcher blames
#: it, it ended by itself.
_CONSEQUENCE, _SHELL_LOST, _BLAMED, _OWN = range(4)


class Program:
    """One execution of the program.

    relays: their addresses, by rank of the node. per_node: ranks on each node. slots: ranks that
    Open MPI may have on a node at once, spawned ones included. timeout: seconds until all relays
    must answer.
    """

    def __init__(
        self,
        launcher: Launcher,
        program: Sequence[str],
        *,
        per_node: int,
        slots: int,
        timeout: float,
        relays: Sequence[RelayAddress],
        token: str,
    ) -> None:
        self._launcher = launcher
        self._rank_command = rank_command(program)
        self._per_node, self._slots = per_node, slots
        self._relays = list(relays)
        self._token = token
        self._timeout = timeout
        self._poll = select.poll()
        self._callbacks: Dict[int, Callable[[], object]] = {}  # by descriptor
        self._hosts: List[str] = []  # what the launcher calls the nodes, by rank
        self._output = b""  # the end of the launcher's
        self._open_outputs: Set[int] = set()  # descriptors of the launcher's output
        self._proxy_requests: ProxyRequests | None = None
        self._proxies: Dict[int, Tuple[int, RemoteCommand]] = {}  # MPICH's: (node, command)
        self._exit_codes: Dict[int, int] = {}  # of ranks that have ended
        self._first_failed: Tuple[int, int] | None = None  # (rank, exit code)
        self._error = ""  # the first failure that is not a rank's
        self._node_lost = False  # whether `_error` is the loss of a node
        self._signal: int | None = None  # the signal to end that was received
        self._kill_at: float | None = None

    def run(self) -> int:
        """Run it to its end; returns the exit code. Raises NodeUnreachable, NoMpi."""
        wake = processes.wake_on_signals()
        processes.become_subreaper()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle_stop)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self._forward_signal)
        timeout, is_stopping = self._timeout, lambda: self._signal is not None
        if not remote_command.await_relays(self._relays, self._token, timeout, is_stopping):
            return self._exit_code(None)
        with tempfile.TemporaryDirectory(prefix="mpi-") as folder:
            self._watch(wake, lambda: os.read(wake, 4096))
            exits = RankExits(folder)
            self._watch(exits.fileno(), lambda: self._record_exits(exits.read()))
            self._mpiexec = self._start(folder, rank_environment(exits.path))
            self._run_until(lambda: self._mpiexec.poll() is not None)
            code = self._mpiexec.poll()
            if code is None:
                processes.signal_group(self._mpiexec.pid, signal.SIGKILL)
            elif self._signal is None:
                # what it has started elsewhere is about to end, and may still report something
                self._kill_at = time.monotonic() + SETTLE
                failed = bool(code) and self._launcher.flavour == "mpich"
                self._run_until(lambda: self._all_closed and (failed or self._is_complete))
            for descriptor in list(self._proxies):
                self._close_proxy(descriptor)
            processes.kill_everything(False, [])
        return self._exit_code(code)

    @property
    def _on_loopback(self) -> bool:
        """Whether the nodes share a machine and its network."""
        return self._relays[0][0].startswith("127.")

    @property
    def _all_closed(self) -> bool:
        """Whether launcher and proxies can report nothing more."""
        return not self._open_outputs and not self._proxies

    @property
    def _is_complete(self) -> bool:
        """Whether ranks can report nothing more."""
        expected = self._per_node * len(self._relays)
        return self._first_failed is not None or len(self._exit_codes) == expected

    # --- starting

    def _start(self, folder: str, rank_env: Dict[str, str]) -> subprocess.Popen[bytes]:
        if self._launcher.flavour == "mpich":
            self._hosts = [address for address, _ in self._relays]
            requests = ProxyRequests(folder)
            self._proxy_requests = requests
            self._watch(requests.fileno(), lambda: self._start_proxies(requests.read()))
            words = hydra_command(
                self._launcher,
                self._hosts,
                self._per_node,
                rsh=requests.rsh,
                rank=self._rank_command,
            )
            return self._start_mpiexec(words, hydra_environment(os.environ), cwd=None)
        self._hosts = distinct_host_names(len(self._relays))
        words = open_mpi_command(
            self._launcher,
            self._hosts,
            self._per_node,
            slots=self._slots,
            ssh=write_ssh_program(folder),
            interface="lo" if self._on_loopback else None,
            rank=self._rank_command,
        )
        env = {**self._launcher.defaults, **os.environ, **rank_env, "OMPI_ALLOW_RUN_AS_ROOT": "1"}
        env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
        if self._on_loopback:  # an option would not reach ranks that the program spawns
            env.setdefault("OMPI_MCA_btl_tcp_if_include", "lo")
        # ranks start in the working directory of mpirun, which must exist on every node
        return self._start_mpiexec(words, env, cwd="/")

    def _start_mpiexec(
        self, words: Sequence[str], env: Mapping[str, str], *, cwd: str | None
    ) -> subprocess.Popen[bytes]:
        mpiexec = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        assert mpiexec.stdout is not None
        assert mpiexec.stderr is not None
        for stream, number in ((mpiexec.stdout, 1), (mpiexec.stderr, 2)):
            self._open_outputs.add(stream.fileno())
            self._watch(stream.fileno(), partial(self._copy_output, stream.fileno(), number))
        return mpiexec

    def _copy_output(self, descriptor: int, number: int) -> None:
        """Copy output of the launcher, and of ranks that the program spawned, to the node's."""
        data = os.read(descriptor, 1 << 16)
        if not data:
            self._unwatch(descriptor)
            self._open_outputs.remove(descriptor)
        self._output = (self._output + data)[-_MAX_OUTPUT:]
        write_all(number, data)

    def _start_proxies(self, requests: Sequence[Tuple[str, str]]) -> None:
        for host, command in requests:
            if host in self._hosts:
                self._start_proxy(self._hosts.index(host), command)
            else:  # a program may spawn ranks on a host that is not a node of the run
                self._record_error("no node of this run is named %r" % host)

    def _start_proxy(self, node: int, command: str) -> None:
        defaults = self._launcher.defaults
        if self._on_loopback:
            # OFI takes the fastest interface: that of another run's network, which ends with it
            defaults["FI_TCP_IFACE"] = "lo"
        try:
            proxy = RemoteCommand(
                self._relays[node], self._token, shell=command, defaults=defaults, shield=True
            )
        except NodeUnreachable as error:
            self._record_error("node-%d: %s" % (node, error), node_lost=True)
            return
        self._proxies[proxy.fileno()] = (node, proxy)
        self._watch(proxy.fileno(), partial(self._handle_proxy, proxy.fileno()))

    # --- watching

    def _watch(self, descriptor: int, callback: Callable[[], object]) -> None:
        self._callbacks[descriptor] = callback
        self._poll.register(descriptor, select.POLLIN)

    def _unwatch(self, descriptor: int) -> None:
        del self._callbacks[descriptor]
        self._poll.unregister(descriptor)

    def _run_until(self, is_over: Callable[[], bool]) -> None:
        """Handle events until the condition holds, or `_kill_at` has passed."""
        while not is_over():
            left = None
            if self._kill_at is not None:
                left = (self._kill_at - time.monotonic()) * 1000
                if left <= 0:
                    return
            for descriptor, _ in self._poll.poll(left):
                if descriptor in self._callbacks:
                    self._callbacks[descriptor]()

    def _handle_proxy(self, descriptor: int) -> None:
        node, proxy = self._proxies[descriptor]
        code: int | None = None
        lost = ""
        try:
            code = proxy.receive()
        except NodeUnreachable as error:
            lost = str(error)
        new = [(rank, c) for rank, c in proxy.ranks.items() if rank not in self._exit_codes]
        self._record_exits(new)
        if code is None and not lost:
            return
        self._close_proxy(descriptor)
        aborted = find_abort(proxy.stderr_tail)
        if aborted is not None:
            self._record_exits([aborted])
        elif lost:
            self._record_error("node-%d: %s" % (node, lost), node_lost=True)
        elif code:
            # below 126 the proxy only reports that a rank has failed, which is known
            is_known = code < 126
            text = "MPICH's proxy on node-%d ended with exit code %d" % (node, code)
            self._record_error("" if is_known else text)

    def _close_proxy(self, descriptor: int) -> None:
        _, proxy = self._proxies.pop(descriptor)
        self._unwatch(descriptor)
        proxy.close()
        if self._proxy_requests is not None:
            self._proxy_requests.release()

    def _record_exits(self, exits: Sequence[Tuple[int, int]]) -> None:
        for rank, code in exits:
            self._exit_codes[rank] = code
            if not code:
                continue
            if self._first_failed is None or self._weight(code) > self._weight(
                self._first_failed[1]
            ):
                self._first_failed = (rank, code)
            # do not wait for launchers, which may never end; but if the launcher may have ended
            # this rank because of another, give it time to report the other
            self._end_within(0.0 if self._weight(code) == _OWN else SETTLE)

    def _record_error(self, text: str, *, node_lost: bool = False) -> None:
        """Record a failure. Its cause may be reported in a moment, by a rank or the launcher."""
        if not self._error:
            self._error, self._node_lost = text, node_lost
        self._end_within(SETTLE)

    def _end_within(self, seconds: float) -> None:
        at = time.monotonic() + seconds
        self._kill_at = at if self._kill_at is None else min(at, self._kill_at)

    # --- ending

    def _handle_stop(self, number: int, _: object) -> None:
        """Signal handler: end the ranks."""
        if self._signal is None:
            self._signal = number
            self._forward_signal(signal.SIGTERM, None)
            self._end_within(GRACE)

    def _forward_signal(self, number: int, _: object) -> None:
        """Signal handler: forward to the ranks, through MPICH's proxies or the programs that Open
        MPI has started in place of ssh."""
        for _, proxy in list(self._proxies.values()):
            proxy.signal(number, ranks_only=True)
        if self._launcher.flavour == "openmpi" and hasattr(self, "_mpiexec"):
            signal_ranks(self._mpiexec.pid, number)

    def _exit_code(self, code: int | None) -> int:
        """The exit code of this process. code: the launcher's, None if it was killed."""
        if self._signal is None:
            failed = self._fail_node_at_fault()
            if failed:
                return failed
        if self._node_lost:
            self._await_stop()
        if self._signal is not None:
            return 128 + self._signal
        if self._error:
            sys.stderr.write("muster mpi: %s\n" % self._error)
            return code if code is not None and code > 0 else 1
        if code == 0 and not self._is_complete:
            missing = self._per_node * len(self._relays) - len(self._exit_codes)
            sys.stderr.write("muster mpi: %d ranks did not end normally\n" % missing)
            return 1
        return 1 if code is None else 128 - code if code < 0 else code

    def _fail_node_at_fault(self) -> int:
        """Fail the node of the rank that failed first, so that the failure is reported there.

        Returns that rank's exit code, 0 if no rank has failed. Ranks that exited have reported it
        themselves; the launcher's output names ranks that were killed or that the program spawned.
        """
        found = find_failed_rank(self._output)
        explained = True  # by the rank's own output
        first = self._first_failed
        if first is not None and (
            found is None or self._weight(first[1]) >= self._launchers_weight(found.exit_code)
        ):
            rank, code = first
            node = rank // self._per_node
            text = "rank %d, on node-%d, ended with %d" % (rank, node, code)
            if code == LOST:
                code = 128 + signal.SIGKILL
                text = "the shell around rank %d, on node-%d, was killed" % (rank, node)
                explained = False
        elif found is not None and found.host in self._hosts:
            node, code = self._hosts.index(found.host), found.exit_code
            text = "a rank on node-%d (process %d there) ended with %d" % (node, found.pid, code)
            explained = False
        else:
            return 0
        reason = "muster mpi: %s\n" % text
        sys.stderr.write(reason)
        if node:
            with contextlib.suppress(NodeUnreachable):
                remote_command.shut_down_relay(
                    self._relays[node], self._token, code, reason, only_if_silent=explained
                )
            self._await_stop()
        return code

    def _await_stop(self) -> None:
        """Let another node's failure be reported first: this node is stopped then."""
        self._kill_at = time.monotonic() + SETTLE
        self._run_until(lambda: self._signal is not None)

    def _weight(self, code: int) -> int:
        """How likely the rank with this exit code has failed first."""
        if code == LOST:
            return _SHELL_LOST
        return _CONSEQUENCE if code == _TERMINATED or self._is_peer_gone(code) else _OWN

    def _launchers_weight(self, code: int) -> int:
        """As `_weight`, for the rank that the launcher blames."""
        return _CONSEQUENCE if self._is_peer_gone(code) else _BLAMED

    def _is_peer_gone(self, code: int) -> bool:
        return code == _PEER_GONE and self._launcher.flavour == "mpich"
