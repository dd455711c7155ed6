"""No secret of a job is on the disk in plain text, and its programs still get it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client, overrides_from
from muster.client.job import Job
from muster.client.run import JobRun
from muster.control.persist import plan_to_run
from muster.errors import EngineError, InvalidInput, NotRecovered
from muster.secrets import SEALED_MARK
from muster.service.stored_spec import spec_of
from muster.storage.home import Home
from muster.storage.liveness import wait_for_process
from support.command import output_of
from support.embedded import embedded
from support.runs import output_of_success, start_spec, supervisor_pid, until_ready

SECRET = "hunter2-4711"
#: Prints where it finds the secret, which is not in its text, and ends when the file `GO` exists.
PROGRAM = """
import os, sys, time
found = [name for name, value in os.environ.items() if "hunter2-" + "4711" in value]
print(sorted(found), sys.argv[1:], flush=True)
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.02)
"""


@pytest.fixture
def go(tmp_path: Path) -> Path:
    return tmp_path / "go"


@pytest.fixture
def spec(tmp_path: Path, go: Path) -> dict[str, Any]:
    (tmp_path / "program.py").write_text(PROGRAM)
    group = {"name": "all", "nodes": 2, "node_env": {"NODE_PASSWORD": f"{SECRET}-${{rank}}"}}
    return {
        "name": "secretive",
        "artifact": "program.py",
        "description": f"reads postgres://me:{SECRET}@db/x",
        "tags": {"password": SECRET, "team": "a"},
        "env": {
            "API_TOKEN": SECRET,
            "DATABASE": f"postgres://me:{SECRET}@db/x",
            "GO": str(go),
        },
        "args": ["--token", SECRET, f"--password={SECRET}", "--lr=1"],
        "node_groups": [group],
        "failure": {"max_restarts": 3, "backoff": {"initial": 0}},
    }


FOUND = "['API_TOKEN', 'DATABASE', 'NODE_PASSWORD']"
ARGUMENTS = ["--token", SECRET, f"--password={SECRET}", "--lr=1"]


def plain_in(home: Home) -> list[str]:
    """The files of Muster with the secret in plain text: not what programs wrote."""
    # in another process: to close the database in this one would release SQLite's locks
    databases = [str(path) for path in home.root.glob("muster.db*")]
    argv = ["grep", "-rlF", "--devices=skip", "--exclude=*.out", SECRET, str(home.runs), *databases]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    # a file is replaced meanwhile: grep continues, and has read what took its place
    others = [one for one in done.stderr.splitlines() if ".part: No such file" not in one]
    assert done.returncode in (0, 1) or not others, done.stderr
    return done.stdout.splitlines()


def shown(run: JobRun, job: Job) -> str:
    """What the Python API shows of a run and a Job."""
    facts = [run.to_dict(), run.spec, run.settings(), run.tags, run.notes, *run.events()]
    facts += [job.to_dict(), job.spec, job.written, job.tags, *job.events()]
    return " ".join([*map(str, facts), run._repr_html_(), job._repr_html_()])


def check_hidden(client: Client, run: JobRun) -> None:
    """Neither the secret nor its encrypted form is on the disk or shown."""
    assert plain_in(embedded(client).home) == []
    text = shown(run, Job(client, embedded(client).job(run.job_id)))
    assert SECRET not in text
    assert "sealed" not in text


def check_commands(run: JobRun) -> None:
    """As `check_hidden`, for what commands print."""
    for command in (
        ("runs", "show", run.id, "--all"),
        ("runs", "show", run.id, "--json"),
        ("events", run.id),
        ("jobs", "show", run.job_id),
        ("jobs", "show", run.job_id, "--json"),
        ("jobs", "list"),
        ("jobs", "events", run.job_id, "--json"),
    ):
        text = output_of(*command)
        assert SECRET not in text
        assert "sealed" not in text


def test_a_run_gets_its_secrets_which_are_nowhere_in_plain_text(
    client: Client, spec: dict[str, Any], tmp_path: Path, go: Path
) -> None:
    go.touch()
    run = start_spec(client, spec, tmp_path)
    assert sorted(output_of_success(run)) == [f"{FOUND} {ARGUMENTS}"] * 2
    check_hidden(client, run)
    assert run.tags == {"password": "***", "team": "a"}
    assert run.spec["node_groups"][0]["args"] == ["--token", "***", "--password=***", "--lr=1"]
    assert run.spec["node_groups"][0]["env"]["DATABASE"] == "postgres://me@db/x"

    # the same content is the same Job, also by its name; a new secret is a new version
    again = start_spec(client, spec, tmp_path)
    assert again.job_id == run.job_id
    by_name = client.start(client.prepare_run(embedded(client).job("secretive@1")))
    assert sorted(output_of_success(by_name)) == [f"{FOUND} {ARGUMENTS}"] * 2
    spec["env"]["API_TOKEN"] = f"{SECRET}-2"
    assert start_spec(client, spec, tmp_path).job_id != run.job_id
    check_hidden(client, by_name)


def test_a_run_without_secrets_needs_no_key(client: Client, tmp_path: Path) -> None:
    run = start_spec(client, {"command": ["echo", "a"], "env": {"A": "1"}}, tmp_path)
    assert output_of_success(run) == ["a"]
    assert not embedded(client).home.secret_key.exists()


def test_overrides_of_a_suspended_run_are_encrypted(
    client: Client, spec: dict[str, Any], tmp_path: Path, go: Path
) -> None:
    spec["suspend"] = True
    run = start_spec(client, spec, tmp_path)
    check_hidden(client, run)
    go.touch()
    run.resume(env={"OTHER_TOKEN": f"{SECRET}-3", "GO": str(go)}, tags={"pass": SECRET})
    found = "['API_TOKEN', 'DATABASE', 'NODE_PASSWORD', 'OTHER_TOKEN']"
    assert sorted(output_of_success(run)) == [f"{found} {ARGUMENTS}"] * 2
    check_hidden(client, run)


def test_overrides_of_a_run_are_encrypted(
    client: Client, spec: dict[str, Any], tmp_path: Path, go: Path
) -> None:
    go.touch()
    path = tmp_path / "job.json"
    path.write_text(json.dumps(spec))
    job, new = client.job(path)
    overrides = overrides_from({"args": ["--api-key", SECRET], "env": {"MY_PAT": SECRET}})
    run = client.start(client.prepare_run(job, overrides, new_job=new))
    found = "['API_TOKEN', 'DATABASE', 'MY_PAT', 'NODE_PASSWORD']"
    assert output_of_success(run)[0] == f"{found} {['--api-key', SECRET]}"
    check_hidden(client, run)


def test_a_recovered_run_has_the_secrets_of_its_submitter(
    client: Client,
    spec: dict[str, Any],
    tmp_path: Path,
    go: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SUBMITTER_TOKEN", SECRET)
    run = start_spec(client, spec, tmp_path)
    until_ready(run)
    monkeypatch.delenv("SUBMITTER_TOKEN")
    stored = embedded(client).home.run_dir(run.id).environ.read_bytes()
    assert stored.startswith(SEALED_MARK.encode())
    check_hidden(client, run)
    os.kill(supervisor_pid(client, run), signal.SIGKILL)
    go.touch()
    other = Client()
    recovered = other.run(run.id)
    found = "['API_TOKEN', 'DATABASE', 'NODE_PASSWORD', 'SUBMITTER_TOKEN']"
    assert sorted(output_of_success(recovered)) == [f"{found} {ARGUMENTS}"] * 2
    check_hidden(other, recovered)


def test_edits_of_a_job_are_encrypted(
    client: Client, spec: dict[str, Any], tmp_path: Path, go: Path
) -> None:
    go.touch()
    run = start_spec(client, spec, tmp_path)
    job = Job(client, embedded(client).job(run.job_id))
    job.edit(f"tags.password={SECRET}-4", f"description=token={SECRET}")
    (_, edited) = job.events()
    assert edited.data["changes"]["tags.password"] == {"from": "***", "to": "***"}
    assert (
        spec_of(embedded(client).home, embedded(client).job(job.id)).tags["password"]
        == f"{SECRET}-4"
    )
    again = job.run()
    assert sorted(output_of_success(again)) == [f"{FOUND} {ARGUMENTS}"] * 2
    check_hidden(client, again)
    check_commands(run)
    copied = client.start(client.prepare_run(embedded(client).copy_job(job.id), new_job=True))
    assert sorted(output_of_success(copied)) == [f"{FOUND} {ARGUMENTS}"] * 2
    check_hidden(client, copied)


def test_a_run_whose_key_is_missing_is_left_alone_until_it_is_back(
    client: Client, spec: dict[str, Any], tmp_path: Path, go: Path
) -> None:
    run = start_spec(client, {**spec, "failure": {"max_restarts": 1}}, tmp_path)
    until_ready(run)
    home = embedded(client).home
    kept = home.secret_key.rename(tmp_path / "kept")
    pid = supervisor_pid(client, run)
    os.kill(pid, signal.SIGKILL)
    wait_for_process(pid, 60)
    with Client(home.root) as next_command:
        with pytest.warns(NotRecovered, match=r"secret\.key"):
            assert next_command.run(run.id).state == "IN_PROGRESS"
        with pytest.warns(NotRecovered), pytest.raises(EngineError, match=r"secret\.key"):
            next_command.run(run.id).wait(60)
    kept.rename(home.secret_key)
    go.touch()
    assert run.wait(60).state == "SUCCEEDED"


def test_the_address_of_a_mount_is_encrypted(client: Client, tmp_path: Path) -> None:
    source = f"ftp://me:{SECRET}@127.0.0.1:1/data"
    spec = {"command": "true", "mounts": [{"source": source, "path": "/a"}], "suspend": True}
    run = start_spec(client, spec, tmp_path)
    check_hidden(client, run)
    record = embedded(client).run(run.id)
    (group,) = plan_to_run(embedded(client).home, record).groups
    assert group.mounts[0].source == source
    assert run.spec["node_groups"][0]["mounts"][0]["source"] == "ftp://127.0.0.1:1/data"


def test_the_address_of_a_mount_that_fails_is_not_in_messages(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a file in the submitter's folder run in place of a module of Python."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "copy.py").write_text("raise SystemExit('run by mistake')\n")
    monkeypatch.chdir(folder)
    source = f"ftp://me:{SECRET}@127.0.0.1:1/data"
    run = start_spec(client, {"command": "true", "mounts": [{"source": source}]}, tmp_path)
    assert run.wait(60).state == "FAILED"
    assert "cannot synchronize ftp://127.0.0.1:1/data" in run.details
    assert plain_in(embedded(client).home) == []
    log = embedded(client).home.run_dir(run.id).supervisor_log.read_text()
    assert "run by mistake" not in log


def test_runs_whose_key_is_lost_can_be_read_and_ended(
    client: Client, spec: dict[str, Any], tmp_path: Path
) -> None:
    spec["suspend"] = True
    run = start_spec(client, spec, tmp_path)
    harmless = start_spec(client, {"command": "true", "suspend": True}, tmp_path)
    key = embedded(client).home.secret_key
    kept = key.read_bytes()
    key.unlink()
    check_hidden(client, run)
    text = f"{key} is missing; without it the secrets of run secretive-1 cannot be decrypted"
    with pytest.raises(InvalidInput, match=text):
        run.resume()
    with pytest.raises(InvalidInput, match="the secrets of job secretive@1"):
        client.prepare_run(embedded(client).job("secretive"))
    assert not key.exists()
    assert harmless.resume().wait(60).state == "SUCCEEDED"

    # to run the file again makes a new key and a new version
    again = start_spec(client, spec, tmp_path)
    assert embedded(client).job(again.job_id).version == 2
    with pytest.raises(InvalidInput, match="does not have the key of the secrets of run secretive"):
        run.resume()
    key.write_bytes(key.read_bytes() + kept)
    assert spec_of(embedded(client).home, embedded(client).run(run.id)).env == {}
    client.prepare_run(embedded(client).job("secretive@1"))
    key.unlink()
    run.cancel()
    assert run.wait(60).state == "CANCELED"


def test_a_run_that_lost_its_key_while_it_ran_can_be_canceled(
    client: Client,
    spec: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SUBMITTER_TOKEN", SECRET)
    run = start_spec(client, spec, tmp_path)
    until_ready(run)
    pid = supervisor_pid(client, run)
    embedded(client).home.secret_key.unlink()
    os.kill(pid, signal.SIGKILL)
    wait_for_process(pid, 60)
    run.cancel()
    assert run.wait(60).state == "CANCELED"


@pytest.fixture
def plain(client: Client, spec: dict[str, Any], tmp_path: Path) -> Iterator[JobRun]:
    """A run in a store of a version that kept secrets in plain text."""
    spec["suspend"] = True
    with pytest.MonkeyPatch.context() as patch:
        for module in ("service.start", "service.jobs", "control.persist"):
            patch.setattr(f"muster.{module}.seal", lambda _home, data: data)
        yield start_spec(client, spec, tmp_path)


def test_a_store_with_plain_secrets_is_read_as_it_is(
    client: Client, spec: dict[str, Any], tmp_path: Path, go: Path, plain: JobRun
) -> None:
    assert plain_in(embedded(client).home) != []
    assert not embedded(client).home.secret_key.exists()
    go.touch()
    plain.resume()
    assert sorted(output_of_success(plain)) == [f"{FOUND} {ARGUMENTS}"] * 2
