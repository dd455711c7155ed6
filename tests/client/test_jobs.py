"""Creating, naming and deleting jobs."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import muster
from muster.client.client import Client
from muster.errors import InvalidInput, MusterError, NotFound
from support.embedded import embedded, over_http


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("import os\nprint(os.environ['JOB_OCID'], os.environ.get('X'))\n")
    return path


def code_of(client: Client, job: muster.Job) -> Path:
    return embedded(client).home.artifact(job.to_dict()["artifact_sha256"])


def refused(*problems: str) -> pytest.RaisesExc[InvalidInput]:
    def has_exactly_these(error: InvalidInput) -> bool:
        assert str(error).splitlines() == list(problems)
        return True

    return pytest.RaisesExc(InvalidInput, check=has_exactly_these)


@pytest.mark.shows(
    "jobs/create-job",
    "distributed-jobs/create-a-job",
    "distributed-jobs/start-a-run",
    "cluster-design/example-tags",
)
def test_a_job_is_created_without_a_run(script: Path) -> None:
    job = muster.create_job(script, nodes=2, env={"X": "1"}, tags={"team": "ml"})
    assert (job.name, job.version, job.state, job.tags) == ("train", 1, "ACTIVE", {"team": "ml"})
    assert muster.runs() == []
    run = job.run(args=["a"], tags={"level": "2"}, run_name="with more data").wait(60)
    assert (run.state, len(run.nodes)) == ("SUCCEEDED", 2)
    assert (run.display_name, run.tags) == ("with more data", {"team": "ml", "level": "2"})
    assert run.created_by == job.created_by == getpass.getuser()
    assert muster.get_run("with more data").id == run.id
    assert [found.id for found in muster.runs(tags={"level": "2"})] == [run.id]
    assert muster.runs(tags={"level": "3"}) == []
    assert muster.create_job(script, nodes=2, env={"X": "1"}, tags={"team": "ml"}).id == job.id


def test_creating_a_job_refuses_what_running_it_refuses(script: Path) -> None:
    with refused(
        "display_name: 'two\\nlines' has unprintable characters or several lines "
        "(use one line of text)",
        "env.1A: '1A' is not a valid name of an environment variable "
        "(use letters, digits and _, not starting with a digit)",
    ):
        muster.create_job(script, env={"1A": "x"}, display_name="two\nlines")
    assert muster.jobs() == []


@pytest.mark.shows("cluster-design/job-for-each-launch")
def test_a_job_created_as_new_is_never_reused(script: Path) -> None:
    first = muster.create_job(script)
    separate = muster.create_job(script, new=True)
    assert (separate.name, separate.version) == ("train", 2)
    assert muster.create_job(script).id == first.id
    assert muster.run(script).wait(60).job_id == first.id
    run = muster.run(script, new=True).wait(60)
    copied = muster.run("train@1", new=True).wait(60)
    assert len({first.id, separate.id, run.job_id, copied.job_id}) == 4
    messages = [next(iter(r.logs(streams=["stdout"]))).message for r in (run, copied)]
    assert [muster.get_job(text.split()[0]).id for text in messages] == [run.job_id, copied.job_id]


@pytest.mark.shows("cluster-design/job-states")
def test_display_names_need_not_be_unique(script: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("pass")
    jobs = [
        muster.create_job(script, display_name="Train the net"),
        muster.create_job(script, display_name="Train the net", new=True),
    ]
    assert muster.get_job("Train the net").id == jobs[1].id  # the latest version
    muster.create_job(other, display_name="Train the net")
    with refused("several jobs are named 'Train the net': other@1, train@2, train@1 (use an id)"):
        muster.get_job("Train the net")
    with refused("several jobs are named 'Train the net': other@1, train@2, train@1 (use an id)"):
        muster.run("Train the net")
    jobs[1].edit("display_name=Train it")
    assert muster.get_job("Train it").display_name == "Train it"
    for _ in range(2):
        jobs[0].run(run_name="worker").wait(60)
    with refused("several runs are named 'worker': train-2, train-1 (use an id)"):
        muster.get_run("worker")


def test_invalid_run_names_are_refused(script: Path) -> None:
    with refused("run_name: '   ' is empty (use one line of text)"):
        muster.run(script, run_name="   ")
    with refused(
        "run_name: 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...' has 256 "
        "characters, 255 are allowed (use one line of text)"
    ):
        muster.run(script, run_name="x" * 256)
    with refused(
        "name: 'the net' is not a valid job name (use up to 255 letters, digits, . _ and -, "
        "starting with a letter or digit; display_name can be any text)"
    ):
        muster.run(script, name="the net")
    assert muster.jobs() == []


def test_options_that_describe_a_job_are_refused_for_its_runs(script: Path) -> None:
    muster.create_job(script)
    hint = "(`muster run` with the file or code that train is from, changed, makes a new version)"
    with refused(
        f"--name: belongs to the job; a run cannot change it {hint}",
        f"--display-name: belongs to the job; a run cannot change it {hint}",
    ):
        muster.run("train", display_name="x", name="other")
    with refused("--env, --option: job train@1 describes the job already (change it there)"):
        muster.create_job("train", env={"A": "1"}, framework_options={"x": 1})


@pytest.mark.shows("cluster-design/job-states", "jobs/lifecycle-job-events")
def test_a_deleted_job_can_be_shown_but_not_run(client: Client, script: Path) -> None:
    job = muster.create_job(script, description="old")
    run = job.run(suspend=True)
    code = code_of(client, job)
    with refused("train-1 is SUSPENDED (`muster cancel train-1` ends it)"):
        job.delete()
    assert (job.state, code.exists()) == ("ACTIVE", True)
    run.cancel().wait(60)
    job.edit("description=new", "resources.cpus=0.5", "tags.password=secret")
    assert job.delete().state == "DELETED"
    assert code.exists() == over_http()  # a server keeps uploads for a day
    assert muster.jobs() == []
    assert [found.id for found in muster.jobs(deleted=True)] == [job.id]
    assert muster.get_job("train").state == "DELETED"
    assert [found.id for found in muster.get_job("train@1").runs()] == [run.id]
    for again in (job.run, lambda: muster.run("train"), lambda: job.edit("description=x")):
        with refused("job train@1 is deleted (run its file again, which makes a new one)"):
            again()
    with refused("job train@1 is deleted (run its file again, which makes a new one)"):
        muster.run("train", new=True)
    with refused("train-1 is CANCELED, not SUSPENDED"):  # without a hint that would not work
        run.resume()
    user = getpass.getuser()
    assert [(event.seq, event.kind, event.by) for event in job.events()] == [
        (1, "created", user),
        (2, "edited", user),
        (3, "deleted", user),
    ]
    assert job.events()[1].data["changes"] == {
        "resources.cpus": {"from": None, "to": 0.5},
        "description": {"from": "old", "to": "new"},
        "tags.password": {"from": None, "to": "***"},
    }
    assert [event.kind for event in job.events(after=2)] == ["deleted"]
    again = muster.run(script).wait(60)  # the hint
    assert (again.state, muster.get_job("train").version) == ("SUCCEEDED", 2)
    assert job.delete(runs=True).runs() == []
    with pytest.raises(NotFound):
        muster.get_run(run.id)


def test_code_used_by_another_job_is_kept(client: Client, script: Path) -> None:
    first, second = muster.create_job(script), muster.create_job(script, new=True)
    code = code_of(client, first)
    first.delete()
    assert code.exists()
    assert second.run().wait(60).state == "SUCCEEDED"
    second.delete()
    assert code.exists() == over_http()  # a server keeps uploads for a day


def test_a_prepared_run_of_a_job_deleted_meanwhile_is_refused(client: Client, script: Path) -> None:
    """The error names the deletion, and no record or folder of the run remains."""
    job = muster.create_job(script)
    prepared = client.prepare_run(embedded(client).job(job.id))
    job.delete()
    with refused("job train@1 is deleted (run its file again, which makes a new one)"):
        client.start(prepared)
    assert client.runs() == []
    assert not embedded(client).home.run_dir(prepared.plan.run_id).path.exists()


RACE = """
import sys
import muster
from muster.errors import MusterError

sys.stdin.readline()
outcome = []
for _ in range(6):
    try:
        outcome.append(muster.run("train").id)
    except MusterError as error:
        assert "job train@1 is deleted" in str(error) or "stored code" in str(error), error
print(*outcome)
"""


@pytest.fixture
def racers() -> Iterator[list[subprocess.Popen[str]]]:
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([sys.executable, "-c", RACE], stdin=pipe, stdout=pipe, text=True)
        for _ in range(2)
    ]
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def test_a_job_can_be_deleted_while_others_run_it(
    client: Client, script: Path, racers: list[subprocess.Popen[str]]
) -> None:
    """Others start runs while the Job is deleted: each run is either refused or succeeds."""
    job = muster.create_job(script)
    for process in racers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    deleted = threading.Event()
    while not deleted.is_set():
        try:
            job.delete()
            deleted.set()
        except InvalidInput as error:
            for problem in error.problems:
                muster.get_run(problem.message.split()[0]).wait(60)
    outcomes = [process.communicate(timeout=60)[0] for process in racers]
    started = [run_id for outcome in outcomes for run_id in outcome.split()]
    assert {run.id for run in job.runs()} == set(started)
    assert {run.wait(60).state for run in job.runs()} <= {"SUCCEEDED"}


def test_the_creator_of_a_job_does_not_depend_on_variables(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "mallory")
    monkeypatch.setenv("USER", "mallory")
    if os.getuid() == 0:
        assert muster.create_job(script).created_by == "root"
    assert muster.create_job(script).created_by != "mallory"


def test_options_of_a_run_are_refused_for_a_job() -> None:
    with pytest.raises(MusterError, match="run_name"):
        muster.create_job(command="true", run_name="x")


def test_a_run_can_be_renamed_when_it_is_resumed(script: Path) -> None:
    run = muster.create_job(script, tags={"a": "1"}).run(suspend=True, run_name="first")
    run.resume(run_name="second", tags={"b": "2"}).wait(60)
    assert (run.state, run.display_name) == ("SUCCEEDED", "second")
    assert run.tags == {"a": "1", "b": "2"}
    assert muster.get_run("second").id == run.id


def test_an_empty_file_is_a_program(client: Client, tmp_path: Path) -> None:
    (tmp_path / "main.py").touch()
    assert muster.run(tmp_path / "main.py").wait(60).state == "SUCCEEDED"
