"""The main node: brings its cluster together, works in it, and says when it is over."""

from __future__ import annotations

import secrets
import signal
import time

from muster.assemble.beats import BEAT_PERIOD, Heart, Ousted
from muster.assemble.context import TERMINATED, Context, first_told
from muster.assemble.ends import Failed, Watch, called, failed_members, first_cause, still_there
from muster.assemble.job import check_program
from muster.assemble.meeting import gather, looks, take_place
from muster.assemble.members import Assembly
from muster.assemble.running import EVICTED, NodeEnd, Running, Told
from muster.assemble.stopping import Stopped, read_stop, say_stop, stop_text, stopped_well
from muster.assemble.workdir import BEAT
from muster.errors import EXIT_OK, EXIT_PLATFORM, EXIT_RUN_FAILED, EngineError

#: How long it may take to find out of whom the cluster has failed (seconds): as long as it takes to
#: see that a node is gone, and some.
_JUDGING = 45.0


def live_main(context: Context) -> int:
    """Its whole life. Returns its exit code. Raises EngineError, Stopped."""
    parameters, workdir, say = context.parameters, context.workdir, context.say
    me = context.member()
    former = take_place(workdir, say)
    cluster = secrets.token_hex(5)
    heart = Heart(workdir, BEAT, cluster, former)
    say(f"main node at {me.address}, in {workdir.place}; waiting for {parameters.others} more")
    try:
        heart.beat()  # what we say from here on is the word of this cluster
        check_program(parameters, context.arranged)
        token = secrets.token_hex(16)
        assembly = gather(workdir, me, parameters, cluster, token, heart, say)
        say(f"all {len(assembly.members)} nodes have come")
        lead = Lead(context, assembly, heart)
        end = lead.work()
        if end.told is None and end.exit_code == 0:
            end = lead.await_others()
        return lead.finish(end)
    except Stopped:
        raise
    except BaseException as error:
        why = str(error) if isinstance(error, Exception) else "the main node was told to end"
        _say_stop(context, cluster, why, failed=True)
        raise


def _say_stop(
    context: Context, cluster: str, why: str, *, failed: bool, cause: str | None = None
) -> None:
    with context.if_possible():
        say_stop(context.workdir.insisting, cluster, why, failed=failed, cause=cause)


class Lead:
    """The main node of a cluster that has come together."""

    def __init__(self, context: Context, assembly: Assembly, heart: Heart) -> None:
        self._context = context
        self._workdir = context.workdir
        self._assembly = assembly
        self._heart = heart
        self._watch = Watch(context.workdir, assembly, context.needed(assembly))
        self._deciding = context.deciding(assembly)
        self._since = time.monotonic()
        self._running: Running | None = None
        self._next_check = 0.0
        #: Our program has ended, and with it the cluster: a stop that is found now is our own.
        self._done = False
        #: Signals that told us to end while we wait for the others.
        self._asked: list[int] = []

    def work(self) -> NodeEnd:
        """Run this node's part."""
        # what needs no store first: it has to be seen to however slow that is
        watchers = (
            *(self._time_is_over, self._beat, self._stopped, self._lost),
            self._failed_before_start,
        )
        self._running = self._context.start(self._assembly, *watchers)
        return self._running.run(self.on_done)

    def on_done(self) -> None:
        """Our program has ended well."""
        if not self._deciding:
            self._done = True
            why = "the program has ended: exit code 0"
            _say_stop(self._context, self._assembly.cluster, why, failed=False)

    def await_others(self) -> NodeEnd:
        """The main program has ended well; so must those of the others, where they run it too."""
        parameters, workdir, left = self._context.parameters, self._workdir, self._deciding
        # noted and not raised: an exception is lost if it comes in the middle of a finalizer
        signal.signal(signal.SIGTERM, lambda number, _: self._asked.append(number))
        if left:
            self._context.say(f"the main program has ended well; waiting for {len(left)} others")
        for _ in looks(parameters.timeout, workdir.interval):
            if self._asked:
                return NodeEnd(0, told=EVICTED)
            if not left:
                return self._judged()
            told = first_told((self._beat, self._stopped, self._lost))
            if told is not None:
                return NodeEnd(0, told=told)
            try:
                left = still_there(workdir, left)
            except EngineError:
                continue  # the store may be back the next time
        names = ", ".join(member.address for member in left)
        text = f"{names} had not ended {parameters.timeout:g} s after the main program"
        return NodeEnd(0, told=Told(text, failed=True))

    def _judged(self) -> NodeEnd:
        """How the run has ended, now that all have: well, unless one failed whom nobody replaces.

        Raises EngineError if that cannot be found out.
        """
        needed = [m for m in self._deciding if not self._context.role(m).replaceable]
        failed = failed_members(self._workdir.insisting, self._assembly, needed)
        return NodeEnd(0, told=_of_others(failed[0]) if failed else None)

    def finish(self, end: NodeEnd) -> int:
        """Tell all how it has ended, and of whom. Returns our exit code."""
        failed = end.told.failed if end.told else end.exit_code != 0
        why, cause = self._why(end) if failed else (_outcome(end), None)
        self._context.say(why)
        _say_stop(self._context, self._assembly.cluster, why, failed=failed, cause=cause)
        if end.told == EVICTED:
            return TERMINATED
        if end.told or cause not in (None, self._assembly.members[0].run):
            return EXIT_RUN_FAILED if failed else EXIT_OK
        return EXIT_PLATFORM if end.exit_code is None else end.exit_code

    def _why(self, end: NodeEnd) -> tuple[str, str | None]:
        """What the cluster has failed of, for people, and the node that failed first."""
        me, why = self._assembly.members[0], _outcome(end)
        if end.told and end.told != EVICTED and not end.told.of_others:
            return why, None
        failures = []
        if end.told is None:
            ours = Failed(me.run, called(self._assembly, me), why, end.signal, end.at)
            failures = [ours, *self._failed_others()]
        elif end.told.of_others:
            failures = self._failed_others()
        cause = first_cause(failures).run if failures else me.run
        with self._context.if_possible():
            others = self._assembly.members[1:]
            said = failed_members(self._workdir.insisting, self._assembly, others)
            failures += [one for one in said if one not in failures]
        # who is at fault leads; that we have failed as well is plain from our output
        rest = [one for one in failures if one.run not in (cause, me.run)]
        first = next((one for one in failures if one.run == cause != me.run), why)
        return "\n  ".join(str(one) for one in (first, *rest)), cause

    def _failed_others(self) -> list[Failed]:
        """Of those whom the others cannot do without, once it is known of each whether it lives."""
        heart, watch = self._heart, self._watch
        asked = False
        for _ in looks(_JUDGING, self._workdir.interval):
            try:
                heart.beat() if asked else heart.ask()
                asked = True
                if self._asked or not watch.silent(time.monotonic()):
                    break
            except Ousted:
                break
            except EngineError:
                continue  # the store may be back the next time
        with self._context.if_possible():
            return watch.failed
        return []

    # --- what may end it

    def _time_is_over(self) -> Told | None:
        ttl = None if self._context.parameters.ephemeral else self._context.parameters.ttl
        if ttl is None or time.monotonic() - self._since < ttl:
            return None
        return Told(f"its time to live of {ttl:g} s is over", failed=False)

    def _beat(self) -> Told | None:
        try:
            self._heart.beat()
        except Ousted as error:
            return Told(str(error), failed=True)
        return None

    def _stopped(self) -> Told | None:
        stop = None if self._done else read_stop(self._workdir, self._assembly.cluster)
        return Told(stop_text(stop), failed=not stopped_well(stop)) if stop is not None else None

    def _lost(self) -> Told | None:
        lost = None if self._done else self._watch.lost(time.monotonic())
        return _of_others(lost) if lost else None

    def _failed_before_start(self) -> Told | None:
        """The program starts when all have joined; one that has failed will not join any more."""
        now = time.monotonic()
        if self._running is None or self._running.ready or now < self._next_check:
            return None
        self._next_check = now + BEAT_PERIOD
        failed = failed_members(self._workdir, self._assembly, self._assembly.members[1:])
        if not failed:
            return None
        return Told(f"{first_cause(failed)}; the program cannot start without it", failed=True)


def _outcome(end: NodeEnd) -> str:
    return end.told.why if end.told else end.outcome


def _of_others(failed: Failed) -> Told:
    return Told(str(failed), failed=True, of_others=True)
