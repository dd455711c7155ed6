"""How the nodes of a cluster meet in their work directory.

Each writes who it is; the main node waits until all have come, and answers with `cluster.json`,
which lists them. A node begins when it finds itself there: what an earlier cluster of the same job
has left never lists it. Whoever gives up says so in `stop`, so that nobody waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from msgspec import to_builtins

from muster.assemble.beats import BEAT_PERIOD, Heart, Ousted, cluster_of
from muster.assemble.members import (
    CONFIG,
    Assembly,
    Member,
    assembly_of,
    config,
    member_of,
    missing,
    ranked,
    waiting_of,
)
from muster.assemble.parameters import Parameters
from muster.assemble.roll import Roll
from muster.assemble.stopping import Stopped, read_stop
from muster.assemble.workdir import BEAT, CLUSTER, MAIN, STOP, WorkDir
from muster.errors import EngineError

#: Who waits counts on at every so manieth look.
_COUNTING = 2


def take_place(workdir: WorkDir) -> str | None:
    """Make sure that no other main node is at work here, and remove what an earlier one has left.
    Returns the earlier one's cluster.

    Raises EngineError; Ousted if there is one.
    """
    workdir.make()
    workdir = workdir.insisting
    before = workdir.read(BEAT)
    if before is not None and read_stop(workdir, cluster_of(before)) is None:
        for _ in looks(2 * BEAT_PERIOD, workdir.interval):
            if workdir.read(BEAT) != before:
                raise Ousted(workdir)
    # nodes that are here already write their files again when they miss them
    for name in (STOP, CLUSTER, *workdir.names("WORKER_", "PS_")):
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
    workdir.insisting.write(MAIN, config(me, parameters.framework, workdir.place))
    wanted = parameters.worker_count, parameters.ps_count
    lacking, trouble = "nobody was looked for", ""
    told = ""
    roll = Roll()
    for _ in looks(parameters.timeout, workdir.interval):
        try:
            heart.beat()
            _raise_if_stopped(workdir, cluster)
            _call(workdir, roll)
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


def _call(workdir: WorkDir, roll: Roll) -> None:
    listed = [name for name in workdir.names("WORKER_", "PS_") if name.endswith(CONFIG)]
    found = workdir.read_many(sorted({*listed, *roll.files}))
    roll.call({file: waiting_of(data) for file, data in found.items()})


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
    # of an earlier cluster, if the main node is still to come
    before = workdir.insisting.read(STOP)
    what = "no main node has come"
    for number, _ in enumerate(looks(parameters.timeout, workdir.interval)):
        try:
            assembly = assembly_of(workdir.read(CLUSTER))
            if assembly is not None and assembly.rank_of(me.run) is not None:
                return assembly
            if workdir.read(STOP) != before:
                # whose beats are there now will be ours, if we come in
                _raise_if_stopped(workdir, cluster_of(workdir.read(BEAT)))
                before = None
            if number % _COUNTING == 0 or workdir.read(me.file) is None:
                workdir.write(me.file, config(me, parameters.framework, workdir.place, number))
            main = member_of(workdir.read(MAIN))
        except Stopped:
            raise
        except EngineError as error:
            what = str(error)
            continue
        if main is not None:
            what = f"the main node at {main.address} waits for others, or was here before"
    text = f"waited {parameters.timeout:g} s in {workdir.place}: {what}"
    raise EngineError(f"{text} (TIMEOUT says how long)")


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
