"""A session of an engine in a process of its own, as it is in a supervisor, driven by hand."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from muster.frameworks.base import RoleSetup
from muster.lifecycle.policy import GroupPolicy, Policy, Success
from muster.plan.model import GroupPlan, NodePlan, ResourcePlan, RunPlan

#: It carries out calls line by line and prints the events it sees.
HOST = """
    import json, os, select, sys
    from pathlib import Path
    import msgspec
    from muster.engines.base import RunContext
    from muster.engines.local.engine import LocalEngine
    from muster.engines.local.isolation import Isolation, enclose, settle
    from muster.lifecycle.status import NodeRef
    from muster.plan.model import RunPlan
    from muster.storage.home import Home

    kind, folder, plan, keep = sys.argv[1:]
    home = Home(Path(folder))
    isolation = enclose() if kind == "local-namespaces" else Isolation("plain")
    child = os.fork()
    if child:
        print(child, flush=True)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
    if isolation.namespaces:
        settle()
    plan = RunPlan.from_json(json.loads(plan))
    context = RunContext(plan, home, dict(os.environ), sys.executable, keep == "keep")
    session = LocalEngine(isolation).open(context)
    print("ready", flush=True)
    pending = b""
    while True:
        for event in session.events(None, 0):
            name = type(event).__name__
            print(json.dumps({"event": name, **msgspec.to_builtins(event)}), flush=True)
        if select.select([0], [], [], 0)[0]:
            data = os.read(0, 65536)
            if not data:
                break
            pending += data
            *lines, pending = pending.split(b"\\n")
            for line in lines:
                name, before, refs, after = json.loads(line)
                getattr(session, name)(*before, [NodeRef(*ref) for ref in refs], *after)
    session.close()
    session.close()
    session.seal()
"""

Event = dict[str, Any]


class Session:
    """The far end of a session, driven as its controller would. pid: of the session itself."""

    def __init__(self, kind: str, home: Path, plan: RunPlan, *, keep: bool = False) -> None:
        self.home, self.plan = home, plan
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

    def start(self, *ranks: int, life: int = 0, attempt: int = 0) -> None:
        self._call("start", ranks, life, before=[attempt])

    def stop(self, *ranks: int, life: int = 0) -> None:
        self._call("stop", ranks, life)

    def kill(self, *ranks: int, life: int = 0) -> None:
        self._call("kill", ranks, life)

    def release(self, *ranks: int, life: int = 0) -> None:
        self._call("release", ranks, life)

    def signal(self, number: int, *ranks: int, life: int = 0) -> None:
        self._call("signal", ranks, life, after=[number])

    def _call(
        self, name: str, ranks: Iterable[int], life: int, before: Any = (), after: Any = ()
    ) -> None:
        assert self.process.stdin is not None
        refs = [[rank, life] for rank in ranks]
        self.process.stdin.write(json.dumps([name, before, refs, after]) + "\n")
        self.process.stdin.flush()

    # --- events

    def event(self) -> Event:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the session ended"
        event: Event = json.loads(line)
        return event

    def until(self, kind: str, *ranks: int, life: int = 0) -> dict[int, Event]:
        """Events up to the one of this kind for this life of each of these ranks."""
        found: dict[int, Event] = {}
        while set(found) != set(ranks):
            event = self.event()
            if event["rank"] not in ranks:
                continue
            assert event["incarnation"] == life, event
            if event["event"] == kind:
                assert event["rank"] not in found, "told twice"
                found[event["rank"]] = event
            assert event["event"] in (kind, "NodeStarted", "NodeReady"), event
        return found

    def ended(self, *ranks: int, life: int = 0) -> dict[int, Event]:
        return self.until("NodeEnded", *ranks, life=life)

    def ready(self, *ranks: int, life: int = 0) -> None:
        self.until("NodeReady", *ranks, life=life)

    def close(self) -> int:
        """End it. Nothing may be left to tell."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        rest = self.process.stdout.read()
        self.process.stdout.close()
        code = self.process.wait(60)
        assert rest == "", "nothing was left to tell"
        return code

    # --- what can be seen of it

    @property
    def folder(self) -> Path:
        return self.home / "runs" / self.plan.run_id

    def output(self, rank: int = 0, stream: str = "out", attempt: int = 0) -> str:
        return (self.folder / f"logs/{attempt}/workers-{rank}.{stream}").read_text()

    def says(self, text: str, rank: int = 0, attempt: int = 0) -> str:
        """Its output, once this is in it."""
        found = ""
        while text not in found:
            assert self.process.poll() is None
            with contextlib.suppress(FileNotFoundError):  # it has not been started
                found = self.output(rank, attempt=attempt)
        return found

    def agents(self) -> list[int]:
        """The pids of the nodes' agents, in the order they were started."""
        text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    def silent(self) -> bool:
        """Whether nothing was told that was not heard."""
        return not select.select([self.process.stdout], [], [], 0)[0]


def make_plan(command: str, nodes: int = 1, **more: Any) -> RunPlan:
    """One group, `workers`, of so many nodes that run a shell command."""
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
