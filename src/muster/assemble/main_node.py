"""The main node: brings its cluster together, works in it, and says when it is over."""

from __future__ import annotations

import secrets
import signal
import time

from muster.assemble.beats import Heart, Ousted
from muster.assemble.context import TERMINATED, Context, first_told
from muster.assemble.ends import Watch, lost_members, still_there
from muster.assemble.meeting import gather, looks, take_place
from muster.assemble.members import Assembly
from muster.assemble.running import EVICTED, NodeEnd, Told
from muster.assemble.stopping import Stopped, read_stop, say_stop, stop_text, stopped_well
from muster.assemble.workdir import BEAT
from muster.errors import EXIT_OK, EXIT_PLATFORM, EXIT_RUN_FAILED, EngineError


def live_main(context: Context) -> int:
    """Its whole life. Returns its exit code. Raises EngineError, Stopped."""
    parameters, workdir, say = context.parameters, context.workdir, context.say
    me = context.member()
    former = take_place(workdir)
    cluster = secrets.token_hex(5)
    heart = Heart(workdir, BEAT, cluster, former)
    say(f"main node at {me.address}, in {workdir.place}; waiting for {parameters.others} more")
    try:
        token = secrets.token_hex(16)
        assembly = gather(workdir, me, parameters, cluster, token, heart, say)
        say(f"all {len(assembly.members)} nodes have come")
        lead = Lead(context, assembly, heart)
        end = lead.work()
        if end.told is None and end.exit_code == 0:
            end = lead.await_others()
        return finish(context, assembly, end)
    except Stopped:
        raise
    except BaseException as error:
        why = str(error) if isinstance(error, Exception) else "the main node was told to end"
        _say_stop(context, cluster, why, failed=True)
        raise


def finish(context: Context, assembly: Assembly, end: NodeEnd) -> int:
    """Tell all how it has ended. Returns our exit code."""
    failed = end.told.failed if end.told else end.exit_code != 0
    why = end.told.why if end.told else end.outcome
    if failed and end.told in (None, EVICTED):
        with context.if_possible():
            lost = lost_members(context.workdir.insisting, assembly, assembly.members[1:])
            why += "".join(f"\n  {one}" for one in lost)
    context.say(why)
    _say_stop(context, assembly.cluster, why, failed=failed)
    if end.told == EVICTED:
        return TERMINATED
    if end.told:
        return EXIT_RUN_FAILED if failed else EXIT_OK
    return EXIT_PLATFORM if end.exit_code is None else end.exit_code


def _say_stop(context: Context, cluster: str, why: str, *, failed: bool) -> None:
    with context.if_possible():
        say_stop(context.workdir.insisting, cluster, why, failed=failed)


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
        #: Our program has ended, and with it the cluster: a stop that is found now is our own.
        self._done = False

    def work(self) -> NodeEnd:
        """Run this node's part."""
        # what needs no store first: it has to be seen to however slow that is
        watchers = (self._time_is_over, self._beat, self._stopped, self._lost)
        return self._context.start(self._assembly, *watchers).run(self.on_done)

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
        asked: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
        if left:
            self._context.say(f"the main program has ended well; waiting for {len(left)} others")
        for _ in looks(parameters.timeout, workdir.interval):
            if asked:
                return NodeEnd(0, told=EVICTED)
            if not left:
                return self._judged()
            told = first_told((self._beat, self._stopped, self._lost))
            if told is not None:
                return NodeEnd(1, told.why) if told.failed else NodeEnd(0)
            try:
                left = still_there(workdir, left)
            except EngineError:
                continue  # the store may be back the next time
        names = ", ".join(member.address for member in left)
        text = f"{names} had not ended {parameters.timeout:g} s after the main program"
        return NodeEnd(1, text)

    def _judged(self) -> NodeEnd:
        """How the run has ended, now that all have: well, unless one failed whom nobody replaces.

        Raises EngineError if that cannot be found out.
        """
        needed = [m for m in self._deciding if not self._context.role(m).replaceable]
        lost = lost_members(self._workdir.insisting, self._assembly, needed)
        return NodeEnd(1, "others have failed") if lost else NodeEnd(0)

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
        return Told(lost, failed=True) if lost else None
