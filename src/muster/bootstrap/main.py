"""The main node: gathers its cluster, runs its own part, and decides how the cluster ends."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Sequence

from muster.bootstrap.agent_process import TERMINATION, AgentProcess, NodeExit, StopReason
from muster.bootstrap.context import TERMINATED, Context, first_reason
from muster.bootstrap.exit_reports import MemberExit, Monitor, read_exits, read_failures
from muster.bootstrap.heartbeats import HEARTBEAT_INTERVAL, Heartbeat, LeaderConflict
from muster.bootstrap.job import check_program
from muster.bootstrap.outcome import deciding_ranks, first_cause, outcome_of
from muster.bootstrap.rendezvous import claim_workdir, gather, poll
from muster.bootstrap.roster import Roster
from muster.bootstrap.stop_file import Stopped, is_success, read_stop, stop_message, write_stop
from muster.bootstrap.workdir import HEARTBEAT
from muster.errors import EXIT_OK, EXIT_PLATFORM, EXIT_RUN_FAILED, EngineError

#: Seconds in which the main node looks for the first cause of a failure: enough to notice that
#: another node has stopped sending heartbeats.
_MAX_DIAGNOSIS = 45.0


def run_main(context: Context) -> int:
    """Run the main node to its end. Returns its exit code. Raises EngineError, Stopped."""
    parameters, workdir, log = context.parameters, context.workdir, context.log
    me = context.member()
    previous = claim_workdir(workdir, log)
    cluster = secrets.token_hex(5)
    heartbeat = Heartbeat(workdir, HEARTBEAT, cluster, previous)
    log(f"main node at {me.address}, in {workdir.location}; waiting for {parameters.others} more")
    try:
        heartbeat.send()  # before any other file, so that the files are those of this cluster
        check_program(parameters, context.arranged)
        token = secrets.token_hex(16)
        roster = gather(workdir, me, parameters, cluster, token, heartbeat, log)
        log(f"all {len(roster.members)} nodes have joined")
        node = MainNode(context, roster, heartbeat)
        end = node.work()
        if end.stopped is None and end.exit_code == 0:
            end = node.await_others()
        return node.finish(end)
    except Stopped:
        raise
    except BaseException as error:
        why = str(error) if isinstance(error, Exception) else "the main node was terminated"
        _write_stop(context, cluster, why, failed=True)
        raise


def _write_stop(
    context: Context, cluster: str, why: str, *, failed: bool, cause: str | None = None
) -> None:
    with context.reporting_errors():
        write_stop(context.workdir.retrying, cluster, why, failed=failed, cause=cause)


class MainNode:
    """The main node of a complete cluster."""

    def __init__(self, context: Context, roster: Roster, heartbeat: Heartbeat) -> None:
        self._context = context
        self._workdir = context.workdir
        self._roster = roster
        self._heartbeat = heartbeat
        self._monitor = Monitor(context.workdir, roster, context.required(roster))
        self._policy = context.policy
        self._started = time.monotonic()
        self._process: AgentProcess | None = None
        self._next_check = 0.0
        #: Our program has ended the cluster: a stop file is our own from now on.
        self._done = False
        #: Signals received while we wait for the others.
        self._signals: list[int] = []

    def work(self) -> NodeExit:
        """Run this node's processes."""
        # the time limit first: it needs no store, and a store may be slow
        checks = (
            *(self._time_limit, self._send_heartbeat, self._stop_file, self._lost_member),
            self._failed_before_start,
        )
        self._process = self._context.start(self._roster, *checks)
        return self._process.run(self.on_success)

    def on_success(self) -> None:
        """End the cluster when our program has succeeded, unless the run needs others as well."""
        outcome = outcome_of(self._policy, [self._own_success()])
        if outcome is not None and outcome.succeeded:
            self._done = True
            why = "the program has ended: exit code 0"
            _write_stop(self._context, self._roster.cluster, why, failed=False)

    def _own_success(self) -> MemberExit:
        me = self._roster.members[0]
        return MemberExit(0, me.run, self._roster.name_of(me), 0)

    def await_others(self) -> NodeExit:
        """After our program has succeeded: wait for the other nodes that run it as well."""
        parameters, members = self._context.parameters, self._roster.members
        ranks = [rank for rank in deciding_ranks(self._policy) if rank > 0]
        deciding = [members[rank] for rank in ranks]
        # a handler that raised could lose its exception inside a finalizer
        signal.signal(signal.SIGTERM, lambda number, _: self._signals.append(number))
        if deciding:
            others = "1 other node" if len(deciding) == 1 else f"{len(deciding)} other nodes"
            self._context.log(f"the main program has succeeded; waiting for {others}")
        ended: set[int] = set()
        for _ in poll(parameters.timeout, self._workdir.interval):
            if self._signals:
                return NodeExit(0, stopped=TERMINATION)
            try:
                exits = read_exits(self._workdir, self._roster, deciding)
            except EngineError:
                exits = []  # the store may be back at the next poll
            outcome = outcome_of(self._policy, [self._own_success(), *exits])
            if outcome is not None and outcome.succeeded:
                return NodeExit(0)
            if outcome is not None:
                cause = next(found for found in exits if found.rank == outcome.cause)
                return NodeExit(0, stopped=_failure_of_member(cause))
            reason = first_reason((self._send_heartbeat, self._stop_file, self._lost_member))
            if reason is not None:
                return NodeExit(0, stopped=reason)
            ended = {found.rank for found in exits}
        names = ", ".join(members[rank].address for rank in ranks if rank not in ended)
        text = f"{names} had not ended {parameters.timeout:g} s after the main program"
        return NodeExit(0, stopped=StopReason(text, failed=True))

    def finish(self, end: NodeExit) -> int:
        """Stop the other nodes, with the cause of a failure. Returns our exit code."""
        failed = end.stopped.failed if end.stopped else end.exit_code != 0
        why, cause = self._why(end) if failed else (_message(end), None)
        self._context.log(why)
        _write_stop(self._context, self._roster.cluster, why, failed=failed, cause=cause)
        if end.stopped == TERMINATION:
            return TERMINATED
        if end.stopped or cause not in (None, self._roster.members[0].run):
            return EXIT_RUN_FAILED if failed else EXIT_OK
        return EXIT_PLATFORM if end.exit_code is None else end.exit_code

    def _why(self, end: NodeExit) -> tuple[str, str | None]:
        """Why the cluster failed, as a message, and the node that failed first."""
        me, why = self._roster.members[0], _message(end)
        if end.stopped and end.stopped != TERMINATION and not end.stopped.by_member:
            return why, None
        failures: list[MemberExit] = []
        if end.stopped is None:
            name = self._roster.name_of(me)
            ours = MemberExit(0, me.run, name, end.exit_code, end.signal, why, end.at)
            failures = [ours, *self._diagnose()]
        elif end.stopped.by_member:
            failures = self._diagnose()
        cause = first_cause(failures).run if failures else me.run
        with self._context.reporting_errors():
            others = self._roster.members[1:]
            reported = read_failures(self._workdir.retrying, self._roster, others)
            failures += [found for found in reported if found not in failures]
        return _with_cause_first(failures, cause, me.run, why), cause

    def _diagnose(self) -> list[MemberExit]:
        """The failures of required members, once each of them has failed or has answered."""
        heartbeat, monitor = self._heartbeat, self._monitor
        probed = False
        for _ in poll(_MAX_DIAGNOSIS, self._workdir.interval):
            try:
                if self._signals or not monitor.unconfirmed(time.monotonic()):
                    break
                heartbeat.send() if probed else heartbeat.ask()
                probed = True
            except LeaderConflict:
                break
            except EngineError:
                continue  # the store may be back at the next poll
        with self._context.reporting_errors():
            return monitor.failures
        return []

    # --- reasons to stop, checked at every poll

    def _time_limit(self) -> StopReason | None:
        ttl = None if self._context.parameters.ephemeral else self._context.parameters.ttl
        if ttl is None or time.monotonic() - self._started < ttl:
            return None
        return StopReason(f"its time to live of {ttl:g} s is over", failed=False)

    def _send_heartbeat(self) -> StopReason | None:
        try:
            self._heartbeat.send()
        except LeaderConflict as error:
            return StopReason(str(error), failed=True)
        return None

    def _stop_file(self) -> StopReason | None:
        stop = None if self._done else read_stop(self._workdir, self._roster.cluster)
        return None if stop is None else StopReason(stop_message(stop), failed=not is_success(stop))

    def _lost_member(self) -> StopReason | None:
        failure = None if self._done else self._monitor.check(time.monotonic())
        return _failure_of_member(failure) if failure else None

    def _failed_before_start(self) -> StopReason | None:
        """The program starts when all nodes are ready; a node that has failed never will be."""
        now = time.monotonic()
        if self._process is None or self._process.ready or now < self._next_check:
            return None
        self._next_check = now + HEARTBEAT_INTERVAL
        failures = read_failures(self._workdir, self._roster, self._roster.members[1:])
        if not failures:
            return None
        text = f"{first_cause(failures)}; the program cannot start without it"
        return StopReason(text, failed=True)


def _message(end: NodeExit) -> str:
    return end.stopped.why if end.stopped else end.message


def _with_cause_first(failures: Sequence[MemberExit], cause: str, me: str, why: str) -> str:
    """One line for each failure, the cause first. Our own is listed only if it is the cause."""
    first = next((str(one) for one in failures if one.run == cause != me), why)
    return "\n  ".join([first, *(str(one) for one in failures if one.run not in (cause, me))])


def _failure_of_member(failure: MemberExit) -> StopReason:
    return StopReason(str(failure), failed=True, by_member=True)
