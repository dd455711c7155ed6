"""How the nodes of a cluster find each other in their work directory.

The main node writes `MAIN_config.json`. Each other node waits for that file, takes the settings in
it, and registers for the cluster that it names. When enough nodes have registered, the main node
publishes the roster in `cluster.json`, and all start. Files of an earlier cluster of the same job
name another cluster and are ignored. A node that gives up writes `stop`, so that none waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import to_builtins

from muster.bootstrap.heartbeats import HEARTBEAT_INTERVAL, Heartbeat, LeaderConflict, cluster_of
from muster.bootstrap.main_config import (
    MainConfig,
    main_config,
    main_file,
    read_main,
    unreadable_reason,
)
from muster.bootstrap.parameters import Parameters
from muster.bootstrap.registry import Registry
from muster.bootstrap.roster import (
    CONFIG,
    Member,
    Roster,
    is_of_other_version,
    missing,
    ranked,
    read_registration,
    read_roster,
    registration,
)
from muster.bootstrap.stop_file import Stopped, read_stop
from muster.bootstrap.workdir import CLUSTER, HEARTBEAT, MAIN, STOP, WorkDir
from muster.errors import EngineError

_OTHER_VERSION = "another version of `muster node` wrote it; run the same version on all nodes"
#: A waiting node rewrites its registration at every Nth poll.
_REGISTER_EVERY = 2


def claim_workdir(workdir: WorkDir, log: Callable[[str], None]) -> str | None:
    """Make sure that no other main node uses the work directory, and remove the files of an earlier
    cluster. Returns the id of that cluster, if there was one.

    log: called about a file that Muster did not write. Raises EngineError; LeaderConflict if there
    is another main node.
    """
    workdir.make()
    workdir = workdir.retrying
    previous = workdir.read(HEARTBEAT)
    if previous is not None and read_stop(workdir, cluster_of(previous)) is None:
        for _ in poll(2 * HEARTBEAT_INTERVAL, workdir.interval):
            if workdir.read(HEARTBEAT) != previous:
                raise LeaderConflict(workdir)
    data = workdir.read(MAIN)
    if data is not None and read_main(data) is None:
        log(f"replacing {workdir.location}/{MAIN}, which {unreadable_reason(data)}")
    # MAIN is removed before STOP: without its stop file, the earlier cluster would look alive to
    # nodes that are waiting already
    for name in (MAIN, CLUSTER, STOP, *workdir.names("WORKER_", "PS_")):
        workdir.remove(name)
    return cluster_of(previous)


def gather(
    workdir: WorkDir,
    me: Member,
    parameters: Parameters,
    cluster: str,
    token: str,
    heartbeat: Heartbeat,
    log: Callable[[str], None],
) -> Roster:
    """On the main node: wait until all nodes have registered, and publish the roster.

    Raises EngineError if not all register in time, Stopped if a stop file appears, LeaderConflict
    if there is another main node.
    """
    workdir.retrying.write(MAIN, main_file(main_config(me, parameters, cluster), workdir.location))
    needed = parameters.worker_count, parameters.ps_count
    lacking, problem = "the work directory was not read", ""
    last_message = ""
    registry = Registry()
    ignored: set[str] = set()
    for _ in poll(parameters.timeout, workdir.interval):
        try:
            heartbeat.send()
            _raise_if_stopped(workdir, cluster)
            new = _update(registry, workdir, cluster) - ignored
            ignored |= new
            for file in sorted(new):
                log(f"{workdir.location}/{file} is ignored: {_OTHER_VERSION}")
        except (Stopped, LeaderConflict):
            raise
        except EngineError as error:
            problem = f"; {error}"  # possibly temporary
            continue
        members = ranked([me, *registry.confirmed_alive])
        lacking = missing(members, *needed)
        if not lacking:
            roster = Roster(cluster, token, _first_members(members, parameters))
            # the roster is final: every node that reads it starts
            workdir.retrying.write(CLUSTER, to_builtins(roster))
            return roster
        message = missing(ranked([me, *registry.recently_updated]), *needed)
        if message and message != last_message:
            last_message = message
            log(message)
    raise EngineError(f"not ready after {parameters.timeout:g} s: {lacking}{problem}")


def _update(registry: Registry, workdir: WorkDir, cluster: str) -> set[str]:
    """Read the registrations. Returns the files of nodes of another version."""
    listed = [name for name in workdir.names("WORKER_", "PS_") if name.endswith(CONFIG)]
    found = workdir.read_many(sorted({*listed, *registry.files}))
    registry.update({file: read_registration(data, cluster) for file, data in found.items()})
    return {file for file, data in found.items() if is_of_other_version(data)}


def _first_members(members: tuple[Member, ...], parameters: Parameters) -> tuple[Member, ...]:
    """The first nodes of each mode, if more have registered than the cluster needs."""
    workers = [m for m in members if m.mode == "WORKER"][: parameters.worker_count]
    servers = [m for m in members if m.mode == "PS"][: parameters.ps_count]
    return (members[0], *workers, *servers)


class Joining:
    """On every other node: waits for the main node and joins its cluster.

    log: prints a message about progress.
    """

    def __init__(
        self, workdir: WorkDir, parameters: Parameters, log: Callable[[str], None]
    ) -> None:
        self._workdir = workdir
        self._parameters = parameters
        self._log = log
        workdir.make()
        #: The stop file of an earlier cluster; None once the file has changed.
        self._old_stop = workdir.retrying.read(STOP)

    def await_main(self) -> MainConfig:
        """Wait for a usable `MAIN_config.json`. Raises EngineError if there is none in time,
        Stopped if a stop file appears."""
        workdir, timeout = self._workdir, self._parameters.timeout
        problem, printed = "no main node has written it", ""
        for _ in poll(timeout, workdir.interval):
            try:
                data = workdir.read(MAIN)
                found = read_main(data)
                stop = workdir.read(STOP)
                if stop != self._old_stop:
                    # the cluster with the present heartbeats is the one that this node will join
                    _raise_if_stopped(workdir, cluster_of(workdir.read(HEARTBEAT)))
                    self._old_stop = None
            except Stopped:
                raise
            except EngineError as error:
                problem = str(error)
                continue
            ended = stop is not None and cluster_of(stop) in (None, found and found.cluster)
            why = "its main node has ended" if ended else self._unusable(data, found)
            if found is not None and not why:
                return found
            if data is not None:
                # print a problem when it is seen twice: a file may be read before it is complete
                if why == problem != printed:
                    place = f"{workdir.location}/{MAIN}"
                    self._log(f"{place} {why}; waiting for a `muster node` with MODE=MAIN")
                    printed = why
                problem = why
        text = f"waited {timeout:g} s for {workdir.location}/{MAIN}: {problem}"
        raise EngineError(f"{text} (TIMEOUT sets the time)")

    def _unusable(self, data: Any, found: MainConfig | None) -> str:
        """Why this node cannot use the file; empty if it can."""
        if found is None:
            return unreadable_reason(data)
        ours, theirs = self._parameters.framework.upper(), found.framework.upper()
        return "" if ours == theirs else f"is for CLUSTER_TYPE={theirs}, and this node for {ours}"

    def join(self, me: Member, found: MainConfig) -> Roster | None:
        """Register and wait for a roster that lists this node; None if another main node has
        replaced this one.

        Raises EngineError if there is no such roster in time, Stopped if a stop file appears.
        """
        workdir, timeout = self._workdir, self._parameters.timeout
        problem = f"the main node at {found.member.address} has not admitted this node"
        for number, _ in enumerate(poll(timeout, workdir.interval)):
            try:
                roster = read_roster(workdir.read(CLUSTER))
                if roster is not None and roster.includes(me.run, found.cluster):
                    return roster
                now = read_main(workdir.read(MAIN))
                if now is None or now.cluster != found.cluster:
                    return None
                _raise_if_stopped(workdir, found.cluster)
                if number % _REGISTER_EVERY == 0 or workdir.read(me.file) is None:
                    framework = self._parameters.framework
                    data = registration(me, framework, workdir.location, found.cluster, number)
                    workdir.write(me.file, data)
            except Stopped:
                raise
            except EngineError as error:
                problem = str(error)
        text = f"waited {timeout:g} s in {workdir.location}: {problem}: it waits for other nodes"
        raise EngineError(f"{text}, has enough, or has ended (TIMEOUT sets the time)")


def _raise_if_stopped(workdir: WorkDir, cluster: str | None) -> None:
    stop = read_stop(workdir, cluster)
    if stop is not None:
        raise Stopped(stop)


def poll(timeout: float, interval: float) -> Iterator[None]:
    """Yield now, and every `interval` seconds until `timeout` seconds are over. Object stores send
    no notifications."""
    deadline = time.monotonic() + timeout
    while True:
        yield
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(interval, left))
