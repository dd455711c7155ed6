"""A session that starts many nodes answers its controller between two of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from support.sessions import make_plan

NODES = 40
#: In each round of the loop, one node is started.
SCRIPT = """
    import json, os, sys
    from pathlib import Path
    from muster.engines.base import RunContext
    from muster.engines.local import session as module
    from muster.engines.local.engine import LocalEngine
    from muster.engines.loop import EventLoop, RunLoop
    from muster.lifecycle.events import NodeEnded, NodeStarted
    from muster.lifecycle.status import NodeRef
    from muster.plan.model import RunPlan
    from muster.storage.home import Home

    module.START_SLICE = 0.0
    folder, plan, step = sys.argv[1:]
    plan = RunPlan.from_json(json.loads(plan))
    context = RunContext(plan, Home(Path(folder)), dict(os.environ), sys.executable)
    loop, reported = EventLoop(), []
    session = LocalEngine().open(context, RunLoop(loop, print), reported.extend)
    refs = [NodeRef(rank, 0) for rank in range(len(plan.nodes))]
    children = Path(f"/proc/self/task/{os.getpid()}/children")

    session.start(0, refs)
    loop.run_once()
    print(json.dumps({"forked": len(children.read_text().split()), "events": len(reported)}))
    if step == "kill":
        session.kill(refs)
    found = {}
    while len(found) < len(refs):
        loop.run_once()
        for event in reported:
            if isinstance(event, NodeStarted if step == "continue" else NodeEnded):
                found[event.rank] = getattr(event, "signal", 0)
    print(json.dumps(sorted(found.items())))
    session.close()
    print(json.dumps(children.read_text().split()))
"""


def run(home: Path, step: str) -> tuple[dict[str, int], dict[int, int], list[str]]:
    """What the script prints. step: what the controller does after the first round."""
    plan = make_plan("exec sleep 1000", NODES)
    (home / "runs" / plan.run_id).mkdir(parents=True)
    argv = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(home), json.dumps(plan.to_json())]
    done = subprocess.run([*argv, step], stdout=subprocess.PIPE, text=True, check=True)
    woken, found, left = map(json.loads, done.stdout.splitlines())
    return woken, dict(found), left


def test_the_start_of_many_nodes_leaves_time_for_others(own_home: Path) -> None:
    woken, started, left = run(own_home, "continue")
    assert woken == {"forked": 1, "events": 0}
    assert len(started) == NODES, "the session starts the other nodes afterwards"
    assert left == []


def test_nodes_in_the_queue_end_without_being_started(own_home: Path) -> None:
    woken, ended, left = run(own_home, "kill")
    assert woken["forked"] == 1
    assert sorted(ended) == list(range(NODES))
    queued = {rank: number for rank, number in ended.items() if rank > 0}
    assert set(queued.values()) == {signal.SIGTERM}
    assert left == []


# --- invalid messages

#: The agent of rank 0 sends an invalid message; it is the only process of the node.
INVALID = """
    import json, os, signal, sys
    from pathlib import Path
    import msgspec
    from muster.engines.base import RunContext
    from muster.engines.local import node_process
    from muster.engines.local.engine import LocalEngine
    from muster.engines.loop import EventLoop, RunLoop
    from muster.lifecycle.events import NodeEnded, NodeReady
    from muster.lifecycle.status import NodeRef
    from muster.plan.model import RunPlan
    from muster.storage.home import Home

    usual = node_process.run_agent

    def run_agent(channel, command, launch, renew):
        if launch.environment_of(0)["RANK"] == "0":
            os.write(channel.fileno(), b'{"type": []}\\n')
            signal.pause()
        usual(channel, command, launch, renew)

    node_process.run_agent = run_agent
    folder, plan = sys.argv[1:]
    plan = RunPlan.from_json(json.loads(plan))
    context = RunContext(plan, Home(Path(folder)), dict(os.environ), sys.executable)
    loop, reported = EventLoop(), []
    session = LocalEngine().open(context, RunLoop(loop, print), reported.extend)
    session.start(0, [NodeRef(0, 0), NodeRef(1, 0)])
    kinds = set()
    while kinds != {(0, "NodeEnded"), (1, "NodeReady")}:
        loop.run_once()
        while reported:
            event = reported.pop(0)
            if isinstance(event, NodeEnded):
                print(json.dumps(msgspec.to_builtins(event)))
            if isinstance(event, (NodeEnded, NodeReady)):
                kinds.add((event.rank, type(event).__name__))
    session.close()
"""


def test_a_node_whose_agent_sends_an_invalid_message_is_lost(own_home: Path) -> None:
    """The other nodes are not affected."""
    plan = make_plan("exec sleep 1000", 2)
    (own_home / "runs" / plan.run_id).mkdir(parents=True)
    script = textwrap.dedent(INVALID)
    argv = [sys.executable, "-c", script, str(own_home), json.dumps(plan.to_json())]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    (ended,) = map(json.loads, done.stdout.splitlines())
    assert (ended["rank"], ended["exit_code"], ended["signal"]) == (0, 137, signal.SIGKILL)
    assert (ended["reason"], ended["message"]) == (
        "node_lost",
        "its agent sent an invalid message: unknown message: {'type': []}",
    )


# --- a child that cannot be watched

#: The process has no file left for the second agent.
NO_FILE_LEFT = """
    import errno, json, os, sys
    from pathlib import Path
    import msgspec
    from muster.engines.base import RunContext
    from muster.engines.local.engine import LocalEngine
    from muster.engines.loop import EventLoop, RunLoop
    from muster.lifecycle.events import NodeEnded, NodeReady
    from muster.lifecycle.status import NodeRef
    from muster.plan.model import RunPlan
    from muster.storage.home import Home

    usual, calls = os.pidfd_open, []

    def pidfd_open(pid):
        calls.append(pid)
        if len(calls) == 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return usual(pid)

    os.pidfd_open = pidfd_open
    folder, plan = sys.argv[1:]
    plan = RunPlan.from_json(json.loads(plan))
    context = RunContext(
        plan, Home(Path(folder)), dict(os.environ), sys.executable, alone=False
    )
    loop, reported = EventLoop(), []
    session = LocalEngine().open(context, RunLoop(loop, print), reported.extend)
    session.start(0, [NodeRef(rank, 0) for rank in range(3)])
    found = {}
    while len(found) < 3:
        loop.run_once()
        for event in reported:
            if isinstance(event, (NodeEnded, NodeReady)):
                found[event.rank] = getattr(event, "message", "ready")
    print(json.dumps(sorted(found.items())))
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    print(json.dumps([str(calls[1]) in children.read_text().split(), len(calls)]))
    session.close()
"""


def test_a_child_that_cannot_be_watched_is_a_node_that_does_not_start(own_home: Path) -> None:
    plan = make_plan("exec sleep 1000", 3)
    (own_home / "runs" / plan.run_id).mkdir(parents=True)
    script = textwrap.dedent(NO_FILE_LEFT)
    argv = [sys.executable, "-c", script, str(own_home), json.dumps(plan.to_json())]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    found, left = map(json.loads, done.stdout.splitlines())
    assert [rank for rank, message in found if message == "ready"] == [0, 2]
    assert "open files" in dict(found)[1]
    assert left == [False, 3]
