"""One life of a node: from the first process that starts to the last that is gone."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Any, Dict, List, Mapping

from muster.node import marks, processes, rank_outputs
from muster.node.channel import Channel, Message
from muster.node.disk import DiskUse, is_full
from muster.node.emptying import empty
from muster.node.fault import Fault
from muster.node.files import make_way
from muster.node.probe import StartupProbe
from muster.node.services import Left, Services
from muster.node.silence import Silence


class Life:
    """One incarnation of one node. launch: see `agent.Agent`. wake: a descriptor that becomes
    readable with every signal (a child's end, mostly)."""

    def __init__(self, channel: Channel, launch: Mapping[str, Any], wake: int) -> None:
        self._channel = channel
        self._launch = launch
        self._wake = wake
        self._running: Dict[int, int] = {}  # pid -> local rank
        self._groups: List[int] = []
        self._services = Services(launch, launch["processes"][0]["env"], time.monotonic())
        self._begun = False  # the owner's program
        self._done_said = False
        self._probe: StartupProbe | None = None
        self._silence: Silence | None = None
        self._disk: DiskUse | None = None
        self._kill_at: float | None = None
        self._fault = Fault([*launch["processes"], *launch["ranks"]])
        #: Whether another life can follow in the same place.
        self.intact = True
        #: Set by a signal handler: it is to end. Acted upon when no process is half started.
        self.called_off = False

    def run(self) -> Dict[str, Any]:
        """Live it. Returns what there is to tell of its end."""
        if not self._told_to_end() and self._start():
            if self._watch() and not self._done:
                self._fault.note(128 + signal.SIGKILL, int(signal.SIGKILL))
            elif self._kill_at is not None and not self._launch["program"]:
                self._note_told()  # who only serves ends when it is told to
        groups = [*self._groups, *self._services.groups]
        processes.kill_everything(self._launch["contained"], groups)
        if self._disk is not None and self._disk.last():
            self._say_disk(self._disk)
        verdict = self._fault.verdict()
        if verdict["exit_code"] and self._launch["disk_full"] and is_full(self._launch["folder"]):
            said = verdict["message"]
            full = self._launch["disk_full"]
            verdict = {**verdict, "message": "%s:\n%s" % (full, said) if said else full}
        return verdict

    def _told_to_end(self) -> bool:
        """Whether the end came before the beginning: then nothing is started at all."""
        told = False
        for message in self._mine(self._channel.take_waiting()):
            if message["op"] == "absent":
                self._services.forget(message["ranks"])
            told = told or message["op"] in ("stop", "kill")
        if told:
            self._note_told()
        return told

    # --- starting

    def _start(self) -> bool:
        try:
            for folder in self._launch["fresh"]:
                empty(folder)
            os.chdir(self._launch["cwd"])
            self._have_outputs()
            marks.forget_former_life(self._launch)
            marks.note_begun(self._launch["folder"], self._launch["incarnation"])
            self._fault.begin()
            if self._launch["disk"] is not None:
                folder = self._launch["folder"]
                self._disk = DiskUse(folder, self._launch["disk"], time.monotonic)
            if self._services.expected:
                self._say("started")
            self._go_on()
        except OSError as error:  # what was here is here no more
            self.intact = False
            self._fault.note(None, 0, "not_started", str(error))
            return False
        return True

    def _have_outputs(self) -> None:
        """A life before may have put a pipe in the place of its output: opening that to write, a
        process of ours would wait for a reader before it is one."""
        for process in (*self._launch["processes"], *self._launch["services"]):
            for path in filter(None, (process["stdout"], process["stderr"])):
                make_way(path)
        for rank in self._launch["ranks"]:
            for path in (rank["stdout"], rank["stderr"]):
                os.close(rank_outputs.open_output(path))  # so that its silence is noticed

    def _go_on(self) -> None:
        """Start what can be started by now: the services in their order, then the program."""
        if self._begun:
            self._services.step(time.monotonic())
            return
        try:
            self._services.step(time.monotonic())
            if missing := self._services.still_missing(time.monotonic()):
                processes.complain(self._launch["processes"][0]["stderr"], missing)
            if self._services.failed:
                self._fail(None, 0, "startup_timeout", self._services.failed)
            elif self._services.up and self._kill_at is None:
                self._begun = True
                self._start_program()
        except processes.CannotStart as error:
            processes.complain(self._launch["processes"][0]["stderr"], str(error))
            self._fault.note(error.code, 0, "exit", str(error))
            self._stop()

    def _start_program(self) -> None:
        """Raises CannotStart."""
        if not self._launch["program"]:
            self._say("ready")
            return
        own = self._launch["node_args"]
        ranks = rank_outputs.announce(self._launch)
        for local_rank, process in enumerate(self._launch["processes"]):
            out, err = process["stdout"], process["stderr"]
            argv = [*self._launch["launcher"], *process["argv"], *own]
            pid = processes.spawn(argv, {**process["env"], **ranks}, out, err)
            self._running[pid] = local_rank
            self._groups.append(pid)
        if not self._services.expected:
            self._say("started")
        if self._launch["probe"] is None:
            self._say("ready")
        else:
            env = self._launch["processes"][0]["env"]
            address = self._launch["address"]
            self._probe = StartupProbe(self._launch["probe"], address, env, time.monotonic())
        if self._launch["hang_timeout"] is not None:
            writers = (*self._launch["processes"], *self._launch["ranks"])
            files = [writer[stream] for writer in writers for stream in ("stdout", "stderr")]
            self._silence = Silence(files, self._launch["hang_timeout"], time.monotonic())

    def _say(self, event: str, **more: Any) -> None:
        self._channel.send(event=event, incarnation=self._launch["incarnation"], **more)

    def _say_disk(self, disk: DiskUse) -> None:
        self._say("disk", used=disk.used, allowed=self._launch["disk"])

    # --- watching

    def _watch(self) -> bool:
        """Until it is over. Whether it was cut short."""
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while not self._over():
            for descriptor, _ in poll.poll(self._timeout()):
                if descriptor == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                elif self._hear():
                    return True
            if self.called_off:
                self._stop()
            self._reap()
            self._go_on()
            self._probe_once()
            self._listen()
            if self._disk is not None and self._disk.step():
                self._say_disk(self._disk)
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                return not self._over()
        return False

    @property
    def _done(self) -> bool:
        """Whether the program has run, and has ended."""
        return bool(self._launch["program"]) and self._begun and not self._running

    def _over(self) -> bool:
        """Whether nothing is left to watch. What then still runs is not needed."""
        if self._running:
            return False
        ending = self._fault.noted or self._kill_at is not None
        if not self._launch["program"]:
            return not self._services.running and (self._begun or ending)
        if ending:
            return True
        if self._begun:
            self._wind_down()
        return self._begun and not self._services.running

    def _wind_down(self) -> None:
        """The program has ended well: what served it ends too. That is said first, so that the
        ends of others that follow from it are not taken for failures."""
        if self._services.running and not self._done_said:
            self._done_said = True
            self._say("done")
            self._services.stop(time.monotonic())

    def _timeout(self) -> float | None:
        """Milliseconds until something must be done although nothing happens."""
        watchers = (self._probe, self._silence, self._disk)
        times = [self._kill_at, self._services.due]
        times += [watcher.due for watcher in watchers if watcher]
        due = [t for t in times if t is not None]
        if not due:
            return None
        # poll takes 24 days at most; looking once a day is as good as never
        return min(max(0.0, (min(due) - time.monotonic()) * 1000 + 1), 86_400_000)

    def _mine(self, messages: List[Message]) -> List[Message]:
        """Without those that mean an earlier life."""
        return [m for m in messages if m["incarnation"] == self._launch["incarnation"]]

    def _hear(self) -> bool:
        """Act on what was said. Whether the node must end at once."""
        for message in self._mine(self._channel.receive()):
            if message["op"] == "kill":
                return True
            if message["op"] == "stop":
                self._stop()
            elif message["op"] == "signal":
                self._signal(message["number"])
            elif message["op"] == "absent":
                self._services.forget(message["ranks"])
        return self._channel.closed

    def _reap(self) -> None:
        failed = []
        for pid, status in processes.ended_children():
            now = time.monotonic()
            if self._probe is not None and self._probe.reaped(pid, status, now):
                continue
            if self._services.reaped(pid, status, now):
                continue
            local_rank = self._running.pop(pid, None)
            code, number = processes.exit_of(status)
            if local_rank is not None and code:
                failed.append((local_rank, code, number))
        # a program fails of a service that it has lost, hardly ever the other way round
        for left in self._services.take_left():
            if failed or not self._done:
                self._miss(left)
        for local_rank, code, number in failed:
            self._fault.note(code, number, "exit", at=local_rank)
            self._stop()

    def _miss(self, left: Left) -> None:
        """A service has ended unasked. One that stands in for the program may leave, as may one
        that the program had told to; before it was up, and of an error, none may."""
        if not self._begun:
            self._fail(left.code or None, left.number, "exit", str(left))
        elif not self._launch["program"]:
            if left.code:
                self._fail(left.code, left.number, "exit", left.words or str(left))
            self._services.stop(time.monotonic())
        elif left.code:
            self._fail(left.code, left.number, "exit", str(left))

    def _probe_once(self) -> None:
        if self._probe is None or not self._running:
            return
        self._probe.step(time.monotonic())
        if self._probe.ready:
            self._say("ready")
            self._probe = None
        elif self._probe.failed:
            self._fail(None, 0, "startup_timeout", self._probe.failed)
            self._probe = None

    def _listen(self) -> None:
        if self._silence is None or not self._running:
            return
        self._silence.step(time.monotonic(), time.time())
        if self._silence.failed:
            self._fail(None, 0, "hang", self._silence.failed)

    # --- ending

    def _signal(self, number: int) -> None:
        """To the programs themselves and not to what they have started: a data loader's worker
        that does not know the signal would die of it, and the saving with it."""
        for pid in self._running:
            os.kill(pid, number)  # not reaped yet, so the number is still its own
        if self._silence is not None:
            self._silence.renew(time.monotonic())  # who saves has no time to write

    def _fail(self, code: int | None, number: int, reason: str, message: str) -> None:
        """The first failure of the node is its failure; its other processes are told to end."""
        self._fault.note(code, number, reason, message)
        self._stop()

    def _note_told(self) -> None:
        self._fault.note(128 + signal.SIGTERM, int(signal.SIGTERM), explained=True)

    def _stop(self) -> None:
        """Ask the processes to end; they have the grace period."""
        if self._kill_at is not None:
            return
        self._kill_at = time.monotonic() + self._launch["grace_period"]
        self._silence = None
        for pid in self._running:
            processes.signal_group(pid, signal.SIGTERM)
        if not self._launch["program"]:
            self._services.stop(time.monotonic())
        elif not self._begun:
            self._note_told()
