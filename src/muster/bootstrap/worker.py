"""A worker or parameter server: joins the main node, runs its part, and reports how it ended."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

from msgspec.structs import replace

from muster.bootstrap.agent_process import TERMINATION, NodeExit, StopReason
from muster.bootstrap.context import TERMINATED, Context
from muster.bootstrap.exit_reports import write_exit
from muster.bootstrap.heartbeats import FailureDetector, Heartbeat, has_flag
from muster.bootstrap.main_config import differences, with_main_settings
from muster.bootstrap.parameters import Parameters
from muster.bootstrap.rendezvous import Joining
from muster.bootstrap.roster import Member, Roster
from muster.bootstrap.stop_file import (
    is_success,
    names_as_cause,
    read_stop,
    stop_message,
    write_stop,
)
from muster.bootstrap.workdir import HEARTBEAT, WorkDir
from muster.errors import EXIT_OK, EXIT_RUN_FAILED, EngineError
from muster.node.machine import own_address

#: Seconds that a failed node waits for the main node's stop file, which names the first cause. The
#: main node first finds out which of the other nodes are alive.
_STOP_TIMEOUT = 60.0
#: The same for a node that the cluster can do without: the main node waits for no report of it.
_REPLACEABLE_STOP_TIMEOUT = 10.0


def run_worker(
    parameters: Parameters,
    workdir: WorkDir,
    log: Callable[[str], None],
    context_of: Callable[[Parameters], AbstractContextManager[Context]],
) -> int:
    """Run a node other than the main one to its end.

    context_of: the context of a node with the given parameters. Returns the exit code. Raises
    EngineError, Stopped.
    """
    address = parameters.address or own_address()
    mode = parameters.mode.lower()
    log(f"{mode} at {address}, in {workdir.location}; waiting for the main node")
    joining = Joining(workdir, parameters, log)
    while True:
        found = joining.await_main()
        for difference in differences(parameters, found):
            log(difference)
        with context_of(with_main_settings(parameters, found)) as context:
            me = context.member()
            try:
                roster = joining.join(me, found)
            finally:
                with suppress(EngineError):  # a leftover registration is harmless
                    workdir.remove(me.file)
            if roster is not None:
                log(f"joined as node {roster.rank_of(me.run)} of {len(roster.members)}")
                return _Worker(context, roster, me).run()


_MAIN_LOST = StopReason("the main node stopped sending heartbeats", failed=True)


class _Worker:
    """A node, other than the main one, of a complete cluster."""

    def __init__(self, context: Context, roster: Roster, me: Member) -> None:
        self._context = context
        self._workdir = context.workdir
        self._roster = roster
        self._cluster = roster.cluster
        self._me = me
        #: Whether it runs a framework's service instead of the program.
        self._serves = not context.role(me).program
        #: Whether the node is required: if it fails, the cluster fails.
        self._required = any(member.run == me.run for member in context.required(roster))
        self._heartbeat = Heartbeat(context.workdir, me.heartbeat_file, roster.cluster)
        self._main_detector = FailureDetector(roster.cluster, context.workdir.interval)
        self._end: NodeExit | None = None
        self._main_asks = False
        self._main_lost = False

    def run(self) -> int:
        """Run the node's processes. Returns the exit code."""
        try:
            checks = (self._send_heartbeat, self._stop_file, self._main_failed)
            self._end = self._context.start(self._roster, *checks).run(lambda: None)
            return self._finish(self._end)
        except BaseException as error:
            # report any end, so that no other node waits for this one
            text = str(error) if isinstance(error, Exception) else TERMINATION.why
            end = NodeExit(EXIT_RUN_FAILED, signal=signal.SIGTERM, at=time.time())
            self._report(self._end.message if self._end else text, end)
            self._stop_cluster(text)
            raise

    def _finish(self, end: NodeExit) -> int:
        terminated = end.stopped == TERMINATION
        if end.stopped is not None and not terminated:
            self._report(end.message, end)
            self._context.log(end.stopped.why)
            return EXIT_RUN_FAILED if end.stopped.failed else EXIT_OK
        if terminated:
            self._report(TERMINATION.why, replace(end, exit_code=TERMINATED))
            self._context.log(TERMINATION.why)
            self._stop_cluster(TERMINATION.why)
            return TERMINATED
        if end.exit_code == 0:
            return self._finish_success(end)
        self._report(end.message, end)
        return self._finish_failure(end)

    def _finish_success(self, end: NodeExit) -> int:
        """A program that succeeds has succeeded by itself. A service ends when the cluster ends,
        which may have failed."""
        stop = None
        with self._context.reporting_errors():
            stop = read_stop(self._workdir.retrying, self._cluster)
        if stop is None and not self._serves:
            self._report(end.message, end)
            self._context.log(end.message)
            return EXIT_OK
        if stop is None:
            self._context.log("this node's service has ended; waiting for the main node's stop")
            stop = self._await_stop(None)
        self._report(end.message, end)
        self._context.log(_MAIN_LOST.why if stop is None else stop_message(stop))
        return EXIT_OK if stop is not None and is_success(stop) else EXIT_RUN_FAILED

    def _finish_failure(self, end: NodeExit) -> int:
        """Find out whether this failure is the first, or a consequence of another."""
        timeout = _STOP_TIMEOUT if self._required else _REPLACEABLE_STOP_TIMEOUT
        # a node that never became ready hardly failed because others ended
        stop = self._await_stop(timeout) if end.ready else None
        code = end.exit_code or EXIT_RUN_FAILED
        if stop is not None:
            self._context.log(f"{end.message}; {stop_message(stop)}")
            if is_success(stop):
                return EXIT_OK
            return code if names_as_cause(stop, self._me.run) else EXIT_RUN_FAILED
        if self._main_lost:
            self._context.log(f"{end.message}; {_MAIN_LOST.why}")
            return EXIT_RUN_FAILED
        self._context.log(end.message)
        self._stop_cluster(end.message)
        return code

    def _await_stop(self, timeout: float | None) -> Any:
        """Wait for the stop file; None if there is none in `timeout` seconds (None: as long as the
        main node is alive)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with suppress(EngineError):  # the store may be back at the next poll
                stop = read_stop(self._workdir, self._cluster)
                if stop is not None:
                    return stop
                if self._main_failed() is not None:
                    return None
                if deadline is None:
                    self._send_heartbeat()  # this node is alive as long as it waits
            # while heartbeats of the main node are missing, its failure may be our cause
            suspects = self._main_detector.suspects
            if deadline is not None and time.monotonic() >= deadline and not suspects:
                return None
            time.sleep(self._workdir.interval)

    def _report(self, why: str, end: NodeExit) -> None:
        with self._context.reporting_errors():
            write_exit(self._workdir.retrying, self._me, why, end)
            self._workdir.remove(self._me.heartbeat_file)

    def _stop_cluster(self, why: str) -> None:
        """Stop the cluster for this node's failure, if the node is required."""
        if self._required:
            why = f"{self._me.mode} {socket.gethostname()} failed: {why}"
            with self._context.reporting_errors():
                workdir = self._workdir.retrying
                write_stop(workdir, self._cluster, why, failed=True, cause=self._me.run)

    # --- reasons to stop, checked at every poll

    def _send_heartbeat(self) -> StopReason | None:
        if self._required:  # the main node does not monitor the others
            self._heartbeat.send(answer=self._main_asks)
        return None

    def _stop_file(self) -> StopReason | None:
        stop = read_stop(self._workdir, self._cluster)
        return None if stop is None else StopReason(stop_message(stop), failed=not is_success(stop))

    def _main_failed(self) -> StopReason | None:
        heartbeat = self._workdir.read(HEARTBEAT)
        self._main_asks = has_flag(heartbeat, "asks", self._cluster)
        self._main_lost = self._main_detector.has_failed(heartbeat, time.monotonic())
        return _MAIN_LOST if self._main_lost else None
