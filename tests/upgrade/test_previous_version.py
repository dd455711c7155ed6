"""Runs of the version before continue with this one.

The source of the version before is taken from the history of the repository. It submits runs into
the test's MUSTER_HOME and drives them with its own supervisor, while this version lists,
changes and recovers them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest

import muster
from muster.client.client import Client
from muster.client.run import JobRun
from muster.control import run_lock
from muster.storage.liveness import wait_for_process
from support.embedded import embedded
from support.faults import until

#: The last commit of the version before.
BEFORE = "27b1df8"
REPOSITORY = Path(__file__).parents[2]

PROGRAM = """
echo rank $NODE_RANK started $MUSTER_RESTART
mkdir -p "$MUSTER_OUTPUTS" && echo $NODE_RANK $MUSTER_RESTART >> "$MUSTER_OUTPUTS/starts"
echo $NODE_RANK $MUSTER_RESTART >> $MUSTER_MOUNT_OUT/starts
while [ ! -e $MUSTER_MOUNT_OUT/go ]; do
  [ $NODE_RANK = 0 ] && rm $MUSTER_MOUNT_OUT/fail 2>/dev/null && exit 9
  sleep 0.05
done
"""

JOB = """
name: continued
node_groups:
  - {name: head, command: [sh, PROGRAM]}
  - {name: workers, replicas: 2, max_replicas: 4, min_success: 0, command: [sh, PROGRAM]}
mounts: [{source: out}]
failure: {max_restarts: 3, backoff: {initial: 0}}
"""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source of the version before."""
    command = ["git", "-C", str(REPOSITORY), "archive", BEFORE, "src/muster"]
    try:
        archive = subprocess.run(command, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"needs git and commit {BEFORE}: this is no full clone of the repository")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=BytesIO(archive)) as file:
        file.extractall(folder, filter="data")
    return folder / "src"


class Previous:
    """The version before: its command line, and runs of its own supervisor."""

    def __init__(self, source: Path, folder: Path) -> None:
        self._environ = {**os.environ, "PYTHONPATH": str(source)}
        self._folder = folder
        (folder / "out").mkdir()
        (folder / "program.sh").write_text(PROGRAM)
        self.job = folder / "job.yaml"
        self.job.write_text(JOB.replace("PROGRAM", str(folder / "program.sh")))

    def muster(self, *words: str) -> str:
        return self.python("-m", "muster", *words)

    def python(self, *words: str, returncode: int = 0) -> str:
        """Run the interpreter with the version before; its stdout."""
        done = self._run(*words)
        assert done.returncode == returncode, done.stderr
        return done.stdout

    def failed(self, *words: str) -> str:
        """As `python`, for what fails; its stderr."""
        done = self._run(*words)
        assert done.returncode, done.stdout
        return done.stderr

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            env=self._environ,
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def submit(self, client: Client, *words: str) -> JobRun:
        """A run that the version before submits and drives, once all its nodes are ready."""
        run_id = self.muster("run", "--detach", *words, str(self.job)).strip()
        # this version updates the store, which a supervisor that has just started may not have
        # opened yet: it would refuse to, and the run would have to be recovered
        starts = self._folder / "out" / "starts"
        until(lambda: starts.exists() and len(self.starts) >= 3, "a line of each program")
        run = client.run(run_id)
        until(lambda: states(run).count("READY") == 3, "three ready nodes")
        return run

    def fail_head(self) -> None:
        """Let the program of the group `head`, which has to succeed, fail once."""
        (self._folder / "out" / "fail").touch()

    def finish(self) -> None:
        """Let all programs end."""
        (self._folder / "out" / "go").touch()

    @property
    def starts(self) -> list[str]:
        """(rank, restart) of each start of a program."""
        return sorted((self._folder / "out" / "starts").read_text().split("\n")[:-1])


@pytest.fixture
def previous(before: Path, tmp_path: Path) -> Iterator[Previous]:
    version = Previous(before, tmp_path)
    yield version
    version.finish()


def saved(run: JobRun) -> list[str]:
    """What its programs saved in $MUSTER_OUTPUTS, which the version before let nodes share."""
    (output,) = run.outputs()
    assert str(output.path_in_run) == "starts"
    return sorted(output.read_text().splitlines())


def states(run: JobRun) -> list[str]:
    """States of all nodes, those of removed replicas included."""
    return [str(node.state) for node in run._api.nodes(run.id)]


def supervisor_pid(client: Client, run: JobRun) -> int:
    pid = run_lock.holder_pid(embedded(client).home.run_dir(run.id).lock)
    assert pid is not None
    return pid


def kill_supervisor(client: Client, run: JobRun) -> None:
    pid = supervisor_pid(client, run)
    os.kill(pid, signal.SIGKILL)
    wait_for_process(pid, 60)


def recover(client: Client) -> None:
    """Recover runs without a supervisor, as the next command does."""
    other = Client(embedded(client).home.root)
    other.runs()
    embedded(other).close()


def test_a_run_of_its_supervisor_is_listed_shown_followed_and_scaled(
    client: Client, previous: Previous
) -> None:
    run = previous.submit(client)
    pid = supervisor_pid(client, run)
    assert [(one.id, one.state) for one in client.runs()] == [(run.id, "IN_PROGRESS")]
    assert [(node.rank, node.state) for node in run.nodes] == [(r, "READY") for r in range(3)]
    stored = "SELECT state FROM nodes WHERE run_id = ? AND rank > 2"
    assert [
        *map(tuple, embedded(client).context.backend.store.database.read(stored, (run.id,)))
    ] == [("PARKED",)] * 2
    assert states(run)[3:] == ["SCALED_DOWN"] * 2
    run.scale("workers", 1)
    until(lambda: states(run)[2:] == ["SCALED_DOWN"] * 3, "one worker is left")
    run.scale("workers", 3)
    until(lambda: states(run)[:4] == ["READY"] * 4, "three workers are ready")
    assert supervisor_pid(client, run) == pid, "the supervisor of the version before drives the run"
    previous.finish()
    kinds = [(entry.kind, entry.data.get("state")) for entry in run.events(follow=True)]
    assert ("nodes", "SCALED_DOWN") in kinds and ("nodes", "PARKED") not in kinds
    assert kinds[-1] == ("run", "SUCCEEDED")
    assert run.wait(60).state == "SUCCEEDED"
    lines = {line.message for line in run.logs()}
    assert {f"rank {rank} started 0" for rank in range(3)} <= lines


def test_a_node_is_restarted_after_the_files_of_its_supervisor_were_replaced(
    client: Client, before: Path, tmp_path: Path
) -> None:
    """An upgrade replaces the installed package while a supervisor has imported a part of it."""
    installed = tmp_path / "installed"
    shutil.copytree(before, installed)
    previous = Previous(installed, tmp_path)
    run = previous.submit(client)
    (installed / "muster").rename(installed / "removed")
    (installed / "muster").symlink_to(Path(muster.__file__).parent)
    previous.fail_head()
    until(lambda: run.refresh().done or len(previous.starts) > 3, "a restarted node")
    assert not run.done, run.details
    until(lambda: states(run).count("READY") == 3, "three ready nodes")
    previous.finish()
    assert run.wait(60).state == "SUCCEEDED", run.details


def test_its_commands_refuse_the_store_of_this_version(client: Client, previous: Previous) -> None:
    run = previous.submit(client)
    words = ("-m", "muster", "runs", "cancel", run.name)
    refused = previous.failed(*words)
    assert "was written by a newer Muster" in refused and "upgrade Muster" in refused
    assert run.refresh().state == "IN_PROGRESS"


def test_a_run_of_its_supervisor_is_canceled(client: Client, previous: Previous) -> None:
    run = previous.submit(client)
    run.cancel("no longer needed")
    assert (run.wait(60).state, run.details) == ("CANCELED", "no longer needed")


def test_a_run_is_recovered_when_its_supervisor_is_killed(
    client: Client, previous: Previous, alive: Callable[[str], list[str]]
) -> None:
    run = previous.submit(client)
    kill_supervisor(client, run)
    recover(client)
    until(lambda: states(run)[:3] == ["READY"] * 3, "the nodes are restarted")
    assert states(run)[3:] == ["SCALED_DOWN"] * 2
    run.scale("workers", 4)
    until(lambda: states(run) == ["READY"] * 5, "all workers are ready")
    until(lambda: len(previous.starts) == 8, "a line of each program")
    previous.finish()
    assert run.wait(60).state == "SUCCEEDED"
    assert previous.starts == ["0 0", "0 1", "1 0", "1 1", "2 0", "2 1", "3 0", "4 0"]
    assert saved(run) == previous.starts
    assert [entry.seq for entry in run.events()] == list(range(1, len(list(run.events())) + 1))


def test_requests_pending_when_its_supervisor_was_killed_are_carried_out(
    client: Client, previous: Previous
) -> None:
    run = previous.submit(client)
    pid = supervisor_pid(client, run)
    os.kill(pid, signal.SIGSTOP)
    requests = embedded(client).store.runs
    assert requests.request_scale(run.id, "workers", 1, "scaled by user", time.time())
    assert requests.request(run.id, "suspend", "suspended by user", time.time())
    os.kill(pid, signal.SIGKILL)
    wait_for_process(pid, 60)
    recover(client)
    until(lambda: client.run(run.id).state == "SUSPENDED", "the run is suspended")
    assert states(run) == ["PENDING"] * 2 + ["SCALED_DOWN"] * 3


@pytest.mark.parametrize("scaled", [False, True])
def test_a_suspended_run_is_resumed(client: Client, previous: Previous, scaled: bool) -> None:
    run = previous.submit(client)
    if scaled:
        run.scale("workers", 1)
    assert run.suspend().wait(60).state == "SUSPENDED"
    if not scaled:
        run.scale("workers", 1)
    assert states(run) == ["PENDING"] * 2 + ["SCALED_DOWN"] * 3
    previous.finish()
    overrides = {"max_runtime": 600} if scaled else {}  # with overrides it is planned again
    assert run.resume(**overrides).wait(60).state == "SUCCEEDED"
    # the worker's success is not required: it may be stopped when the head has ended
    of_head = [[one for one in starts if one[0] == "0"] for starts in (saved(run), previous.starts)]
    assert of_head[0] == of_head[1] and len(of_head[0]) == 2
    assert states(run)[0] == "SUCCEEDED" and states(run)[1] in ("SUCCEEDED", "STOPPED")
    assert states(run)[2:] == ["SCALED_DOWN"] * 3


#: Submits a run and is killed before or after a function is called.
KILLED = """
import importlib, os, sys
from muster.client.client import Client
import muster.service

path, when, job = sys.argv[1:]
module, _, name = path.rpartition(".")
try:
    owner = importlib.import_module(module)
except ModuleNotFoundError:
    module, _, inner = module.rpartition(".")
    owner = getattr(importlib.import_module(module), inner)
real = getattr(owner, name)

def call_and_kill(*args, **more):
    if when == "after":
        real(*args, **more)
    os.kill(os.getpid(), 9)

setattr(owner, name, call_and_kill)
if getattr(muster.service, name, None) is real:
    setattr(muster.service, name, call_and_kill)
client = Client()
job, new = client.job(job)
client.start(client.draft(job, new_job=new))
"""


@pytest.mark.parametrize(
    ("where", "when", "accepted"),
    [
        ("muster.store.runs.insert", "before", False),
        ("muster.store.runs.insert", "after", True),
        ("muster.control.bell.install", "after", False),
        ("muster.control.watch.begin_life", "before", False),
        ("muster.control.watch.begin_life", "after", False),
        ("muster.control.launcher.Launcher.start", "before", True),
        ("muster.control.launcher.Launcher.start", "after", True),
    ],
)
def test_an_interrupted_submit_is_completed_or_leaves_no_run(
    client: Client, previous: Previous, where: str, when: str, accepted: bool
) -> None:
    previous.finish()
    previous.python("-c", KILLED, where, when, str(previous.job), returncode=-9)
    found = client.runs()
    assert len(found) == accepted
    for run in found:
        assert run.wait(60).state == "SUCCEEDED"
