"""Runs of a shared supervisor use the same agents, one after the other, and see nothing of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from muster.client.client import Client
from muster.client.run import JobRun
from muster.control import run_lock
from muster.engines.base import NodeCommand, Stdio
from muster.engines.local import agent_pool
from muster.engines.local.agent_pool import AgentPool, PooledAgent
from muster.engines.local.namespaces import probe
from muster.node.counters import NodeReading
from muster.node.messages import Idle
from muster.node.processes import children, state_of
from muster.storage.liveness import wait_for_process
from muster.storage.usage import NOTHING, read_usage
from support.embedded import embedded
from support.faults import until
from support.launchers import have_linger
from support.runs import output, output_of_success, until_ready
from support.sessions import make_plan

pytestmark = [
    pytest.mark.usefixtures("own_launcher"),
    pytest.mark.skipif(bool(probe()), reason="needs namespaces"),
]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="agents are reused for root only")


def start(client: Client, *command: str, **fields: Any) -> JobRun:
    job, new = client.job(None, command=list(command), **fields)
    return client.start(client.prepare_run(job, new_job=new))


def python(client: Client, code: str, **fields: Any) -> JobRun:
    return start(client, sys.executable, "-c", textwrap.dedent(code), **fields)


def supervisor(client: Client, run: JobRun) -> int:
    pid = run_lock.holder_pid(embedded(client).home.run_dir(run.id).lock)
    assert pid is not None
    return pid


@pytest.fixture
def idle_for() -> float:
    """Seconds until an idle agent ends."""
    return 600.0


@pytest.fixture
def lasting(client: Client, monkeypatch: pytest.MonkeyPatch, idle_for: float) -> Iterator[JobRun]:
    """A run that keeps the supervisor, which gets all other runs of the test."""
    have_linger(monkeypatch, idle_for)
    run = start(client, "sleep", "1000")
    until_ready(run)
    yield run
    if not run.refresh().done:
        run.cancel("the test is over")


#: Prints when the agent was started, and what a program can see of its node.
LOOK = """
    import glob, json, os, resource, socket
    def read(path):
        with open(path, errors="replace") as file:
            return file.read()
    status = dict(line.split(":", 1) for line in read("/proc/self/status").splitlines())
    files = {}
    for number in os.listdir("/proc/self/fd"):
        if os.path.lexists(f"/proc/self/fd/{number}"):
            files[number] = os.readlink(f"/proc/self/fd/{number}")
    mounts = read("/proc/self/mountinfo")
    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    found = {
        "mounts": sorted(line.split(" ", 3)[3] for line in mounts.splitlines()),
        "host": socket.gethostname(),
        "sysv": [read(path).splitlines()[1:] for path in sorted(glob.glob("/proc/sysvipc/*"))],
        "queues": read("/proc/sys/fs/mqueue/queues_max"),
        "shm": sorted(os.listdir("/dev/shm")),
        "temporary": os.listdir(os.environ["TMPDIR"]),
        "here": sorted(os.listdir(".")),
        "cwd": os.getcwd(),
        **{f"${k}": v for k, v in os.environ.items() if not k.startswith(("MUSTER_", "OCI_"))},
        "files": files,
        "signals": {name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt")},
        "umask": status["Umask"],
        "limits": [resource.getrlimit(getattr(resource, name)) for name in limits],
        "nice": os.nice(0),
        "cpus": sorted(os.sched_getaffinity(0)),
        "oom": read("/proc/self/oom_score_adj"),
        "timer slack": read("/proc/self/timerslack_ns"),
        "cgroup": read("/proc/self/cgroup"),
        "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
        "descriptors of the agent": len(os.listdir("/proc/1/fd")),
        "cwd of the agent": os.readlink("/proc/1/cwd"),
        "log of the agent": os.readlink("/proc/1/fd/2"),
    }
    print(json.dumps([read("/proc/1/stat").split()[-31], found]))
"""


def seen_by(run: JobRun) -> tuple[str, dict[str, Any]]:
    """When the agent of a run was started, and what the run has seen, with its id left out."""
    (line,) = output_of_success(run)
    agent, seen = json.loads(line.replace(run.id, "ID").replace(run.name, "NAME"))
    return agent, seen


def differences(seen: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {
        name: (seen.get(name), other.get(name))
        for name in seen.keys() | other.keys()
        if seen.get(name) != other.get(name)
    }


#: Does all of this to its node, and prints when its agent was started.
LITTER = """
    import ctypes, os, resource, signal, socket, subprocess, sys
    libc = ctypes.CDLL(None, use_errno=True)
    def check(result):
        assert result >= 0, os.strerror(ctypes.get_errno())
    check(libc.mount(b"tmpfs", b"/mnt", b"tmpfs", 0, None))
    check(libc.mount(b"tmpfs", b"/proc", b"tmpfs", 0, None))  # nothing can be learned from it
    check(libc.umount2(b"/proc", 0))
    socket.sethostname("littered")
    check(libc.shmget(1234, 4096, 0o1600))
    check(libc.semget(1234, 1, 0o1600))
    for folder in (".", "/dev/shm", "/mnt", os.environ["TMPDIR"]):
        with open(os.path.join(folder, "litter"), "w"):
            pass
    os.umask(0)
    os.nice(5)
    os.environ["LITTER"] = "1"
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGUSR2])
    for _ in range(3):  # daemons, which outlive their parents
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execvp("sleep", ["sleep", "1000"])
            os._exit(0)
    subprocess.Popen(["unshare", "--pid", "--fork", "sleep", "1000"])
    with open("/proc/1/stat") as file:
        print(file.read().split()[-31], flush=True)
"""


@as_root
def test_nothing_of_a_run_is_visible_in_the_next_one(client: Client, lasting: JobRun) -> None:
    fresh = seen_by(python(client, LOOK))
    (agent,) = output_of_success(python(client, LITTER, env={"SECRET": "1"}))
    assert agent == fresh[0], "the agent is used again"
    agent, seen = seen_by(python(client, LOOK))
    assert agent == fresh[0]
    assert differences(seen, fresh[1]) == {}


@as_root
@pytest.mark.parametrize(
    "change",
    [
        "os.setpriority(os.PRIO_PROCESS, 1, 5)",
        "resource.prlimit(1, resource.RLIMIT_CORE, (0, 0))",
        "os.sched_setaffinity(1, [min(os.sched_getaffinity(1))])",
        "open('/proc/1/oom_score_adj', 'w').write('500')",
        "open('/proc/1/timerslack_ns', 'w').write('70000')",
        "import subprocess; subprocess.run(['ionice', '-c', '3', '-p', '1'], check=True)",
    ],
)
def test_an_agent_that_was_changed_is_not_used_again(
    client: Client, lasting: JobRun, change: str
) -> None:
    if "ionice" in change and shutil.which("ionice") is None:
        pytest.skip("needs ionice")
    code = f"import os, resource; print(open('/proc/1/stat').read().split()[-31]); {change}"
    fresh = seen_by(python(client, LOOK))
    assert output_of_success(python(client, code)) == [fresh[0]]
    agent, seen = seen_by(python(client, LOOK))
    assert differences(seen, fresh[1]) == {}
    assert agent != fresh[0]


@as_root
def test_an_agent_is_used_after_a_failure(client: Client, lasting: JobRun) -> None:
    shell = "sed 's/.*) //' /proc/1/stat | cut -d ' ' -f 20; "
    runs = [
        start(client, "sh", "-c", shell + end).wait(240)
        for end in ("exit 3", "kill -SEGV $$", "exit 0")
    ]
    assert [run.exit_code for run in runs] == [3, 128 + signal.SIGSEGV, 0]
    assert len({output(run)[0] for run in runs}) == 1


@as_root
def test_a_run_with_a_large_environment_gets_a_new_agent(
    client: Client, lasting: JobRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(client, "true").wait(240)
    idle = idle_agents(client, lasting)
    for number in range(3):
        monkeypatch.setenv(f"LARGE{number}", "x" * 50_000)
    run = start(client, "sh", "-c", "echo ${#LARGE2}")
    assert output_of_success(run) == ["50000"]
    assert {*idle} < {*idle_agents(client, lasting)}


def idle_agents(client: Client, lasting: JobRun) -> list[int]:
    """The agents of the supervisor but for that of a run with one node."""
    return children(supervisor(client, lasting))[1:]


@as_root
def test_an_agent_that_was_killed_while_it_was_idle_is_replaced(
    client: Client, lasting: JobRun
) -> None:
    start(client, "true").wait(240)
    (agent,) = idle_agents(client, lasting)
    os.kill(agent, signal.SIGKILL)
    assert start(client, "true").wait(240).state == "SUCCEEDED"
    assert agent not in idle_agents(client, lasting)


#: Runs two nodes, each in a session. The agent of the first one ends right after it was idle, and
#: the session learns of both at once. Prints the ends of the nodes and how many agents were left.
ENDED_WHEN_IDLE = """
    import json, os, socket, sys, time
    from pathlib import Path
    import msgspec
    from muster.engines.base import RunContext
    from muster.engines.local.engine import LocalEngine
    from muster.engines.loop import EventLoop, RunLoop
    from muster.lifecycle.events import NodeEnded, NodeReady, SessionClosed
    from muster.lifecycle.status import NodeRef
    from muster.node.processes import children, state_of
    from muster.plan.model import RunPlan
    from muster.storage.home import Home

    folder, *plans = sys.argv[1:]
    engine, home = LocalEngine(), Home(Path(folder))
    engine.prepare_parent(plain=False)
    child = os.fork()
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
    engine.prepare_supervisor()
    assert engine.may_share()
    loop, usual = EventLoop(), socket.recv_fds

    def fail(error):
        raise error

    for number, text in enumerate(plans):
        plan = RunPlan.from_json(json.loads(text))
        context = RunContext(plan, home, dict(os.environ), sys.executable, alone=False)
        events = []

        def run_until(kind):
            while not any(isinstance(event, kind) for event in events):
                loop.run_once()

        # what an idle agent does; process 1 of a namespace cannot kill itself
        socket.recv_fds = usual if number else lambda *_: os._exit(9)
        session = engine.open(context, RunLoop(loop, fail), events.extend)
        session.start(0, [NodeRef(0, 0)])
        run_until(NodeReady)
        (agent,) = children(os.getpid())
        home.run_dir(plan.run_id).path.joinpath("go").touch()
        deadline = time.monotonic() + 60
        while number == 0 and state_of(agent) != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        run_until(NodeEnded)
        ends = [event.exit_code for event in events if isinstance(event, NodeEnded)]
        print(json.dumps([ends, len(children(os.getpid()))]), flush=True)
        session.close()
        run_until(SessionClosed)
        session.finish_logs()
"""


@as_root
def test_an_agent_that_ended_right_after_it_was_idle_is_not_kept(own_home: Path) -> None:
    plans = []
    for code in (3, 0):
        plan = make_plan("")
        folder = own_home / "runs" / plan.run_id
        folder.mkdir(parents=True)
        command = ("sh", "-c", f"until [ -e {folder}/go ]; do sleep 0.01; done; exit {code}")
        plans.append(replace(plan, groups=(replace(plan.groups[0], command=command),)).to_json())
    argv = [sys.executable, "-c", textwrap.dedent(ENDED_WHEN_IDLE), str(own_home)]
    argv += map(json.dumps, plans)
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    assert [*map(json.loads, done.stdout.splitlines())] == [[[3], 0], [[0], 1]]


@as_root
@pytest.mark.parametrize("idle_for", [3.0])
def test_idle_agents_end_after_a_while(client: Client, lasting: JobRun) -> None:
    for run in [start(client, "sleep", "0.2") for _ in range(3)]:
        assert run.wait(240).state == "SUCCEEDED"
    assert idle_agents(client, lasting)
    until(lambda: not idle_agents(client, lasting), "the idle agents have ended")
    assert lasting.refresh().state == "IN_PROGRESS"


@as_root
def test_idle_agents_end_with_the_supervisor(client: Client, lasting: JobRun) -> None:
    assert start(client, "true").wait(240).state == "SUCCEEDED"
    agents = children(supervisor(client, lasting))
    assert len(agents) == 2
    os.kill(supervisor(client, lasting), signal.SIGKILL)
    for agent in agents:
        wait_for_process(agent, 60)
        assert state_of(agent) in ("", "Z")


@as_root
def test_the_usage_of_a_run_is_its_own(client: Client, lasting: JobRun) -> None:
    agent = "sed 's/.*) //' /proc/1/stat | cut -d ' ' -f 20"
    busy = f"import os, time\nwhile time.process_time() < 0.3: pass\nos.system({agent!r})"
    usage, agents = [], set()
    for command in ((sys.executable, "-c", busy), ("sh", "-c", agent)):
        run = start(client, *command)
        agents.update(output_of_success(run))
        usage.append(read_usage(embedded(client).home.run_dir(run.id))[0].cpu_seconds)
    assert len(agents) == 1, "the agent is used again"
    assert usage[0] > 0.3
    assert 0 < usage[1] < 0.15


@as_root
def test_a_command_enters_the_run_that_the_agent_has_now(client: Client, lasting: JobRun) -> None:
    shell = "sed 's/.*) //' /proc/1/stat | cut -d ' ' -f 20; echo $MARK"
    former = output_of_success(start(client, "sh", "-c", shell, env={"MARK": "former"}))
    run = start(client, "sleep", "1000", env={"MARK": "now"})
    until_ready(run)
    reading, writing = os.pipe()
    with open(os.devnull, "rb") as null, open(writing, "wb") as end:
        command = NodeCommand(("sh", "-c", shell))
        process = embedded(client).node_access.execute(run.id, 0, command, Stdio(null, end, end))
    with open(reading) as file:
        assert file.read().split() == [former[0], "now"]
    assert process.wait() == 0
    run.cancel("the test is over")


def test_many_runs_end_as_they_should(client: Client) -> None:
    ends = [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("sleep 1000 & exit 0", 0)]

    def one(number: int) -> None:
        script, code = ends[number % len(ends)]
        run = start(client, "sh", "-c", f"echo {number}; {script}").wait(240)
        assert run.exit_code == code, run.details
        assert str(number) in output(run)

    with ThreadPoolExecutor(8) as pool:
        assert len([*pool.map(one, range(200))]) == 200


# --- the pool


def waiting_agent() -> PooledAgent:
    """A process that ends as an idle agent does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        os.dup2(theirs.fileno(), 3)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))  # with the ends of others
        os.read(3, 1)
        os._exit(0)
    theirs.close()
    return PooledAgent(pid, ours)


IDLE = Idle(0, 0.25, 0.5, 1024, 2048)


def test_what_an_agent_has_used_is_known() -> None:
    pool, agent = AgentPool(), waiting_agent()
    pool.keep(agent, IDLE)
    used = NOTHING._replace(cpu=0.5, disk_read=1024, disk_written=2048)
    assert agent.used == NodeReading(used, 0.25)
    agent.close()
    os.waitpid(agent.pid, 0)


def test_few_agents_are_idle_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_pool, "_MOST", 2)
    pool = AgentPool()
    assert pool.timeout() is None
    agents = [waiting_agent() for _ in range(3)]
    for agent in agents:
        pool.keep(agent, IDLE)
    wait_for_process(agents[0].pid, 60)
    assert [state_of(agent.pid) in ("", "Z") for agent in agents] == [True, False, False]
    pool.step()
    assert state_of(agents[0].pid) == ""
    assert 0 < (pool.timeout() or 0) <= 1
    monkeypatch.setattr(agent_pool, "_LINGER", 0.0)
    pool.step()
    for agent in agents[1:]:
        wait_for_process(agent.pid, 60)
    pool.step()
    assert [state_of(agent.pid) for agent in agents] == ["", "", ""]
    assert pool.timeout() is None
