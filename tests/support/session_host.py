"""Runs a session of an engine for `support.sessions`, in a process of its own as in a supervisor.

    python session_host.py KIND HOME PLAN KEEP ALIVE TURN

Prints its pid, and `ready`; then it carries out the calls on its standard input, and prints the
events, one per line, and what is wrong with them (`support.session_rules`). The end of its input
closes the session.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from muster.engines.base import Engine, RunContext, Session
from muster.engines.loop import EventLoop, RunLoop
from muster.engines.registry import engine_named
from muster.lifecycle.events import EngineEvent, NodeEnded, NodeReady, NodeStarted, SessionClosed
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef, NodeStatus
from muster.plan.model import GroupPlan, RunPlan
from muster.storage.home import Home
from support.session_rules import SessionRules, checked
from support.sessions import engine_of


def main(kind: str, folder: str, plan: str, keep: str, alive: str, turn: str) -> None:
    home = Home(Path(folder))
    engine = engine_named(engine_of(kind), home)
    engine.prepare_parent(plain=kind == "local-plain")
    _fork()
    engine.prepare_supervisor()
    context = RunContext(
        RunPlan.from_json(json.loads(plan)),
        home,
        dict(os.environ),
        sys.executable,
        keep == "keep",
        alone=kind != "local-shared",
        alive={NodeRef(*ref): NodeStatus(NodeState(state)) for *ref, state in json.loads(alive)},
        turn=int(turn),
    )
    loop = EventLoop()
    other = None if context.alone else OtherRun(engine, context, loop)
    Host(engine, context, loop).drive()
    if other is not None:
        other.end()


def _fork() -> None:
    """Continue in a child, whose pid is printed first. The parent ends when it does, as it does."""
    printed, printing = os.pipe()
    child = os.fork()
    if child:
        print(child, flush=True)
        os.write(printing, b"!")
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
    os.read(printed, 1)


def fail(error: Exception) -> None:
    raise error


class Host:
    """The session, and the calls that are read."""

    def __init__(self, engine: Engine, context: RunContext, loop: EventLoop) -> None:
        self._loop = loop
        self._rules = SessionRules(context.alive)
        self._closed: list[EngineEvent] = []
        self._pending, self._connected = b"", True
        report = checked(self._rules, self._print, self._complain)
        self._session: Session = engine.open(context, RunLoop(loop, fail), report)
        self._complain(self._rules.opened())
        print("ready", flush=True)
        self._calls = loop.add(self._read)
        self._calls.watch(0)

    def drive(self) -> None:
        """Carry out calls until there are no more, and close the session."""
        while self._connected and not self._closed:
            self._loop.run_once()
        if self._closed:  # it has left its nodes
            return
        self._session.close()
        self._session.close()
        while not self._closed:
            self._loop.run_once()
        self._session.finish_logs()

    def _read(self, ready: Mapping[int, int]) -> None:
        data = os.read(0, 65536)
        if not data:
            self._connected = False
            self._calls.close()
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            name, before, refs, after = json.loads(line)
            self._call(name, before, [NodeRef(*ref) for ref in refs], after)

    def _call(self, name: str, before: Sequence[Any], refs: list[NodeRef], after: Any) -> None:
        if name == "leave":
            self._session.leave()  # type: ignore[attr-defined]
            return
        if name == "start":
            self._rules.start(refs)
        getattr(self._session, name)(*before, refs, *after)

    def _print(self, events: Sequence[EngineEvent]) -> None:
        for event in events:
            if isinstance(event, SessionClosed):
                self._closed.append(event)
            else:
                name = type(event).__name__
                print(json.dumps({"event": name, **msgspec.to_builtins(event)}), flush=True)

    def _complain(self, wrong: list[str]) -> None:
        for why in wrong:
            print(json.dumps({"wrong": why}), flush=True)


class OtherRun:
    """A session of another run in the same process, whose node runs until it is ended."""

    def __init__(self, engine: Engine, context: RunContext, loop: EventLoop) -> None:
        assert engine.may_share()
        plan = context.plan
        group = GroupPlan("workers", 0, 1, len(plan.nodes), ("sleep", "1000"))
        plan = msgspec.structs.replace(
            plan, run_id=f"{plan.run_id}-o", groups=(group,), network="shared"
        )
        context.home.run_dir(plan.run_id).path.mkdir()
        self._loop = loop
        self._events: list[EngineEvent] = []
        context = msgspec.structs.replace(context, plan=plan)
        self._session = engine.open(context, RunLoop(loop, fail), self._events.extend)
        self._session.start(0, [NodeRef(0, 0)])
        self._until(NodeReady)

    def _until(self, kind: type[EngineEvent]) -> None:
        while not any(isinstance(event, kind) for event in self._events):
            self._loop.run_once()

    def end(self) -> None:
        """End it. Nothing has happened to it meanwhile."""
        assert {type(one) for one in self._events} == {NodeStarted, NodeReady}, self._events
        self._session.kill([NodeRef(0, 0)])
        self._until(NodeEnded)
        self._session.close()
        self._until(SessionClosed)
        self._session.finish_logs()


if __name__ == "__main__":
    main(*sys.argv[1:])
