"""Starts an MPI program on the run's nodes, from the main one, without ssh.

    python -m muster.node.mpi --flavour mpich --per-node 2 -- python train.py

It starts mpiexec here, and what mpiexec wants to have started on each node through that node's
relay. It ends with the exit code of the first rank that failed, on whose node the run then fails.
And it sees to what launchers do not: mpiexec waits for ever for a proxy that never comes, and
ignores SIGTERM meanwhile; Open MPI's mpirun may exit with 0 when a node is lost, and hang when a
rank has died.
"""

from __future__ import annotations

import argparse
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

from muster.node import errands, processes, trust
from muster.node.errand import LOST, RankEnds, node_places, signal_ranks
from muster.node.hydra import Launches, abort_in
from muster.node.mpi_launchers import (
    Launcher,
    NoMpi,
    died_in,
    find_launcher,
    hydra_environment,
    hydra_words,
    names_of_their_own,
    open_mpi_words,
    rank_words,
    write_agent,
)
from muster.node.needs import refuse

#: Seconds for others to end, or to say why, once something has failed.
SETTLE = 2.0
#: Seconds ranks may take to end once we are told to.
GRACE = 10.0
#: Bytes kept of what the launcher says.
HEARD = 1 << 14
#: What ranks end with that a launcher has ended after another had failed, with SIGKILL or SIGTERM.
FOLLOWS = (LOST, 128 + signal.SIGTERM)


class Program:
    """One run of the program. places: each node's relay, by rank. each: ranks a node. slots: ranks
    that Open MPI may have there at once, spawned ones included. patience: seconds until all relays
    answer."""

    def __init__(
        self,
        launcher: Launcher,
        program: Sequence[str],
        *,
        each: int,
        slots: int,
        patience: float,
        places: Sequence[errands.Where],
        token: str,
    ) -> None:
        self._launcher = launcher
        self._rank_words = rank_words(program)
        self._each, self._slots = each, slots
        self._places = list(places)
        self._token = token
        self._patience = patience
        self._poll = select.poll()
        self._act: Dict[int, Callable[[], object]] = {}
        self._hosts: List[str] = []  # what the launcher calls the nodes, by rank
        self._said = b""  # by the launcher, of late
        self._heard: Set[int] = set()  # where it can still say something
        self._launches: Launches | None = None
        self._proxies: Dict[int, Tuple[int, errands.Errand]] = {}  # node and errand of MPICH's
        self._ranks: Dict[int, int] = {}  # exit codes of those that have ended
        self._failed: Tuple[int, int] | None = None  # the first rank to, and its code
        self._trouble = ""  # what else has failed first
        self._lost = False  # whether that was a node
        self._told: int | None = None
        self._kill_at: float | None = None

    def run(self) -> int:
        """Run it to its end; returns the exit code. Raises CannotAsk, NoMpi."""
        wake = processes.wake_on_signals()
        processes.become_subreaper()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._tell)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self._pass_on)
        patience, called_off = self._patience, lambda: self._told is not None
        if not errands.await_relays(self._places, self._token, patience, called_off):
            return self._verdict(None)
        with tempfile.TemporaryDirectory(prefix="mpi-") as folder:
            self._watch(wake, lambda: os.read(wake, 4096))
            ends = RankEnds(folder)
            self._watch(ends.fileno(), lambda: self._note_ends(ends.read()))
            self._mpiexec = self._start(folder, node_places(ends.path))
            self._until(lambda: self._mpiexec.poll() is not None)
            code = self._mpiexec.poll()
            if code is None:
                processes.signal_group(self._mpiexec.pid, signal.SIGKILL)
            elif self._told is None:
                # what it has started elsewhere is about to end, and may still have news
                self._kill_at = time.monotonic() + SETTLE
                ended = bool(code) and self._launcher.flavour == "mpich"
                self._until(lambda: self._quiet and (ended or self._complete))
            for descriptor in list(self._proxies):
                self._let_go(descriptor)
            processes.kill_everything(False, [])
        return self._verdict(code)

    @property
    def _quiet(self) -> bool:
        """Whether nothing more is to be heard of launchers."""
        return not self._heard and not self._proxies

    @property
    def _complete(self) -> bool:
        """Whether nothing more is to be heard of ranks."""
        return self._failed is not None or len(self._ranks) == self._each * len(self._places)

    # --- starting

    def _start(self, folder: str, places: Dict[str, str]) -> subprocess.Popen[bytes]:
        if self._launcher.flavour == "mpich":
            self._hosts = [address for address, _ in self._places]
            launches = Launches(folder)
            self._launches = launches
            self._watch(launches.fileno(), lambda: self._start_proxies(launches.read()))
            words = hydra_words(
                self._launcher, self._hosts, self._each, agent=launches.agent, rank=self._rank_words
            )
            return self._mpiexec_with(words, hydra_environment(os.environ), cwd=None)
        self._hosts = names_of_their_own(len(self._places))
        loopback = self._places[0][0].startswith("127.")
        words = open_mpi_words(
            self._launcher,
            self._hosts,
            self._each,
            slots=self._slots,
            agent=write_agent(folder),
            interface="lo" if loopback else None,
            rank=self._rank_words,
        )
        env = {**self._launcher.defaults, **os.environ, **places, "OMPI_ALLOW_RUN_AS_ROOT": "1"}
        env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
        if loopback:  # as an option it would not reach ranks that the program spawns
            env.setdefault("OMPI_MCA_btl_tcp_if_include", "lo")
        # ranks start in the folder that it started in, which every node has to have
        return self._mpiexec_with(words, env, cwd="/")

    def _mpiexec_with(
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
            self._heard.add(stream.fileno())
            self._watch(stream.fileno(), partial(self._pass_over, stream.fileno(), number))
        return mpiexec

    def _pass_over(self, descriptor: int, number: int) -> None:
        """What the launcher says, and ranks that the program has spawned, is the node's output."""
        data = os.read(descriptor, 1 << 16)
        if not data:
            self._forget(descriptor)
            self._heard.remove(descriptor)
        self._said = (self._said + data)[-HEARD:]
        while data:
            data = data[os.write(number, data) :]

    def _start_proxies(self, asked: Sequence[Tuple[str, str]]) -> None:
        for host, command in asked:
            if host in self._hosts:
                self._start_proxy(self._hosts.index(host), command)
            else:  # a program may spawn ranks on a host that is none of ours
                self._note_trouble("no node of this run is called %r" % host)

    def _start_proxy(self, node: int, command: str) -> None:
        defaults = self._launcher.defaults
        try:
            proxy = errands.Errand(
                self._places[node], self._token, shell=command, defaults=defaults, shield=True
            )
        except errands.CannotAsk as error:
            self._note_trouble("node-%d: %s" % (node, error), lost=True)
            return
        self._proxies[proxy.fileno()] = (node, proxy)
        self._watch(proxy.fileno(), partial(self._hear_proxy, proxy.fileno()))

    # --- watching

    def _watch(self, descriptor: int, act: Callable[[], object]) -> None:
        self._act[descriptor] = act
        self._poll.register(descriptor, select.POLLIN)

    def _forget(self, descriptor: int) -> None:
        del self._act[descriptor]
        self._poll.unregister(descriptor)

    def _until(self, over: Callable[[], bool]) -> None:
        """Act on what happens until it is over, or the time is."""
        while not over():
            left = None
            if self._kill_at is not None:
                left = (self._kill_at - time.monotonic()) * 1000
                if left <= 0:
                    return
            for descriptor, _ in self._poll.poll(left):
                if descriptor in self._act:
                    self._act[descriptor]()

    def _hear_proxy(self, descriptor: int) -> None:
        node, proxy = self._proxies[descriptor]
        code: int | None = None
        lost = ""
        try:
            code = proxy.hear()
        except errands.CannotAsk as error:
            lost = str(error)
        self._note_ends([(r, c) for r, c in proxy.ranks.items() if r not in self._ranks])
        if code is None and not lost:
            return
        self._let_go(descriptor)
        aborted = abort_in(proxy.last_words)
        if aborted is not None:
            self._note_ends([aborted])
        elif lost:
            self._note_trouble("node-%d: %s" % (node, lost), lost=True)
        elif code:
            # what proxies exit with when a rank has failed is no news
            known = code < 126
            what = "MPICH's proxy on node-%d ended with exit code %d" % (node, code)
            self._note_trouble("" if known else what)

    def _let_go(self, descriptor: int) -> None:
        _, proxy = self._proxies.pop(descriptor)
        self._forget(descriptor)
        proxy.close()
        if self._launches is not None:
            self._launches.release()

    def _note_ends(self, ends: Sequence[Tuple[int, int]]) -> None:
        for rank, code in ends:
            self._ranks[rank] = code
            if not code:
                continue
            if self._failed is None or _weight(code) > _weight(self._failed[1]):
                self._failed = (rank, code)
            # launchers may take their time, or for ever; but where it may be one that has ended
            # the rank, for another's sake, it says for whose
            self._hurry(0.0 if _weight(code) == 2 else SETTLE)

    def _note_trouble(self, what: str, *, lost: bool = False) -> None:
        """Something has failed; who started it knows better, and may say how in a moment."""
        if not self._trouble:
            self._trouble, self._lost = what, lost
        self._hurry(SETTLE)

    def _hurry(self, seconds: float) -> None:
        at = time.monotonic() + seconds
        self._kill_at = at if self._kill_at is None else min(at, self._kill_at)

    # --- ending

    def _tell(self, number: int, _: object) -> None:
        """We are to end: so are the ranks."""
        if self._told is None:
            self._told = number
            self._pass_on(signal.SIGTERM, None)
            self._hurry(GRACE)

    def _pass_on(self, number: int, _: object) -> None:
        """To the ranks: by MPICH's proxies, or by what stands in for Open MPI's ssh."""
        for _, proxy in list(self._proxies.values()):
            proxy.signal(number, ranks=True)
        if self._launcher.flavour == "openmpi" and hasattr(self, "_mpiexec"):
            signal_ranks(self._mpiexec.pid, number)

    def _verdict(self, code: int | None) -> int:
        """What we exit with. The failure of another node is that node's to tell, first."""
        if self._told is None:
            failed = self._blame()
            if failed:
                return failed
        if self._lost:
            self._await_the_end()
        if self._told is not None:
            return 128 + self._told
        if self._trouble:
            sys.stderr.write("muster mpi: %s\n" % self._trouble)
            return code if code is not None and code > 0 else 1
        if code == 0 and not self._complete:
            missing = self._each * len(self._places) - len(self._ranks)
            sys.stderr.write("muster mpi: %d ranks have not ended as they should\n" % missing)
            return 1
        return 1 if code is None else 128 - code if code < 0 else code

    def _blame(self) -> int:
        """Have the node fail on which the first rank has failed; returns that rank's exit code, 0
        if none has. What has ended by itself has said so; the launcher knows of ranks that could
        not, and of those that the program has spawned."""
        died = died_in(self._said)
        explained = True  # by what the rank has written
        if self._failed is not None and (_weight(self._failed[1]) == 2 or died is None):
            rank, code = self._failed
            node = rank // self._each
            text = "rank %d, on node-%d, ended with %d" % (rank, node, code)
            if code == LOST:
                code = 128 + signal.SIGKILL
                text = "the shell around rank %d, on node-%d, was killed" % (rank, node)
                explained = False
        elif died is not None and died.host in self._hosts:
            node, code = self._hosts.index(died.host), died.code
            text = "a rank on node-%d (process %d there) ended with %d" % (node, died.pid, code)
            explained = False
        else:
            return 0
        why = "muster mpi: %s\n" % text
        sys.stderr.write(why)
        if node:
            with contextlib.suppress(errands.CannotAsk):
                where = self._places[node]
                errands.dismiss(where, self._token, code, why, if_silent=explained)
            self._await_the_end()
        return code

    def _await_the_end(self) -> None:
        self._kill_at = time.monotonic() + SETTLE
        self._until(lambda: self._told is not None)


def _weight(code: int) -> int:
    """How much an exit code tells of what has failed first."""
    return 2 if code not in FOLLOWS else 1 if code == LOST else 0


def main(words: List[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m muster.node.mpi")
    parser.add_argument("--flavour", choices=("auto", "mpich", "openmpi"), default="auto")
    parser.add_argument("--per-node", type=int, default=1, help="ranks (default: %(default)s)")
    parser.add_argument("--slots", type=int, help="Open MPI's, a node (default: as many as ranks)")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds for all nodes")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    asked = parser.parse_args(words)
    try:
        launcher = find_launcher(asked.flavour)
    except NoMpi as error:
        refuse(str(error))
    try:
        return Program(
            launcher,
            asked.program[asked.program[:1] == ["--"] :],
            each=asked.per_node,
            slots=asked.slots or asked.per_node,
            patience=asked.patience,
            places=errands.relays(),
            token=trust.token_from_environment(),
        ).run()
    except (errands.CannotAsk, NoMpi, trust.Untrusted) as error:
        sys.stderr.write("muster mpi: %s\n" % error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
