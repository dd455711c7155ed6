"""The containers of one run: creates them, watches them, and connects to the servers in them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.engines.container import bodies, containers, volumes
from muster.engines.container.api import CannotReach, Daemon, Refused
from muster.engines.container.bodies import Machine
from muster.engines.container.credentials import auth_header
from muster.engines.container.gpus import Way, way_of
from muster.engines.container.images import NoImage, find_image, why_no_program
from muster.engines.container.pod_bodies import extra_name
from muster.engines.container.pods import Pod
from muster.engines.container.program import provide_program
from muster.engines.container.python import provide_python
from muster.engines.container.record import Image, Record, record_file
from muster.engines.container.watcher import Watcher
from muster.engines.loop import RunLoop
from muster.engines.remote.code import LOGS, RUN
from muster.engines.remote.hosts import Host, HostImage, HostsOwner, slots_in_use
from muster.engines.remote.left import deleted_with_run, left
from muster.engines.remote.record import read_record, write_record
from muster.engines.reservations.demands import uses_gpus
from muster.errors import StoreError
from muster.lifecycle.states import NodeState
from muster.node import machine
from muster.node.connection import Transport
from muster.plan.model import MountPlan

#: How nodes are that have not been seen yet by any session.
_NOT_STARTED = (NodeState.STARTING, NodeState.QUEUED)
#: Files that containers of Docker and Podman have.
_IN_CONTAINERS = ("/.dockerenv", "/run/.containerenv")
#: Seconds between two questions to an engine that does not answer.
_PAUSE = 0.5


class _Prepared(Struct, frozen=True):
    """What all containers of the run need is there."""

    images: Mapping[str, Image]
    gpu_way: Way
    #: By slot.
    found: Mapping[int, containers.Found]


class _NotPrepared(Struct, frozen=True):
    """Why nothing can be made: a sentence."""

    why: str
    #: Whether it could not be made later either.
    final: bool = False


#: Where containers are.
_PLACE = "on the machine"


class _End(Struct, frozen=True):
    """How a container has ended. why: a phrase. left: see `HostsOwner.gone`."""

    why: str
    left: Path | None = None


class _Made(Struct, frozen=True):
    """What a thread has made for a slot. id: "" if it could not be made; then `why` says so."""

    id: str
    why: str = ""
    #: Of one that an earlier session had made.
    end: _End | None = None


class RunContainers:
    """See `engines.remote.hosts.Hosts`. machine: what containers are made from. images: those that
    an earlier session has found, as in `Record`.

    Threads talk to the engine; what they return is taken in the loop's thread.
    """

    def __init__(
        self,
        context: RunContext,
        daemon: Daemon,
        machine: Machine,
        loop: RunLoop,
        owner: HostsOwner,
        images: Mapping[str, Image],
    ) -> None:
        self._context, self._plan = context, context.plan
        self._daemon, self._machine = daemon, machine
        self._loop, self._owner = loop, owner
        self._run_dir = context.home.run_dir(context.plan.run_id)
        #: Slots that an earlier session may have used, until they were looked for.
        self._in_use = set(slots_in_use(context))
        self._attaches = bool(context.alive) or context.turn > 1
        self._prepared: _Prepared | _NotPrepared | None = None
        self._preparing = False
        self._images = images
        self._waiting: set[int] = set()  # slots that wait for that
        self._told: tuple[list[int], str] | None = None  # slots that wait, and why, as it was said
        #: Slot -> the id of its container, which is placed; its name if the id is not known.
        self._made: dict[int, str] = {}
        self._given_up: set[int] = set()  # slots that are not wanted while a thread makes them
        self._making: set[int] = set()
        self._leaving: set[int] = set()  # slots whose servers are about to leave
        self._looking: set[int] = set()  # slots whose containers a thread looks at
        self._found: dict[
            int, containers.Found
        ] = {}  # of earlier sessions, until they are looked at
        self._removing: set[int] = set()  # slots whose containers threads remove
        self._others = 0  # other threads for which the end of the session waits
        #: Why something could not be removed -> what. Threads add to it.
        self._left: dict[str, list[str]] = {}
        self._over = self._closed = self._network_removed = False
        self._watcher: Watcher | None = None
        self._has_extra = any(group.extra_containers for group in context.plan.groups)
        self._pods: dict[int, Pod] = {}  # by slot, of those whose nodes have other containers

    # --- calls

    def allocate(self, slots: Sequence[int]) -> None:
        """See `Hosts`."""
        self._waiting.update(set(slots) - self._making)
        self._given_up.difference_update(slots)
        self._watch()
        self._advance()

    def allocate_parts(self, parts: Sequence[Sequence[int]]) -> None:
        """See `Hosts`."""
        self.allocate([slot for part in parts for slot in part])

    def place_ended(self) -> None:
        """See `Hosts`."""
        self._over = True
        self._waiting.clear()
        self._given_up.update(self._making)
        if not self._attaches:
            self._freeing()
            return
        known = {*self._made, *self._making, *self._removing}
        self._others += 1
        self._freeing()
        self._loop.in_thread(self._list_ended, partial(self._take_ended, known))

    def give_up(self, slot: int) -> None:
        """See `Hosts`."""
        self._waiting.discard(slot)
        if slot in self._making:
            self._given_up.add(slot)
        if (made := self._made.pop(slot, None)) is not None:
            self._forget(slot)
            self._remove(slot, made)

    def close(self) -> None:
        """See `Hosts`."""
        self._closed = True
        for pod in list(self._pods.values()):
            pod.close()
        if self._watcher is not None:
            self._watcher.close()

    # --- what all need

    def _watch(self) -> None:
        if self._watcher is None:
            self._watcher = Watcher(
                self._daemon,
                self._plan.run_id,
                lambda made: self._loop.post(lambda: self._may_have_ended(made)),
                lambda: self._loop.post(self._look_at_all),
            )
            self._loop.in_thread(self._watcher.watch, lambda _: None)

    def _advance(self) -> None:
        """Make containers for slots that wait, once what they need is there."""
        if self._prepared is None:
            if not self._preparing and self._waiting:
                self._preparing = True
                self._loop.in_thread(self._prepare, self._take_prepared)
            return
        # the name of a container that is being removed is still taken
        waiting = sorted(self._waiting - self._removing)
        self._waiting.difference_update(waiting)
        if isinstance(self._prepared, _NotPrepared):
            for slot in waiting:
                self._owner.refused(slot, self._prepared.why, final=self._prepared.final)
            self._prepared = None  # it is tried again if a node is started again
            return
        for slot in waiting:
            self._make(slot, self._prepared)

    def _prepare(self) -> _Prepared | _NotPrepared:
        """In a thread."""
        while True:
            try:
                return self._prepare_once()
            except NoImage as error:
                return _NotPrepared(str(error), error.final)
            except CannotReach as error:
                text = f"the container engine at {self._daemon.path} cannot be reached: {error}"
                if not self._attaches or not self._waiting or self._closed:
                    return _NotPrepared(text)
                self._loop.post(partial(self._wait_for_engine, text))
                time.sleep(_PAUSE)
            except Refused as error:
                return _NotPrepared(f"the container engine has refused: {error}")
            except StoreError as error:
                return _NotPrepared(f"it cannot be found out what the run may pull: {error}")
            except OSError as error:  # such as a disk that is full
                return _NotPrepared(f"what containers need cannot be made: {error}")

    def _prepare_once(self) -> _Prepared | _NotPrepared:
        """Raises NoImage, CannotReach, Refused, StoreError, OSError."""
        plan = self._plan
        found = self._list() if self._attaches else {}
        record = read_record(record_file(self._run_dir), Record)
        if record is None:
            if lacks := self._lacking_limits():
                text = f"the container engine cannot limit {' and '.join(lacks)} of nodes"
                return _NotPrepared(f"{text}: leave these resources out of the job", final=True)
            way = self._gpu_way()
            images = self._find_images()
            record = Record(self._daemon.path, self._machine.rootless, images, way)
            self._run_dir.containers.mkdir(mode=0o700, exist_ok=True)
            write_record(record_file(self._run_dir), record)
        if bodies.has_network(plan):
            containers.create_network(self._daemon, bodies.network_body(plan))
        self._provide_sources()
        provide_program(self._context.home)
        provide_python(self._context.home)
        return _Prepared(record.images, record.gpu_way, found)

    def _lacking_limits(self) -> list[str]:
        """Limits of the plan that the engine would ignore. Raises CannotReach, Refused."""
        limits = [bodies.usable(group.resources, self._machine) for group in self._plan.groups]
        wanted = {
            "CPUs": any(one.cpus is not None for one in limits),
            "memory": any(one.memory is not None for one in limits),
        }
        if not any(wanted.values()):
            return []
        info, rootless = self._daemon.get("info"), self._machine.rootless
        return [one for one in bodies.lacking_limits(info, rootless=rootless) if wanted[one]]

    def _gpu_way(self) -> Way:
        """Raises CannotReach, Refused."""
        if not uses_gpus(self._plan):
            return "nvidia"
        return way_of(self._daemon.get("version"), self._daemon.get("info"))

    def _wait_for_engine(self, why: str) -> None:
        """The engine does not answer. Nodes of earlier sessions whose servers do need none."""
        for slot in sorted(self._waiting & self._in_use):
            folder = bodies.server_folder(self._context.home, self._plan.run_id, slot)
            if containers.accepts(folder):
                self._waiting.discard(slot)
                self._in_use.discard(slot)
                self._place(slot, bodies.container_name(self._plan.run_id, slot))
        # nodes that may run are not queued: there is no contact with them
        queued = sorted(slot for slot in self._waiting if not self._has_started(slot))
        if queued and self._told != (queued, why):
            self._told = queued, why
            self._owner.queued(queued, why)

    def _find_images(self) -> dict[str, Image]:
        """Raises NoImage, CannotReach, Refused, StoreError."""
        settings, environ = self._machine.settings, self._context.environ
        wanted = bodies.images_of(self._plan, settings).items()
        login = partial(auth_header, environ=environ, registry=settings.registry)
        check = self._context.check_image
        found = {
            name: find_image(
                *(self._daemon, name, pull, login, self._say),
                None if name.startswith(bodies.BUILT) else check,
            )
            for name, pull in wanted
        }
        for group in self._plan.groups:
            name = bodies.image_of(group, settings)
            if why := why_no_program(self._plan, group, found[name], name):
                raise NoImage(why, final=True)
        return found

    def _say(self, why: str) -> None:
        """In a thread: the slots that wait are waiting for this."""
        self._loop.post(lambda: self._owner.queued(sorted(self._waiting), why))

    def _provide_sources(self) -> None:
        """Raises OSError."""
        for group in self._plan.groups:
            extra = (mount for one in group.extra_containers for mount in one.mounts)
            for mount in (*group.mounts, *extra):
                if mount.kind in ("scratch", "volume"):
                    source = bodies.source_of(mount, self._plan, self._machine)
                    if source:
                        containers.provide_source(Path(source))

    def _take_prepared(self, result: _Prepared | _NotPrepared) -> None:
        self._preparing = False
        self._prepared = result
        if isinstance(result, _Prepared):
            self._images = result.images
            self._found = {
                slot: one for slot, one in result.found.items() if slot not in self._made
            }
        self._advance()
        self._freeing()

    # --- making

    def _make(self, slot: int, prepared: _Prepared) -> None:
        found, was_in_use = self._found.pop(slot, None), slot in self._in_use
        self._in_use.discard(slot)
        if was_in_use and found is None and self._has_started(slot):
            end = self._ended(slot, "its container was removed while nobody drove the run")
            self._owner.gone(slot, end.why, left=end.left)
            return
        self._making.add(slot)
        group = self._plan.group_for(self._plan.nodes[slot])
        image = prepared.images[bodies.image_of(group, self._machine.settings)]
        work = partial(self._create, slot, image, prepared.gpu_way)
        if found is not None:
            work = partial(self._find, found, None if was_in_use else work)
        self._loop.in_thread(work, partial(self._take_made, slot))

    def _mounts_of(self, slot: int) -> Sequence[MountPlan]:
        group = self._plan.group_for(self._plan.nodes[slot])
        return [*group.mounts, *(m for one in group.extra_containers for m in one.mounts)]

    def _has_started(self, slot: int) -> bool:
        """Whether the node in a slot was seen to run by an earlier session."""
        return any(
            self._plan.slot_of(self._plan.node(ref.rank)) == slot
            and status.state not in _NOT_STARTED
            for ref, status in self._context.alive.items()
            if not self._plan.group_of(ref.rank).is_array
        )

    def _create(self, slot: int, image: Image, gpu_way: Way) -> _Made:
        """In a thread."""
        plan, home = self._plan, self._context.home
        name = bodies.container_name(plan.run_id, slot)
        machine = replace(self._machine, gpu_way=gpu_way)
        body = bodies.container_body(plan, slot, image, machine)
        made = ""
        if why := bodies.why_root(plan.group_for(plan.nodes[slot]).container, body["User"]):
            return _Made("", why)
        try:
            if self._has_extra:  # of a node whose container somebody has removed
                containers.remove_extra(self._daemon, plan.run_id, slot)
            containers.provide_folder(bodies.slot_folder(home, plan.run_id, slot))
            volumes.provide(self._mounts_of(slot), plan, slot, self._machine)
            made = containers.create(self._daemon, name, body)
            folder = bodies.server_folder(home, plan.run_id, slot)
            containers.wait_for_server(self._daemon, made, folder)
        except (containers.CannotStart, CannotReach, Refused, OSError) as error:
            self._drop(slot, name)
            return _Made("", str(error))
        return _Made(made)

    def _find(self, found: containers.Found, otherwise: Callable[[], _Made] | None) -> _Made:
        """In a thread: the container of an earlier session. otherwise: what makes another one, if
        it has ended; None: nothing, as the end of its node is not known."""
        try:
            why = containers.why_ended(self._daemon, found.id)
        except CannotReach:  # which is no sign that it has ended: `_look_at_all` looks again
            why = ""
        if not why:
            return _Made(found.id)
        end = self._ended(found.slot, why) if otherwise is None else None
        self._drop(found.slot, found.id)
        return _Made("", end=end) if otherwise is None else otherwise()

    def _take_made(self, slot: int, made: _Made) -> None:
        self._making.discard(slot)
        is_wanted = slot not in self._given_up
        self._given_up.discard(slot)
        if made.end is not None:
            self._owner.gone(slot, made.end.why, left=made.end.left)
        elif made.why:
            if is_wanted:
                self._owner.refused(slot, made.why)
        elif is_wanted:
            self._place(slot, made.id)
        else:
            self._remove(slot, made.id)
        self._freeing()

    def _place(self, slot: int, made: str) -> None:
        self._made[slot] = made
        if self._plan.group_for(self._plan.nodes[slot]).extra_containers:
            self._pods[slot] = Pod(
                *(self._plan, slot, self._daemon, self._machine, lambda: self._images),
                *(self._owner, self._loop.post),
            )
        name = bodies.container_name(self._plan.run_id, slot)
        host = Host(
            partial(self._dial, slot),
            name,
            id=name,
            leaving=lambda: self._leaving.add(slot),
            mounted=volumes.mounted(self._plan, slot, self._machine),
            at_paths=volumes.at_paths(self._plan, slot, self._machine),
            files=bodies.FILES,
            addresses=self._addresses(),
            companions=self._pods.get(slot),
            image=self._host_image(slot),
            python=bodies.python_of(
                self._plan.group_for(self._plan.nodes[slot]), self._machine.settings
            ),
        )
        self._owner.placed(slot, host)

    def _addresses(self) -> tuple[str, ...] | None:
        """See `Host.addresses`: what leaves the network of the run has an address of the machine,
        which Muster does not know if it is in a container itself."""
        if not bodies.has_network(self._plan):
            return ()
        return None if any(map(os.path.exists, _IN_CONTAINERS)) else tuple(machine.addresses())

    def _host_image(self, slot: int) -> HostImage | None:
        group = self._plan.group_for(self._plan.nodes[slot])
        image = self._images.get(bodies.image_of(group, self._machine.settings))
        if image is None:
            return None
        # Docker starts in / what has no directory
        working_dir = image.working_dir or ("/" if self._plan.runs_image(group) else "")
        return HostImage(image.entrypoint, image.command, working_dir)

    def _dial(self, slot: int) -> Transport:
        """Raises OSError."""
        folder = bodies.server_folder(self._context.home, self._plan.run_id, slot)
        try:
            sock = containers.connect(folder)
        except OSError:
            self._look(slot)
            raise
        sock.setblocking(False)
        return sock

    # --- ends

    def _may_have_ended(self, made: str) -> None:
        for pod in list(self._pods.values()):
            pod.look(made)
        for slot, one in list(self._made.items()):
            if one in (made, bodies.container_name(self._plan.run_id, slot)):
                self._look(slot)

    def _look_at_all(self) -> None:
        for pod in list(self._pods.values()):
            pod.look()
        for slot in list(self._made):
            self._look(slot)

    def _look(self, slot: int) -> None:
        """Look whether the container of a slot has ended; if so, it is removed."""
        made = self._made.get(slot)
        if made is None or slot in self._looking or self._closed:
            return
        self._looking.add(slot)
        self._freeing()
        self._loop.in_thread(partial(self._find_end, slot, made), partial(self._looked, slot, made))

    def _find_end(self, slot: int, made: str) -> _End | None:
        """In a thread. Returns how it has ended, and was removed; None if it runs."""
        try:
            why = containers.why_ended(self._daemon, made)
        except CannotReach:  # the watcher notices when it can be reached again
            return None
        if not why:
            return None
        end = self._ended(slot, why)
        self._drop(slot, made)
        return end

    def _ended(self, slot: int, why: str) -> _End:
        """In any thread: keep what a node has written whose server has not left, as some of it may
        not have been copied. The text says where its outputs are."""
        folder = bodies.slot_folder(self._context.home, self._plan.run_id, slot)
        target = self._run_dir.path / "lost" / f"{slot}-{os.urandom(3).hex()}"
        outputs = self._run_dir.outputs.name
        try:
            places = [f"{bodies.NODE}/{LOGS}", f"{bodies.NODE}/{RUN}/{outputs}"]
            kept = containers.keep_files(folder, places, target)
        except OSError as error:
            return _End(f"{why}; its files could not be kept: {error}")
        if outputs in kept:
            why += f"; its outputs, as it left them, are in {target / outputs}"
        return _End(why, target if LOGS in kept else None)

    def _looked(self, slot: int, made: str, end: _End | None) -> None:
        self._looking.discard(slot)
        self._freeing()
        if end is None or self._made.get(slot) != made:
            return
        why = "its server does not run any more" if slot in self._leaving else end.why
        del self._made[slot]
        self._forget(slot)
        self._owner.gone(slot, why, left=end.left)
        self._freeing()

    def _forget(self, slot: int) -> None:
        self._leaving.discard(slot)
        self._in_use.discard(slot)

    def _list(self) -> dict[int, containers.Found]:
        """In a thread. Raises CannotReach, Refused."""
        found = containers.list_containers(self._daemon, self._plan.run_id)
        return {one.slot: one for one in found}

    # --- freeing

    def _list_ended(self) -> dict[int, containers.Found]:
        """In a thread."""
        try:
            return containers.repeated(self._list, containers.REMOVAL_SECONDS)
        except (CannotReach, Refused) as error:
            self._leave("any container of a node that had ended", error)
            return {}

    def _take_ended(self, known: set[int], found: Mapping[int, containers.Found]) -> None:
        """Those that earlier sessions have made, and this one has not looked for."""
        for slot, one in found.items():
            if slot in known or slot in self._made:
                continue
            if one.running:
                self._place(slot, one.id)
            else:
                self._remove(slot, one.id)
        self._others -= 1
        self._freeing()

    def _remove(self, slot: int, made: str) -> None:
        def removed(_: None) -> None:
            self._removing.discard(slot)
            self._freeing()
            if self._waiting:
                self._advance()

        self._removing.add(slot)
        self._freeing()
        self._loop.in_thread(partial(self._drop, slot, made, leaves=True), removed)

    def _drop(self, slot: int, made: str, *, leaves: bool = False) -> None:
        """In a thread: remove the containers of a slot, and its folder. leaves: whether its server
        does."""
        if (pod := self._pods.pop(slot, None)) is not None:
            pod.close()
            pod.wait(containers.REMOVAL_SECONDS)

        extra = self._plan.group_for(self._plan.nodes[slot]).extra_containers

        def end() -> None:
            if extra:
                names = [extra_name(self._plan.run_id, slot, one.name) for one in extra]
                if leaves:  # sidecars that were kept
                    grace = self._plan.policy.grace_period
                    containers.stop_in_turn(self._daemon, names[::-1], grace)
                containers.remove_extra(self._daemon, self._plan.run_id, slot)
            if leaves:
                containers.wait_until_ended(self._daemon, made)
            containers.remove(self._daemon, made)

        try:
            containers.repeated(end, containers.REMOVAL_SECONDS)
            folder = bodies.slot_folder(self._context.home, self._plan.run_id, slot)
            containers.remove_folder(folder)
            containers.remove_folder(
                volumes.own_folder(self._context.home, self._plan.run_id, slot)
            )
            volumes.remove_files(self._plan.run_id, slot)
        except (CannotReach, Refused, OSError) as error:
            self._leave(f"container {made}", error)

    def _freeing(self) -> None:
        """Tell the owner whether something is being removed. After the last container of a run that
        is over, its network is."""
        works = bool(self._removing or self._looking or self._making or self._others)
        works = works or self._preparing
        if self._over and not works and not self._made and not self._network_removed:
            works = self._network_removed = True
            self._others += 1
            self._loop.in_thread(self._remove_network, self._take_removed_network)
        remedy = deleted_with_run(self._plan.run_name)
        sentences = [left(what, _PLACE, why, remedy) for why, what in [*self._left.items()]]
        self._owner.freeing(busy=works, left="\n".join(sentences))

    def _remove_network(self) -> None:
        """In a thread."""
        try:
            if self._has_extra:
                containers.remove_extra(self._daemon, self._plan.run_id)
            if bodies.has_network(self._plan):
                containers.remove_network(self._daemon, self._plan.run_id)
            if not self._left:  # with the record, they can be removed later
                containers.remove_folder(self._run_dir.containers)
                volumes.remove_files(self._plan.run_id)
        except (CannotReach, Refused, OSError) as error:
            self._leave(f"network {bodies.network_name(self._plan.run_id)}", error)

    def _leave(self, what: str, error: Exception) -> None:
        """Something could not be removed. In a thread."""
        self._left.setdefault(" ".join(str(error).split()), []).append(what)

    def _take_removed_network(self, _: None) -> None:
        self._others -= 1
        self._freeing()
