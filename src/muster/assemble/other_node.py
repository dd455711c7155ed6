"""Any other node: comes to the main one, works with it, and says how it has ended."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

from msgspec.structs import replace

from muster.assemble.address import own_address
from muster.assemble.beats import Heart, Pulse, says
from muster.assemble.context import TERMINATED, Context
from muster.assemble.ends import say_ended
from muster.assemble.main_config import agreed, differences
from muster.assemble.meeting import Newcomer
from muster.assemble.members import Assembly, Member
from muster.assemble.parameters import Parameters
from muster.assemble.running import EVICTED, NodeEnd, Told
from muster.assemble.stopping import blames, read_stop, say_stop, stop_text, stopped_well
from muster.assemble.workdir import BEAT, WorkDir
from muster.errors import EXIT_OK, EXIT_RUN_FAILED, EngineError

#: How long a node that has failed waits for what the main node has to say of it (seconds). The
#: main node has to see first which of the others live.
_AFTERWARDS = 60.0
#: The same for one that the others can do without: nobody judges its end.
_ALONE = 10.0


def live_other(
    parameters: Parameters,
    workdir: WorkDir,
    say: Callable[[str], None],
    context_of: Callable[[Parameters], AbstractContextManager[Context]],
) -> int:
    """Its whole life. context_of: what it knows by those parameters. Returns its exit code. Raises
    EngineError, Stopped."""
    address = parameters.address or own_address()
    say(f"{parameters.mode.lower()} at {address}, in {workdir.place}; waiting for the main node")
    newcomer = Newcomer(workdir, parameters, say)
    while True:
        found = newcomer.await_main()
        for difference in differences(parameters, found):
            say(difference)
        with context_of(agreed(parameters, found)) as context:
            me = context.member()
            try:
                assembly = newcomer.join(me, found)
            finally:
                with suppress(EngineError):  # it is of no use any more, and does no harm
                    workdir.remove(me.file)
            if assembly is not None:
                say(f"joined as node {assembly.rank_of(me.run)} of {len(assembly.members)}")
                return _Part(context, assembly, me).live()


_MAIN_IS_GONE = Told("the main node is gone", failed=True)


class _Part:
    """This node's part in a cluster that has come together."""

    def __init__(self, context: Context, assembly: Assembly, me: Member) -> None:
        self._context = context
        self._workdir = context.workdir
        self._assembly = assembly
        self._cluster = assembly.cluster
        self._me = me
        self._serves = not context.role(me).program
        self._needed = any(member.run == me.run for member in context.needed(assembly))
        self._heart = Heart(context.workdir, me.beat_file, assembly.cluster)
        self._pulse = Pulse(assembly.cluster, context.workdir.interval)
        self._end: NodeEnd | None = None
        self._asked = False
        self._main_gone = False

    def live(self) -> int:
        """Run it. Returns the exit code."""
        try:
            watchers = (self._beat, self._stopped, self._main_is_gone)
            self._end = self._context.start(self._assembly, *watchers).run(lambda: None)
            return self._finish(self._end)
        except BaseException as error:
            # whatever it is that ends us, nobody shall wait for us
            text = str(error) if isinstance(error, Exception) else EVICTED.why
            end = NodeEnd(EXIT_RUN_FAILED, signal=signal.SIGTERM, at=time.time())
            self._say_ended(self._end.outcome if self._end else text, end)
            self._say_failed(text)
            raise

    def _finish(self, end: NodeEnd) -> int:
        evicted = end.told == EVICTED
        if end.told is not None and not evicted:
            self._say_ended(end.outcome, end)
            self._context.say(end.told.why)
            return EXIT_RUN_FAILED if end.told.failed else EXIT_OK
        if evicted:
            self._say_ended(EVICTED.why, replace(end, exit_code=TERMINATED))
            self._context.say(EVICTED.why)
            self._say_failed(EVICTED.why)
            return TERMINATED
        if end.exit_code == 0:
            return self._finish_well(end)
        self._say_ended(end.outcome, end)
        # who never was ready has hardly failed of the end of others
        stop = self._await_stop(_AFTERWARDS if self._needed else _ALONE) if end.ready else None
        code = end.exit_code or EXIT_RUN_FAILED
        if stop is not None:
            self._context.say(f"{end.outcome}; {stop_text(stop)}")
            ours = not stopped_well(stop) and blames(stop, self._me.run)
            return code if ours else EXIT_OK if stopped_well(stop) else EXIT_RUN_FAILED
        if self._main_gone:
            self._context.say(f"{end.outcome}; {_MAIN_IS_GONE.why}")
            return EXIT_RUN_FAILED
        self._context.say(end.outcome)
        self._say_failed(end.outcome)
        return code

    def _finish_well(self, end: NodeEnd) -> int:
        """A program that has ended well is a success of its own; what only serves others ends with
        them, and they may have failed."""
        stop = None
        with self._context.if_possible():
            stop = read_stop(self._workdir.insisting, self._cluster)
        if stop is None and not self._serves:
            self._say_ended(end.outcome, end)
            self._context.say(end.outcome)
            return EXIT_OK
        if stop is None:
            self._context.say("this node's service has ended; waiting for the main node's word")
            stop = self._await_stop(None)
        self._say_ended(end.outcome, end)
        self._context.say(_MAIN_IS_GONE.why if stop is None else stop_text(stop))
        return EXIT_OK if stop is not None and stopped_well(stop) else EXIT_RUN_FAILED

    def _await_stop(self, seconds: float | None) -> Any:
        """The stop file, if there is one in that time (None: as long as the main node lives): what
        ended us may have been the end of others."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            with suppress(EngineError):  # the store may be back the next time
                stop = read_stop(self._workdir, self._cluster)
                if stop is not None:
                    return stop
                if self._main_is_gone() is not None:
                    return None
                if deadline is None:
                    self._beat()  # as long as we wait, we are here
            # that it is gone takes a while to see, and then it is what we have failed of
            if deadline is not None and time.monotonic() >= deadline and not self._pulse.quiet:
                return None
            time.sleep(self._workdir.interval)

    def _say_ended(self, why: str, end: NodeEnd) -> None:
        with self._context.if_possible():
            say_ended(self._workdir.insisting, self._me, why, end)
            self._workdir.remove(self._me.beat_file)

    def _say_failed(self, why: str) -> None:
        """Our end is the first failure. Where others cannot do without us, it is theirs."""
        if self._needed:
            why = f"{self._me.mode} {socket.gethostname()} failed: {why}"
            with self._context.if_possible():
                say_stop(
                    *(self._workdir.insisting, self._cluster, why), failed=True, cause=self._me.run
                )

    # --- what may end it

    def _beat(self) -> Told | None:
        if self._needed:  # nobody looks for the others
            self._heart.beat(asked=self._asked)
        return None

    def _stopped(self) -> Told | None:
        stop = read_stop(self._workdir, self._cluster)
        return Told(stop_text(stop), failed=not stopped_well(stop)) if stop is not None else None

    def _main_is_gone(self) -> Told | None:
        beat = self._workdir.read(BEAT)
        self._asked = says(beat, "asks", self._cluster)
        self._main_gone = self._pulse.gone(beat, time.monotonic())
        return _MAIN_IS_GONE if self._main_gone else None
