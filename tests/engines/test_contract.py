"""What every engine must do, asked of each through its session and nothing else.

An engine joins by adding itself to ENGINES. The local engine is asked twice: with namespaces and
plain.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from muster.plan.model import GroupPlan, NodePlan, ResourcePlan, RunPlan

ENGINES = ["local-namespaces", "local-plain"]

#: A session lives in a process of its own, as it does in a supervisor: this is that process. It
#: carries out calls line by line and prints the events it sees.
HOST = """
    import json, os, select, sys
    from pathlib import Path
    import msgspec
    from muster.engines.base import RunContext
    from muster.engines.local.engine import LocalEngine
    from muster.engines.local.isolation import Isolation, enclose, settle
    from muster.plan.model import RunPlan
    from muster.storage.home import Home

    kind, home, plan = sys.argv[1], Home(Path(sys.argv[2])), json.loads(sys.argv[3])
    isolation = enclose() if kind == "local-namespaces" else Isolation("plain")
    child = os.fork()
    if child:
        print(child, flush=True)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
    if isolation.namespaces:
        settle()
    plan = RunPlan.from_json(plan)
    context = RunContext(plan, 0, home, dict(os.environ), sys.executable)
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
                name, *arguments = json.loads(line)
                getattr(session, name)(*arguments)
    session.close()
    session.seal()
"""


class Session:
    """The far end of a session, driven as its controller would."""

    def __init__(self, kind: str, home: Path, plan: RunPlan) -> None:
        import json

        argv = [sys.executable, "-c", textwrap.dedent(HOST), kind, str(home)]
        self.process = subprocess.Popen(
            [*argv, json.dumps(plan.to_json())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.pid = int(self.process.stdout.readline())
        assert self.process.stdout.readline() == "ready\n"

    def call(self, name: str, ranks: Sequence[int]) -> None:
        import json

        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, list(ranks)]) + "\n")
        self.process.stdin.flush()

    def event(self) -> dict[str, Any]:
        import json

        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the session ended"
        event: dict[str, Any] = json.loads(line)
        return event

    def until(self, kind: str, ranks: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Events up to the one of this kind for each of these ranks."""
        found: dict[int, dict[str, Any]] = {}
        while set(found) != set(ranks):
            event = self.event()
            if event["event"] == kind:
                assert event["rank"] not in found, "told twice"
                found[event["rank"]] = event
        return found

    def close(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        rest = self.process.stdout.read()
        self.process.stdout.close()
        code = self.process.wait(60)
        assert rest == "", "nothing was left to tell"
        return code


def make_plan(command: str, nodes: int = 1, **more: Any) -> RunPlan:
    run_id = f"t{os.urandom(5).hex()}"
    network = more.pop("network", "shared")
    base = "10.77.0" if network == "isolated" else f"127.{os.urandom(1)[0] | 1}.9"
    group = GroupPlan(
        name="workers",
        first_rank=0,
        replicas=1,
        nodes=nodes,
        min_success=1,
        command=("sh", "-c", command),
        args=(),
        env=more.pop("env", {}),
        framework_env={"RANK": "${process.rank}", "HEAD": "${roster.0.address}"},
        resources=more.pop("resources", ResourcePlan()),
        probe=more.pop("probe", None),
    )
    return RunPlan(
        run_id=run_id,
        run_name="demo-1",
        job_id="job",
        job_name="demo",
        framework="generic",
        processes_per_node=more.pop("processes_per_node", 1),
        in_order=False,
        network=network,
        network_reason="",
        max_runtime=60,
        grace_period=0.2,
        groups=(group,),
        nodes=tuple(
            NodePlan(r, "workers", 0, r, f"{run_id}-{r}", f"node-{r}", f"{base}.{r + 1}")
            for r in range(nodes)
        ),
        **more,
    )


@pytest.fixture(params=ENGINES)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def session(kind: str, own_home: Path) -> Iterator[Callable[..., Session]]:
    made: list[Session] = []

    def make(command: str, nodes: int = 1, **more: Any) -> Session:
        plan = make_plan(command, nodes, **more)
        (own_home / "runs" / plan.run_id).mkdir(parents=True)
        made.append(Session(kind, own_home, plan))
        return made[-1]

    yield make
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            os.kill(one.pid, signal.SIGKILL)
            one.process.wait(30)
        for pipe in (one.process.stdin, one.process.stdout):
            if pipe is not None:
                pipe.close()


def output(home: Path, rank: int = 0, stream: str = "out") -> str:
    (path,) = home.glob(f"runs/*/logs/0/workers-{rank}.{stream}")
    return path.read_text()


def test_life_of_nodes(session: Callable[..., Session], own_home: Path) -> None:
    one = session("echo rank $RANK of $INITIAL_CLUSTER_SIZE head $HEAD", nodes=3)
    one.call("start", [0, 1, 2])
    ended = one.until("NodeEnded", [0, 1, 2])
    assert {(e["exit_code"], e["signal"], e["reason"]) for e in ended.values()} == {(0, 0, "exit")}
    assert one.close() == 0
    for rank in range(3):
        assert output(own_home, rank).startswith(f"rank {rank} of 3 head 127.")


def test_only_what_was_started_runs(session: Callable[..., Session]) -> None:
    one = session("true", nodes=3)
    one.call("start", [1])
    assert list(one.until("NodeEnded", [1])) == [1]
    one.call("start", [0, 2])
    one.until("NodeEnded", [0, 2])
    assert one.close() == 0


def test_starting_twice_starts_once(session: Callable[..., Session], own_home: Path) -> None:
    one = session("echo once; exec sleep 1000")
    one.call("start", [0])
    one.call("start", [0])
    one.until("NodeReady", [0])
    one.call("start", [0])
    while not output(own_home):
        time.sleep(0.001)
    one.call("kill", [0])
    one.until("NodeEnded", [0])
    assert one.close() == 0
    assert output(own_home) == "once\n"


@pytest.mark.parametrize(
    ("command", "code", "number", "words"),
    [
        ("exit 21", 21, 0, ""),
        ("echo one >&2; echo two >&2; exit 3", 3, 0, "one\ntwo"),
        ("kill -SEGV $$", 139, 11, ""),
        ("exec no-such-thing", 127, 0, "no-such-thing: not found"),
    ],
)
def test_how_a_node_failed(
    session: Callable[..., Session], command: str, code: int, number: int, words: str
) -> None:
    one = session(command)
    one.call("start", [0])
    ended = one.until("NodeEnded", [0])[0]
    assert (ended["exit_code"], ended["signal"]) == (code, number)
    assert words in ended["message"]
    assert one.close() == 0


def test_stop_asks_and_kill_does_not(session: Callable[..., Session], own_home: Path) -> None:
    one = session("trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.01; done", nodes=2)
    one.call("start", [0, 1])
    one.until("NodeReady", [0, 1])
    while "up" not in output(own_home, 0) or "up" not in output(own_home, 1):
        time.sleep(0.001)
    one.call("stop", [0])
    assert one.until("NodeEnded", [0])[0]["exit_code"] == 0
    one.call("kill", [1])
    assert one.until("NodeEnded", [1])[1]["signal"] == signal.SIGKILL
    assert one.close() == 0
    assert output(own_home, 0) == "up\nasked\n"
    assert output(own_home, 1) == "up\n"


ESCAPE = "setsid sh -c 'setsid sleep 98761 & sleep 98761' & while :; do sleep 0.01; done"


@pytest.mark.parametrize("way", ["kill", "stop", "close", "end"])
def test_no_process_outlives_its_node(
    session: Callable[..., Session], alive: Callable[[str], list[str]], way: str
) -> None:
    mark = f"MARK={os.urandom(8).hex()}"
    command = ESCAPE.replace("while", "sleep 0.2; exit 0; while") if way == "end" else ESCAPE
    one = session(command, nodes=2, env=dict([mark.split("=")]))
    one.call("start", [0, 1])
    one.until("NodeReady", [0, 1])
    if way in ("kill", "stop"):
        one.call(way, [0, 1])
    if way != "close":
        one.until("NodeEnded", [0, 1])
        assert alive(mark) == [], "an end is told when nothing is left"
    if way == "close":
        one.process.stdin.close()  # type: ignore[union-attr]
        one.process.wait(30)
    else:
        one.close()
    assert alive(mark) == []


def test_no_process_outlives_a_session_that_is_killed(
    session: Callable[..., Session], alive: Callable[[str], list[str]], kind: str
) -> None:
    mark = f"MARK={os.urandom(8).hex()}"
    one = session(ESCAPE, nodes=2, env=dict([mark.split("=")]))
    one.call("start", [0, 1])
    one.until("NodeReady", [0, 1])
    assert alive(mark)
    os.kill(one.pid, signal.SIGKILL)
    one.process.wait(30)
    if kind == "local-namespaces":
        # its death was the kernel's order, carried out before we were told of it
        assert alive(mark) == []
    else:
        deadline = time.monotonic() + 30
        while alive(mark):
            assert time.monotonic() < deadline, "each agent ends its node when it is left alone"


def test_a_lost_node_is_told(session: Callable[..., Session], kind: str) -> None:
    one = session("while :; do sleep 0.01; done", nodes=2)
    one.call("start", [0, 1])
    one.until("NodeReady", [0, 1])
    children = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    ended = one.event()
    assert (ended["event"], ended["reason"]) == ("NodeEnded", "node_lost")
    one.call("kill", [1 - ended["rank"]])
    one.until("NodeEnded", [1 - ended["rank"]])
    assert one.close() == 0


def test_names_addresses_and_the_cluster_file(
    session: Callable[..., Session], own_home: Path, kind: str
) -> None:
    count = "while [ $(grep -c FQDN $CLUSTER_NODES_METADATA_FILE) != 3 ]; do sleep 0.001; done"
    names = "hostname; getent hosts node-2 | cut -d' ' -f1; " if "names" in kind else ""
    one = session(f"{count}; {names} cat $CLUSTER_NODES_METADATA_FILE", nodes=3)
    one.call("start", [0, 1, 2])
    ended = one.until("NodeEnded", [0, 1, 2])
    assert all(e["exit_code"] == 0 for e in ended.values())
    one.close()
    import json

    for rank in range(3):
        lines = output(own_home, rank).splitlines()
        if names:
            name, address, *lines = lines
        members = json.loads("\n".join(lines))
        assert [m["Rank"] for m in members] == ["0", "1", "2"]
        assert set(members[0]) == {
            "IpAddress",
            "IPAddress",
            "FQDN",
            "Rank",
            "NodeGroupName",
            "NodeId",
        }
        if names:
            assert name == f"node-{rank}"
            assert address == members[2]["IpAddress"]


def test_processes_of_a_node(session: Callable[..., Session], own_home: Path) -> None:
    one = session("echo $RANK", nodes=2, processes_per_node=3)
    one.call("start", [0, 1])
    one.until("NodeEnded", [0, 1])
    one.close()
    said = [p.read_text().strip() for p in own_home.glob("runs/*/logs/0/*.out")]
    assert sorted(said) == ["0", "1", "2", "3", "4", "5"]


def test_nodes_have_files_of_their_own(session: Callable[..., Session], own_home: Path) -> None:
    one = session("echo $RANK > mine; echo $RANK > $TMPDIR/mine; ls | wc -l; cat mine", nodes=3)
    one.call("start", [0, 1, 2])
    one.until("NodeEnded", [0, 1, 2])
    one.close()
    for rank in range(3):
        assert output(own_home, rank).split() == ["1", str(rank)]


def test_two_sessions_at_once_use_the_same_port(session: Callable[..., Session]) -> None:
    serve = (
        "python -c 'import os, socket, time; s = socket.create_server("
        '(os.environ["MUSTER_NODE_ADDRESS"], 7171)); print("up"); time.sleep(1000)\''
    )
    from muster.plan.model import ProbePlan

    probe = ProbePlan(period=0.01, timeout=1, threshold=3000, initial_delay=0, port=7171)
    both = [session(serve, nodes=2, probe=probe) for _ in range(2)]
    for one in both:
        one.call("start", [0, 1])
    for one in both:
        one.until("NodeReady", [0, 1])
        one.call("kill", [0, 1])
        one.until("NodeEnded", [0, 1])
        one.close()
