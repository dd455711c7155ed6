"""How the nodes of a cluster meet in their work directory.

Each writes who it is; the main node waits until all have come, and answers with `cluster.json`,
which lists them. A node begins when it finds itself there: what an earlier cluster of the same job
has left never lists it. Whoever gives up says so in `stop`, so that nobody waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import to_builtins

from muster.assemble.members import (
    Assembly,
    Member,
    assembly_of,
    config,
    member_of,
    missing,
    ranked,
)
from muster.assemble.parameters import Parameters
from muster.assemble.workdir import BEAT, CLUSTER, MAIN, STOP, WorkDir
from muster.errors import EngineError

#: The main node shows that it lives this often (seconds), or at every look if those are rarer.
BEAT_PERIOD = 5.0
#: It is gone if it did not so many times in a row.
_BEATS = 6


class Stopped(EngineError):  # noqa: N818
    """The cluster was told to end before this node had begun."""


class Heart:
    """Shows that the main node lives."""

    def __init__(self, workdir: WorkDir, cluster: str) -> None:
        self._workdir = workdir
        self._cluster = cluster
        self._number = 0
        self._due = 0.0

    def beat(self) -> None:
        """Show it, if it is time to."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + BEAT_PERIOD
            self._number += 1
            self._workdir.write(BEAT, {"cluster": self._cluster, "number": self._number})


class Pulse:
    """Whether the main node still lives, by our own clock: clocks of two machines may differ."""

    def __init__(self, workdir: WorkDir) -> None:
        self._workdir = workdir
        self._patience = _BEATS * max(BEAT_PERIOD, workdir.interval)
        self._seen: Any = None
        self._since = time.monotonic()

    def gone(self) -> bool:
        """Whether it has not shown for too long."""
        seen = self._workdir.read(BEAT)
        now = time.monotonic()
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since > self._patience


def take_place(workdir: WorkDir) -> None:
    """Make sure that no other main node is at work here, and remove what an earlier one has left.

    Raises EngineError.
    """
    workdir.make()
    before = workdir.read(BEAT)
    if before is not None and workdir.read(STOP) is None:
        for _ in looks(2 * BEAT_PERIOD, workdir.interval):
            if workdir.read(BEAT) != before:
                text = f"another main node is at work in {workdir.place}"
                raise EngineError(f"{text}: give each cluster a JOB_OCID of its own")
    # nodes that are here already write their files again when they miss them
    for name in (STOP, CLUSTER, *workdir.names("WORKER_", "PS_")):
        workdir.remove(name)


def gather(
    workdir: WorkDir,
    me: Member,
    parameters: Parameters,
    cluster: str,
    token: str,
    heart: Heart,
    say: Callable[[str], None],
) -> Assembly:
    """As the main node: wait for the others, and tell them. Raises EngineError if not all come in
    time, Stopped if somebody says stop."""
    workdir.write(MAIN, config(me, parameters.framework, workdir.place))
    lacking, trouble = "nobody was looked for", ""
    told = ""
    for _ in looks(parameters.timeout, workdir.interval):
        try:
            heart.beat()
            _raise_if_stopped(workdir.read(STOP))
            found = [member_of(workdir.read(name)) for name in workdir.names("WORKER_", "PS_")]
            members = ranked([me, *(m for m in found if m is not None)])
            lacking = missing(members, parameters.worker_count, parameters.ps_count)
        except EngineError as error:
            if isinstance(error, Stopped):
                raise
            trouble = f"; {error}"  # it may be over in a moment
            continue
        if not lacking:
            assembly = Assembly(cluster, token, _chosen(members, parameters))
            workdir.write(CLUSTER, to_builtins(assembly))
            return assembly
        if lacking != told:
            told = lacking
            say(lacking)
    raise EngineError(f"not ready after {parameters.timeout:g} s: {lacking}{trouble}")


def _chosen(members: tuple[Member, ...], parameters: Parameters) -> tuple[Member, ...]:
    """As many as were asked for, should more have come."""
    workers = [m for m in members if m.mode == "WORKER"][: parameters.worker_count]
    servers = [m for m in members if m.mode == "PS"][: parameters.ps_count]
    return (members[0], *workers, *servers)


def join(workdir: WorkDir, me: Member, parameters: Parameters) -> Assembly:
    """As any other node: say who we are and wait until the main node has us among its own.

    Raises EngineError if it does not in time, Stopped if somebody says stop.
    """
    workdir.make()
    before = workdir.read(STOP)  # of an earlier cluster, if the main node is still to come
    what = "no main node has come"
    for _ in looks(parameters.timeout, workdir.interval):
        try:
            assembly = assembly_of(workdir.read(CLUSTER))
            if assembly is not None and assembly.rank_of(me.run) is not None:
                return assembly
            stop = workdir.read(STOP)
            if stop != before:
                _raise_if_stopped(stop)
                before = None
            if workdir.read(me.file) is None:
                workdir.write(me.file, config(me, parameters.framework, workdir.place))
            main = member_of(workdir.read(MAIN))
        except EngineError as error:
            if isinstance(error, Stopped):
                raise
            what = str(error)
            continue
        if main is not None:
            what = f"the main node at {main.address} waits for others, or was here before"
    text = f"waited {parameters.timeout:g} s in {workdir.place}: {what}"
    raise EngineError(f"{text} (TIMEOUT says how long)")


def _raise_if_stopped(stop: Any) -> None:
    if stop is not None:
        raise Stopped(f"the cluster was stopped: {stop_reason(stop)}")


def stop_reason(stop: Any) -> str:
    """Why, as whoever wrote the file says."""
    why = stop.get("why") if isinstance(stop, dict) else None
    return str(why) if why else "a stop file was found"


def stopped_well(stop: Any) -> bool:
    """Whether that was its purpose: the program had ended, or its owner or the time said so."""
    return not (isinstance(stop, dict) and stop.get("failed"))


def say_stop(workdir: WorkDir, why: str, *, failed: bool) -> None:
    """Have every node of the cluster end, unless that was said already."""
    if workdir.read(STOP) is None:
        workdir.write(STOP, {"why": why, "failed": failed})


def say_ended(workdir: WorkDir, member: Member, why: str, code: int | None) -> None:
    """Leave word of a node that has ended, for whoever wonders where it is. code: its exit code;
    None if its program never began."""
    workdir.write(_end(member), {"why": why, "exit_code": code})


def still_there(workdir: WorkDir, members: Iterable[Member]) -> list[Member]:
    """Those that have not said that they have ended."""
    return [member for member in members if workdir.read(_end(member)) is None]


def lost_members(
    workdir: WorkDir, assembly: Assembly, among: Iterable[Member]
) -> Iterator[tuple[int, str]]:
    """The ranks of those that have failed, and what they said of it."""
    for member in among:
        word = workdir.read(_end(member))
        if word is not None and word.get("exit_code") != 0:
            rank = assembly.members.index(member)
            yield rank, f"node-{rank} ({member.address}): {word.get('why', '')}"


def _end(member: Member) -> str:
    return f"{member.mode}_{member.run}_end.json"


def looks(timeout: float, interval: float) -> Iterator[None]:
    """Once now, and again every `interval` seconds until the time is over. An object store tells
    nobody of a change."""
    deadline = time.monotonic() + timeout
    while True:
        yield
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(interval, left))
