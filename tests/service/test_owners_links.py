"""Links that the programs of an owner plant, for a server that runs as root, lead nowhere."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.api.streams import LogChunk, Selection
from muster.errors import MusterError
from muster.service.embedded import EmbeddedAPI
from muster.store.records import RunRecord
from support.api_runs import start, wait
from support.faults import until
from support.owners import Server, execute, needs_root, server, wait_until_ready

pytestmark = needs_root

SECRET = "only root may read this"

#: Replaces what is in the run's folder by links to a file or folder of root's, as far as it can.
PLANT = """
import os, sys
run, file, folder, kind = sys.argv[1:]
for top, folders, files in os.walk(run, topdown=False):
    for name in files:
        path = os.path.join(top, name)
        try:
            os.unlink(path)
            (os.symlink if kind == "soft" else os.link)(file, path)
        except OSError as error:
            if kind == "soft": print(path, error)
    if kind == "soft" and os.path.basename(top) in ("outputs", "results", "logs", "0", "tmp"):
        try:
            os.rename(top, top + ".moved")
            os.symlink(folder, top)
        except OSError as error:
            print(top, error)
os.system("pkill sleep")
"""
#: Exchanges a file, and its folder, with links as fast as it can.
SWAP = """
import os, sys, time
outputs, file, folder = sys.argv[1:]
os.makedirs(outputs + "/d", exist_ok=True)
open(outputs + "/d/f", "w").write("mine")
os.makedirs(outputs + "/e", exist_ok=True)
open(outputs + "/e/secret", "w").write("mine")
print("swapping", flush=True)
end = time.time() + float(os.environ.get("SECONDS", "8"))
while time.time() < end:
    os.symlink(file, outputs + "/d/l")
    os.replace(outputs + "/d/l", outputs + "/d/f")
    open(outputs + "/d/r", "w").write("mine")
    os.replace(outputs + "/d/r", outputs + "/d/f")
    os.rename(outputs + "/e", outputs + "/x")
    os.symlink(folder, outputs + "/e")
    os.unlink(outputs + "/e")
    os.rename(outputs + "/x", outputs + "/e")
"""


@pytest.fixture(scope="module")
def two() -> Iterator[Server]:
    with server() as made:
        yield made


@pytest.fixture
def secret(two: Server) -> Iterator[Path]:
    """A folder with a file, both of root alone."""
    folder = two.home.root.parent / "of-root"
    folder.mkdir(mode=0o700)
    file = folder / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)
    before = stamp(folder), stamp(file)
    yield file
    assert (stamp(folder), stamp(file)) == before
    assert os.listdir(folder) == ["secret"]
    assert file.read_text() == SECRET
    file.unlink()
    folder.rmdir()


def stamp(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return (found.st_mode, found.st_uid, found.st_gid, found.st_nlink, found.st_mtime_ns)


@pytest.fixture
def run(two: Server) -> Iterator[RunRecord]:
    """A run of two nodes in progress."""
    api = two.api("ben")
    policy = {"max_restarts": 5, "strategy": "in_place"}
    made = start(
        api, "echo started; echo x > $MUSTER_OUTPUTS/f; sleep 600", nodes=2, failure=policy
    )
    wait_until_ready(api, made.id)
    yield made
    with contextlib.suppress(MusterError):
        api.cancel(made.id)


def everything(api: EmbeddedAPI, run: RunRecord) -> str:
    """All that the server reads of a run's files, as text."""
    found: list[object] = []

    def add(read: Callable[[], object]) -> None:
        try:
            found.append(read())
        except (OSError, MusterError) as error:
            found.append(error)

    def output(rank: int | None, path: str) -> Callable[[], object]:
        return lambda: b"".join(api.read_output(run.id, rank, path))

    add(lambda: b"".join(c.data for c in api.log(run.id, Selection()) if isinstance(c, LogChunk)))
    add(lambda: api.usage(run.id))
    add(lambda: api.endpoints(run.id))
    add(lambda: api.outputs(run.id))
    for rank in (None, 0, 1):
        for path in ("f", "d/f", "e/secret", "secret"):
            add(output(rank, path))
    add(lambda: [api.result(run.id, rank) for rank in api.ranks_with_result(run.id)])
    copied = api.home.root.parent / "copied"
    add(lambda: api.node_access.copy(f"{run.name}:0:f", str(copied), lambda _: None))
    add(copied.read_text)
    copied.unlink(missing_ok=True)
    return repr(found)


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_planted_links_are_not_followed(
    two: Server, run: RunRecord, secret: Path, kind: str
) -> None:
    api = two.api("ben")
    folder = two.home.run_dir(run.id).path
    argv = (str(folder), str(secret), str(secret.parent), kind)
    code, output = execute(api, run.id, "python3", "-c", PLANT, *argv)
    assert code in (0, 137), output  # the node ends with its program
    for name in ("lease", "bell", "life", "environ", "pulse", "supervisor.log"):
        with contextlib.suppress(FileNotFoundError):  # the run has ended meanwhile
            assert (folder / name).lstat().st_uid == 0, f"{name} was replaced"
    assert SECRET not in everything(api, run)
    # the supervisor and the agents write to what was replaced
    until(lambda: api.run(run.id).attempt > 0 or not in_progress(api, run), "it restarts", 60)
    # another supervisor finds them
    with contextlib.suppress(MusterError):
        os.kill(api.supervisor_of(run.id), signal.SIGKILL)
    two.recover()
    with contextlib.suppress(MusterError):
        api.cancel(run.id)
    wait(api, run.id)
    assert SECRET not in everything(api, run)
    api.delete(run.id)
    assert not folder.exists()


def in_progress(api: EmbeddedAPI, run: RunRecord) -> bool:
    return api.run(run.id).state == "IN_PROGRESS"


def test_links_that_are_swapped_while_they_are_read_are_not_followed(
    two: Server, run: RunRecord, secret: Path
) -> None:
    api = two.api("ben")
    outputs = str(two.home.run_dir(run.id).outputs)
    argv = (outputs, str(secret), str(secret.parent))
    swapping = start_swapping(api, run, *argv)
    found = ""
    while swapping():
        found += everything(api, run)
    assert SECRET not in found
    assert "mine" in found


def start_swapping(api: EmbeddedAPI, run: RunRecord, *argv: str) -> Callable[[], bool]:
    """Start the program in a node. Returns whether it runs still."""
    background = 'python3 -c "$0" "$@" & echo $!'
    code, output = execute(api, run.id, "sh", "-c", background, SWAP, *argv)
    assert code == 0, output
    pid = output.split()[0]
    return lambda: execute(api, run.id, "kill", "-0", pid)[0] == 0


def test_a_run_whose_files_are_swapped_is_deleted_without_others(two: Server, secret: Path) -> None:
    api = two.api("ben")
    run = start(api, "mkdir -p deep/er; touch deep/er/f; ln -s $0 deep/link", nodes=1)
    assert wait(api, run.id) == "SUCCEEDED"
    folder = two.home.run_dir(run.id)
    link = folder.work(0) / "deep" / "to-root"
    os.symlink(secret.parent, link)
    api.delete(run.id)
    assert not folder.path.exists()
