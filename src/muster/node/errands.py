"""Having other nodes of the run do something: the side of the relay that asks."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from typing import Callable, Dict, List, Mapping, Sequence, Tuple

from muster.node import trust
from muster.node.channel import Channel
from muster.node.errand import RANK_ENDS

#: ADDRESS:PORT of each node's relay, by rank, with commas between.
RELAYS = "MUSTER_RELAYS"

#: What ssh exits with when it is ssh that failed, and not the command.
CANNOT_ASK = 255

#: Options of OpenSSH that are followed by a value.
_WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"


#: Variables that commands have of who asks, in the place of ssh, where their node has none.
_PASSED_ON = ("MPI4PY_LIBMPI", "OMPI_MCA_btl_tcp_if_include")

Where = Tuple[str, int]


class CannotAsk(Exception):  # noqa: N818
    """A node cannot be asked, or has gone away before it has answered."""


class Errand:
    """A command that another node runs for us. It ends there when we close, or end.

    argv, or shell: text for the shell. env: on top of the node's. defaults: below it. shield:
    SIGTERM is for the command's ranks and not for itself: it ends when they have.

    Raises CannotAsk if there is no relay of this run at `where`.
    """

    def __init__(
        self,
        where: Where,
        token: str,
        *,
        argv: Sequence[str] | None = None,
        shell: str | None = None,
        env: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] | None = None,
        cwd: str | None = None,
        shield: bool = False,
    ) -> None:
        self._where = "%s:%d" % where
        #: What it had left on its node's stderr when it ended.
        self.last_words = ""
        #: Exit codes of ranks that have ended, by rank, in the order of their ends.
        self.ranks: Dict[int, int] = {}
        self._channel = _call(where, token)
        places = {"env": dict(env or {}), "defaults": dict(defaults or {}), "cwd": cwd}
        request = {"argv": argv, "shell": shell, **places}
        self._channel.send(op="ask", what="run", shield=shield, **request)

    def fileno(self) -> int:
        return self._channel.fileno()

    def hear(self) -> int | None:
        """The exit code, if there is one yet (a signal counts 128 and its number, as in a shell);
        waits for the next word. Raises CannotAsk if the node is gone."""
        for message in self._channel.receive():
            if message["op"] == "rank":
                self.ranks[message["rank"]] = message["exit_code"]
            elif message["op"] == "ended":
                self.last_words = message["last_words"]
                code: int = message["exit_code"]
                return code
        if self._channel.closed:
            raise CannotAsk("the node at %s is gone" % self._where)
        return None

    def wait(self) -> int:
        """The exit code, and then it is closed. Raises CannotAsk if the node goes away before there
        is one."""
        while True:
            code = self.hear()
            if code is not None:
                self.close()
                return code

    def signal(self, number: int, *, ranks: bool = False) -> None:
        """Send the command's process group a signal; or its ranks, and nobody else."""
        self._channel.send(op="signal", number=int(number), ranks=ranks)

    def cancel(self) -> None:
        """Have it end: SIGTERM, and SIGKILL after the relay's grace period."""
        self._channel.send(op="cancel")

    def close(self) -> None:
        self._channel.close()


def dismiss(
    where: Where, token: str, exit_code: int, why: str = "", *, if_silent: bool = False
) -> None:
    """Have a relay end, with all it runs, and with this exit code. why: for people, if the node's
    own output does not say it; if_silent: only if it has none. Raises CannotAsk."""
    channel = _call(where, token)
    channel.send(op="ask", what="quit", exit_code=exit_code, why=why, if_silent=if_silent)
    channel.close()


def relays() -> List[Where]:
    """Where each node's relay is, by rank. Raises CannotAsk if this run has none."""
    text = os.environ.get(RELAYS, "")
    if not text:
        raise CannotAsk("%s is not set: the nodes of this run have no relay" % RELAYS)
    found = []
    for place in text.split(","):
        address, _, port = place.rpartition(":")
        found.append((address, int(port)))
    return found


def relay_of(host: str) -> Where:
    """Where the relay of a node is, by the node's name, address, id or `node-RANK`; ADDRESS:PORT
    of a relay will do as well. Raises CannotAsk."""
    places = relays()
    for rank, where in enumerate(places):
        if host in (where[0], "node-%d" % rank, "%s:%d" % where):
            return where
    for entry in roster():
        if host in (entry["FQDN"], entry["FQDN"].split(".")[0], entry["NodeId"]):
            return places[int(entry["Rank"])]
    raise CannotAsk("no node of this run is called %r" % host)


def answers(where: Where, token: str) -> bool:
    """Whether there is a relay of this run."""
    try:
        _call(where, token, 2.0).close()
    except CannotAsk:
        return False
    return True


def await_relays(
    places: Sequence[Where], token: str, patience: float, stop: Callable[[], bool] = lambda: False
) -> bool:
    """Wait until all of them answer. Whether they do: not if it was to `stop`. Raises CannotAsk
    after `patience` seconds, and says which do not, and why."""
    deadline = time.monotonic() + patience
    gap = 0.02
    missing = list(enumerate(places))
    while True:
        why = {}
        for rank, where in missing:
            if stop():
                return False
            try:
                _call(where, token).close()
            except CannotAsk as error:
                why[rank] = str(error)
        missing = [(rank, where) for rank, where in missing if rank in why]
        if not missing:
            return True
        if time.monotonic() > deadline:
            told = "; ".join("node-%d: %s" % pair for pair in sorted(why.items())[:10])
            of = (len(missing), len(places), patience)
            raise CannotAsk("%d of %d nodes are not there after %g s: %s" % (*of, told))
        time.sleep(gap)  # nobody can tell us when somebody begins to listen elsewhere
        gap = min(gap * 1.5, 0.5)


def roster() -> List[Dict[str, str]]:
    """Who is in the run, by rank; nobody if there is no cluster metadata file."""
    path = os.environ.get("CLUSTER_NODES_METADATA_FILE")
    if not path:
        return []
    with open(path) as file:
        members: List[Dict[str, str]] = json.load(file)
    return members


def _call(where: Where, token: str, patience: float = trust.PATIENCE) -> Channel:
    try:
        sock = socket.create_connection(where, patience)
    except OSError as error:
        raise CannotAsk("no relay answers at %s:%d: %s" % (*where, error)) from None
    try:
        trust.meet_relay(sock, token, patience)
        trust.notice_silence(sock)
    except trust.Untrusted as error:
        sock.close()
        raise CannotAsk("%s:%d: %s" % (*where, error)) from None
    return Channel(sock)


# --- in the place of ssh


def as_ssh(words: Sequence[str]) -> int:
    """`ssh`, as rank launchers call it: [options] HOST [options] command..., the command's words
    joined to a text for the shell. Returns the command's exit code, or 255."""
    host, command = ssh_words(words)
    if host is None or not command:
        sys.stderr.write("usage: python -m muster.node.relay run [options] HOST command...\n")
        return CANNOT_ASK
    try:
        token = trust.token_from_environment()
        ours = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        shield = RANK_ENDS in os.environ
        errand = Errand(relay_of(host), token, shell=command, defaults=ours, shield=shield)
        return _attended(errand)
    except (CannotAsk, trust.Untrusted) as error:
        sys.stderr.write("muster relay: %s: %s\n" % (host, error))
        return CANNOT_ASK


def ssh_words(words: Sequence[str]) -> Tuple[str | None, str]:
    """The host and the command in the arguments of ssh; its options mean nothing here."""
    host: str | None = None
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            if host is None and rest:
                host = rest.pop(0)
            break
        if word.startswith("-") and len(word) > 1:
            takes = next((i for i, c in enumerate(word[1:]) if c in _WITH_VALUE), None)
            if takes == len(word) - 2 and rest:
                rest.pop(0)  # the value is the next word, and not the rest of this one
        elif host is None:
            host = word
        else:
            rest.insert(0, word)
            break
    if host is not None:
        host = host.rpartition("@")[2]
    return host, " ".join(rest)


def _attended(errand: Errand) -> int:
    """Wait for the command's end. What tells us to end tells the command, with the relay's grace
    period; other signals it gets as they are."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: errand.cancel())
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda n, _: errand.signal(n, ranks=True))
    told = 0
    while True:
        code = errand.hear()
        if RANK_ENDS in os.environ:
            for rank in list(errand.ranks)[told:]:
                with open(os.environ[RANK_ENDS], "w") as file:
                    file.write("%d ended %d\n" % (rank, errand.ranks[rank]))
            told = len(errand.ranks)
        if code is not None:
            return code
