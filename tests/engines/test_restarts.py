"""The engine contract for restarted nodes: kept in place, or recreated."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest

from muster.engines.local.nodes import started_ranks
from muster.lifecycle.status import NodeRef
from muster.node.control_groups import hierarchies, usable_limits
from muster.plan.model import ResourcePlan
from muster.storage.home import RunDir
from muster.storage.log_index import END, ENTRY
from support.faults import until
from support.sessions import DETACHED, NAMESPACES, REAL_KINDS, Session

pytestmark = pytest.mark.capability("in_place")

MakeSession = Callable[..., Session]
Alive = Callable[[str], list[str]]


@pytest.fixture(params=REAL_KINDS)
def kind(request: pytest.FixtureRequest, prepare: Callable[[str], str]) -> str:
    return prepare(request.param)


#: Prints the namespaces, names, folders and files of a node; incarnation 0 leaves files.
LOOK = """
    echo incarnation $MUSTER_RESTART attempt $MUSTER_ATTEMPT
    readlink /proc/self/ns/pid /proc/self/ns/mnt /proc/self/ns/ipc /proc/self/ns/uts
    hostname; pwd; echo $MUSTER_NODE_ADDRESS $TMPDIR
    ls -A . $TMPDIR; cat /dev/shm/$MUSTER_NODE_ID 2>&1
    if [ $MUSTER_RESTART = 0 ]; then
        touch here $TMPDIR/there; echo warm > /dev/shm/$MUSTER_NODE_ID; exit 1
    fi
    rm -f /dev/shm/$MUSTER_NODE_ID
"""


def incarnations(text: str) -> list[list[str]]:
    """The output of each incarnation, without its first line."""
    return [part.splitlines()[1:] for part in text.split("incarnation ")[1:]]


@pytest.mark.subject("restart strategies")
@pytest.mark.shows("jobset/fast-recovery", "jobset/stable-hostnames")
def test_a_kept_node_has_the_same_namespaces_and_files(session: MakeSession) -> None:
    one = session(LOOK, nodes=2, keep=True)
    one.start(0, 1)
    assert {e["exit_code"] for e in one.ended(0, 1).values()} == {1}
    agents = one.agents()
    one.start(0, 1, incarnation=1)
    assert {e["exit_code"] for e in one.ended(0, 1, incarnation=1).values()} == {0}
    assert one.agents() == agents
    assert one.close() == 0
    for rank in (0, 1):
        first, second = incarnations(one.output(rank))
        where = slice(0, 7)
        assert first[where] == second[where], "the same node"
        assert "here" not in first
        assert [name in second for name in ("here", "there", "warm")] == [True] * 3
    for agent in agents:
        assert not Path(f"/proc/{agent}").exists()


@pytest.mark.subject("restart strategies")
def test_a_recreated_node_has_no_files_of_the_former_one(session: MakeSession, kind: str) -> None:
    one = session(LOOK, nodes=2)
    one.start(0, 1)
    one.ended(0, 1)
    until(lambda: not one.agents(), "the end of the agents")  # it follows the reports of their ends
    one.start(0, 1, incarnation=1)
    one.ended(0, 1, incarnation=1)
    members = json.loads(one.cluster_file.read_text())
    assert one.close() == 0
    first, second = incarnations(one.output(1))
    assert first[4:7] == second[4:7], "name, directory and address are the rank's"
    assert not {"here", "there"} & set(second)
    if kind in NAMESPACES:
        assert "warm" not in second
    assert [member["Rank"] for member in members] == ["0", "1"]


def test_attempts_and_restarts_are_distinct(session: MakeSession) -> None:
    one = session("echo $MUSTER_ATTEMPT $MUSTER_RESTART", keep=True)
    for attempt, incarnation in ((0, 0), (0, 1), (1, 2), (3, 5)):
        one.start(0, incarnation=incarnation, attempt=attempt)
        one.ended(0, incarnation=incarnation)
    assert one.close() == 0
    output = [one.output(attempt=attempt) for attempt in (0, 1, 3)]
    assert output == ["0 0\n0 1\n", "1 2\n", "3 5\n"]


@pytest.mark.parametrize("keep", [True, False])
def test_each_incarnation_ends_once(session: MakeSession, keep: bool) -> None:
    one = session("exit $((MUSTER_RESTART + 1))", nodes=4, keep=keep)
    for incarnation in range(8):
        one.start(0, 1, 2, 3, incarnation=incarnation, attempt=incarnation // 2)
        one.start(0, 1, 2, 3, incarnation=incarnation, attempt=incarnation // 2)
        ended = one.ended(0, 1, 2, 3, incarnation=incarnation)
        assert {e["exit_code"] for e in ended.values()} == {incarnation + 1}
    assert one.close() == 0


LISTEN = """
    trap 'echo stopped; exit 0' TERM; trap 'echo heard' USR1
    echo incarnation $MUSTER_RESTART up; while :; do sleep 0.01; done
"""


@pytest.mark.parametrize("keep", [True, False])
def test_calls_about_other_incarnations_are_ignored(session: MakeSession, keep: bool) -> None:
    one = session(LISTEN, keep=keep)
    one.start(0, incarnation=3)
    one.wait_for_output("incarnation 3 up")
    one.stop(0, incarnation=3)
    assert one.ended(0, incarnation=3)[0]["exit_code"] == 0
    one.start(0, incarnation=4)
    one.wait_for_output("incarnation 4 up")
    one.ready(0, incarnation=4)  # signals are for programs that were reported to have started
    for incarnation in (3, 5):
        one.stop(0, incarnation=incarnation)
        one.kill(0, incarnation=incarnation)
        one.signal(signal.SIGTERM, 0, incarnation=incarnation)
    for incarnation in (3, 4, 5):
        one.start(0, incarnation=incarnation)
    one.signal(signal.SIGUSR1, 0, incarnation=4)
    one.wait_for_output("heard")
    one.kill(0, incarnation=4)
    one.ended(0, incarnation=4)
    one.start(0, incarnation=4)
    assert one.close() == 0
    assert one.output() == "incarnation 3 up\nstopped\nincarnation 4 up\nheard\n"


def test_an_incarnation_can_be_ended_right_after_its_start(session: MakeSession) -> None:
    one = session(LISTEN, keep=True)
    one.start(0)
    one.wait_for_output("up")
    one.stop(0)
    one.ended(0)
    for incarnation, end in enumerate((one.stop, one.kill), 1):
        one.start(0, incarnation=incarnation)
        end(0, incarnation=incarnation)
        assert one.ended(0, incarnation=incarnation)[0]["exit_code"] in (0, 137, 143)
    assert one.close() == 0


def test_a_signal_reaches_every_process(session: MakeSession) -> None:
    one = session(LISTEN, nodes=2, processes_per_node=2)
    one.start(0, 1)
    one.ready(0, 1)
    files = [one.folder / f"logs/0/workers-{rank}.{p}.out" for rank in (0, 1) for p in (0, 1)]
    until(lambda: all("up" in file.read_text() for file in files), "the start of all processes")
    one.signal(signal.SIGUSR1, 1)
    until(lambda: all("heard" in file.read_text() for file in files[2:]), "the signal")
    one.stop(0, 1)
    one.ended(0, 1)
    assert one.close() == 0
    assert [file.read_text().count("heard") for file in files] == [0, 0, 1, 1]


# --- processes must have ended


def escape(mark: str) -> str:
    daemons = "setsid sh -c 'setsid sleep 98761 & sleep 98761' & "
    return (
        daemons + f"echo incarnation $MUSTER_RESTART up; while [ -n {mark} ]; do sleep 0.01; done"
    )


@pytest.mark.parametrize("way", ["kill", "stop", "end"])
def test_no_process_outlives_its_incarnation(session: MakeSession, alive: Alive, way: str) -> None:
    mark = f"MARK={os.urandom(8).hex()}"
    command = escape("$MARK")
    if way == "end":
        command = command.replace("while", "exit 5; while")
    one = session(command, nodes=2, keep=True, env=dict([mark.split("=")]))
    for incarnation in range(3):
        one.start(0, 1, incarnation=incarnation)
        if way != "end":
            for rank in (0, 1):
                one.wait_for_output(f"incarnation {incarnation} up", rank)
            getattr(one, way)(0, 1, incarnation=incarnation)
        one.ended(0, 1, incarnation=incarnation)
        assert alive(mark) == []
    assert len(one.agents()) == 2, "the nodes were kept"
    assert one.close() == 0


def test_no_process_outlives_a_lost_node(session: MakeSession, alive: Alive) -> None:
    mark = f"MARK={os.urandom(8).hex()}"
    one = session(escape("$MARK"), keep=True, env=dict([mark.split("=")]))
    for incarnation in range(3):
        one.start(0, incarnation=incarnation)
        one.wait_for_output(f"incarnation {incarnation} up")
        os.kill(one.agents()[0], signal.SIGKILL)
        assert one.ended(0, incarnation=incarnation)[0]["reason"] == "node_lost"
        assert alive(mark) == []
    assert one.close() == 0


def test_kept_nodes_end_with_a_session_that_is_killed(session: MakeSession, kind: str) -> None:
    if kind in DETACHED:
        pytest.skip("its nodes outlive the session")
    one = session("true", nodes=2, keep=True)
    one.start(0, 1)
    one.ended(0, 1)
    agents = one.agents()
    os.kill(one.pid, signal.SIGKILL)
    one.process.wait(240)
    until(lambda: not any(Path(f"/proc/{agent}").exists() for agent in agents), "their end")


# --- agents that are killed


def test_a_lost_node_is_recreated(session: MakeSession) -> None:
    one = session(
        "ls -A; touch here; echo incarnation $MUSTER_RESTART up; exec sleep 1000", keep=True
    )
    one.start(0)
    one.wait_for_output("incarnation 0 up")
    (agent,) = one.agents()
    os.kill(agent, signal.SIGKILL)
    ended = one.ended(0)[0]
    assert ended["reason"] == "node_lost"
    if one.engine not in DETACHED:
        assert ended["signal"] == 9
    one.start(0, incarnation=1)
    one.wait_for_output("incarnation 1 up")
    assert one.agents() != [agent]
    one.kill(0, incarnation=1)
    one.ended(0, incarnation=1)
    assert one.close() == 0
    assert one.output() == "incarnation 0 up\nincarnation 1 up\n"


@pytest.mark.parametrize("when", ["at once", "when it has ended"])
def test_a_killed_kept_node_is_recreated(session: MakeSession, when: str) -> None:
    """Its end was reported. The end of its agent is not that of the next incarnation."""
    one = session("echo incarnation $MUSTER_RESTART", keep=True)
    count = 20
    for incarnation in range(count):
        one.start(0, incarnation=incarnation)
        assert one.ended(0, incarnation=incarnation)[0]["exit_code"] == 0
        (agent,) = one.agents()
        os.kill(agent, signal.SIGKILL)
        if when != "at once":
            until(lambda: not one.agents(), "the end of the agent", pause=0.005)
    assert one.close() == 0
    assert one.output() == "".join(f"incarnation {incarnation}\n" for incarnation in range(count))


@pytest.mark.parametrize("stopped", [False, True])
def test_a_kept_node_that_ends_before_its_restart_is_recreated(
    session: MakeSession, stopped: bool
) -> None:
    """No process of it has started, so it starts on a new node, unless it was stopped."""
    one = session("echo incarnation $MUSTER_RESTART", nodes=2, keep=True)
    one.start(0)
    one.ended(0)
    (agent,) = one.agents()
    os.kill(agent, signal.SIGSTOP)
    one.start(0, incarnation=1)
    one.start(1)
    one.ended(1)  # so the start before it was carried out
    if stopped:
        one.stop(0, incarnation=1)
        one.start(1, incarnation=1)
        one.ended(1, incarnation=1)  # so the stop was
    os.kill(agent, signal.SIGKILL)
    assert one.ended(0, incarnation=1)[0]["exit_code"] == (143 if stopped else 0)
    assert one.close() == 0
    assert one.output() == ("incarnation 0\n" if stopped else "incarnation 0\nincarnation 1\n")


def test_programs_that_ignore_sigterm_are_killed_in_place(session: MakeSession) -> None:
    one = session(
        "trap '' TERM; echo incarnation $MUSTER_RESTART up; while :; do sleep 1; done", keep=True
    )
    for incarnation, end in enumerate((one.stop, one.kill, one.kill)):
        one.start(0, incarnation=incarnation)
        one.wait_for_output(f"incarnation {incarnation} up")
        end(0, incarnation=incarnation)
        ended = one.ended(0, incarnation=incarnation)[0]
        assert (ended["exit_code"], ended["signal"], ended["reason"]) == (137, 9, "exit")
    assert one.close() == 0


@pytest.mark.slow
def test_an_agent_that_does_not_answer_is_killed(session: MakeSession, alive: Alive) -> None:
    mark = f"MARK={os.urandom(8).hex()}"
    one = session(escape("$MARK"), keep=True, env=dict([mark.split("=")]))
    one.start(0)
    one.wait_for_output("up")
    os.kill(one.agents()[0], signal.SIGSTOP)
    one.kill(0)
    assert one.ended(0)[0]["reason"] == "node_lost"
    assert alive(mark) == []
    assert one.close() == 0


# --- reports of failures


def test_a_program_without_output_is_reported_as_a_hang(session: MakeSession) -> None:
    one = session("echo incarnation $MUSTER_RESTART; exec sleep 1000", keep=True, hang_timeout=0.05)
    for incarnation in (0, 1):
        one.start(0, incarnation=incarnation)
        ended = one.ended(0, incarnation=incarnation)[0]
        assert (ended["exit_code"], ended["reason"]) == (None, "hang")
        assert ended["message"] == "nothing was written for 0.05 s"
    assert one.close() == 0


def test_a_program_can_report_its_error_in_a_file(session: MakeSession) -> None:
    noted = {"message": "boom", "extraInfo": {"py_callstack": "a\nb", "timestamp": "1610000000"}}
    note = f"printf %s '{json.dumps({'message': noted})}' > $TORCHELASTIC_ERROR_FILE"
    one = session(
        f"if [ $MUSTER_RESTART != 1 ]; then {note}; fi; echo words >&2; exit 1", keep=True
    )
    reported = []
    for incarnation in range(3):
        one.start(0, incarnation=incarnation)
        ended = one.ended(0, incarnation=incarnation)[0]
        reported.append((ended["message"], ended["raised_at"]))
    assert one.close() == 0
    assert reported == [("a\nb", 1610000000.0), ("words", None), ("a\nb", 1610000000.0)]


def test_each_process_has_its_own_environment_in_every_incarnation(session: MakeSession) -> None:
    one = session("echo $MUSTER_RESTART $RANK", nodes=2, processes_per_node=2, keep=True)
    for incarnation in (0, 1):
        one.start(0, 1, incarnation=incarnation)
        one.ended(0, 1, incarnation=incarnation)
    assert one.close() == 0
    for rank, process in ((0, 0), (0, 1), (1, 0), (1, 1)):
        output = (one.folder / f"logs/0/workers-{rank}.{process}.out").read_text()
        assert output == f"0 {2 * rank + process}\n1 {2 * rank + process}\n"


@pytest.mark.parametrize("keep", [True, False])
def test_the_stderr_tail_is_that_of_the_incarnation(session: MakeSession, keep: bool) -> None:
    one = session("echo incarnation $MUSTER_RESTART >&2; exit 1", keep=keep)
    for incarnation in range(3):
        one.start(0, incarnation=incarnation)
        assert one.ended(0, incarnation=incarnation)[0]["message"] == f"incarnation {incarnation}"
    assert one.close() == 0


@pytest.mark.capability("limits")
@pytest.mark.skipif(len(usable_limits()) < 2, reason="control groups are not writable here")
@pytest.mark.parametrize("keep", [True, False])
def test_out_of_memory_is_reported_for_its_incarnation_only(
    session: MakeSession, keep: bool, kind: str
) -> None:
    if kind == "kubernetes":
        pytest.skip("kubelets limit the memory of pods, and those of the double do not")
    grow = "exec python -c 'bytearray(1 << 28)'"
    command = f"if [ $MUSTER_RESTART = 0 ]; then {grow}; fi; kill -9 $$"
    one = session(command, keep=keep, resources=ResourcePlan(memory=128 << 20))
    reported = []
    for incarnation in range(3):
        one.start(0, incarnation=incarnation)
        ended = one.ended(0, incarnation=incarnation)[0]
        reported.append((ended["reason"], ended["signal"]))
    assert one.close() == 0
    assert reported == [("out_of_memory", 9), ("exit", 9), ("exit", 9)]
    if kind in DETACHED:
        assert not (one.host_folder(0) / "groups").exists()  # no group is left
    run = one.plan.run_id
    left = [Path(one.parent).glob(f"*{run}*") for one in hierarchies().values()]
    assert [*chain(*left)] == []


# --- files of a run


def locked(one: Session) -> bool:
    """Whether an agent has locked the node's folder."""
    with (one.folder / "nodes/0/place").open() as place:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_node_folder_is_locked_while_its_agent_runs(session: MakeSession, kind: str) -> None:
    if kind in DETACHED:
        pytest.skip("its folder is on its host")
    one = session("exit $MUSTER_RESTART", keep=True)
    for incarnation in (0, 1):
        one.start(0, incarnation=incarnation)
        one.ended(0, incarnation=incarnation)
        assert locked(one)
    assert one.close() == 0
    assert not locked(one)


@pytest.mark.parametrize("keep", [True, False])
def test_started_ranks_belong_to_an_incarnation(
    session: MakeSession, keep: bool, kind: str
) -> None:
    if kind in DETACHED:
        pytest.skip("its nodes outlive the session, and say whether they have started")
    one = session("true", nodes=3, keep=keep)
    folder = RunDir(one.folder)

    def marked(incarnation: int) -> frozenset[int]:
        return started_ranks(folder, [NodeRef(rank, incarnation) for rank in range(3)])

    assert marked(0) == frozenset()
    one.start(0, 2)
    one.ended(0, 2)
    assert marked(0) == {0, 2}
    one.start(2, incarnation=11)
    one.ended(2, incarnation=11)
    assert (marked(0), marked(1), marked(11)) == ({0}, frozenset(), {2})
    assert one.close() == 0


def index(one: Session, attempt: int) -> list[int]:
    """The numbers of the streams in the index of an attempt, in its order."""
    data = (one.folder / f"logs/{attempt}/index").read_bytes()
    return [number for _, number, _ in ENTRY.iter_unpack(data)]


def test_each_attempt_has_a_log_that_ends(session: MakeSession) -> None:
    one = session(LISTEN, nodes=2)
    one.start(0, 1)
    one.wait_for_output("up", 0)
    one.wait_for_output("up", 1)
    one.stop(0)
    one.ended(0)
    one.start(0, incarnation=1, attempt=1)  # the other replica has not ended
    one.wait_for_output("up", 0, attempt=1)
    assert END not in index(one, 0)
    one.stop(1)
    one.ended(1)
    one.start(1, incarnation=1, attempt=1)
    one.wait_for_output("up", 1, attempt=1)
    assert index(one, 0)[-1] == END
    assert END not in index(one, 1)
    one.stop(0, 1, incarnation=1)
    one.ended(0, 1, incarnation=1)
    assert one.close() == 0
    assert [index(one, attempt).count(END) for attempt in (0, 1)] == [1, 1]
    assert index(one, 1)[-1] == END
    for attempt in (0, 1):
        for rank in (0, 1):
            assert one.output(rank, attempt=attempt).endswith("up\nstopped\n")


def test_old_attempts_are_deleted(session: MakeSession) -> None:
    one = session("echo $MUSTER_ATTEMPT; exit 1", keep=True, keep_attempts=2)
    for attempt in range(5):
        one.start(0, incarnation=attempt, attempt=attempt)
        one.ended(0, incarnation=attempt)
    assert one.close() == 0
    assert sorted(folder.name for folder in (one.folder / "logs").iterdir()) == ["3", "4"]
    assert one.output(attempt=4) == "4\n"


@pytest.mark.shows("jobs/job-logging-options")
def test_no_log_files_are_written_if_logging_is_disabled(session: MakeSession) -> None:
    one = session("echo x; exit 1", keep=True, log_output=False, keep_attempts=1, hang_timeout=9)
    for attempt in range(3):
        one.start(0, incarnation=attempt, attempt=attempt)
        one.ended(0, incarnation=attempt)
    assert one.close() == 0
    assert not (one.folder / "logs").exists()


# --- an isolated network

MEET = """
import os, socket
rank, incarnation = int(os.environ["NODE_RANK"]), os.environ["MUSTER_RESTART"]
server = socket.create_server((os.environ["MUSTER_NODE_ADDRESS"], 80))
if rank == 0:
    for _ in range(2):
        client = server.accept()[0]
        print(client.recv(99).decode(), flush=True)
        client.sendall(b"welcome")
while rank:
    try:
        client = socket.create_connection((os.environ["HEAD"], 80))
    except ConnectionRefusedError:
        continue  # it is not up yet
    client.sendall(b"incarnation " + incarnation.encode())
    client.recv(99)
    raise SystemExit(1)
"""


@pytest.mark.parametrize("keep", [True, False])
def test_a_restarted_node_has_the_same_address(session: MakeSession, kind: str, keep: bool) -> None:
    """Other nodes keep its address, and its hardware address in their caches."""
    if kind in ("local-plain", *DETACHED):
        pytest.skip("no isolated network without namespaces")
    command = f"exec python -c '{MEET}'"
    one = session(command, nodes=2, keep=keep, network="isolated")
    one.start(0, 1)
    one.ended(1)
    one.start(1, incarnation=1)
    ends = {}
    while len(ends) < 2:
        event = one.event()
        if event["event"] == "NodeEnded":
            ends[event["rank"]] = event["incarnation"], event["exit_code"]
    assert one.close() == 0
    assert ends == {0: (0, 0), 1: (1, 1)}
    assert one.output(0) == "incarnation 0\nincarnation 1\n"


def test_a_released_node_is_recreated_and_others_are_notified(session: MakeSession) -> None:
    one = session("echo incarnation $MUSTER_RESTART; exec sleep 1000", nodes=3, keep=True)

    def ranks() -> list[str]:
        return [member["Rank"] for member in json.loads(one.cluster_file.read_text())]

    one.start(0, 1, 2)
    one.ready(0, 1, 2)
    for rank in (1, 2):
        one.wait_for_output("incarnation 0\n", rank)  # a node is ready before its program writes
    one.stop(1, 2)
    one.ended(1, 2)
    kept = one.agents()
    assert len(kept) == 3
    assert ranks() == ["0", "1", "2"]
    one.release(1, incarnation=1)
    one.release(1, incarnation=1)
    until(lambda: one.agents() != kept, "the end of the released agent")
    # the roster is on another host, which is told at the same time
    until(lambda: ranks() == ["0", "2"], "the released node leaves the roster")
    one.start(1, 2, incarnation=1)
    one.ready(1, 2, incarnation=1)
    until(lambda: ranks() == ["0", "1", "2"], "the roster of a node that may be elsewhere")
    assert len(set(one.agents()) - set(kept)) == 1, "the other node was kept"
    for rank in (1, 2):
        one.wait_for_output("incarnation 1\n", rank)
    one.release(0, incarnation=1)
    one.kill(0)
    one.ended(0)
    one.kill(1, 2, incarnation=1)
    one.ended(1, 2, incarnation=1)
    assert one.close() == 0
    assert one.output(1) == one.output(2) == "incarnation 0\nincarnation 1\n"


def test_a_node_released_and_started_at_once_starts(session: MakeSession) -> None:
    one = session("echo incarnation $MUSTER_RESTART; exit 3", keep=True)
    one.start(0)
    one.ended(0)
    for incarnation in range(1, 8):
        one.release(0, incarnation=incarnation)
        one.start(0, incarnation=incarnation)
        assert one.ended(0, incarnation=incarnation)[0]["exit_code"] == 3
    assert one.close() == 0
    assert one.output() == "".join(f"incarnation {incarnation}\n" for incarnation in range(8))
