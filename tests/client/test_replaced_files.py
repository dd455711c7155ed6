"""Programs put something else in the place of files that Muster keeps for their run: nobody waits
for a pipe that nobody writes to, reads a device without an end, or shows a traceback."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.control import lease
from muster.errors import StoreError

#: Replaces every file of its run but for those by which its supervisor is known to be there, and
#: those that a next life would look for, in the way it is told to.
VANDAL = """
import os, sys, time

how, again = sys.argv[1:]
run = os.path.dirname(os.environ["MUSTER_OUTPUTS"])
mine = os.path.join(run, "nodes", "0", "work")
spared = ("lease", "life", "bell")

def replace(path):
    if os.path.lexists(path):
        os.unlink(path)
    if how == "pipe":
        os.mkfifo(path)
    elif how == "device":
        os.symlink("/dev/zero", path)
    elif how == "circle":
        os.symlink(path, path)

if os.environ["MUSTER_RESTART"] == "0":
    print("before", flush=True)
    for folder, _, names in list(os.walk(run)):
        for name in names:
            if name not in spared and not folder.startswith(mine):
                replace(os.path.join(folder, name))
    for name in ("cluster.json.part", "hosts.part", "environ.part", "endpoints.json.part"):
        replace(os.path.join(run, name))
    open("done", "w").close()
    print("after", flush=True)
    if again == "wait":
        time.sleep(1000)
    raise SystemExit(3)
print("again", flush=True)
"""

ONCE = "{max_restarts: 1, backoff: {initial: 0}}"
#: What a program may put in the place of a file.
HOW = ["gone", "pipe", "device", "circle"]


@pytest.fixture(params=["namespaces", "plain"])
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    level: str = request.param
    if level == "plain":
        monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    return level


def start(client: Client, tmp_path: Path, how: str, then: str, failure: str = "{}") -> JobRun:
    (tmp_path / "vandal.py").write_text(VANDAL)
    (tmp_path / "back").mkdir()
    spec = tmp_path / "job.yaml"
    # what is written back has its checkpoint file watched
    spec.write_text(
        f"artifact: vandal.py\nargs: [{how}, {then}]\nfailure: {failure}\n"
        f"mounts: [{{source: 'file://{tmp_path / 'back'}'}}]\n"
    )
    job, new = client.job(spec)
    return client.start(client.draft(job, new_job=new))


def command(*args: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "muster", *args]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)


def looked_at(run: JobRun) -> None:
    """All that shows a run shows this one, or says in a sentence why it cannot."""
    for words in (
        ("logs", run.id, "--follow"),
        ("logs", run.id, "--tail", "3", "--json"),
        ("runs", "show", run.id),
    ):
        done = command(*words)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == 0 or done.stderr.startswith("error: "), (words, done)


@pytest.mark.parametrize("how", HOW)
def test_a_run_whose_files_were_replaced_starts_again_and_ends(
    client: Client, tmp_path: Path, how: str, isolation: str
) -> None:
    run = start(client, tmp_path, how, "end", ONCE)
    run.wait(60)
    assert run.state == "SUCCEEDED", run.details
    run.delete()
    assert not client.service.home.run_dir(run.id).path.exists()


@pytest.mark.parametrize("how", HOW)
def test_a_failure_is_told_although_its_output_was_replaced(
    client: Client, tmp_path: Path, how: str
) -> None:
    run = start(client, tmp_path, how, "end").wait(60)
    assert (run.state, run.exit_code) == ("FAILED", 3)
    looked_at(run)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("what", ["suspend", "kill"])
def test_somebody_else_takes_it_up(client: Client, tmp_path: Path, how: str, what: str) -> None:
    run = start(client, tmp_path, how, "wait", ONCE)
    folder = client.service.home.run_dir(run.id)
    while not (folder.work(0) / "done").exists():
        assert not run.refresh().done, run.details
    if what == "suspend":
        assert run.suspend().wait(60).state == "SUSPENDED"
        run.resume()
    else:
        pid = lease.holder(folder.lease)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    assert run.wait(60).state == "SUCCEEDED", run.details


@pytest.mark.parametrize("name", ["streams.json", "index"])
def test_logs_say_what_is_wrong_with_them(client: Client, name: str) -> None:
    job, new = client.job(None, command=["true"])
    run = client.start(client.draft(job, new_job=new)).wait(60)
    path = run.log_folder() / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreError, match=f"{name} was replaced or damaged .not a regular file"):
        list(run.logs(streams=["stdout", "stderr"]))


def test_deleting_a_run_deletes_nothing_that_its_program_has_put_in_the_way(
    client: Client, tmp_path: Path
) -> None:
    job, new = client.job(None, command=["true"])
    run = client.start(client.draft(job, new_job=new)).wait(60)
    logs = run.log_folder().parent
    shutil.rmtree(logs)
    mine = tmp_path / "mine"
    mine.mkdir()
    logs.symlink_to(mine)
    run.delete()
    assert mine.is_dir()
    assert not logs.is_symlink()
