"""A session of an engine in its own process, as in a supervisor, driven by a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from muster.frameworks.base import RoleSetup
from muster.lifecycle.policy import GroupPolicy, Policy, Success
from muster.plan.model import GroupPlan, NodePlan, ResourcePlan, RunPlan
from support.faults import until

#: Carries out the calls on its standard input and prints the events, one per line.
HOST = """
    import json, os, sys
    from pathlib import Path
    import msgspec
    from muster.engines.base import RunContext
    from muster.engines.loop import EventLoop, RunLoop
    from muster.engines.registry import engine_named
    from muster.lifecycle.events import SessionClosed
    from muster.lifecycle.status import NodeRef
    from muster.plan.model import RunPlan
    from muster.storage.home import Home

    kind, folder, plan, keep = sys.argv[1:]
    home = Home(Path(folder))
    engine = engine_named(kind.partition("-")[0])
    engine.prepare_parent(plain=kind == "local-plain")
    printed, printing = os.pipe()
    child = os.fork()
    if child:
        print(child, flush=True)
        os.write(printing, b"!")
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
    os.read(printed, 1)
    engine.prepare_supervisor()
    plan = RunPlan.from_json(json.loads(plan))
    context = RunContext(plan, home, dict(os.environ), sys.executable, keep == "keep")
    loop = EventLoop()
    closed = []

    def report(events):
        for event in events:
            if isinstance(event, SessionClosed):
                closed.append(event)
                continue
            name = type(event).__name__
            print(json.dumps({"event": name, **msgspec.to_builtins(event)}), flush=True)

    def fail(error):
        raise error

    print("ready", flush=True)
    session = engine.open(context, RunLoop(loop, fail), report)
    pending, connected = b"", True

    def call(ready):
        global pending, connected
        data = os.read(0, 65536)
        if not data:
            connected = False
            calls.close()
        pending += data
        *lines, pending = pending.split(b"\\n")
        for line in lines:
            name, before, refs, after = json.loads(line)
            getattr(session, name)(*before, [NodeRef(*ref) for ref in refs], *after)

    calls = loop.add(call)
    calls.watch(0)
    while connected:
        loop.run_once()
    session.close()
    session.close()
    while not closed:
        loop.run_once()
    assert len(closed) == 1
    session.finish_logs()
"""

Event = dict[str, Any]


class Session:
    """The remote end of a session, driven as by its controller; `pid` is the session's process."""

    def __init__(self, kind: str, home: Path, plan: RunPlan, *, keep: bool = False) -> None:
        self.home, self.plan, self.engine = home, plan, kind.partition("-")[0]
        argv = [sys.executable, "-c", textwrap.dedent(HOST), kind, str(home)]
        self.process = subprocess.Popen(
            [*argv, json.dumps(plan.to_json()), "keep" if keep else ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.process.stdout is not None
        self.pid = int(self.process.stdout.readline())
        assert self.process.stdout.readline() == "ready\n"

    # --- calls

    def start(self, *ranks: int, incarnation: int = 0, attempt: int = 0) -> None:
        self._call("start", ranks, incarnation, before=[attempt])

    def stop(self, *ranks: int, incarnation: int = 0) -> None:
        self._call("stop", ranks, incarnation)

    def kill(self, *ranks: int, incarnation: int = 0) -> None:
        self._call("kill", ranks, incarnation)

    def release(self, *ranks: int, incarnation: int = 0) -> None:
        self._call("release", ranks, incarnation)

    def signal(self, number: int, *ranks: int, incarnation: int = 0) -> None:
        self._call("signal", ranks, incarnation, after=[number])

    def _call(
        self, name: str, ranks: Iterable[int], incarnation: int, before: Any = (), after: Any = ()
    ) -> None:
        assert self.process.stdin is not None
        refs = [[rank, incarnation] for rank in ranks]
        self.process.stdin.write(json.dumps([name, before, refs, after]) + "\n")
        self.process.stdin.flush()

    # --- events

    def event(self) -> Event:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the session ended"
        event: Event = json.loads(line)
        return event

    def until(self, kind: str, *ranks: int, incarnation: int = 0) -> dict[int, Event]:
        """Events until one of this kind has arrived for this incarnation of each of these ranks."""
        found: dict[int, Event] = {}
        while set(found) != set(ranks):
            event = self.event()
            if event.get("rank") not in ranks:  # of another node, or of the run
                continue
            assert event["incarnation"] == incarnation, event
            if event["event"] == kind:
                assert event["rank"] not in found, "an event is reported once"
                found[event["rank"]] = event
            assert event["event"] in (kind, "NodeStarted", "NodeReady"), event
        return found

    def ended(self, *ranks: int, incarnation: int = 0) -> dict[int, Event]:
        return self.until("NodeEnded", *ranks, incarnation=incarnation)

    def ready(self, *ranks: int, incarnation: int = 0) -> None:
        self.until("NodeReady", *ranks, incarnation=incarnation)

    def close(self) -> int:
        """End the session. No unread events may be left."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        rest = self.process.stdout.read()
        self.process.stdout.close()
        code = self.process.wait(60)
        assert rest == "", "no event is left"
        return code

    # --- observation

    @property
    def folder(self) -> Path:
        return self.home / "runs" / self.plan.run_id

    def output(self, rank: int = 0, stream: str = "out", attempt: int = 0) -> str:
        return (self.folder / f"logs/{attempt}/workers-{rank}.{stream}").read_text()

    def wait_for_output(self, text: str, rank: int = 0, attempt: int = 0) -> None:
        """Return when the output of a node contains the text."""

        def is_written() -> bool:
            assert self.process.poll() is None, "the session ended"
            try:
                return text in self.output(rank, attempt=attempt)
            except FileNotFoundError:  # the node was not started yet
                return False

        until(is_written, f"{text!r} in the output of node {rank}", pause=0.005)

    def agents(self) -> list[int]:
        """The pids of the nodes' agents, in the order they were started."""
        text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in text.split()]


def make_plan(command: str, nodes: int = 1, **more: Any) -> RunPlan:
    """One group, `workers`, whose nodes run a shell command."""
    run_id = f"t{os.urandom(5).hex()}"
    network = more.pop("network", "shared")
    mine = os.urandom(2)
    base = "10.77.0" if network == "isolated" else f"127.{mine[0] | 1}.{mine[1]}"
    group = GroupPlan(
        name="workers",
        first_rank=0,
        replicas=1,
        nodes=nodes,
        command=("sh", "-c", command),
        args=(),
        env=more.pop("env", {}),
        framework_env={"RANK": "${process.rank}", "HEAD": "${roster.0.address}"},
        resources=more.pop("resources", ResourcePlan()),
        probe=more.pop("probe", None),
        hang_timeout=more.pop("hang_timeout", None),
        role=more.pop("role", RoleSetup()),
    )
    policy = Policy(
        groups=(GroupPolicy("workers", 0, 1, nodes, 1),),
        success=Success((0,)),
        max_runtime=3600.0,
        grace_period=more.pop("grace_period", 0.2),
    )
    return RunPlan(
        run_id=run_id,
        run_name="demo-1",
        job_id="job",
        job_name="demo",
        framework="generic",
        processes_per_node=more.pop("processes_per_node", 1),
        network=network,
        network_reason="",
        node_outputs=True,
        policy=policy,
        groups=(group,),
        nodes=tuple(
            NodePlan(
                rank,
                "workers",
                0,
                rank,
                f"{run_id}-{rank}",
                f"node-{rank}",
                f"{base}.{rank + 1}",
                f"node-{rank}",
            )
            for rank in range(nodes)
        ),
        **more,
    )
