"""One life of a node: from the first process that starts to the last that is gone."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Any, Dict, List, Mapping

from muster.node import error_file, processes
from muster.node.channel import Channel, Message
from muster.node.emptying import empty
from muster.node.last_words import last_words, size_of
from muster.node.probe import StartupProbe
from muster.node.services import Services
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
        self._written: List[int] = []  # bytes of stderr that were there before us, each process
        self._services = Services(launch, launch["processes"][0]["env"], time.monotonic())
        self._begun = False  # the owner's program
        self._done_said = False
        self._probe: StartupProbe | None = None
        self._silence: Silence | None = None
        self._kill_at: float | None = None
        self._failure: Dict[str, Any] | None = None
        self._at_fault: int | None = None  # local rank
        #: Whether another life can follow in the same place.
        self.intact = True
        #: Set by a signal handler: it is to end. Acted upon when no process is half started.
        self.called_off = False

    def run(self) -> Dict[str, Any]:
        """Live it. Returns what there is to tell of its end."""
        if not self._told_to_end() and self._start():
            self._watch()
            if self._running:
                self._note_failure(128 + signal.SIGKILL, int(signal.SIGKILL), "exit", "")
            elif self._kill_at is not None and not self._launch["program"]:
                self._note_told()  # who only serves ends when it is told to
        groups = [*self._groups, *self._services.groups]
        processes.kill_everything(self._launch["contained"], groups)
        if self._failure is None:
            return {"exit_code": 0, "signal": 0, "reason": "exit", "message": ""}
        return self._explained(self._failure)

    def _told_to_end(self) -> bool:
        """Whether the end came before the beginning: then nothing is started at all."""
        if not any(m["op"] in ("stop", "kill") for m in self._mine(self._channel.take_waiting())):
            return False
        self._note_told()
        return True

    # --- starting

    def _start(self) -> bool:
        try:
            for folder in self._launch["fresh"]:
                empty(folder)
            os.chdir(self._launch["cwd"])
            self._forget_former_life()
            self._note_begun()
            self._written = [size_of(process["stderr"]) for process in self._launch["processes"]]
            if self._services.expected:
                self._say("started")
            self._go_on()
        except OSError as error:  # what was here is here no more
            self.intact = False
            self._note_failure(None, 0, "not_started", str(error))
            return False
        return True

    def _forget_former_life(self) -> None:
        """What an earlier life has left that would be taken for a word of this one."""
        for process in self._launch["processes"]:
            if "error_file" in process:
                error_file.forget(process["error_file"])
        mark = self._launch["probe"] and self._launch["probe"]["file"]
        own = os.path.realpath(self._launch["folder"]) + os.sep
        # a mark elsewhere may be somebody else's: one node may wait for what another has done
        if mark and os.path.realpath(mark).startswith(own):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(mark)

    def _note_begun(self) -> None:
        """Say that from here on the program may have run, to whoever takes the run over.

        A line in one write: who finds less than that knows that nothing was started after it.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(os.path.join(self._launch["folder"], "begun"), flags, 0o600)
        try:
            os.write(descriptor, b"%d\n" % self._launch["incarnation"])
        finally:
            os.close(descriptor)

    def _go_on(self) -> None:
        """Start what can be started by now: the services in their order, then the program."""
        if self._begun:
            self._services.step(time.monotonic())
            return
        try:
            self._services.step(time.monotonic())
            if self._services.failed:
                self._fail(None, 0, "startup_timeout", self._services.failed)
            elif self._services.up and self._kill_at is None:
                self._begun = True
                self._start_program()
        except processes.CannotStart as error:
            with open(self._launch["processes"][0]["stderr"], "a") as file:
                file.write("muster: %s\n" % error)
            self._fail(error.code, 0, "exit", str(error))

    def _start_program(self) -> None:
        """Raises CannotStart."""
        if not self._launch["program"]:
            self._say("ready")
            return
        own = self._launch["node_args"]
        for local_rank, process in enumerate(self._launch["processes"]):
            out, err = process["stdout"], process["stderr"]
            argv = [*self._launch["launcher"], *process["argv"], *own]
            pid = processes.spawn(argv, process["env"], out, err)
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
            files = [
                p[stream] for p in self._launch["processes"] for stream in ("stdout", "stderr")
            ]
            self._silence = Silence(files, self._launch["hang_timeout"], time.monotonic())

    def _say(self, event: str) -> None:
        self._channel.send(event=event, incarnation=self._launch["incarnation"])

    # --- watching

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while not self._over():
            for descriptor, _ in poll.poll(self._timeout()):
                if descriptor == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                elif self._hear():
                    return
            if self.called_off:
                self._stop()
            self._reap()
            self._go_on()
            self._probe_once()
            self._listen()
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                return

    def _over(self) -> bool:
        """Whether nothing is left to watch. What then still runs is not needed."""
        if self._running:
            return False
        ending = self._failure is not None or self._kill_at is not None
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
        watchers = (self._probe, self._silence)
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
        return self._channel.closed

    def _reap(self) -> None:
        for pid, status in processes.ended_children():
            if self._probe is not None and self._probe.reaped(pid, status, time.monotonic()):
                continue
            if self._services.reaped(pid, status, time.monotonic()):
                self._look_after_services()
                continue
            local_rank = self._running.pop(pid, None)
            if local_rank is not None:
                code, number = processes.exit_of(status)
                if code:
                    if self._failure is None:
                        self._at_fault = local_rank
                    self._fail(code, number, "exit", "")

    def _look_after_services(self) -> None:
        """One of them may have ended unasked. To one that stands in for the program that is
        granted: it has left; to one that the program needs it is not."""
        if self._services.ended is None or self._failure is not None:
            return
        name, code, number, stderr = self._services.ended
        if not self._launch["program"]:
            if code:
                self._fail(code, number, "exit", last_words(stderr, 0))
            else:
                self._begun = True
                self._services.stop(time.monotonic())
            return
        how = "signal %d ended it" % number if number else "exit code %d" % code
        words = last_words(stderr, 0)
        text = "%s ended by itself (%s)" % (name, how)
        self._fail(code or None, number, "exit", "%s\n%s" % (text, words) if words else text)

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
        self._note_failure(code, number, reason, message)
        self._stop()

    def _note_failure(self, code: int | None, number: int, reason: str, message: str) -> None:
        if self._failure is None:
            self._failure = {
                "exit_code": code,
                "signal": number,
                "reason": reason,
                "message": message,
            }

    def _note_told(self) -> None:
        self._note_failure(128 + signal.SIGTERM, int(signal.SIGTERM), "exit", "")

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

    def _explained(self, failure: Dict[str, Any]) -> Dict[str, Any]:
        """With what the program itself had to say about its failure."""
        if failure["message"] or not failure["exit_code"]:
            return failure
        launched = self._launch["processes"]
        noted = None
        if self._at_fault is not None and "error_file" in launched[self._at_fault]:
            noted = error_file.read(launched[self._at_fault]["error_file"])
        message = noted.message if noted is not None else ""
        return {
            **failure,
            "message": message or self._last_words(),
            "raised_at": noted.at if noted is not None else None,
        }

    def _last_words(self) -> str:
        """Of the process at fault; if it had none, of the first that left any."""
        order = sorted(range(len(self._written)), key=lambda rank: rank != self._at_fault)
        for rank in order:
            words = last_words(self._launch["processes"][rank]["stderr"], self._written[rank])
            if words:
                return words
        return ""
