"""The engine contract for arrays: replicas run a few at a time, each in the slot of an earlier
one."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from muster.frameworks.base import RoleSetup, Succeeds
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef
from muster.plan.model import RunPlan
from muster.storage.log_reader import LogChunk, LogCursor
from support.faults import until
from support.sessions import DETACHED, NAMESPACES, REAL_KINDS, Session

pytestmark = pytest.mark.capability("arrays")

MakeArray = Callable[..., Session]


@pytest.fixture(params=REAL_KINDS)
def kind(request: pytest.FixtureRequest, prepare: Callable[[str], str]) -> str:
    return prepare(request.param)


@pytest.fixture
def array(kind: str, own_home: Path, plan_of: Callable[..., RunPlan]) -> Iterator[MakeArray]:
    """Open a session for an array of ten replicas that run a shell command, two at a time."""
    made: list[Session] = []

    def make(command: str, nodes: int = 1, role: RoleSetup | None = None, **more: Any) -> Session:
        group = {"name": "workers", "nodes": nodes, "replicas": 10, "parallelism": 2, **more}
        plan = plan_of(command=["sh", "-c", command], node_groups=[group], grace_period=0.2)
        run_id = f"t{os.urandom(5).hex()}"
        nodes = (replace(node, node_id=f"{run_id}-{node.rank}") for node in plan.nodes)
        plan = replace(plan, run_id=run_id, nodes=tuple(nodes))
        if role is not None:
            plan = replace(plan, groups=(replace(plan.groups[0], role=role),))
        (own_home / "runs" / plan.run_id).mkdir(parents=True)
        made.append(Session(kind, own_home, plan))
        return made[-1]

    yield make
    for one in made:
        one.abandon()


def chunks(session: Session) -> Iterator[LogChunk]:
    cursor = LogCursor(session.folder / "logs/0")
    yield from cursor.read()
    cursor.close()


def output(session: Session) -> dict[int | None, str]:
    """What each rank has printed."""
    found: dict[int | None, str] = {}
    for chunk in chunks(session):
        found[chunk.stream.rank] = found.get(chunk.stream.rank, "") + chunk.data.decode()
    return found


def test_a_replica_takes_a_slot_that_is_free(array: MakeArray) -> None:
    one = array("echo $MUSTER_REPLICA $NODE_RANK $NODE_COUNT $(hostname)")
    one.start(0, 1)
    one.ended(0, 1)
    agents = one.agents()
    for rank in (2, 3, 9):
        one.start(rank)
        one.ended(rank)
    # the second slot may have been there late
    assert set(agents) <= set(one.agents())
    assert len(one.agents()) <= 2
    assert one.close() == 0
    found = output(one)
    assert {rank: text.split()[:3] for rank, text in found.items()} == {
        rank: [str(rank), "0", "1"] for rank in (0, 1, 2, 3, 9)
    }


def test_nothing_of_the_former_replica_is_left(array: MakeArray, kind: str) -> None:
    one = array(
        "ls -A . $TMPDIR $MUSTER_OUTPUTS; [ -w /dev/shm ] && ls /dev/shm | grep -c left; "
        "touch left $TMPDIR/left; sleep 60 & [ $MUSTER_REPLICA != 0 ] || touch /dev/shm/left"
        if kind in NAMESPACES
        else "ls -A . $TMPDIR $MUSTER_OUTPUTS; touch left $TMPDIR/left; sleep 60 &"
    )
    for rank in (0, 1, 2):
        one.start(rank)
        one.ended(rank)
    assert one.close() == 0
    assert {rank: text for rank, text in output(one).items() if "left" in text} == {}


@pytest.mark.parametrize(
    "change",
    [
        "prlimit --pid 1 --nofile=10:10",
        "renice -n 9 -p 1",
        "echo 500 > /proc/1/oom_score_adj",
        "mount -t tmpfs none /mnt",
        "mount -t tmpfs none /tmp",  # the agent cannot clear the node's folder
        "ipcmk -M 4096",
        "ipcmk -S 1",
        "ipcmk -Q",
    ],
)
def test_what_a_replica_changes_does_not_affect_the_next_one(
    array: MakeArray, kind: str, change: str
) -> None:
    if kind not in NAMESPACES:
        pytest.skip("without namespaces, process 1 and mounts are the machine's")
    tool = change.partition(" ")[0]
    if os.geteuid() != 0 or shutil.which(tool) is None:
        pytest.skip(f"needs root and {tool}")
    one = array(
        "ulimit -n; nice; cat /proc/self/oom_score_adj; cut -d ' ' -f 4- /proc/self/mountinfo; "
        f"tail -qn +2 /proc/sysvipc/*; [ $MUSTER_REPLICA != 1 ] || ({change}) > /dev/null || exit 3"
    )
    agents = []
    for rank in range(4):
        one.start(rank)
        assert one.ended(rank)[rank]["exit_code"] == 0
        agents.append(one.agents())
    assert one.close() == 0
    assert agents[0] == agents[1] != agents[2] == agents[3]
    found = output(one)
    assert found[0] == found[1] == found[2] == found[3] != ""


def test_a_replica_has_names_of_its_own(array: MakeArray, kind: str) -> None:
    if kind not in NAMESPACES:
        pytest.skip("without namespaces, nodes have the machine's name")
    one = array("hostname; getent hosts $(hostname) | tr -s ' ' | cut -d ' ' -f 2-", nodes=2)
    for ranks in ((0, 1), (2, 3), (18, 19)):
        one.start(*ranks)
        one.ended(*ranks)
    assert one.close() == 0
    names = {rank: f"node-{rank}\nnode-{rank}\n" for rank in (0, 1, 2, 3, 18, 19)}
    assert output(one) == names


def test_the_nodes_of_a_replica_are_a_cluster(array: MakeArray) -> None:
    one = array(
        "echo $NODE_RANK of $NODE_COUNT main $OCI__MAIN_IP; "
        'grep -o \'"Rank": "[0-9]*"\' $CLUSTER_NODES_METADATA_FILE; wc -l < $MUSTER_HOSTFILE',
        nodes=2,
    )
    one.start(0, 1, 2, 3)
    one.ended(0, 1, 2, 3)
    one.start(4, 5)
    one.ended(4, 5)
    assert one.close() == 0
    found = {rank: text.splitlines() for rank, text in output(one).items()}
    for rank, lines in found.items():
        assert rank is not None
        assert lines[0].startswith(f"{rank % 2} of 2 main ")
        assert lines[1:] == ['"Rank": "0"', '"Rank": "1"', "2"]
    mains = {rank: lines[0] for rank, lines in found.items()}
    assert mains[0] == mains[4]
    if one.engine not in DETACHED:  # there, slots of a machine have its address
        assert mains[0] != mains[2], "a cluster for each slot"


def test_a_check_waits_for_its_replica_whichever_others_are_left_out(array: MakeArray) -> None:
    expected = ((0, "first"), (1, "second"))
    command = ("sh", "-c", 'echo "$@" > $MUSTER_OUTPUTS/awaited', "sh")
    gather = Succeeds(command, expected=expected)
    one = array("cat $MUSTER_OUTPUTS/awaited", nodes=2, role=RoleSetup(gather=gather))
    one.release(0, 1, 6, 7)
    one.start(2, 3)
    one.ended(2, 3)
    one.release(8, 9)
    one.start(4, 5)
    one.ended(4, 5)
    assert one.close() == 0
    assert output(one) == dict.fromkeys((2, 3, 4, 5), "first second\n")


def test_a_failure_names_only_what_its_own_replica_wrote(array: MakeArray) -> None:
    one = array("echo error of $MUSTER_REPLICA >&2; exit $MUSTER_REPLICA")
    for rank in (1, 2, 3):
        one.start(rank)
        assert one.ended(rank)[rank]["message"] == f"error of {rank}"
    assert one.close() == 0


def test_truncating_the_output_does_not_touch_that_of_others(array: MakeArray, kind: str) -> None:
    """Elsewhere, what was sent before it was truncated may stay in place of what follows."""
    one = array("echo start; echo $MUSTER_REPLICA > /dev/stdout")
    for rank in (0, 1, 2):
        one.start(rank)
        one.ended(rank)
    assert one.close() == 0
    found = {rank: text.split()[-1] for rank, text in output(one).items()}
    if kind in DETACHED:
        found = {rank: str(rank) if word == "start" else word for rank, word in found.items()}
    assert found == {0: "0", 1: "1", 2: "2"}


def test_a_full_disk_does_not_end_the_run(array: MakeArray, kind: str) -> None:
    """The supervisor, for which alone files cannot be larger, has to leave output where it is."""
    if kind in DETACHED:
        pytest.skip("outputs that cannot be copied fail their node")
    one = array('head -c 549 /dev/zero | tr "\\0" $MUSTER_REPLICA; echo')
    expected = {rank: str(rank) * 549 + "\n" for rank in range(4)}
    one.start(0)  # its agent has no limit
    one.ended(0)
    resource.prlimit(one.pid, resource.RLIMIT_FSIZE, (600, -1))
    for rank in (1, 2):
        one.start(rank)
        assert one.ended(rank)[rank]["exit_code"] == 0
    assert output(one) == {rank: expected[rank] for rank in range(3)}
    resource.prlimit(one.pid, resource.RLIMIT_FSIZE, (-1, -1))
    one.start(3)
    one.ended(3)
    assert one.close() == 0
    assert output(one) == expected
    assert (one.folder / "logs/0/workers-slot-0.out").stat().st_size == 4 * 550


def test_a_program_that_damages_the_output_does_not_end_the_run(array: MakeArray) -> None:
    one = array(
        "out=$(readlink /proc/self/fd/1); [ $MUSTER_REPLICA != 0 ] || mkdir ${out%.now}; "
        "echo $MUSTER_REPLICA"
    )
    for rank in (0, 1, 2):
        one.start(rank)
        assert one.ended(rank)[rank]["exit_code"] == 0
    assert one.close() == 0
    assert output(one) == {rank: f"{rank}\n" for rank in (0, 1, 2)}


def test_the_results_of_a_program_come_with_its_end(array: MakeArray) -> None:
    one = array('echo "{\\"n\\": $MUSTER_REPLICA}" > $MUSTER_OUTPUTS/metrics.json; exit 1')
    one.start(0, 5)
    found = one.ended(0, 5)
    assert {rank: json.loads(end["metrics"]) for rank, end in found.items()} == {
        0: {"n": 0},
        5: {"n": 5},
    }
    assert one.close() == 0


def test_an_empty_output_directory_is_removed(array: MakeArray) -> None:
    one = array("[ $MUSTER_REPLICA = 0 ] || touch $MUSTER_OUTPUTS/kept")
    one.start(0, 1)
    one.ended(0, 1)
    assert one.close() == 0
    assert [path.name for path in (one.folder / "outputs").iterdir()] == ["rank-1"]


def test_the_results_of_an_earlier_incarnation_do_not_count(array: MakeArray) -> None:
    one = array(
        "[ $MUSTER_RESTART = 0 ] || exit 0; "
        'echo "{\\"n\\": 1}" > $MUSTER_OUTPUTS/metrics.json; exit 1'
    )
    one.start(3)
    assert json.loads(one.ended(3)[3]["metrics"]) == {"n": 1}
    one.start(3, incarnation=1)
    assert one.ended(3, incarnation=1)[3]["metrics"] == ""
    assert one.close() == 0


def test_the_empty_output_directory_of_a_retried_replica_is_removed(array: MakeArray) -> None:
    one = array("exit 1")
    for incarnation in (0, 1):
        one.start(0, incarnation=incarnation)
        one.ended(0, incarnation=incarnation)
    assert one.close() == 0
    assert [*(one.folder / "outputs").glob("*")] == []


def test_a_start_may_be_repeated(array: MakeArray) -> None:
    one = array("echo $MUSTER_REPLICA")
    for rank in range(4):
        one.start(rank)
        one.ended(rank)
        for earlier in range(rank + 1):
            one.start(earlier)
    assert one.close() == 0
    assert output(one) == {rank: f"{rank}\n" for rank in range(4)}


def test_what_names_a_node_agrees(array: MakeArray) -> None:
    one = array(
        'echo $MUSTER_NODE_ID; grep -o \'"NodeId": "[^"]*\' $CLUSTER_NODES_METADATA_FILE | '
        "cut -d '\"' -f 4",
        nodes=2,
    )
    for ranks in ((0, 1), (4, 5), (2, 3)):
        one.start(*ranks)
        one.ended(*ranks)
    assert one.close() == 0
    names = {rank: one.plan.node(rank).node_id for rank in range(6)}
    for rank, text in output(one).items():
        assert rank is not None
        first = rank - rank % 2
        assert text.split() == [names[rank], names[first], names[first + 1]]
    streams = {chunk.stream.rank: chunk.stream.node_id for chunk in chunks(one)}
    assert streams == names


def test_a_replica_that_is_retried_finds_its_files(array: MakeArray) -> None:
    one = array("ls; touch mine; exit 1")
    one.start(0)
    one.ended(0)
    one.start(0, incarnation=1)
    one.ended(0, incarnation=1)
    assert one.close() == 0
    assert output(one) == {0: "mine\n"}


def test_the_slot_of_a_killed_agent_is_used_again(array: MakeArray) -> None:
    one = array("echo $MUSTER_REPLICA; [ $MUSTER_REPLICA != 0 ] || sleep 60")
    one.start(0)
    one.ready(0)
    until(lambda: output(one) == {0: "0\n"}, "the first output")
    os.kill(one.agents()[0], signal.SIGKILL)
    assert one.ended(0)[0]["reason"] == "node_lost"
    for rank in (1, 2):
        one.start(rank)
        assert one.ended(rank)[rank]["exit_code"] == 0
    assert one.close() == 0
    assert output(one) == {0: "0\n", 1: "1\n", 2: "2\n"}


def test_a_replica_can_be_stopped_and_killed(array: MakeArray) -> None:
    one = array("trap '' TERM; echo up; sleep 60 & wait; wait")
    one.start(7, 8)
    one.ready(7, 8)
    one.kill(7)
    assert one.ended(7)[7]["signal"] == signal.SIGKILL
    one.stop(8)
    one.ended(8)
    one.start(9)
    one.ready(9)
    one.kill(9)
    one.ended(9)
    assert one.close() == 0


def test_files_do_not_grow_with_the_number_of_replicas(array: MakeArray) -> None:
    # a shell without a trap gets no signal, not even if it is about to become another program
    one = array("[ $MUSTER_REPLICA -gt 1 ] || { trap exit TERM; echo up; sleep 600 & wait; }")

    def files() -> set[str]:
        found = os.walk(one.folder)
        return {os.path.join(folder, name) for folder, _, names in found for name in names}

    # both slots are there from now on; replicas that end at once may share the first for a while
    one.start(0, 1)
    one.ready(0, 1)
    until(lambda: output(one) == {0: "up\n", 1: "up\n"}, "both traps are set")
    one.signal(signal.SIGTERM, 0, 1)
    one.ended(0, 1)
    counted = [files()]
    for first in range(2, 10, 2):
        one.start(first, first + 1)
        one.ended(first, first + 1)
        counted.append(files())
    assert one.close() == 0
    # what was sent may be noted just now, by the server of each of two slots
    transient = 2 if one.engine in DETACHED else 0
    assert len(counted[-1]) <= len(counted[1]) + transient, sorted(counted[-1] - counted[1])


# --- sessions whose nodes outlive them

#: Runs until a file with the replica's number is in a folder.
WAIT = "echo up $MUSTER_REPLICA; until [ -e {folder}/$MUSTER_REPLICA ]; do sleep 0.02; done; "


@pytest.fixture
def waiting(array: MakeArray, kind: str, tmp_path: Path) -> MakeArray:
    """An array of an engine whose nodes outlive a session. Replicas wait for `tmp_path / NUMBER`,
    then run the command."""
    if kind not in DETACHED:
        pytest.skip("nodes end with their session")

    def make(command: str, **more: Any) -> Session:
        return array(WAIT.format(folder=tmp_path) + command, **more)

    return make


@pytest.mark.subject("attach after a kill")
def test_replicas_are_found_in_their_slots(waiting: MakeArray, tmp_path: Path) -> None:
    one = waiting("echo end $MUSTER_REPLICA")
    one.start(0, 1)
    one.ready(0, 1)
    (tmp_path / "0").touch()
    one.ended(0)
    one.start(2)  # in the slot of replica 0
    one.ready(2)
    agents = one.agents()
    one.replaced()
    one.start(1, 2)  # ignored
    for rank in (2, 1):
        (tmp_path / str(rank)).touch()
        assert one.ended_after_all(rank)[rank]["exit_code"] == 0
    (tmp_path / "3").touch()
    one.start(3)
    one.ended(3)
    assert one.agents() == agents
    assert one.close() == 0
    assert output(one) == {rank: f"up {rank}\nend {rank}\n" for rank in range(4)}


@pytest.mark.subject("attach after a kill")
def test_replicas_that_have_ended_meanwhile(waiting: MakeArray, tmp_path: Path) -> None:
    one = waiting("echo end $MUSTER_REPLICA; exit $MUSTER_REPLICA")
    one.start(4, 5)
    one.ready(4, 5)
    os.kill(one.pid, signal.SIGKILL)
    for rank in (4, 5):
        (tmp_path / str(rank)).touch()
    one.replaced()
    assert {rank: end["exit_code"] for rank, end in one.ended_after_all(4, 5).items()} == {
        4: 4,
        5: 5,
    }
    assert one.close() == 0
    assert output(one) == {rank: f"up {rank}\nend {rank}\n" for rank in (4, 5)}


@pytest.mark.subject("attach after a kill")
def test_replicas_whose_start_was_recorded_only(waiting: MakeArray, tmp_path: Path) -> None:
    one = waiting("true")
    one.start(0)
    one.ready(0)
    for rank in (0, 1, 2):
        (tmp_path / str(rank)).touch()
    one.ended(0)
    one.records_a_start(1)
    one.records_a_start(2)
    one.replaced()
    one.stop(2)
    one.start(1)
    ends = one.ended_after_all(1, 2)
    assert (ends[1]["exit_code"], ends[2]["signal"]) == (0, signal.SIGTERM)
    assert one.close() == 0
    assert output(one) == {0: "up 0\n", 1: "up 1\n"}


@pytest.mark.subject("attach after a kill")
def test_a_replica_that_no_host_knows_is_lost(waiting: MakeArray, tmp_path: Path) -> None:
    one = waiting("true")
    one.start(0)
    one.ready(0)
    one.recorded[NodeRef(1, 0)] = NodeState.RUNNING
    one.replaced()
    end = one.ended_after_all(1)[1]
    assert (end["reason"], end["message"]) == ("node_lost", "its host does not know it any more")
    for rank in (0, 1):
        (tmp_path / str(rank)).touch()
    one.ended_after_all(0)
    one.start(1, incarnation=1)
    one.ended(1, incarnation=1)
    assert one.close() == 0


@pytest.mark.subject("attach after a kill")
def test_replicas_of_several_nodes_are_found(waiting: MakeArray, tmp_path: Path) -> None:
    one = waiting("echo end", nodes=2)
    one.start(0, 1, 2, 3)
    one.ready(0, 1, 2, 3)
    one.replaced()
    one.start(4, 5)  # there is no room yet
    (tmp_path / "1").touch()
    one.ended_after_all(2, 3)
    (tmp_path / "2").touch()
    one.ended_after_all(4, 5)
    (tmp_path / "0").touch()
    one.ended_after_all(0, 1)
    assert one.close() == 0
    expected = {rank: f"up {rank // 2}\nend\n" for rank in range(6)}
    assert output(one) == expected


@pytest.mark.subject("attach after a kill")
def test_a_session_that_closes_ends_replicas_of_an_earlier_one(waiting: MakeArray) -> None:
    one = waiting("true")
    one.start(0, 1)
    one.ready(0, 1)
    one.replaced()
    one.kill(0, 1)
    one.ended_after_all(0, 1)
    assert one.close() == 0
    assert one.servers() == []
