"""What every engine must do for nodes that live more than once: kept in place, or made anew."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.engines.local import cgroups
from muster.engines.local.begun import begun
from muster.lifecycle.status import NodeRef
from muster.plan.model import ResourcePlan
from muster.storage.home import RunDir
from muster.storage.logs import END, ENTRY
from support.sessions import Session

MakeSession = Callable[..., Session]
Alive = Callable[[str], list[str]]

#: What a node is, and what is in it; all of its own go when the last life ends.
LOOK = """
    echo life $MUSTER_RESTART attempt $MUSTER_ATTEMPT
    readlink /proc/self/ns/pid /proc/self/ns/mnt /proc/self/ns/ipc /proc/self/ns/uts
    hostname; pwd; echo $MUSTER_NODE_ADDRESS $TMPDIR
    ls -A . $TMPDIR; cat /dev/shm/$MUSTER_NODE_ID 2>&1
    if [ $MUSTER_RESTART = 0 ]; then
        touch here $TMPDIR/there; echo warm > /dev/shm/$MUSTER_NODE_ID; exit 1
    fi
    rm -f /dev/shm/$MUSTER_NODE_ID
"""


def lives(text: str) -> list[list[str]]:
    """What each life said, without its first line."""
    return [part.splitlines()[1:] for part in text.split("life ")[1:]]


@pytest.mark.shows("jobset/fast-recovery", "jobset/stable-hostnames")
def test_a_kept_node_stays_as_it_is(session: MakeSession) -> None:
    one = session(LOOK, nodes=2, keep=True)
    one.start(0, 1)
    assert {e["exit_code"] for e in one.ended(0, 1).values()} == {1}
    agents = one.agents()
    one.start(0, 1, life=1)
    assert {e["exit_code"] for e in one.ended(0, 1, life=1).values()} == {0}
    assert one.agents() == agents
    assert one.close() == 0
    for rank in (0, 1):
        first, second = lives(one.output(rank))
        where = slice(0, 7)
        assert first[where] == second[where], "the same place"
        assert "here" not in first
        assert [name in second for name in ("here", "there", "warm")] == [True] * 3
    for agent in agents:
        assert not Path(f"/proc/{agent}").exists()


def test_a_node_made_anew_has_nothing_of_the_one_before(session: MakeSession, kind: str) -> None:
    one = session(LOOK, nodes=2)
    one.start(0, 1)
    one.ended(0, 1)
    while one.agents():  # an end is told when no process is left, which the agent may just be
        pass
    one.start(0, 1, life=1)
    one.ended(0, 1, life=1)
    assert one.close() == 0
    first, second = lives(one.output(1))
    assert first[4:7] == second[4:7], "name, directory and address are the rank's"
    assert not {"here", "there"} & set(second)
    if kind == "local-namespaces":
        assert "warm" not in second
    members = json.loads((one.folder / "cluster.json").read_text())
    assert [member["Rank"] for member in members] == ["0", "1"]


def test_attempt_and_restart_are_told_apart(session: MakeSession) -> None:
    one = session("echo $MUSTER_ATTEMPT $MUSTER_RESTART", keep=True)
    for attempt, life in ((0, 0), (0, 1), (1, 2), (3, 5)):
        one.start(0, life=life, attempt=attempt)
        one.ended(0, life=life)
    assert one.close() == 0
    said = [one.output(attempt=attempt) for attempt in (0, 1, 3)]
    assert said == ["0 0\n0 1\n", "1 2\n", "3 5\n"]


@pytest.mark.parametrize("keep", [True, False])
def test_each_life_ends_once(session: MakeSession, keep: bool) -> None:
    one = session("exit $((MUSTER_RESTART + 1))", nodes=4, keep=keep)
    for life in range(8):
        one.start(0, 1, 2, 3, life=life, attempt=life // 2)
        one.start(0, 1, 2, 3, life=life, attempt=life // 2)
        ended = one.ended(0, 1, 2, 3, life=life)
        assert {e["exit_code"] for e in ended.values()} == {life + 1}
    assert one.close() == 0


LISTEN = """
    trap 'echo stopped; exit 0' TERM; trap 'echo heard' USR1
    echo life $MUSTER_RESTART up; while :; do sleep 0.01; done
"""


@pytest.mark.parametrize("keep", [True, False])
def test_what_means_another_life_is_not_done(session: MakeSession, keep: bool) -> None:
    one = session(LISTEN, keep=keep)
    one.start(0, life=3)
    one.says("life 3 up")
    one.stop(0, life=3)
    assert one.ended(0, life=3)[0]["exit_code"] == 0
    one.start(0, life=4)
    one.says("life 4 up")
    for life in (3, 5):
        one.stop(0, life=life)
        one.kill(0, life=life)
        one.signal(signal.SIGTERM, 0, life=life)
    for life in (3, 4, 5):
        one.start(0, life=life)
    one.signal(signal.SIGUSR1, 0, life=4)
    one.says("heard")
    one.kill(0, life=4)
    one.ended(0, life=4)
    one.start(0, life=4)
    assert one.close() == 0
    assert one.output() == "life 3 up\nstopped\nlife 4 up\nheard\n"


def test_the_end_can_come_before_the_next_beginning(session: MakeSession) -> None:
    one = session(LISTEN, keep=True)
    one.start(0)
    one.says("up")
    one.stop(0)
    one.ended(0)
    for life, end in enumerate((one.stop, one.kill), 1):
        one.start(0, life=life)
        end(0, life=life)
        assert one.ended(0, life=life)[0]["exit_code"] in (0, 137, 143)
    assert one.close() == 0


def test_a_signal_reaches_every_process(session: MakeSession) -> None:
    one = session(LISTEN, nodes=2, processes_per_node=2)
    one.start(0, 1)
    one.ready(0, 1)
    files = [one.folder / f"logs/0/workers-{rank}.{p}.out" for rank in (0, 1) for p in (0, 1)]
    while any("up" not in file.read_text() for file in files):
        pass
    one.signal(signal.SIGUSR1, 1)
    while any("heard" not in file.read_text() for file in files[2:]):
        pass
    one.stop(0, 1)
    one.ended(0, 1)
    assert one.close() == 0
    assert [file.read_text().count("heard") for file in files] == [0, 0, 1, 1]


# --- what must be gone


def escape(mark: str) -> str:
    daemons = "setsid sh -c 'setsid sleep 98761 & sleep 98761' & "
    return daemons + f"echo life $MUSTER_RESTART up; while [ -n {mark} ]; do sleep 0.01; done"


@pytest.mark.parametrize("way", ["kill", "stop", "end"])
def test_nothing_of_a_life_is_left_when_it_ends(
    session: MakeSession, alive: Alive, way: str
) -> None:
    mark = f"MARK={os.urandom(8).hex()}"
    command = escape("$MARK")
    if way == "end":
        command = command.replace("while", "exit 5; while")
    one = session(command, nodes=2, keep=True, env=dict([mark.split("=")]))
    for life in range(3):
        one.start(0, 1, life=life)
        if way != "end":
            for rank in (0, 1):
                one.says(f"life {life} up", rank)
            getattr(one, way)(0, 1, life=life)
        one.ended(0, 1, life=life)
        assert alive(mark) == []
    assert len(one.agents()) == 2, "the nodes were kept all the time"
    assert one.close() == 0


def test_nothing_is_left_of_a_lost_node(session: MakeSession, alive: Alive) -> None:
    mark = f"MARK={os.urandom(8).hex()}"
    one = session(escape("$MARK"), keep=True, env=dict([mark.split("=")]))
    for life in range(3):
        one.start(0, life=life)
        one.says(f"life {life} up")
        os.kill(one.agents()[0], signal.SIGKILL)
        assert one.ended(0, life=life)[0]["reason"] == "node_lost"
        assert alive(mark) == []
    assert one.close() == 0


def test_kept_nodes_end_with_a_session_that_is_killed(session: MakeSession) -> None:
    one = session("true", nodes=2, keep=True)
    one.start(0, 1)
    one.ended(0, 1)
    agents = one.agents()
    os.kill(one.pid, signal.SIGKILL)
    one.process.wait(30)
    while any(Path(f"/proc/{agent}").exists() for agent in agents):
        pass


# --- agents that are killed


def test_a_lost_node_is_made_anew(session: MakeSession) -> None:
    one = session("ls -A; touch here; echo life $MUSTER_RESTART up; exec sleep 1000", keep=True)
    one.start(0)
    one.says("life 0 up")
    (agent,) = one.agents()
    os.kill(agent, signal.SIGKILL)
    ended = one.ended(0)[0]
    assert (ended["reason"], ended["signal"]) == ("node_lost", 9)
    one.start(0, life=1)
    one.says("life 1 up")
    assert one.agents() != [agent]
    one.kill(0, life=1)
    one.ended(0, life=1)
    assert one.close() == 0
    assert one.output() == "life 0 up\nlife 1 up\n"


@pytest.mark.parametrize("when", ["at once", "when it is gone"])
def test_a_kept_node_that_is_killed_is_made_anew(session: MakeSession, when: str) -> None:
    """Its end was told; that it goes is nobody's business, and not the next life's end."""
    one = session("echo life $MUSTER_RESTART", keep=True)
    count = 20
    for life in range(count):
        one.start(0, life=life)
        assert one.ended(0, life=life)[0]["exit_code"] == 0
        (agent,) = one.agents()
        os.kill(agent, signal.SIGKILL)
        while when != "at once" and one.agents():
            pass
    assert one.close() == 0
    assert one.output() == "".join(f"life {life}\n" for life in range(count))


@pytest.mark.parametrize("stopped", [False, True])
def test_a_kept_node_that_dies_before_it_hears(session: MakeSession, stopped: bool) -> None:
    """Nothing of the life has begun, so it begins elsewhere, unless it is not wanted any more."""
    one = session("echo life $MUSTER_RESTART", nodes=2, keep=True)
    one.start(0)
    one.ended(0)
    (agent,) = one.agents()
    os.kill(agent, signal.SIGSTOP)
    one.start(0, life=1)
    if stopped:
        one.stop(0, life=1)
    one.start(1)
    one.ended(1)  # so the calls before it were carried out
    os.kill(agent, signal.SIGKILL)
    assert one.ended(0, life=1)[0]["exit_code"] == (143 if stopped else 0)
    assert one.close() == 0
    assert one.output() == ("life 0\n" if stopped else "life 0\nlife 1\n")


def test_what_does_not_hear_is_killed_in_place(session: MakeSession) -> None:
    one = session(
        "trap '' TERM; echo life $MUSTER_RESTART up; while :; do sleep 1; done", keep=True
    )
    for life, end in enumerate((one.stop, one.kill, one.kill)):
        one.start(0, life=life)
        one.says(f"life {life} up")
        end(0, life=life)
        ended = one.ended(0, life=life)[0]
        assert (ended["exit_code"], ended["signal"], ended["reason"]) == (137, 9, "exit")
    assert one.close() == 0


@pytest.mark.slow
def test_an_agent_that_does_not_answer_is_killed(session: MakeSession, alive: Alive) -> None:
    mark = f"MARK={os.urandom(8).hex()}"
    one = session(escape("$MARK"), keep=True, env=dict([mark.split("=")]))
    one.start(0)
    one.says("up")
    os.kill(one.agents()[0], signal.SIGSTOP)
    one.kill(0)
    assert one.ended(0)[0]["reason"] == "node_lost"
    assert alive(mark) == []
    assert one.close() == 0


# --- what is told of a failure


def test_a_program_that_says_nothing_hangs(session: MakeSession) -> None:
    one = session("echo life $MUSTER_RESTART; exec sleep 1000", keep=True, hang_timeout=0.05)
    for life in (0, 1):
        one.start(0, life=life)
        ended = one.ended(0, life=life)[0]
        assert (ended["exit_code"], ended["reason"]) == (None, "hang")
        assert ended["message"] == "nothing was written for 0.05 s"
    assert one.close() == 0


def test_a_program_can_note_its_error(session: MakeSession) -> None:
    noted = {"message": "boom", "extraInfo": {"py_callstack": "a\nb", "timestamp": "1610000000"}}
    note = f"printf %s '{json.dumps({'message': noted})}' > $TORCHELASTIC_ERROR_FILE"
    one = session(
        f"if [ $MUSTER_RESTART != 1 ]; then {note}; fi; echo words >&2; exit 1", keep=True
    )
    told = []
    for life in range(3):
        one.start(0, life=life)
        ended = one.ended(0, life=life)[0]
        told.append((ended["message"], ended["raised_at"]))
    assert one.close() == 0
    assert told == [("a\nb", 1610000000.0), ("words", None), ("a\nb", 1610000000.0)]


def test_each_process_has_its_own_environment_in_every_life(session: MakeSession) -> None:
    one = session("echo $MUSTER_RESTART $RANK", nodes=2, processes_per_node=2, keep=True)
    for life in (0, 1):
        one.start(0, 1, life=life)
        one.ended(0, 1, life=life)
    assert one.close() == 0
    for rank, process in ((0, 0), (0, 1), (1, 0), (1, 1)):
        said = (one.folder / f"logs/0/workers-{rank}.{process}.out").read_text()
        assert said == f"0 {2 * rank + process}\n1 {2 * rank + process}\n"


@pytest.mark.parametrize("keep", [True, False])
def test_last_words_are_those_of_this_life(session: MakeSession, keep: bool) -> None:
    one = session("echo life $MUSTER_RESTART >&2; exit 1", keep=keep)
    for life in range(3):
        one.start(0, life=life)
        assert one.ended(0, life=life)[0]["message"] == f"life {life}"
    assert one.close() == 0


@pytest.mark.skipif(len(cgroups.hierarchies()) < 2, reason="control groups are not writable here")
@pytest.mark.parametrize("keep", [True, False])
def test_memory_runs_out_once(session: MakeSession, keep: bool) -> None:
    grow = "exec python -c 'bytearray(1 << 28)'"
    command = f"if [ $MUSTER_RESTART = 0 ]; then {grow}; fi; kill -9 $$"
    one = session(command, keep=keep, resources=ResourcePlan(memory=128 << 20))
    told = []
    for life in range(3):
        one.start(0, life=life)
        ended = one.ended(0, life=life)[0]
        told.append((ended["reason"], ended["signal"]))
    assert one.close() == 0
    assert told == [("out_of_memory", 9), ("exit", 9), ("exit", 9)]
    run = one.plan.run_id
    assert not [g for h in cgroups.hierarchies().values() for g in h.parent.glob(f"*{run}*")]


# --- what is left behind


def taken(one: Session) -> bool:
    """Whether an agent has the node's place."""
    with (one.folder / "nodes/0/place").open() as place:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_place_is_taken_as_long_as_there_is_an_agent(session: MakeSession) -> None:
    one = session("exit $MUSTER_RESTART", keep=True)
    for life in (0, 1):
        one.start(0, life=life)
        one.ended(0, life=life)
        assert taken(one)
    assert one.close() == 0
    assert not taken(one)


@pytest.mark.parametrize("keep", [True, False])
def test_it_is_known_which_programs_may_have_run(session: MakeSession, keep: bool) -> None:
    one = session("true", nodes=3, keep=keep)
    folder = RunDir(one.folder)

    def marked(life: int) -> frozenset[int]:
        return begun(folder, [NodeRef(rank, life) for rank in range(3)])

    assert marked(0) == frozenset()
    one.start(0, 2)
    one.ended(0, 2)
    assert marked(0) == {0, 2}
    one.start(2, life=11)
    one.ended(2, life=11)
    assert (marked(0), marked(1), marked(11)) == ({0}, frozenset(), {2})
    assert one.close() == 0


def index(one: Session, attempt: int) -> list[int]:
    """The streams the index of an attempt tells of, in its order."""
    data = (one.folder / f"logs/{attempt}/index").read_bytes()
    return [number for _, number, _ in ENTRY.iter_unpack(data)]


def test_each_attempt_has_a_log_that_ends(session: MakeSession) -> None:
    one = session(LISTEN, nodes=2)
    one.start(0, 1)
    one.says("up", 0)
    one.says("up", 1)
    one.stop(0)
    one.ended(0)
    one.start(0, life=1, attempt=1)  # replica by replica: the other is still to end
    one.says("up", 0, attempt=1)
    assert END not in index(one, 0)
    one.stop(1)
    one.ended(1)
    one.start(1, life=1, attempt=1)
    one.says("up", 1, attempt=1)
    assert index(one, 0)[-1] == END
    assert END not in index(one, 1)
    one.stop(0, 1, life=1)
    one.ended(0, 1, life=1)
    assert one.close() == 0
    assert [index(one, attempt).count(END) for attempt in (0, 1)] == [1, 1]
    assert index(one, 1)[-1] == END
    for attempt in (0, 1):
        for rank in (0, 1):
            assert one.output(rank, attempt=attempt).endswith("up\nstopped\n")


def test_old_attempts_are_forgotten(session: MakeSession) -> None:
    one = session("echo $MUSTER_ATTEMPT; exit 1", keep=True, keep_attempts=2)
    for attempt in range(5):
        one.start(0, life=attempt, attempt=attempt)
        one.ended(0, life=attempt)
    assert one.close() == 0
    assert sorted(folder.name for folder in (one.folder / "logs").iterdir()) == ["3", "4"]
    assert one.output(attempt=4) == "4\n"


@pytest.mark.shows("jobs/job-logging-options")
def test_output_that_is_not_wanted(session: MakeSession) -> None:
    one = session("echo x; exit 1", keep=True, log_output=False, keep_attempts=1, hang_timeout=9)
    for attempt in range(3):
        one.start(0, life=attempt, attempt=attempt)
        one.ended(0, life=attempt)
    assert one.close() == 0
    assert not (one.folder / "logs").exists()


# --- a network of their own

MEET = """
import os, socket
rank, life = int(os.environ["NODE_RANK"]), os.environ["MUSTER_RESTART"]
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
    client.sendall(b"life " + life.encode())
    client.recv(99)
    raise SystemExit(1)
"""


@pytest.mark.parametrize("keep", [True, False])
def test_a_node_is_found_again(session: MakeSession, kind: str, keep: bool) -> None:
    """The others remember an address of a network card; the next one has the same."""
    if kind == "local-plain":
        pytest.skip("no network of one's own without namespaces")
    command = f"exec python -c '{MEET}'"
    one = session(command, nodes=2, keep=keep, network="isolated")
    one.start(0, 1)
    one.ended(1)
    one.start(1, life=1)
    ends = {}
    while len(ends) < 2:
        event = one.event()
        if event["event"] == "NodeEnded":
            ends[event["rank"]] = event["incarnation"], event["exit_code"]
    assert one.close() == 0
    assert ends == {0: (0, 0), 1: (1, 1)}
    assert one.output(0) == "life 0\nlife 1\n"


def test_a_released_node_is_made_anew_and_the_others_know(session: MakeSession) -> None:
    one = session("echo life $MUSTER_RESTART; exec sleep 1000", nodes=3, keep=True)
    roster = RunDir(one.home / "runs" / one.plan.run_id).cluster_file

    def ranks() -> list[str]:
        return [member["Rank"] for member in json.loads(roster.read_text())]

    one.start(0, 1, 2)
    one.ready(0, 1, 2)
    for rank in (1, 2):
        one.says("life 0\n", rank)  # a node is ready before its program has said anything
    one.stop(1, 2)
    one.ended(1, 2)
    kept = one.agents()
    assert len(kept) == 3
    assert ranks() == ["0", "1", "2"]
    one.release(1, life=1)
    one.release(1, life=1)
    while one.agents() == kept:
        time.sleep(0.001)
    assert ranks() == ["0", "2"]
    one.start(1, 2, life=1)
    one.ready(1, 2, life=1)
    assert ranks() == ["0", "1", "2"]
    assert len(set(one.agents()) - set(kept)) == 1, "the other went on where it was"
    for rank in (1, 2):
        one.says("life 1\n", rank)
    one.release(0, life=1)
    one.kill(0)
    one.ended(0)
    one.kill(1, 2, life=1)
    one.ended(1, 2, life=1)
    assert one.close() == 0
    assert one.output(1) == one.output(2) == "life 0\nlife 1\n"


def test_who_is_released_and_started_at_once_begins(session: MakeSession) -> None:
    one = session("echo life $MUSTER_RESTART; exit 3", keep=True)
    one.start(0)
    one.ended(0)
    for life in range(1, 8):
        one.release(0, life=life)
        one.start(0, life=life)
        assert one.ended(0, life=life)[0]["exit_code"] == 3
    assert one.close() == 0
    assert one.output() == "".join(f"life {life}\n" for life in range(8))
