"""Runs of two owners on one server, which runs as root, cannot reach each other or the server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.api.streams import LogChunk, Selection
from muster.caller import ALL_RIGHTS, Caller
from muster.errors import Forbidden, InvalidInput
from muster.identity import new_id
from muster.permissions import Right
from muster.plan.model import PrincipalPlan
from muster.service.embedded import EmbeddedAPI
from muster.storage.owners import account_of, account_of_run
from muster.store.records import RunRecord
from muster.submission import Submission
from support.api_runs import prepare, start, wait
from support.authorities import caller_with
from support.faults import until
from support.owners import Server, execute, needs_root, server, wait_until_ready

pytestmark = needs_root

ATTACK = Path(__file__).parents[1] / "support" / "attack.py"
SECRET = "word-of-ana"
#: Where nodes of a run without an account reach the machine, and the router of a run.
MACHINE = ("10.77.128.2", "10.77.127.254")
LOOPBACK = ("127.0.0.1", "::1")
#: A program that has something of each kind, and says when.
VICTIM = f"""
import ctypes, os, socket, threading, time
from pathlib import Path
os.umask(0)
for path in ("mine", os.environ["HOME"] + "/mine", "/tmp/mine", "/var/tmp/mine", "/dev/shm/mine",
             os.environ["MUSTER_OUTPUTS"] + "/mine", os.environ["TMPDIR"] + "/mine"):
    Path(path).write_text("{SECRET}")
    os.chmod(path, 0o666)
kept = [socket.create_server(("0.0.0.0", 5555)),
        socket.create_server(("::", 5556), family=socket.AF_INET6)]
def serve(listener):
    while True:
        connection, _ = listener.accept()
        connection.sendall(b"{SECRET}")
        connection.close()
for listener in kept:
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    kept.append(socket.socket(socket.AF_UNIX, kind))
    kept[-1].bind("\\0of-ana-%d" % kind)
kept[2].listen()
assert ctypes.CDLL(None).shmget(4711, 4096, 0o1666) >= 0
print("{SECRET} in the output", flush=True)
Path(os.environ["MUSTER_OUTPUTS"] + "/ready").touch()
time.sleep(600)
"""


@pytest.fixture(scope="module")
def two() -> Iterator[Server]:
    with server() as made:
        yield made


@pytest.fixture(scope="module")
def victim(two: Server) -> RunRecord:
    """A run of ana in progress."""
    api = two.api("ana")
    code = Path(two.home.root.parent / "victim.py")
    code.write_text(VICTIM)
    run = start_python(api, str(code), env={"SECRET": SECRET})
    until(lambda: is_ready(two, run) or api.run(run.id).state == "FAILED", "it is ready", 60)
    assert is_ready(two, run), text_of(api, run.id)
    return run


def is_ready(two: Server, run: RunRecord) -> bool:
    return any(two.home.run_dir(run.id).outputs.rglob("ready"))


def start_python(api: EmbeddedAPI, path: str, *args: str, **fields: object) -> RunRecord:
    from muster.spec.override_models import RunOverrides
    from muster.spec.reader import spec_from_mapping

    spec = spec_from_mapping({"name": "demo", "artifact": path, "args": list(args), **fields})
    job = api.prepare_job(spec)
    return api.start(api.prepare_run(job.record, RunOverrides(), new_job=job.new))


def text_of(api: EmbeddedAPI, run_id: str) -> str:
    """The output of a run."""
    chunks = [one for one in api.log(run_id, Selection()) if isinstance(one, LogChunk)]
    return b"".join(one.data for one in chunks).decode()


def targets(two: Server, victim: RunRecord, *, outside: bool) -> str:
    """What to attack, for the program."""
    home, folder = two.home, two.home.run_dir(victim.id)
    account = account_of(home, "ana")
    digest = two.api("ana").job(victim.job_id).artifact_sha256
    assert digest is not None
    paths: list[object] = [
        *(home.database, home.secret_key, home.owners / "accounts.json", home.artifacts),
        *(home.artifact(digest), home.root, home.runs, home.owners, home.environments),
        *(folder.path, folder.environ, folder.lock, folder.wakeup, folder.supervisor_log),
        *(folder.logs(0), folder.service_log, folder.outputs, folder.outputs / "mine"),
        *(folder.work(0), folder.work(0) / "mine", folder.cluster_file, folder.usage),
        *(folder.principal, folder.principal / "0/rpst", folder.principal / "0/key.pem"),
        *(account.home, f"{account.home}/mine", "/etc/shadow"),
        *(f"{home.database}-wal", f"{home.database}-shm"),
    ]
    supervisor = two.api("ana").supervisor_of(victim.id)
    own = socket.gethostbyname(socket.gethostname())
    addresses = [two.api("ana").nodes(victim.id)[0].address, own, *MACHINE, *LOOPBACK]
    return json.dumps(
        {
            "paths": [str(path) for path in paths],
            "words": [SECRET, two.word],
            "addresses": addresses,
            "ports": [5555, 5556, *([] if outside else [two.port])],
            "abstract": ["of-ana-1", "of-ana-2", *([] if outside else [two.abstract])],
            "pids": [supervisor, os.getpid(), *children(supervisor)],
            "shared": ["mine"],
            "key": 4711,
            "outside": outside,
        }
    )


def children(pid: int) -> list[int]:
    from muster.node.processes import children as of

    return list(of(pid))


def reached(output: str) -> str:
    """What the program says that it could do."""
    assert "DONE" in output, output
    assert "FAULT" not in output, output
    return "\n".join(line for line in output.splitlines() if line.startswith("REACHED"))


def test_a_run_reaches_nothing_of_another_owner(two: Server, victim: RunRecord) -> None:
    api = two.api("ben")
    run = start_python(api, str(ATTACK), targets(two, victim, outside=False))
    assert wait(api, run.id) == "SUCCEEDED", text_of(api, run.id)
    assert not (found := reached(text_of(api, run.id))), found


def test_credentials_of_a_run_are_its_owners(two: Server) -> None:
    api = two.api("ana")
    files = "$OCI_RESOURCE_PRINCIPAL_RPST $OCI_RESOURCE_PRINCIPAL_PRIVATE_PEM"
    run = start(api, f'cat {files} >/dev/null && stat -c "%u %a" {files}')
    assert wait(api, run.id) == "SUCCEEDED", text_of(api, run.id)
    owned = f"{account_of(two.home, 'ana').uid} 600"
    assert text_of(api, run.id).splitlines().count(owned) == 2


@pytest.mark.parametrize(
    ("url", "is_noted"),
    [("http://127.0.0.1:8431", True), ("https://muster.example:8431", False), ("", False)],
)
def test_a_job_run_that_does_not_reach_its_server_has_a_note(
    two: Server, url: str, is_noted: bool
) -> None:
    principal = PrincipalPlan("tenancy", "compartment", "muster.invalid", url)
    submission = Submission(
        *({}, sys.executable, Path("/")),
        account=account_of(two.home, "ana"),
        oci_names={"JOB_RUN_OCID": "ocid1.datasciencejobrun.muster.local..a"},
        principal=principal,
    )
    api = EmbeddedAPI(caller=Caller("ana", "ana"), submission=submission, backend=two.backend)
    told = f"clients of OCI in nodes do not reach {url}, and wait: start the server with --host"
    notes = prepare(api, "true").plan.notes
    assert any(note.startswith(told) for note in notes) == is_noted


def test_a_command_in_a_node_has_no_more_rights(two: Server, victim: RunRecord) -> None:
    api = two.api("ben")
    run = start(api, "sleep 600")
    wait_until_ready(api, run.id)
    given = targets(two, victim, outside=False)
    code, output = execute(api, run.id, "python3", "-c", ATTACK.read_text(), given)
    assert code == 0, output
    assert not (found := reached(output)), found


def test_a_process_of_an_account_outside_all_nodes_reaches_no_files(
    two: Server, victim: RunRecord
) -> None:
    """As of a Unix user that the administrator has named."""
    account = account_of(two.home, "ben")
    done = subprocess.run(
        [sys.executable, str(ATTACK), targets(two, victim, outside=True)],
        cwd=account.home,
        user=account.uid,
        group=account.gid,
        extra_groups=account.groups,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not (found := reached(done.stdout)), found


def test_others_do_not_see_the_run_through_the_api(two: Server, victim: RunRecord) -> None:
    owner = account_of_run(two.home.run_dir(victim.id))
    assert owner == account_of(two.home, "ana")
    assert SECRET in text_of_running(two.api("ana"), victim.id)


def text_of_running(api: EmbeddedAPI, run_id: str) -> str:
    chunks = api.log(run_id, Selection())
    return b"".join(one.data for one in chunks if isinstance(one, LogChunk)).decode()


def test_what_the_owner_may_do(two: Server, victim: RunRecord) -> None:
    api = two.api("ana")
    code, output = execute(api, victim.id, "sh", "-c", "cat mine; id -u; echo $HOME; umask")
    account = account_of(two.home, "ana")
    assert (code, output) == (0, f"{SECRET}{account.uid}\n{account.home}\n0077\n")
    here = two.home.root.parent / "copied"
    api.node_access.copy(f"{victim.name}:0:mine", str(here), lambda _: None)
    assert here.read_text() == SECRET
    api.node_access.copy(str(here), f"{victim.name}:0:back", lambda _: None)
    assert execute(api, victim.id, "cat", "back") == (0, SECRET)
    mine, ready = api.outputs(victim.id).files
    assert (mine.path, ready.path) == ("mine", "ready")
    assert b"".join(api.read_output(victim.id, mine.rank, "mine")) == SECRET.encode()
    assert api.counters(victim.id)[0].memory > 0


def test_a_run_is_suspended_resumed_and_recovered_as_its_owner(two: Server) -> None:
    api = two.api("ana")
    restart = {"max_restarts": 3, "strategy": "in_place"}
    run = start(api, "id -u; touch kept; sleep 600", nodes=2, failure=restart)
    wait_until_ready(api, run.id)
    api.suspend(run.id)
    until(lambda: api.run(run.id).state == "SUSPENDED", "it is suspended", 60)
    api.resume(run.id)
    wait_until_ready(api, run.id)
    os.kill(api.supervisor_of(run.id), signal.SIGKILL)
    until(lambda: lost_supervisor(two, api, run.id), "it is recovered", 60)
    wait_until_ready(api, run.id)
    code, output = execute(api, run.id, "id", "-u", rank=1)
    uid = account_of(two.home, "ana").uid
    assert (code, output) == (0, f"{uid}\n")
    # restarted in place
    until(lambda: sleeping(api, run), "the program sleeps", 60)
    execute(api, run.id, "kill", "-9", sleeping(api, run)[0])
    until(lambda: api.run(run.id).attempt >= 2, "it restarts", 60)
    wait_until_ready(api, run.id)
    until(lambda: sleeping(api, run), "the program has printed", 60)
    api.cancel(run.id)
    assert wait(api, run.id) == "CANCELED"
    assert set(text_of(api, run.id).split()) >= {str(uid)}
    api.delete(run.id)
    assert not two.home.run_dir(run.id).path.exists()


def sleeping(api: EmbeddedAPI, run: RunRecord) -> list[str]:
    """The pids of what the programs that node 0 sees wait for; none before they do."""
    return execute(api, run.id, "pgrep", "-f", "^sleep 600$")[1].split()


def lost_supervisor(two: Server, api: EmbeddedAPI, run_id: str) -> bool:
    two.recover()
    return any(event.kind == "supervisor_lost" for event in api.events(run_id))


def test_a_run_keeps_its_account_whoever_resumes_it(two: Server) -> None:
    ana = two.api("ana")
    ben = EmbeddedAPI(
        caller=Caller("ben", "ana"),
        submission=two.api("ben").context.submission,
        backend=two.backend,
    )
    for run in (
        start(ana, "id -u", suspend=True),
        start(ana, "test $MUSTER_ATTEMPT = 0 && sleep 600; id -u"),
    ):
        if run.state != "SUSPENDED":
            wait_until_ready(ana, run.id)
            ana.suspend(run.id)
            until(lambda run=run: ana.run(run.id).state == "SUSPENDED", "it is suspended", 60)
        ben.resume(run.id)
        assert wait(ana, run.id) == "SUCCEEDED"
        assert str(account_of(two.home, "ana").uid) in text_of(ana, run.id).split()


def test_nobody_with_an_account_resumes_a_run_of_root(two: Server) -> None:
    root = EmbeddedAPI(caller=Caller("root", "ben"), backend=two.backend)
    run = start(root, "sleep 600")
    wait_until_ready(root, run.id)
    root.suspend(run.id)
    until(lambda: root.run(run.id).state == "SUSPENDED", "it is suspended", 60)
    with pytest.raises(InvalidInput, match="runs as the server's own user"):
        two.api("ben").resume(run.id)


@pytest.mark.parametrize("suspend", [False, True])
def test_a_run_is_started_whose_folder_a_killed_server_has_begun(
    two: Server, *, suspend: bool
) -> None:
    """It had not said whose the folder is; the request is sent again."""
    ana, run_id = two.api("ana"), new_id()
    submission = replace(ana.context.submission, created_id=run_id)
    two.home.run_dir(run_id).path.mkdir(mode=0o700, parents=True)
    again = EmbeddedAPI(caller=ana.context.caller, submission=submission, backend=two.backend)
    run = start(again, "id -u", suspend=suspend)
    assert (run.id, account_of_run(two.home.run_dir(run_id))) == (
        run_id,
        account_of(two.home, "ana"),
    )
    if suspend:
        ana.resume(run_id)
    assert wait(ana, run_id) == "SUCCEEDED"
    assert str(account_of(two.home, "ana").uid) in text_of(ana, run_id).split()


def test_no_role_of_a_project_enters_a_run_of_root(two: Server) -> None:
    root = EmbeddedAPI(caller=Caller("root", "ben"), backend=two.backend)
    run = start(root, "sleep 600")
    wait_until_ready(root, run.id)
    submission = replace(two.api("ben").context.submission, account=None, separate_owners=True)

    def api(rights: frozenset[Right]) -> EmbeddedAPI:
        caller = caller_with("ben", "ben", rights)
        return EmbeddedAPI(caller=caller, submission=submission, backend=two.backend)

    member = api(ALL_RIGHTS - {Right.ADMINISTER})
    for enter in (
        lambda: member.node_to_execute(run.id, 0, "id"),
        lambda: member.node_to_forward(run.id, 0, "port 80"),
        lambda: member.node_to_copy(run.id, 0, "from /etc/shadow"),
        lambda: member.running_node(run.id, 0),
        lambda: member.cluster_access(run.id),
    ):
        with pytest.raises(Forbidden, match="runs as the server's own user"):
            enter()
    assert api(ALL_RIGHTS).node_to_execute(run.id, 0, "id")
    root.cancel(run.id)


def test_a_function_finds_its_arguments(two: Server) -> None:
    api = two.api("ana")
    run = api.start_function(prepare(api, "cat ../../../arguments.pickle"), b"arguments")
    assert wait(api, run.id) == "SUCCEEDED"
    assert "arguments" in text_of(api, run.id)
