"""One incarnation of a node: from its first process to the end of its last."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Dict, List, Sequence

from muster.node import incarnation_files, launch_record, messages, metrics, processes
from muster.node.channel import Channel
from muster.node.disk_usage import DiskUsage, is_full
from muster.node.exit_report import ExitReporter, stderr_tail
from muster.node.files import empty_folder, file_size
from muster.node.hang_detector import HangDetector
from muster.node.hooks import Hook
from muster.node.launch_message import LaunchMessage, Preflight
from muster.node.messages import ExitReport, Message
from muster.node.probe import LivenessProbe, StartupProbe
from muster.node.services import ServiceExit, Services
from muster.node.signals import signal_program

_SIGTERM_EXIT = 128 + signal.SIGTERM
_SIGKILL_EXIT = 128 + signal.SIGKILL


class Incarnation:
    """Runs the services and the program of a node once.

    command: the program's command line. wake: a descriptor that becomes readable with every signal
    (mostly SIGCHLD).
    """

    def __init__(
        self, channel: Channel, command: Sequence[str], launch: LaunchMessage, wake: int
    ) -> None:
        self._channel = channel
        self._command = command
        self._launch = launch
        self._wake = wake
        self._running: Dict[int, int] = {}  # pid -> local rank
        self._groups: List[int] = []
        self._services = Services(launch, time.monotonic())
        self._program_started = False  # or, without a program, all services are up
        self._done_sent = False
        self._probe: StartupProbe | None = None
        self._liveness: LivenessProbe | None = None
        self._preflight: Hook | None = None
        self._preflight_due = 0.0
        self._preflight_offset = 0  # size of the file with its output before
        self._after_start: Hook | None = None
        self._before_stop: Hook | None = None
        self._hang_detector: HangDetector | None = None
        self._disk: DiskUsage | None = None
        self._kill_at: float | None = None
        self._reporter = ExitReporter(launch.processes, launch.ranks)
        self._record: int | None = None
        self._metrics_before: metrics.Versions = {}
        #: Whether another incarnation can run in the same slot.
        self.restartable = True
        #: Set by a signal handler. Acted upon between two steps, when no process is half started.
        self.stop_requested = False

    def run(self) -> ExitReport:
        """Run it to its end."""
        if not self._stopped_before_start() and self._start():
            cut_short = self._watch()
            if cut_short and not self._program_done:
                self._reporter.record(_SIGKILL_EXIT, int(signal.SIGKILL))
            elif self._kill_at is not None and not self._launch.program:
                self._record_stop()  # services run until they are stopped
        groups = [*self._groups, *self._services.groups]
        processes.kill_everything(self._launch.contained, groups)
        if self._record is not None:
            os.close(self._record)
        if self._disk is not None and self._disk.measure_at_end():
            self._send_disk_exceeded(self._disk)
        report = self._reporter.report()
        if self._program_started and self._launch.program:
            report = report._replace(metrics=self._metrics())
        if self._launch.given and not self._launch.contained:
            from muster.node import given_files

            given_files.remove(self._launch.given)
        if self._launch.of_array:
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(self._launch.output_folder)
        disk_full = self._launch.disk_full
        if report.exit_code and disk_full and is_full(self._launch.folder):
            message = "%s:\n%s" % (disk_full, report.message) if report.message else disk_full
            report = report._replace(message=message)
        return report

    def _metrics(self) -> str:
        launch = self._launch
        return metrics.read(launch.output_folder, launch.cwd, launch.folder, self._metrics_before)

    def _stopped_before_start(self) -> bool:
        """Whether a stop or kill arrived together with the start: then no process is started."""
        stopped = False
        for message in self._for_this(self._channel.pop_pending()):
            if isinstance(message, messages.Absent):
                self._services.ignore_ranks(message.ranks)
            stopped = stopped or isinstance(message, (messages.Stop, messages.Kill))
        if stopped:
            self._record_stop()
        return stopped

    # --- starting

    def _start(self) -> bool:
        launch = self._launch
        try:
            for folder in launch.fresh:
                empty_folder(folder)
            if launch.given:
                from muster.node import given_files  # few nodes have any

                given_files.write(launch.given)
            os.makedirs(launch.output_folder, exist_ok=True)
            _enter(launch.cwd)
            incarnation_files.prepare_outputs(launch)
            incarnation_files.clear_stale_state(launch)
            incarnation_files.record_start(launch.folder, launch.incarnation, launch.rank)
            self._metrics_before = metrics.versions(launch.output_folder, launch.cwd)
            self._record = launch_record.publish(launch)
            self._reporter.start()
            if launch.disk is not None:
                self._disk = DiskUsage(launch.folder, launch.disk, time.monotonic)
            if launch.preflight is None:
                self._begin()
            else:
                self._start_preflight(launch.preflight)
        except OSError as error:  # something of the node's folder is missing
            self.restartable = False
            self._reporter.record(None, 0, "not_started", str(error))
            return False
        return True

    def _start_preflight(self, preflight: Preflight) -> None:
        """Check the host before anything of the node starts."""
        self._preflight_offset = file_size(self._launch.processes[0].stderr)
        self._preflight_due = time.monotonic() + preflight.timeout
        self._preflight = self._run_hook("preflight", preflight.command)
        self._check_preflight()

    def _check_preflight(self) -> None:
        """Continue if the checks have ended, or take too long."""
        hook = self._preflight
        if hook is None or self._kill_at is not None:
            return
        if hook.pid is None:
            self._preflight = None
            if hook.failed:
                tail = stderr_tail(self._launch.processes[0].stderr, self._preflight_offset)
                self._fail(None, 0, "preflight", tail or hook.failed)
            else:
                self._begin()
        elif time.monotonic() >= self._preflight_due:
            assert self._launch.preflight is not None
            self._preflight = None  # it is killed with all processes of the node
            text = "its checks have not ended after %g s" % self._launch.preflight.timeout
            self._fail(None, 0, "preflight", text)

    def _begin(self) -> None:
        """Begin with the services or, without any, the program."""
        if self._services.expected:
            self._channel.send(messages.Started(self._launch.incarnation))
        self._start_what_can_start()

    def _start_what_can_start(self) -> None:
        """Start the services in their order, then the program, as far as their checks hold."""
        if self._preflight is not None:
            return
        if self._program_started:
            self._services.step(time.monotonic())
            return
        stderr = self._launch.processes[0].stderr
        try:
            self._services.step(time.monotonic())
            if missing := self._services.progress_message(time.monotonic()):
                processes.write_message(stderr, missing)
            if self._services.failed:
                self._fail(None, 0, "startup_timeout", self._services.failed)
            elif self._services.up and self._kill_at is None:
                self._program_started = True
                self._start_program()
        except processes.CannotStart as error:
            processes.write_message(stderr, str(error))
            self._reporter.record(error.code, 0, "exit", str(error))
            self._stop()

    def _start_program(self) -> None:
        """Raises CannotStart."""
        launch = self._launch
        if not launch.program:
            self._channel.send(messages.Ready(launch.incarnation))
            return
        argv = [*launch.launcher, *self._command, *launch.node_args]
        for local_rank, process in enumerate(launch.processes):
            ranks = incarnation_files.rank_outputs_variable(launch.ranks, process.error_file)
            env = {**launch.environment_of(local_rank), **ranks}
            pid = processes.spawn(argv, env, process.stdout, process.stderr)
            self._running[pid] = local_rank
            self._groups.append(pid)
        if not self._services.expected:
            self._channel.send(messages.Started(launch.incarnation))
        if launch.hang_timeout is not None:
            files = [path for p in launch.processes for path in (p.stdout, p.stderr)]
            files += [path for rank in launch.ranks for path in rank]
            self._hang_detector = HangDetector(files, launch.hang_timeout, time.monotonic())
        if launch.after_start is None:
            self._await_readiness()
        else:
            self._after_start = self._run_hook("after_start", launch.after_start)
            self._check_hooks()

    def _run_hook(self, name: str, command: Sequence[str]) -> Hook:
        process = self._launch.processes[0]
        env = self._launch.environment_of(0)
        hook = Hook(name, command, env, process.stdout, process.stderr)
        if hook.pid is not None:
            self._groups.append(hook.pid)
        return hook

    def _await_readiness(self) -> None:
        launch = self._launch
        if launch.probe is None:
            self._ready()
        else:
            env, now = launch.environment_of(0), time.monotonic()
            self._probe = StartupProbe(launch.probe, launch.address, env, now)

    def _ready(self) -> None:
        """The program is ready: watch it from now on."""
        launch = self._launch
        self._probe = None
        self._channel.send(messages.Ready(launch.incarnation))
        if launch.liveness is not None:
            env, now = launch.environment_of(0), time.monotonic()
            self._liveness = LivenessProbe(launch.liveness, launch.address, env, now)

    # --- watching

    def _watch(self) -> bool:
        """Watch until nothing is left to watch. Returns whether processes have to be killed."""
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while not self._is_over():
            for descriptor, _ in poll.poll(self._timeout()):
                if descriptor == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                elif self._handle_messages():
                    return True
            if self.stop_requested:
                self._stop()
            self._reap()
            self._check_preflight()
            self._start_what_can_start()
            self._check_hooks()
            self._check_probes()
            self._check_for_hang()
            if self._disk is not None and self._disk.step():
                self._send_disk_exceeded(self._disk)
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                return not self._is_over()
        return False

    @property
    def _program_done(self) -> bool:
        """Whether the program has run and ended."""
        return self._launch.program and self._program_started and not self._running

    def _is_over(self) -> bool:
        """Whether nothing is left to watch; processes that still run are not needed."""
        if self._running:
            return False
        ending = self._reporter.failed or self._kill_at is not None
        if not self._launch.program:
            return not self._services.running and (self._program_started or ending)
        if ending:
            return True
        if self._program_started:
            self._stop_services()
        return self._program_started and not self._services.running

    def _stop_services(self) -> None:
        """Stop the services after the program has succeeded.

        `ProgramDone` is sent first, so that failures on other nodes that follow from the end of
        these services are not taken for the cause.
        """
        if self._services.running and not self._done_sent:
            self._done_sent = True
            self._channel.send(messages.ProgramDone(self._launch.incarnation))
            self._services.stop(time.monotonic())

    def _timeout(self) -> float | None:
        """Milliseconds until the next step is due although no descriptor is readable."""
        watchers = (self._probe, self._liveness, self._hang_detector, self._disk)
        times = [self._kill_at, self._services.due]
        times += [watcher.due for watcher in watchers if watcher]
        times += [self._preflight_due if self._preflight is not None else None]
        due = [t for t in times if t is not None]
        if not due:
            return None
        # poll takes 24 days at most, so wake up once a day
        return min(max(0.0, (min(due) - time.monotonic()) * 1000 + 1), 86_400_000)

    def _for_this(self, received: List[Message]) -> List[Message]:
        """Without messages for earlier incarnations, which arrived late."""
        current = self._launch.incarnation
        return [m for m in received if getattr(m, "incarnation", None) == current]

    def _handle_messages(self) -> bool:
        """Handle what has arrived. Returns whether the node must end at once."""
        for message in self._for_this(self._channel.receive()):
            if isinstance(message, messages.Kill):
                return True
            if isinstance(message, messages.Stop):
                self._stop()
            elif isinstance(message, messages.Signal):
                self._signal(message.number)
            elif isinstance(message, messages.Absent):
                self._services.ignore_ranks(message.ranks)
        if self._channel.invalid is not None:
            self.restartable = False
            text = "the supervisor sent an invalid message: %s" % self._channel.invalid
            self._reporter.record(_SIGKILL_EXIT, int(signal.SIGKILL), "node_lost", text)
        return self._channel.closed

    def _reap(self) -> None:
        failed = []
        for pid, status in processes.ended_children():
            now = time.monotonic()
            probes = (self._probe, self._liveness)
            if any(probe is not None and probe.reaped(pid, status, now) for probe in probes):
                continue
            hooks = (self._preflight, self._after_start, self._before_stop)
            if any(hook is not None and hook.reaped(pid, status) for hook in hooks):
                continue
            if self._services.reaped(pid, status, now):
                continue
            local_rank = self._running.pop(pid, None)
            code, number = processes.exit_of(status)
            if local_rank is not None and code:
                failed.append((local_rank, code, number))
        # services first: a program fails because it lost a service, rarely the other way round
        for service in self._services.pop_exits():
            if failed or not self._program_done:
                self._handle_service_exit(service)
        for local_rank, code, number in failed:
            self._reporter.record(code, number, "exit", local_rank=local_rank)
            self._stop(ended=True)

    def _handle_service_exit(self, service: ServiceExit) -> None:
        """Decide whether the unexpected end of a service fails the node.

        Before the node is up it always does. Later, exit code 0 is not a failure: without a program
        the node has left the cluster, and with one the program may have ended the service.
        """
        if not self._program_started:
            self._fail(service.code or None, service.signal, "exit", str(service))
        elif not self._launch.program:
            if service.code:
                message = service.stderr_tail or str(service)
                self._fail(service.code, service.signal, "exit", message)
            self._services.stop(time.monotonic())
        elif service.code:
            self._fail(service.code, service.signal, "exit", str(service))

    def _check_hooks(self) -> None:
        """Continue if a hook has ended, or could not be started."""
        hook = self._after_start
        if hook is not None and hook.pid is None:
            self._after_start = None
            if hook.failed:
                self._fail(hook.code, 0, "exit", hook.failed)
            elif self._kill_at is None:
                self._await_readiness()
        hook = self._before_stop
        if hook is not None and hook.pid is None:
            self._before_stop = None
            if hook.failed:
                processes.write_message(self._launch.processes[0].stderr, hook.failed)
            self._terminate()

    def _check_probes(self) -> None:
        if not self._running:
            return
        if self._probe is not None:
            self._probe.step(time.monotonic())
            if self._probe.ready:
                self._ready()
            elif self._probe.failed:
                self._fail(None, 0, "startup_timeout", self._probe.failed)
                self._probe = None
        if self._liveness is not None:
            self._liveness.step(time.monotonic())
            if self._liveness.failed:
                self._fail(None, 0, "unhealthy", self._liveness.failed)

    def _check_for_hang(self) -> None:
        if self._hang_detector is None or not self._running:
            return
        self._hang_detector.step(time.monotonic(), time.time())
        if self._hang_detector.failed:
            self._fail(None, 0, "hang", self._hang_detector.failed)

    def _send_disk_exceeded(self, disk: DiskUsage) -> None:
        allowed = self._launch.disk
        assert allowed is not None, "it is only measured against a limit"
        self._channel.send(messages.DiskExceeded(self._launch.incarnation, disk.used, allowed))

    # --- ending

    def _signal(self, number: int) -> None:
        """Signal the program's processes. See `signals`."""
        for pid in self._running:
            signal_program(pid, number)  # not reaped yet, so the pid is still the process's own
        if self._hang_detector is not None:
            # a program that saves a checkpoint writes no output meanwhile
            self._hang_detector.reset(time.monotonic())

    def _fail(self, code: int | None, number: int, reason: str, message: str) -> None:
        """Record the failure, unless it is not the first, and stop the other processes."""
        self._reporter.record(code, number, reason, message)
        self._stop()

    def _record_stop(self) -> None:
        self._reporter.record(_SIGTERM_EXIT, int(signal.SIGTERM), explained=True)

    def _stop(self, *, ended: bool = False) -> None:
        """Send SIGTERM to the processes; after the grace period they are killed. ended: whether the
        program ends by itself: then no hook runs before."""
        if self._kill_at is not None:
            return
        self._kill_at = time.monotonic() + self._launch.grace_period
        self._hang_detector = self._liveness = None
        command = self._launch.before_stop
        if command is not None and self._running and not ended:
            self._before_stop = self._run_hook("before_stop", command)
            self._check_hooks()
        else:
            self._terminate()

    def _terminate(self) -> None:
        for pid in self._running:
            processes.signal_group(pid, signal.SIGTERM)
        if not self._launch.program:
            self._services.stop(time.monotonic())
        elif not self._program_started:
            self._record_stop()


def _enter(folder: str) -> None:
    """Change to the working directory of a program. Raises OSError."""
    try:
        os.chdir(folder)
    except FileNotFoundError:
        raise OSError(
            "its working directory %s does not exist where the node runs (--copy sends a copy of a "
            "directory, an artifact has one of its own)" % folder
        ) from None
