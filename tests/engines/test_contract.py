"""The engine contract for nodes with one incarnation. For restarts see test_restarts."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from muster.frameworks.base import RoleSetup, Service, Succeeds
from muster.lifecycle.status import NodeRef
from muster.node.machine import boot_id
from muster.plan.model import PrincipalPlan, RunPlan
from muster.run_tokens import LIFETIME, run_token
from muster.storage.home import Home
from muster.storage.key_pool import new_key, pem
from muster.storage.run_credentials import RunCredentials
from muster.storage.token_seed import signed_tokens
from support.faults import until
from support.sessions import DETACHED, NAMESPACES, REAL_KINDS, Session

MakeSession = Callable[..., Session]


@pytest.fixture(params=REAL_KINDS)
def kind(request: pytest.FixtureRequest, prepare: Callable[[str], str]) -> str:
    return prepare(request.param)


@pytest.mark.subject("environment")
@pytest.mark.shows("jobs/run-provisions")
def test_nodes_run_their_programs_and_end(session: MakeSession) -> None:
    one = session("echo rank $RANK of $INITIAL_CLUSTER_SIZE head $HEAD", nodes=3)
    one.start(0, 1, 2)
    ended = one.ended(0, 1, 2)
    assert {(e["exit_code"], e["signal"], e["reason"]) for e in ended.values()} == {(0, 0, "exit")}
    assert one.close() == 0
    for rank in range(3):
        assert re.fullmatch(rf"rank {rank} of 3 head [0-9.]+\n", one.output(rank))


@pytest.mark.subject("outputs")
def test_outputs_are_kept_and_collected(session: MakeSession) -> None:
    one = session(
        'cd / && echo $RANK >> "$MUSTER_OUTPUTS/own" && echo >> "$MUSTER_RUN_OUTPUTS/of $RANK"',
        nodes=2,
    )
    for incarnation in range(2):
        one.start(0, 1, incarnation=incarnation)
        one.ended(0, 1, incarnation=incarnation)
    assert one.close() == 0
    outputs = Home(one.home).run_dir(one.plan.run_id).outputs
    assert {path.name for path in outputs.iterdir()} == {"of 0", "of 1", "rank-0", "rank-1"}
    for rank in range(2):
        assert (outputs / f"rank-{rank}" / "own").read_text() == f"{rank}\n" * 2


@pytest.mark.subject("start order")
def test_only_started_nodes_run(session: MakeSession) -> None:
    one = session("true", nodes=3)
    one.start(1)
    assert list(one.ended(1)) == [1]
    one.start(0, 2)
    one.ended(0, 2)
    assert one.close() == 0


def test_starting_twice_starts_once(session: MakeSession) -> None:
    one = session("echo once; exec sleep 1000")
    one.start(0)
    one.start(0)
    one.ready(0)
    one.start(0)
    one.wait_for_output("once")
    one.kill(0)
    one.ended(0)
    assert one.close() == 0
    assert one.output() == "once\n"


@pytest.mark.subject("exit codes")
@pytest.mark.parametrize(
    ("command", "code", "number", "message"),
    [
        ("exit 21", 21, 0, ""),
        ("echo one >&2; echo two >&2; exit 3", 3, 0, "one\ntwo"),
        ("kill -SEGV $$", 139, 11, ""),
        ("exec no-such-thing", 127, 0, "no-such-thing: not found"),
    ],
)
def test_a_failed_node_reports_exit_code_signal_and_message(
    session: MakeSession, command: str, code: int, number: int, message: str
) -> None:
    one = session(command)
    one.start(0)
    ended = one.ended(0)[0]
    assert (ended["exit_code"], ended["signal"]) == (code, number)
    assert message in ended["message"]
    assert one.close() == 0


@pytest.mark.subject("signals")
def test_stop_sends_sigterm_and_kill_sends_sigkill(session: MakeSession) -> None:
    one = session("trap 'echo ends; exit 0' TERM; echo up; while :; do sleep 0.01; done", nodes=2)
    one.start(0, 1)
    one.ready(0, 1)
    for rank in (0, 1):
        one.wait_for_output("up", rank)
    one.stop(0)
    assert one.ended(0)[0]["exit_code"] == 0
    one.kill(1)
    assert one.ended(1)[1]["signal"] == signal.SIGKILL
    assert one.close() == 0
    assert one.output(0) == "up\nends\n"
    assert one.output(1) == "up\n"


ESCAPE = "setsid sh -c 'setsid sleep 98761 & sleep 98761' & while :; do sleep 0.01; done"


@pytest.mark.subject("a cancel ends everything")
@pytest.mark.shows("distributed-jobs/capability-cancel", "jobs/ends-deprovisioned")
@pytest.mark.parametrize("way", ["kill", "stop", "close", "end"])
def test_no_process_outlives_its_node(
    session: MakeSession, alive: Callable[[str], list[str]], way: str
) -> None:
    mark = f"MARK={os.urandom(8).hex()}"
    command = ESCAPE.replace("while", "sleep 0.2; exit 0; while") if way == "end" else ESCAPE
    one = session(command, nodes=2, env=dict([mark.split("=")]))
    one.start(0, 1)
    one.ready(0, 1)
    if way in ("kill", "stop"):
        getattr(one, way)(0, 1)
    if way != "close":
        one.ended(0, 1)
        assert alive(mark) == [], "an end is reported after the last process has ended"
    if way == "close":
        one.process.stdin.close()  # type: ignore[union-attr]
        one.process.wait(240)
    else:
        one.close()
    assert alive(mark) == []


@pytest.mark.shows("jobs/run-provisions")
def test_no_process_outlives_a_session_that_is_killed(
    session: MakeSession, alive: Callable[[str], list[str]], kind: str
) -> None:
    mark = f"MARK={os.urandom(8).hex()}"
    one = session(ESCAPE, nodes=2, env=dict([mark.split("=")]))
    one.start(0, 1)
    one.ready(0, 1)
    assert alive(mark)
    if kind in DETACHED:
        pytest.skip("its nodes outlive the session")
    os.kill(one.pid, signal.SIGKILL)
    one.process.wait(240)
    if kind in NAMESPACES:
        # the kernel kills the namespace's processes before it reports the end of the first
        assert alive(mark) == []
    else:
        until(lambda: not alive(mark), "each agent ends its node when the session has ended")


@pytest.mark.subject("node loss")
def test_a_lost_node_is_reported(session: MakeSession, kind: str) -> None:
    one = session("while :; do sleep 0.01; done", nodes=2)
    one.start(0, 1)
    one.ready(0, 1)
    os.kill(one.agents()[0], signal.SIGKILL)
    ended = one.event()
    assert (ended["event"], ended["reason"]) == ("NodeEnded", "node_lost")
    one.kill(1 - ended["rank"])
    one.ended(1 - ended["rank"])
    assert one.close() == 0


@pytest.mark.subject("addresses and roster")
@pytest.mark.shows(
    "distributed-jobs/capability-metadata",
    "distributed-jobs/capability-network-managed",
    "distributed-jobs/fqdn",
    "distributed-jobs/full-metadata",
    "distributed-jobs/metadata-fields",
    "distributed-jobs/metadata-variable",
    "distributed-jobs/several-nodes",
)
def test_the_cluster_file_lists_names_and_addresses(session: MakeSession, kind: str) -> None:
    count = "while [ $(grep -c FQDN $CLUSTER_NODES_METADATA_FILE) != 3 ]; do sleep 0.001; done"
    names = "hostname; getent hosts node-2 | cut -d' ' -f1; " if "names" in kind else ""
    one = session(f"{count}; {names} cat $CLUSTER_NODES_METADATA_FILE", nodes=3)
    one.start(0, 1, 2)
    ended = one.ended(0, 1, 2)
    assert all(e["exit_code"] == 0 for e in ended.values())
    one.close()
    for rank in range(3):
        lines = one.output(rank).splitlines()
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


def test_each_process_of_a_node_has_its_rank_and_log_file(session: MakeSession) -> None:
    one = session("echo $RANK", nodes=2, processes_per_node=3)
    one.start(0, 1)
    one.ended(0, 1)
    one.close()
    output = [p.read_text().strip() for p in one.folder.glob("logs/0/*.out")]
    assert sorted(output) == ["0", "1", "2", "3", "4", "5"]


def test_each_node_has_its_own_work_and_tmp_folders(session: MakeSession) -> None:
    one = session("echo $RANK > mine; echo $RANK > $TMPDIR/mine; ls | wc -l; cat mine", nodes=3)
    one.start(0, 1, 2)
    one.ended(0, 1, 2)
    one.close()
    for rank in range(3):
        assert one.output(rank).split() == ["1", str(rank)]


@pytest.mark.subject("two runs side by side")
@pytest.mark.shows("distributed-jobs/capability-network-managed")
def test_two_sessions_at_once_use_the_same_port(session: MakeSession, kind: str) -> None:
    if kind in DETACHED and kind != "container":
        pytest.skip("a node has the address of its machine, which is the same for all in tests")
    network = "cluster" if kind == "container" else "shared"
    port = 7000 + os.getpid() % 1000  # other tests may use the addresses at the same time
    serve = (
        "python -c 'import os, socket, time; s = socket.create_server("
        f'(os.environ["MUSTER_NODE_ADDRESS"], {port})); print("up"); time.sleep(1000)\''
    )
    from muster.node.launch_message import Probe

    probe = Probe(period=0.01, timeout=1, threshold=3000, initial_delay=0, port=port)._asdict()
    both = [session(serve, nodes=2, probe=probe, network=network) for _ in range(2)]
    for one in both:
        one.start(0, 1)
    for one in both:
        one.ready(0, 1)
        one.kill(0, 1)
        one.ended(0, 1)
        one.close()


#: On SIGTERM it waits until the other node's program has ended.
SERVICE = """
    trap 'touch {shared}/leaving; while ! [ -e {shared}/ended ]; do sleep 0.01; done; exit 0' TERM
    echo up > ${{folder}}/mark; while :; do sleep 0.01; done
"""


PROGRAM = """
    if [ "$RANK" = 0 ]; then exit 0; fi
    while ! [ -e {shared}/leaving ]; do sleep 0.01; done
    touch {shared}/ended; exit 7
"""


@pytest.mark.parametrize(
    "keep", [pytest.param(True, marks=pytest.mark.capability("in_place")), False]
)
def test_the_end_of_the_main_node_is_reported_first(
    session: MakeSession, tmp_path: Path, keep: bool
) -> None:
    """Its program has succeeded; its service is still stopping when the other node fails."""
    service = Service(
        "serving",
        ("sh", "-c", SERVICE.format(shared=tmp_path)),
        ready=Succeeds(("sh", "-c", "test -s ${folder}/mark")),
        grace=600.0,
    )
    script = PROGRAM.format(shared=tmp_path)
    one = session(script, 2, keep=keep, role=RoleSetup(services=(service,)))
    one.start(0, 1)
    ended: list[dict[str, Any]] = []
    while len(ended) < 2:
        event = one.event()
        if event["event"] == "NodeEnded":
            ended.append(event)
    assert [(event["rank"], event["exit_code"]) for event in ended] == [(0, 0), (1, 7)]
    assert one.close() == 0


@pytest.mark.subject("addresses and roster")
def test_the_roster_is_complete_when_a_node_joins_late(
    session: MakeSession, tmp_path: Path
) -> None:
    last = f"if [ $RANK = 2 ]; then touch {tmp_path}/up; fi"
    wait = f"while ! [ -e {tmp_path}/up ]; do sleep 0.01; done"
    count = "while [ $(grep -c FQDN $CLUSTER_NODES_METADATA_FILE) != 3 ]; do sleep 0.01; done"
    one = session(f"{last}; {wait}; {count}; cat $CLUSTER_NODES_METADATA_FILE", nodes=3)
    one.start(0, 1)
    one.ready(0, 1)
    one.start(2)
    assert {end["exit_code"] for end in one.ended(0, 1, 2).values()} == {0}
    assert one.close() == 0
    rosters = [json.loads(one.output(rank)) for rank in range(3)]
    assert rosters[0] == rosters[1] == rosters[2]
    assert all(member["IpAddress"] for member in rosters[0])


@pytest.mark.subject("environment")
def test_programs_get_the_variables_of_the_job(session: MakeSession) -> None:
    text = "spaces  'quotes' \"both\" \\ and \u00fc"
    one = session('printf "%s|%s" "$OWN" "$MUSTER_RESTART"', env={"OWN": text})
    one.start(0)
    assert one.ended(0)[0]["exit_code"] == 0
    assert one.close() == 0
    assert one.output() == f"{text}|0"


@pytest.mark.subject("logs complete and in order")
def test_logs_are_complete_and_in_order(session: MakeSession) -> None:
    one = session("seq 1 200000; seq 1 1000 >&2", nodes=3)
    one.start(0, 1, 2)
    one.ended(0, 1, 2)
    assert one.close() == 0
    for rank in range(3):
        for stream, last in (("out", 200000), ("err", 1000)):
            expected = "".join(f"{number}\n" for number in range(1, last + 1))
            assert one.output(rank, stream) == expected


@pytest.mark.subject("slow node")
def test_a_node_whose_agent_is_slow_holds_up_no_other(session: MakeSession) -> None:
    one = session("trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done", nodes=2)
    one.start(0)
    one.ready(0)
    one.start(1)
    one.ready(1)
    for rank in (0, 1):
        one.wait_for_output("up", rank)
    slow, _ = one.agents()
    os.kill(slow, signal.SIGSTOP)
    one.stop(0)
    one.stop(1)
    assert one.ended(1)[1]["exit_code"] == 5
    os.kill(slow, signal.SIGCONT)
    assert one.ended(0)[0]["exit_code"] == 5
    assert one.close() == 0


@pytest.mark.capability("principals")
def test_programs_have_the_credentials_of_their_run(session: MakeSession) -> None:
    """Each node has its own, which are the owner's alone. They are replaced while programs run,
    here soon after the start and when a node is launched, and gone when the run has ended."""
    token, key = "$OCI_RESOURCE_PRINCIPAL_RPST", "$OCI_RESOURCE_PRINCIPAL_PRIVATE_PEM"
    principal = PrincipalPlan("tenancy", "compartment", "muster.invalid", "http://127.0.0.1:1")

    def make_old_ones(home: Home, plan: RunPlan) -> None:
        made, half = RunCredentials(home, plan, principal), time.time() - LIFETIME / 2
        made.prepare([0, 1], lambda count: [b"first\n" + pem(new_key()) for _ in range(count)])
        for slot, made_at in enumerate((half + 2, half - 1)):
            os.utime(made.folder / str(slot) / "key.pem", (made_at, made_at))

    one = session(
        f'while [ "$(head -n 1 {key})" = first ]; do sleep 0.05; done\n'
        f"stat -c %a {token} {key} && cat {token} {key}",
        nodes=2,
        before=make_old_ones,
        principal=principal,
    )
    one.start(0, 1)
    ended = one.ended(0, 1)
    assert {e["exit_code"] for e in ended.values()} == {0}
    assert one.close() == 0
    assert one.output(0) != one.output(1)
    for rank in (0, 1):
        *modes, rest = one.output(rank).split(maxsplit=2)
        assert modes == ["600", "600"]
        found, _, key = rest.partition("-----BEGIN")
        token = run_token(signed_tokens(Home(one.home)).read(found), time.time())
        loaded = load_pem_private_key(f"-----BEGIN{key}".encode(), None)
        assert token.keys[0] == loaded.public_key()
        assert (token.run_id, token.node) == (one.plan.run_id, NodeRef(rank, 0))
        assert token.place is not None, "nodes of tests are on this machine"
        assert token.place.includes("127.0.0.1", boot_id())
        assert not token.place.includes("192.0.2.200", boot_id())
        assert token.expires_at > time.time() + LIFETIME - 600
    assert not Home(one.home).run_dir(one.plan.run_id).principal.exists()


@pytest.mark.capability("principals")
@pytest.mark.capability("detached")
def test_credentials_are_replaced_that_expired_while_nobody_drove_the_run(
    session: MakeSession,
) -> None:
    principal = PrincipalPlan("tenancy", "compartment", "muster.invalid", "http://127.0.0.1:1")
    token = '"$(cat $OCI_RESOURCE_PRINCIPAL_RPST)"'
    one = session(
        f"first={token}; echo up; while [ {token} = $first ]; do sleep 0.05; done",
        principal=principal,
    )
    one.start(0)
    one.wait_for_output("up")
    folder = Home(one.home).run_dir(one.plan.run_id).principal
    (folder / "0" / "rpst").write_text("expired")
    one.replaced()
    assert one.ended_after_all(0)[0]["exit_code"] == 0
    assert one.close() == 0
