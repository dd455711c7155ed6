"""How the nodes of a cluster meet in their work directory.

The main node writes `MAIN_config.json`. The others wait for it and go by the settings in it; each
writes who it is, and for which cluster. When all have come, the main node writes `cluster.json`,
which lists them, and they begin: what an earlier cluster of the same job has left is never for
this one. Whoever gives up says so in `stop`, so that nobody waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import to_builtins

from muster.assemble.beats import BEAT_PERIOD, Heart, Ousted, cluster_of
from muster.assemble.main_config import MainConfig, foreign, main_config, main_file, read_main
from muster.assemble.members import (
    CONFIG,
    Assembly,
    Member,
    assembly_of,
    missing,
    of_another_version,
    ranked,
    waiting,
    waiting_of,
)
from muster.assemble.parameters import Parameters
from muster.assemble.roll import Roll
from muster.assemble.stopping import Stopped, read_stop
from muster.assemble.workdir import BEAT, CLUSTER, MAIN, STOP, WorkDir
from muster.errors import EngineError

_OTHER_VERSION = "another version of `muster node` wrote it; run the same version on all nodes"
#: Who waits counts on at every so manieth look.
_COUNTING = 2


def take_place(workdir: WorkDir, say: Callable[[str], None]) -> str | None:
    """Make sure that no other main node is at work here, and remove what an earlier one has left.
    Returns the earlier one's cluster. say: for a file that none of ours has left.

    Raises EngineError; Ousted if there is one.
    """
    workdir.make()
    workdir = workdir.insisting
    before = workdir.read(BEAT)
    if before is not None and read_stop(workdir, cluster_of(before)) is None:
        for _ in looks(2 * BEAT_PERIOD, workdir.interval):
            if workdir.read(BEAT) != before:
                raise Ousted(workdir)
    data = workdir.read(MAIN)
    if data is not None and read_main(data) is None:
        say(f"replacing {workdir.place}/{MAIN}, which {foreign(data)}")
    # nodes that are here already start again when they miss its file, which has to be gone before
    # its stop: it would look alive
    for name in (MAIN, CLUSTER, STOP, *workdir.names("WORKER_", "PS_")):
        workdir.remove(name)
    return cluster_of(before)


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
    time, Stopped if somebody says stop, Ousted if another main node is here."""
    workdir.insisting.write(MAIN, main_file(main_config(me, parameters, cluster), workdir.place))
    wanted = parameters.worker_count, parameters.ps_count
    lacking, trouble = "nobody was looked for", ""
    told = ""
    roll = Roll()
    ignored: set[str] = set()
    for _ in looks(parameters.timeout, workdir.interval):
        try:
            heart.beat()
            _raise_if_stopped(workdir, cluster)
            others = _call(workdir, roll, cluster) - ignored
            ignored |= others
            for file in sorted(others):
                say(f"{workdir.place}/{file} is ignored: {_OTHER_VERSION}")
        except (Stopped, Ousted):
            raise
        except EngineError as error:
            trouble = f"; {error}"  # it may be over in a moment
            continue
        members = ranked([me, *roll.living])
        lacking = missing(members, *wanted)
        if not lacking:
            assembly = Assembly(cluster, token, _chosen(members, parameters))
            # once and for all: who has read it begins
            workdir.insisting.write(CLUSTER, to_builtins(assembly))
            return assembly
        come = missing(ranked([me, *roll.come]), *wanted)
        if come and come != told:
            told = come
            say(come)
    raise EngineError(f"not ready after {parameters.timeout:g} s: {lacking}{trouble}")


def _call(workdir: WorkDir, roll: Roll, cluster: str) -> set[str]:
    """Note who has come. Returns the files of nodes of another version."""
    listed = [name for name in workdir.names("WORKER_", "PS_") if name.endswith(CONFIG)]
    found = workdir.read_many(sorted({*listed, *roll.files}))
    roll.call({file: waiting_of(data, cluster) for file, data in found.items()})
    return {file for file, data in found.items() if of_another_version(data)}


def _chosen(members: tuple[Member, ...], parameters: Parameters) -> tuple[Member, ...]:
    """As many as were asked for, should more have come."""
    workers = [m for m in members if m.mode == "WORKER"][: parameters.worker_count]
    servers = [m for m in members if m.mode == "PS"][: parameters.ps_count]
    return (members[0], *workers, *servers)


class Newcomer:
    """Any other node, until the main node has taken it in. say: for progress."""

    def __init__(
        self, workdir: WorkDir, parameters: Parameters, say: Callable[[str], None]
    ) -> None:
        self._workdir = workdir
        self._parameters = parameters
        self._say = say
        workdir.make()
        #: The stop file of an earlier cluster; None once it has changed.
        self._before = workdir.insisting.read(STOP)

    def await_main(self) -> MainConfig:
        """Wait for `MAIN_config.json`. Raises EngineError if it does not come in time, Stopped if
        somebody says stop."""
        workdir, seconds = self._workdir, self._parameters.timeout
        what, said = "no main node has come", ""
        for _ in looks(seconds, workdir.interval):
            try:
                data = workdir.read(MAIN)
                found = read_main(data)
                stop = workdir.read(STOP)
                if stop != self._before:
                    # whose beats are there now will be ours, if we come in
                    _raise_if_stopped(workdir, cluster_of(workdir.read(BEAT)))
                    self._before = None
            except Stopped:
                raise
            except EngineError as error:
                what = str(error)
                continue
            ended = stop is not None and cluster_of(stop) in (None, found and found.cluster)
            why = "its main node has ended" if ended else self._useless(data, found)
            if found is not None and not why:
                return found
            if data is not None:
                # what is not whole yet is not the same at the next look
                if why == what != said:
                    self._say(
                        f"{workdir.place}/{MAIN} {why}; waiting for a `muster node` with MODE=MAIN"
                    )
                    said = why
                what = why
        text = f"waited {seconds:g} s for {workdir.place}/{MAIN}: {what}"
        raise EngineError(f"{text} (TIMEOUT says how long)")

    def _useless(self, data: Any, found: MainConfig | None) -> str:
        """Why this node cannot go by that file; empty if it can."""
        if found is None:
            return foreign(data)
        ours, theirs = self._parameters.framework.upper(), found.framework.upper()
        return "" if ours == theirs else f"is for CLUSTER_TYPE={theirs}, and this node for {ours}"

    def join(self, me: Member, found: MainConfig) -> Assembly | None:
        """Say who we are and wait until that main node has us among its own; None if another has
        taken its place.

        Raises EngineError if it does not in time, Stopped if somebody says stop.
        """
        workdir, seconds = self._workdir, self._parameters.timeout
        what = f"the main node at {found.member.address} has not taken this node in"
        for number, _ in enumerate(looks(seconds, workdir.interval)):
            try:
                assembly = assembly_of(workdir.read(CLUSTER))
                if assembly is not None and assembly.takes(me.run, found.cluster):
                    return assembly
                now = read_main(workdir.read(MAIN))
                if now is None or now.cluster != found.cluster:
                    return None
                _raise_if_stopped(workdir, found.cluster)
                if number % _COUNTING == 0 or workdir.read(me.file) is None:
                    framework = self._parameters.framework
                    word = waiting(me, framework, workdir.place, found.cluster, number)
                    workdir.write(me.file, word)
            except Stopped:
                raise
            except EngineError as error:
                what = str(error)
        text = f"waited {seconds:g} s in {workdir.place}: {what}: it waits for others, has enough"
        raise EngineError(f"{text}, or is gone (TIMEOUT says how long)")


def _raise_if_stopped(workdir: WorkDir, cluster: str | None) -> None:
    stop = read_stop(workdir, cluster)
    if stop is not None:
        raise Stopped(stop)


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
