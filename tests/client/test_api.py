"""The Python API, as a script or a notebook uses it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import muster
from muster.client.client import Client
from support.embedded import embedded


@pytest.mark.shows(
    "jobs/access-python",
    "jobs/access-sdk",
    "jobs/creation-automatic-logs",
    "jobs/ends-with-process",
)
def test_a_run_is_started_awaited_and_read(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import sys\nprint('hello', *sys.argv[1:])\n")
    run = muster.run(tmp_path / "a.py", nodes=2, args=["x"], env={"A": "1"})
    assert isinstance(run, muster.JobRun)
    assert run.wait(60) is run
    assert (run.state, run.exit_code, run.done) == ("SUCCEEDED", 0, True)
    assert sorted((r.rank, r.message) for r in run.logs(streams=["stdout", "stderr"])) == [
        (0, "hello x"),
        (1, "hello x"),
    ]
    assert [r.rank for r in run.logs(ranks=[1])] == [1]
    assert [node.fqdn for node in run.nodes] == ["node-0", "node-1"]
    assert "SUCCEEDED" in repr(run)
    again = muster.get_run(run.id)
    assert again.to_dict() == run.to_dict()
    assert [r.id for r in muster.runs()] == [run.id]


@pytest.mark.shows(
    "distributed-jobs/start-a-run",
    "jobs/access-python",
    "jobs/job-environment",
    "jobs/job-template",
    "jobs/use-reusable",
)
def test_a_job_is_a_template(tmp_path: Path) -> None:
    muster.run(command=["sh", "-c", "exit $CODE"], name="exits", env={"CODE": "0"}).wait(60)
    job = muster.get_job("exits")
    run = job.run(env={"CODE": "7"}).wait(60)
    assert (run.state, run.exit_code) == ("FAILED", 7)
    assert [r.name for r in job.runs()] == ["exits-2", "exits-1"]
    assert [j.name for j in muster.jobs()] == ["exits"]
    job.edit("description=does nothing else")
    assert muster.get_job("exits").to_dict()["description"] == "does nothing else"


@pytest.mark.shows(
    "distributed-jobs/capability-cancel",
    "jobs/access-sdk",
    "jobs/cancel-deprovisions",
    "jobs/run-lifecycle",
)
def test_a_wait_times_out_and_a_cancel_ends_the_run(client: Client) -> None:
    job, new = client.job(None, command=["sleep", "1000"])
    run = client.start(client.prepare_run(job, new_job=new))
    with pytest.raises(TimeoutError, match=r"has not ended within 0\.05 s"):
        run.wait(0.05)
    run.cancel("because").wait(60)
    assert (run.state, run.details) == ("CANCELED", "because")
    assert run.cancel().state == "CANCELED", "canceling an ended run has no effect"


def test_following_ends_with_the_run(client: Client) -> None:
    job, new = client.job(
        None, command=["sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.05; done"]
    )
    run = client.start(client.prepare_run(job, new_job=new))
    assert [record.message for record in run.logs(follow=True, streams=["stdout", "stderr"])] == [
        "1",
        "2",
        "3",
    ]
    assert run.refresh().wait(60).state == "SUCCEEDED"


def test_each_line_is_shown_as_soon_as_it_is_written(client: Client) -> None:
    """Each line is answered before the next is written: nothing waits for a buffer to fill."""
    script = "for i in 1 2 3 4 5; do echo $i; while [ ! -e $i ]; do sleep 0.001; done; done"
    job, new = client.job(None, command=["sh", "-c", script])
    run = client.start(client.prepare_run(job, new_job=new))
    work = embedded(client).home.run_dir(run.id).work(0)
    for record in run.logs(follow=True, streams=["stdout", "stderr"]):
        (work / record.message).touch()
    assert run.wait(60).state == "SUCCEEDED"


def test_an_unterminated_last_line_is_a_record(client: Client) -> None:
    job, new = client.job(None, command=["printf", "one\\ntwo"])
    run = client.start(client.prepare_run(job, new_job=new)).wait(60)
    assert [record.message for record in run.logs(streams=["stdout", "stderr"])] == ["one", "two"]


def test_why_explains_every_state(client: Client) -> None:
    script = "while [ ! -e go ]; do sleep 0.005; done"
    job, new = client.job(None, command=["sh", "-c", script])
    run = client.start(client.prepare_run(job, new_job=new))
    before = ["its supervisor is starting the first nodes", "nodes: 1 running (0 ready)"]
    for _ in run.events(follow=True):
        (why,) = run.refresh().why()
        if why == "nodes: 1 running":
            break
        assert why in before
    (embedded(client).home.run_dir(run.id).work(0) / "go").touch()
    run.wait(60)
    assert run.why()[0].startswith("all required nodes succeeded")


def test_all_bad_input_is_reported_at_once() -> None:
    with pytest.raises(muster.InvalidInput) as caught:
        muster.run(command=["x"], nodes=0, max_runtime="40d")
    assert [problem.path for problem in caught.value.problems] == ["nodes", "max_runtime"]
    with pytest.raises(muster.NotFound):
        muster.get_run("nope")
    with pytest.raises(AttributeError, match=r"no attribute .nope."):
        muster.nope  # noqa: B018


def test_a_mount_does_not_hide_the_virtual_environment(own_home: Path, tmp_path: Path) -> None:
    """Also of a run that a spawned launcher starts, as for this API and `muster runs resume`."""
    environment = tmp_path / "work" / "env"
    venv.create(environment, system_site_packages=True)
    packages = environment / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    (packages / "paths.pth").write_text("\n".join(filter(None, sys.path)))
    (tmp_path / "count.py").write_text("print('up')\n")
    program = (
        "import muster; run = muster.run('count.py', "
        f"mounts=[{{'source': 'scratch:run/work', 'path': {str(tmp_path / 'work')!r}}}]); "
        "print(run.wait(60).state, run.details)"
    )
    argv = [str(environment / "bin" / "python"), "-c", program]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "SUCCEEDED \n"


@pytest.mark.shows("jobs/many-runs", "jobs/runs-at-the-same-time", "jobs/use-hyperparameters")
def test_many_threads_get_unique_run_names() -> None:
    def run_true(_: int) -> muster.JobRun:
        return muster.run(command=["true"]).wait(60)

    with ThreadPoolExecutor(8) as pool:
        started = list(pool.map(run_true, range(24)))
    assert {run.state for run in started} == {"SUCCEEDED"}
    assert sorted(run.name for run in started) == sorted(f"true-{i}" for i in range(1, 25))


def test_runs_outlive_the_program_that_started_them(client: Client) -> None:
    script = "import muster; muster.run(command=['sh', '-c', 'sleep 0.3; echo done'])"
    subprocess.run([sys.executable, "-c", script], check=True)
    run = client.run("last").wait(60)
    assert [record.message for record in run.logs(streams=["stdout", "stderr"])] == ["done"]


@pytest.mark.usefixtures("own_launcher")
def test_starting_a_run_does_not_depend_on_the_memory_of_the_program(client: Client) -> None:
    """Supervisors are forked from a small process, not from the program."""
    ballast = bytearray(300 << 20)
    ballast[:: 1 << 12] = b"x" * len(ballast[:: 1 << 12])
    job, new = client.job(None, command=["sleep", "1000"])
    run = client.start(client.prepare_run(job, new_job=new))
    pid = int(embedded(client).home.run_dir(run.id).lock.read_text())
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    assert resident < 100 << 20


@pytest.mark.embedded("mounts a directory of this machine")
@pytest.mark.shows(
    "distributed-jobs/benefit-integration-storage",
    "distributed-jobs/capability-mounts",
    "jobs/access-object-storage",
    "jobs/storage-shared",
)
def test_mounts_by_url_are_copied_in_and_out(client: Client, tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    remote.mkdir()
    (remote / "in").write_text("from outside")
    script = (
        "cat $MUSTER_MOUNT_REMOTE/in; echo saved > $MUSTER_MOUNT_REMOTE/checkpoint; "
        "echo now >> $MUSTER_CHECKPOINT; while [ ! -e go ]; do sleep 0.005; done; "
        "echo result > $MUSTER_MOUNT_REMOTE/out"
    )
    from muster.spec.overrides import overrides_from_mapping

    job, new = client.job(None, command=["sh", "-c", script])
    mounts = overrides_from_mapping({"mounts": [{"source": f"file://{remote}"}]})
    run = client.start(client.prepare_run(job, mounts, new_job=new))
    deadline = time.monotonic() + 60
    while not (remote / "checkpoint").exists():
        assert time.monotonic() < deadline, "no checkpoint was written back"
        assert not run.refresh().done, run.details
        threading.Event().wait(0.01)
    (embedded(client).home.run_dir(run.id).work(0) / "go").touch()
    assert run.wait(60).state == "SUCCEEDED", run.details
    assert [record.message for record in run.logs(streams=["stdout", "stderr"])] == ["from outside"]
    assert (remote / "out").read_text() == "result\n"


@pytest.mark.embedded("mounts a directory of this machine")
def test_an_unreadable_url_fails_the_run_before_it_starts(client: Client, tmp_path: Path) -> None:
    from muster.spec.overrides import overrides_from_mapping

    job, new = client.job(None, command=["true"])
    (tmp_path / "file").write_text("")
    mounts = overrides_from_mapping({"mounts": [{"source": f"zip://x::file://{tmp_path}/file"}]})
    run = client.start(client.prepare_run(job, mounts, new_job=new)).wait(60)
    assert run.state == "FAILED"
    assert "could not be started:\ncannot synchronize zip://" in run.details


def test_the_api_returns_no_secrets(tmp_path: Path) -> None:
    """Errors, events and data end up in notebooks and logs."""
    with pytest.raises(muster.InvalidInput) as refused:
        muster.run(tmp_path / "a.py", mounts=[{"source": "blub://me:hunter2@host/a"}])
    assert "hunter2" not in f"{refused.value!r} {refused.value.problems}"
    script = "echo 'RuntimeError: cannot log in with --password=hunter2' >&2; exit 3"
    run = muster.run(command=["sh", "-c", script], name="logs-in")
    muster.get_job("logs-in").edit("description=PASSWORD=hunter2")
    assert run.wait(60).state == "FAILED"
    events = list(run.events())
    assert "--password=***" in str(events)
    run_data = [run.to_dict(), run.details, run.why(), run.cause, run.notes, events]
    assert "hunter2" not in str([run_data, muster.get_job("logs-in").to_dict()])
    assert "hunter2" in "".join(record.message for record in run.logs()), "output is not masked"
