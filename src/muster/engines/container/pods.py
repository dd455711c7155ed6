"""The other containers of a node: init containers, sidecars, and what runs with the program.

The rules are those of pods in Kubernetes. A thread for each node drives them: it waits for what the
session wants, for the ends of containers, and for the times of probes and restarts, and makes the
calls of the engine's API. It keeps nothing that cannot be found again: a later session finds the
containers by their labels, and those that have ended are removed when they are made anew, or with
the container of the node.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from muster.engines.container import bodies, containers, volumes
from muster.engines.container.api import CannotReach, Daemon, Refused
from muster.engines.container.bodies import Machine
from muster.engines.container.pod_bodies import extra_binds, extra_body, extra_name
from muster.engines.container.pod_output import Follower, OutputFiles
from muster.engines.container.pod_probes import why_down
from muster.engines.container.record import Image
from muster.engines.launch import emptied_mounts, given_files
from muster.engines.remote.hosts import CompanionStart, HostsOwner
from muster.node.messages import ExitReport
from muster.plan.model import ExtraContainerPlan, RunPlan

#: Seconds before a sidecar that has ended is started again: the first time at once, then doubling.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
#: Seconds for the rest of the output of a container that has ended: most take less than one, but
#: Podman has taken more than 5 on a busy machine.
_OUTPUT_TIMEOUT = 30.0
#: Seconds between two tries to reach the engine, and for how long an incarnation waits for it.
_PAUSE, _REACH_TIMEOUT = 0.5, 3600.0
#: Exit codes above it are of what a signal has ended.
_SIGNALED = 128
Order = Literal["start", "stop", "kill", "finish", "look", "probed", "quit"]


class _Container:
    """One of them, as far as the thread knows."""

    def __init__(self, plan: ExtraContainerPlan) -> None:
        self.plan = plan
        self.id = ""
        self.runs = False
        #: None: it has not ended since it was made.
        self.code: int | None = None
        self.follower: Follower | None = None
        #: Of a sidecar: whether its startup probe has succeeded since it was made.
        self.is_up = False
        self.probes = 0  # that have failed
        self.probed = ""  # the id of the one whose probe a thread tries
        self.due = 0.0  # when it is started again, or probed; 0: nothing is due
        self.restarts = 0
        self.is_told = False  # whether it was sent SIGTERM


class Pod:
    """The other containers of the node in a slot. See `remote.hosts.Companions`. images: by their
    names, once they are known. post: has a call made in the loop's thread."""

    def __init__(
        self,
        plan: RunPlan,
        slot: int,
        daemon: Daemon,
        machine: Machine,
        images: Callable[[], Mapping[str, Image]],
        owner: HostsOwner,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self._plan, self._slot = plan, slot
        self._group = plan.group_for(plan.nodes[slot])
        self._daemon, self._machine, self._images = daemon, machine, images
        self._owner, self._post = owner, post
        self._orders: queue.SimpleQueue[tuple[Order, Any]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        # of the thread:
        self._all = [_Container(one) for one in self._group.extra_containers]
        self._start: CompanionStart | None = None
        self._has_begun = False  # whether the program may run
        self._has_failed = False
        self._finish: tuple[bool, bool] | None = None  # see `finish`
        self._has_ended = False  # whether that was told
        self._kill_at: float | None = None  # the end of the grace period; None: nothing is to end

    # --- calls, in the loop's thread

    def start(self, start: CompanionStart) -> None:
        """See `Companions`."""
        self._order("start", start)

    def stop(self) -> None:
        """See `Companions`."""
        self._order("stop")

    def kill(self) -> None:
        """See `Companions`."""
        self._order("kill")

    def finish(self, *, succeeded: bool, keep: bool) -> None:
        """See `Companions`."""
        self._order("finish", (succeeded, keep))

    def look(self, made: str = "") -> None:
        """A container with this id may have ended; "": any."""
        # of one that is just being made, the thread looks itself
        if self._thread is not None and (not made or made in [one.id for one in self._all]):
            self._order("look")

    def close(self) -> None:
        """Drive them no more; they stay."""
        if self._thread is not None:
            self._order("quit")

    def _order(self, what: Order, given: object = None) -> None:
        self._orders.put((what, given))
        if self._thread is None:
            self._thread = threading.Thread(target=self._guarded, args=(self._run,), daemon=True)
            self._thread.start()

    def wait(self, timeout: float) -> None:
        """In any thread, after `close`: wait until no container is being made. timeout: seconds."""
        if self._thread is not None:
            self._thread.join(timeout)

    # --- the thread

    def _guarded(self, work: Callable[[], None]) -> None:
        """In a thread: what nobody expects ends the run, as in `RunLoop.in_thread`."""
        try:
            work()
        except Exception as error:  # noqa: BLE001  raised where it ends the run
            bug = error
            self._post(lambda: _raise(bug))

    def _run(self) -> None:
        while True:
            due = min((one for one in self._deadlines()), default=None)
            try:
                wait = None if due is None else max(0.0, due - time.monotonic())
                what, given = self._orders.get(timeout=wait)
            except queue.Empty:
                what, given = "look", None
            if what == "quit":
                for one in self._all:
                    if one.follower is not None:
                        one.follower.close()
                return
            try:
                self._take(what, given)
                if self._start is not None and not self._has_ended:
                    self._advance(self._start)
            except CannotReach:  # the engine may be starting
                time.sleep(_PAUSE)
                self._order("look")
            except (containers.CannotStart, Refused, OSError) as error:
                self._cannot(str(error))

    def _cannot(self, why: str) -> None:
        """Something cannot be done: the node fails, and what runs is to end."""
        if self._start is None:
            return
        if self._finish is not None:  # what is left is removed with the node
            sys.stderr.write(f"muster: containers of node {self._slot}: {why}\n")
            self._tell_ended(self._start)
        elif not self._has_failed:
            self._has_failed = True
            self._tell_failed(self._start, ExitReport(None, 0, "not_started", why))

    def _deadlines(self) -> list[float]:
        """When to do something without an order."""
        if self._start is None or self._has_ended:
            return []
        if self._kill_at is not None:
            some = self._of("init", "main") if self._finish is None else self._all
            return [self._kill_at] if any(one.runs for one in some) else []
        return [] if self._has_failed else [one.due for one in self._all if one.due]

    def _take(self, what: Order, given: Any) -> None:
        now = time.monotonic()
        if what == "start":
            self._begin(given)
        elif what == "stop" and self._kill_at is None:
            self._kill_at = now + self._plan.policy.grace_period
        elif what == "kill":
            self._kill_at = now
        elif what == "finish":
            self._finish = given
        elif what == "probed":
            self._probed(*given)
        self._look()

    # --- an incarnation begins

    def _begin(self, start: CompanionStart) -> None:
        """Raises CannotReach, Refused, OSError."""
        is_next = self._start is not None and self._start.number != start.number
        if self._start is None:
            self._find(start)
        self._start = start
        self._has_begun = (self._has_begun and not is_next) or start.has_begun
        self._finish, self._kill_at = None, None
        self._has_failed = self._has_ended = False
        for one in self._all:
            if is_next and one.plan.role != "sidecar":
                one.id, one.runs, one.code = "", False, None
            one.is_told, one.due = False, 0.0
            if one.follower is not None:
                one.follower.files = self._files(start)
        if not any(one.id for one in self._all if one.plan.role != "sidecar"):
            self._empty()
        self._write_files(start)

    def _find(self, start: CompanionStart) -> None:
        """Find those that an earlier session has made. Raises CannotReach, Refused."""
        run_id = self._plan.run_id
        found = containers.repeated(
            lambda: containers.list_extra(self._daemon, run_id, self._slot), _REACH_TIMEOUT
        )
        for one in self._all:
            known = found.get(one.plan.name)
            is_its_own = known is not None and known.number == str(start.number)
            if known is not None and (is_its_own or one.plan.role == "sidecar"):
                one.id, one.runs = known.id, True  # until it is looked at
                one.is_up = start.has_begun
                self._follow(one, start)

    def _empty(self) -> None:
        """Empty the folders that are the incarnation's: nothing has run in it yet. Raises
        OSError."""
        place = self._plan, self._slot, self._machine
        extra = self._group.extra_containers
        containers_of = [(self._group.mounts, bodies.node_binds(*place))]
        for one in extra:
            binds = extra_binds(self._plan, self._slot, one, self._machine)
            containers_of.append((one.mounts, binds))
        every = [mount for mounts, _ in containers_of for mount in mounts]
        there = [mount for mount in every if volumes.source_at_path(mount, *place)]
        for mount in emptied_mounts(there):
            part = volumes.source_at_path(mount, *place)
            kept = {
                name
                for _, binds in containers_of
                for bind in binds
                if bind["Source"] == part
                for name in volumes.nested(bind["Target"], binds)
            }
            volumes.empty(part, volumes.whole_source(mount, *place), kept)

    def _write_files(self, start: CompanionStart) -> None:
        """Raises OSError."""
        folder = volumes.files_folder(self._plan.run_id, self._slot)
        for one in self._group.extra_containers:
            files = given_files(str(folder), one.mounts, start.facts)
            # one that only its owner may read is for the container's user, as in that of the node
            user, _, group = (one.container.user or "").partition(":")
            owner = None
            if os.geteuid() == 0 and user.isdigit():
                owner = int(user), int(group) if group.isdigit() else -1
            volumes.write_files(folder, files, owner)

    # --- steps

    def _look(self) -> None:
        """Find out which have ended. Raises CannotReach, Refused."""
        for one in self._all:
            if not one.runs:
                continue
            state = containers.state_of(self._daemon, one.id)
            if state is None:  # somebody else has removed it
                self._note_end(one, _SIGNALED + 9)
            elif not containers.is_alive(state):
                self._note_end(one, int(state.get("ExitCode", -1)))

    def _note_end(self, one: _Container, code: int) -> None:
        one.runs, one.code, one.is_up, one.due = False, code, False, 0.0
        if one.plan.role == "sidecar" and self._kill_at is None:
            pause = 0.0 if not one.restarts else _FIRST_PAUSE * 2 ** min(one.restarts - 1, 10)
            one.restarts += 1
            one.due = time.monotonic() + min(pause, _LONGEST_PAUSE)

    def _advance(self, start: CompanionStart) -> None:
        """Raises CannotStart, CannotReach, Refused, OSError."""
        if self._finish is not None or self._kill_at is not None or self._has_failed:
            self._end(start)
            return
        if start.has_ended:
            return  # `finish` follows
        for one in self._of("sidecar"):
            if one.id:  # whatever the others wait for
                self._keep_up(one, start)
        for one in self._of("init", "sidecar"):
            if one.plan.role == "sidecar":
                is_done = self._keep_up(one, start)
            else:
                is_done = self._has_begun or self._run_init(one, start)
            if not (is_done or self._has_begun):
                return
        for one in self._of("main"):
            if not one.id:
                self._make(one, start)
            elif one.code:
                self._fail(start, one)
                return
        if not self._has_begun:
            self._has_begun = True
            self._post(lambda: self._owner.companions_started(self._slot, start.number))

    def _run_init(self, one: _Container, start: CompanionStart) -> bool:
        """Returns whether it has ended well."""
        if not one.id:
            self._make(one, start)
        if one.code:
            self._fail(start, one)
        return one.code == 0

    def _keep_up(self, one: _Container, start: CompanionStart) -> bool:
        """Start a sidecar, again if it has ended. Returns whether it is up."""
        now = time.monotonic()
        if not one.runs:
            if one.due and now < one.due:
                return False
            self._make(one, start)
        if one.is_up or one.plan.probe is None:
            one.is_up, one.due = True, 0.0
        elif now >= one.due and one.probed != one.id:
            self._probe(one, one.plan.probe)
        return one.is_up

    def _probe(self, one: _Container, probe: Mapping[str, Any]) -> None:
        """Try it in a thread: what is ordered meanwhile does not wait for it."""
        node = bodies.container_name(self._plan.run_id, self._slot)
        python = self._group.container.python or self._machine.settings.python
        made = one.probed = one.id
        one.due = 0.0

        def work() -> None:
            why = why_down(self._daemon, made, (node, python), probe)
            self._order("probed", (one, made, why))

        threading.Thread(target=self._guarded, args=(work,), daemon=True).start()

    def _probed(self, one: _Container, made: str, why: str) -> None:
        """A probe was tried. Raises CannotReach."""
        if one.probed == made:
            one.probed = ""
        if one.id != made or not one.runs or one.plan.probe is None:
            return
        if not why:
            one.is_up, one.due = True, 0.0
            return
        one.probes += 1
        one.due = time.monotonic() + one.plan.probe["period"]
        if one.probes >= one.plan.probe["threshold"]:  # Kubernetes: it is started again
            text = f"its startup probe failed {one.probes} times, so it is started again: {why}"
            if one.follower is not None:
                one.follower.say(text)
            containers.signal(self._daemon, one.id, "KILL")

    def _make(self, one: _Container, start: CompanionStart) -> None:
        """Raises CannotStart, CannotReach."""
        if (image := self._images().get(one.plan.image)) is None:
            raise CannotReach("the images are not known yet")
        body = extra_body(
            self._plan,
            self._slot,
            one.plan,
            image,
            self._machine,
            start.facts.fill,
            start.number,
        )
        name = extra_name(self._plan.run_id, self._slot, one.plan.name)
        if why := bodies.why_root(one.plan.container, body["User"]):
            raise containers.CannotStart(f"{_what(one)} {one.plan.name}: {why}")
        try:
            one.id = containers.create(self._daemon, name, body)
        except containers.CannotStart as error:
            raise containers.CannotStart(f"{_what(one)} {one.plan.name}: {error}") from None
        one.runs, one.code, one.is_up, one.is_told, one.probes = True, None, False, False, 0
        delay = 0.0 if one.plan.probe is None else one.plan.probe["initial_delay"]
        one.due = time.monotonic() + delay if one.plan.probe is not None else 0.0
        self._follow(one, start)
        self._look()  # it may have ended before its end was watched

    def _follow(self, one: _Container, start: CompanionStart) -> None:
        own = volumes.own_folder(self._machine.home, self._plan.run_id, self._slot)
        state = own / f"lines-{one.plan.name}"
        if one.follower is not None:  # of one that was replaced
            one.follower.join(_OUTPUT_TIMEOUT)
            one.follower.close()
        one.follower = Follower(self._daemon, one.id, one.plan.name, self._files(start), state)

    def _files(self, start: CompanionStart) -> OutputFiles:
        """Where output goes."""
        folder = bodies.server_folder(self._machine.home, self._plan.run_id, self._slot)
        out, err = (path.removeprefix(f"{bodies.SERVER_FOLDER}/") for path in start.outputs)
        return OutputFiles(str(folder), out, err)

    def _of(self, *roles: str) -> list[_Container]:
        return [one for one in self._all if one.plan.role in roles]

    # --- ends

    def _fail(self, start: CompanionStart, one: _Container) -> None:
        """One that is not to fail has. What belongs to the incarnation ends after its program."""
        if not self._has_failed:
            self._has_failed = True
            self._tell_failed(start, self._report(one))

    def _report(self, one: _Container) -> ExitReport:
        """Raises CannotReach, Refused."""
        code = one.code or 0
        said = containers.last_lines(self._daemon, one.id)
        text = f"{_what(one)} {one.plan.name} exited with {code}" + (f": {said}" if said else "")
        state = containers.state_of(self._daemon, one.id) or {}
        reason = "out_of_memory" if state.get("OOMKilled") else "exit"
        return ExitReport(code, max(0, code - _SIGNALED), reason, text)

    def _end(self, start: CompanionStart) -> None:
        """End what is to end: what runs with the program, then the sidecars, the last one first.
        Raises CannotReach, Refused."""
        others, finish = self._of("init", "main"), self._finish
        is_good = finish is not None and finish[0] and not self._has_failed
        if is_good and self._kill_at is None and any(one.runs for one in others):
            for one in self._of("sidecar"):
                self._keep_up(one, start)
            if not any(one.code for one in others):
                return  # they are waited for
        if is_good and (bad := next((one for one in others if one.code), None)) is not None:
            self._fail(start, bad)
            is_good = False
        if finish is None and self._kill_at is None:
            return  # its program ends first
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._plan.policy.grace_period
        if self._still_run(others) or finish is None:
            return
        if finish[1] and not is_good:  # sidecars stay for a restart in place
            self._kill_at = None
        elif any(self._still_run([one]) for one in reversed(self._of("sidecar"))):
            return
        if is_good and (bad := next((one for one in others if one.code), None)) is not None:
            self._fail(start, bad)  # it was ended after its program had succeeded
        self._tell_ended(start)

    def _still_run(self, some: Sequence[_Container]) -> bool:
        """End these. Returns whether any of them still runs. Raises CannotReach, Refused."""
        is_late = self._kill_at is not None and time.monotonic() >= self._kill_at
        for one in some:
            if one.runs and (is_late or not one.is_told):
                one.is_told = True
                containers.signal(self._daemon, one.id, "KILL" if is_late else "TERM")
        if any(one.runs for one in some):
            self._look()
        runs = any(one.runs for one in some)
        if runs and is_late:
            self._kill_at = time.monotonic() + 1.0  # its end is about to be told
        return runs

    def _tell_ended(self, start: CompanionStart) -> None:
        self._has_ended = True
        for one in self._all:  # Podman tells the end of an output half a second late
            if not one.runs and one.follower is not None:
                one.follower.join(_OUTPUT_TIMEOUT)
        self._post(lambda: self._owner.companions_ended(self._slot, start.number))

    def _tell_failed(self, start: CompanionStart, report: ExitReport) -> None:
        self._post(lambda: self._owner.companions_failed(self._slot, start.number, report))


def _raise(error: Exception) -> None:
    raise error


def _what(one: _Container) -> str:
    names = {"init": "init container", "sidecar": "sidecar", "main": "container"}
    return names[one.plan.role]
