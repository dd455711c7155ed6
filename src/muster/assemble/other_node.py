"""Any other node: comes to the main one, works with it, and says how it has ended."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import Any

from muster.assemble.beats import Heart, Pulse
from muster.assemble.context import TERMINATED, Context
from muster.assemble.ends import say_ended
from muster.assemble.meeting import join
from muster.assemble.members import Assembly, Member
from muster.assemble.running import EVICTED, NodeEnd, Told
from muster.assemble.stopping import read_stop, say_stop, stop_text, stopped_well
from muster.assemble.workdir import BEAT
from muster.errors import EXIT_OK, EXIT_RUN_FAILED, EngineError

#: How long a node that fails looks whether the cluster is ending anyway (seconds).
_AFTERWARDS = 10.0


def live_other(context: Context) -> int:
    """Its whole life. Returns its exit code. Raises EngineError, Stopped."""
    workdir, say = context.workdir, context.say
    me = context.member()
    say(f"{me.mode.lower()} at {me.address}, in {workdir.place}; waiting for the main node")
    try:
        assembly = join(workdir, me, context.parameters)
    finally:
        with suppress(EngineError):  # it is of no use any more, and does no harm
            workdir.remove(me.file)
    say(f"joined as node {assembly.rank_of(me.run)} of {len(assembly.members)}")
    return _Part(context, assembly, me).live()


class _Part:
    """This node's part in a cluster that has come together."""

    def __init__(self, context: Context, assembly: Assembly, me: Member) -> None:
        self._context = context
        self._workdir = context.workdir
        self._assembly = assembly
        self._cluster = assembly.cluster
        self._me = me
        self._needed = any(member.run == me.run for member in context.needed(assembly))
        self._heart = Heart(context.workdir, me.beat_file, assembly.cluster)
        self._pulse = Pulse(assembly.cluster, context.workdir.interval)
        self._end: NodeEnd | None = None

    def live(self) -> int:
        """Run it. Returns the exit code."""
        try:
            watchers = (self._beat, self._stopped, self._main_is_gone)
            self._end = self._context.start(self._assembly, *watchers).run(lambda: None)
            return self._finish(self._end)
        except BaseException as error:
            # whatever it is that ends us, nobody shall wait for us
            text = str(error) if isinstance(error, Exception) else EVICTED.why
            self._say_ended(self._end.outcome if self._end else text, EXIT_RUN_FAILED)
            self._say_failed(text)
            raise

    def _finish(self, end: NodeEnd) -> int:
        evicted = end.told == EVICTED
        code = TERMINATED if evicted else end.exit_code
        why = EVICTED.why if evicted else end.outcome
        self._say_ended(why, code)
        if end.told is not None and not evicted:
            self._context.say(end.told.why)
            return EXIT_RUN_FAILED if end.told.failed else EXIT_OK
        # who never was ready has hardly failed of the end of others
        waits = code != 0 and not evicted and end.ready
        stop = self._stop_within(_AFTERWARDS if waits else 0.0)
        self._context.say(why if stop is None else f"{why}; {stop_text(stop)}")
        if stop is None and code != 0:
            self._say_failed(why)
            return code or EXIT_RUN_FAILED
        return EXIT_OK if stopped_well(stop) else EXIT_RUN_FAILED

    def _stop_within(self, seconds: float) -> Any:
        """The stop file, if there is one soon: what ended us may have been the end of others."""
        deadline = time.monotonic() + seconds
        while True:
            with self._context.if_possible():
                stop = read_stop(self._workdir.insisting, self._cluster)
                if stop is not None:
                    return stop
            if time.monotonic() >= deadline:
                return None
            time.sleep(self._workdir.interval)

    def _say_ended(self, why: str, code: int | None) -> None:
        with self._context.if_possible():
            say_ended(self._workdir.insisting, self._me, why, code)
            self._workdir.remove(self._me.beat_file)

    def _say_failed(self, why: str) -> None:
        """Our end is the first failure. Where others cannot do without us, it is theirs."""
        if self._needed:
            why = f"{self._me.mode} {socket.gethostname()} failed: {why}"
            with self._context.if_possible():
                say_stop(self._workdir.insisting, self._cluster, why, failed=True)

    # --- what may end it

    def _beat(self) -> Told | None:
        if self._needed:  # nobody looks for the others
            self._heart.beat()
        return None

    def _stopped(self) -> Told | None:
        stop = read_stop(self._workdir, self._cluster)
        return Told(stop_text(stop), failed=not stopped_well(stop)) if stop is not None else None

    def _main_is_gone(self) -> Told | None:
        gone = self._pulse.gone(self._workdir.read(BEAT), time.monotonic())
        return Told("the main node is gone", failed=True) if gone else None
