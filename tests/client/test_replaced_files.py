"""Programs replace files that Muster keeps for their run: no command waits for a pipe without a
writer, reads an endless device, or shows a traceback."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.errors import StoreError
from support.command import muster
from support.embedded import embedded
from support.runs import supervisor_pid

#: Replaces every file of its run with what its first argument names. It spares its own code, and
#: the files that show whether a supervisor is alive and that wake it.
VANDAL = """
import os, sys, time

how, then = sys.argv[1:]
run = os.path.dirname(os.environ["MUSTER_RUN_OUTPUTS"])
mine = os.path.join(run, "nodes", "0", "work")
spared = ("lease", "life", "bell")

def replace(path):
    if os.path.lexists(path):
        os.unlink(path)
    if how == "pipe":
        os.mkfifo(path)
    elif how == "device":
        os.symlink("/dev/zero", path)
    elif how == "loop":
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
    if then == "wait":
        time.sleep(1000)
    raise SystemExit(3)
print("again", flush=True)
"""

ONCE = "{max_restarts: 1, backoff: {initial: 0}}"
#: What a program can put in place of a file.
HOW = ["missing", "pipe", "device", "loop"]


@pytest.fixture(params=["namespaces", pytest.param("plain", marks=pytest.mark.slow)])
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    level: str = request.param
    if level == "plain":
        monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    return level


def start(client: Client, tmp_path: Path, how: str, then: str, failure: str = "{}") -> JobRun:
    (tmp_path / "vandal.py").write_text(VANDAL)
    (tmp_path / "back").mkdir()
    spec = tmp_path / "job.yaml"
    # a mount that is written back: its checkpoint file is watched
    spec.write_text(
        f"artifact: vandal.py\nargs: [{how}, {then}]\nfailure: {failure}\n"
        f"mounts: [{{source: 'file://{tmp_path / 'back'}'}}]\n"
    )
    job, new = client.job(spec)
    return client.start(client.prepare_run(job, new_job=new))


def check_commands(run: JobRun) -> None:
    """Every command that shows the run succeeds or prints an error."""
    for words in (
        ("logs", run.id, "--follow"),
        ("logs", run.id, "--tail", "3", "--json"),
        ("runs", "show", run.id),
    ):
        done = muster(*words)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == 0 or done.stderr.startswith("error: "), (words, done)


@pytest.mark.embedded("mounts a directory of this machine")
@pytest.mark.parametrize("how", HOW)
def test_a_run_whose_files_were_replaced_restarts_and_ends(
    client: Client, tmp_path: Path, how: str, isolation: str
) -> None:
    run = start(client, tmp_path, how, "end", ONCE)
    run.wait(60)
    assert run.state == "SUCCEEDED", run.details
    run.delete()
    assert not embedded(client).home.run_dir(run.id).path.exists()


@pytest.mark.embedded("mounts a directory of this machine")
@pytest.mark.parametrize("how", HOW)
def test_a_failure_is_reported_even_if_its_output_was_replaced(
    client: Client, tmp_path: Path, how: str
) -> None:
    run = start(client, tmp_path, how, "end").wait(60)
    assert (run.state, run.exit_code) == ("FAILED", 3)
    check_commands(run)


@pytest.mark.embedded("mounts a directory of this machine")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("what", ["suspend", "kill"])
def test_a_run_whose_files_were_replaced_is_recovered(
    client: Client, tmp_path: Path, how: str, what: str
) -> None:
    run = start(client, tmp_path, how, "wait", ONCE)
    folder = embedded(client).home.run_dir(run.id)
    while not (folder.work(0) / "done").exists():
        assert not run.refresh().done, run.details
    if what == "suspend":
        assert run.suspend().wait(60).state == "SUSPENDED"
        run.resume()
    else:
        os.kill(supervisor_pid(client, run), signal.SIGKILL)
        if not folder.environ.is_file():  # no other environment takes the place of the submitter's
            assert run.wait(60).state == "FAILED"
            assert "the run's environment cannot be read from" in run.details
            return
    assert run.wait(60).state == "SUCCEEDED", run.details


@pytest.mark.parametrize("name", ["streams.json", "index"])
def test_logs_report_replaced_files(client: Client, name: str) -> None:
    job, new = client.job(None, command=["true"])
    run = client.start(client.prepare_run(job, new_job=new)).wait(60)
    path = run.log_folder() / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreError, match=f"{name} was replaced or damaged .not a regular file"):
        list(run.logs(streams=["stdout", "stderr"]))


def test_deleting_a_run_does_not_follow_links_of_its_program(
    client: Client, tmp_path: Path
) -> None:
    job, new = client.job(None, command=["true"])
    run = client.start(client.prepare_run(job, new_job=new)).wait(60)
    logs = run.log_folder().parent
    shutil.rmtree(logs)
    mine = tmp_path / "mine"
    mine.mkdir()
    logs.symlink_to(mine)
    run.delete()
    assert mine.is_dir()
    assert not logs.is_symlink()
