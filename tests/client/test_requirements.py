"""Runs that need something installed: made once, kept, and found again."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.client.client import Client, overrides_from
from muster.client.run import JobRun
from muster.errors import InvalidInput
from muster.storage import environments
from support.wheels import wheel

MINUTES = 300  # seconds; pip is slow on a busy machine

PROGRAM = """
import os, shutil, subprocess, sys
import demo
print(demo.NAME, sys.prefix == os.environ["VIRTUAL_ENV"], shutil.which("demo"))
import msgspec  # what Muster's own Python has is there, too
print(subprocess.run(["demo"], capture_output=True, text=True, check=True).stdout.strip())
"""
CODE = "NAME = 'demo 1'\ndef main():\n    print('demo says hi')\n"


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("MUSTER_INSTALLER", "pip")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job that needs the package demo."""
    wheel(tmp_path, "demo", "1.0", CODE)
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "requirements.txt").write_text("# ours\n./demo-1.0-py3-none-any.whl  # demo\n")
    (tmp_path / "job.yaml").write_text(
        "artifact: train.py\nrequirements: requirements.txt\nnodes: 2\n"
    )
    return tmp_path


def start(client: Client, target: Path, **overrides: object) -> JobRun:
    job, new = client.job(target)
    return client.start(client.draft(job, overrides_from(overrides), new_job=new))


def said(run: JobRun) -> list[str]:
    assert run.wait(MINUTES).state == "SUCCEEDED", run.details
    return [record.message for record in run.logs(streams=["stdout", "stderr"])]


def makings(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("muster: installing")]


@pytest.mark.parametrize("isolation", ["namespaces", pytest.param("plain", marks=pytest.mark.slow)])
def test_installed_once_for_all_nodes_and_kept(
    client: Client, folder: Path, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isolation == "plain":
        monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    first = said(start(client, folder / "job.yaml"))
    assert makings(first) == ["muster: installing 1 requirement with pip, once for all nodes"]
    (one,) = environments.listing(client.service.home)
    assert first.count(f"demo 1 True {one.path}/bin/demo") == 2
    assert first.count("demo says hi") == 2
    assert (one.ready, one.busy) == (True, False)

    again = said(start(client, folder / "job.yaml", nodes=3))
    assert makings(again) == []
    assert again.count("demo says hi") == 3


@pytest.mark.slow
def test_other_requirements_are_another_version_and_environment(
    client: Client, folder: Path
) -> None:
    old = start(client, folder / "job.yaml", nodes=1)
    said(old)
    wheel(folder, "demo", "2.0", CODE.replace("demo 1", "demo 2"))
    (folder / "requirements.txt").write_text("demo-2.0-py3-none-any.whl\n")
    new = start(client, folder / "job.yaml", nodes=1)
    assert new.job_id != old.job_id
    assert any(line.startswith("demo 2 True") for line in said(new))
    # the first Job is what it was, though the file is another
    draft = client.draft(client.service.job(old.job_id))
    assert any(line.startswith("demo 1 True") for line in said(client.start(draft)))


def test_what_pip_says_is_the_first_cause(client: Client, folder: Path) -> None:
    (folder / "requirements.txt").write_text("no-such-package==1\n")
    run = start(client, folder / "job.yaml").wait(MINUTES)
    assert run.state == "FAILED"
    assert run.cause is not None
    assert "what the job needs cannot be installed; pip says:" in run.cause["message"]
    assert "No matching distribution found for no-such-package==1" in run.cause["message"]
    (log,) = client.service.home.environments.glob("*.log")
    assert str(log) in run.cause["message"]
    assert "No matching distribution found" in log.read_text()
    (one,) = environments.listing(client.service.home)
    assert (one.ready, one.failed, one.size) == (False, True, 0)  # nothing half-made
    assert environments.remove(client.service.home, one.key)
    assert environments.listing(client.service.home) == []


@pytest.mark.slow
def test_what_was_killed_half_way_is_made_anew(client: Client, folder: Path) -> None:
    said(start(client, folder / "job.yaml", nodes=1))
    (one,) = environments.listing(client.service.home)
    # as if whoever made it had been killed: there is something, and nobody says that it is whole
    Path(one.path).parent.joinpath("about").unlink()
    shutil.rmtree(Path(one.path) / "lib")
    assert [e.ready for e in environments.listing(client.service.home)] == [False]

    again = said(start(client, folder / "job.yaml", nodes=1))
    assert len(makings(again)) == 1
    assert "demo says hi" in again


WAITS = """
import os, pathlib, time
import demo
print(demo.NAME, os.environ["MUSTER_RESTART"], flush=True)
if os.environ["MUSTER_RESTART"] == "0":
    pathlib.Path(os.environ["MARK"]).touch()
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["in_place", "recreate"])
def test_found_again_after_a_restart(client: Client, folder: Path, strategy: str) -> None:
    text = WAITS.replace("time.sleep(600)", "raise SystemExit(1)")
    (folder / "train.py").write_text(text)
    with open(folder / "job.yaml", "a") as spec:
        spec.write(f"failure: {{max_restarts: 1, strategy: {strategy}, action: restart_run}}\n")
        spec.write(f"env: {{MARK: {folder}/mark}}\n")
    run = start(client, folder / "job.yaml", nodes=1)
    assert run.wait(MINUTES).state == "SUCCEEDED", run.details
    lines = [record.message for record in run.logs(attempt="all", streams=["stdout", "stderr"])]
    assert [line for line in lines if line.startswith("demo")] == ["demo 1 0", "demo 1 1"]
    assert len(makings(lines)) == 1


@pytest.mark.slow
def test_found_again_by_whoever_takes_the_run_up(client: Client, folder: Path) -> None:
    from muster.control import lease

    (folder / "train.py").write_text(WAITS)
    with open(folder / "job.yaml", "a") as spec:
        spec.write(f"failure: {{max_restarts: 1}}\nenv: {{MARK: {folder}/mark}}\n")
    run = start(client, folder / "job.yaml", nodes=1)
    next(record for record in run.logs(follow=True) if record.message == "demo 1 0")
    pid = lease.holder(client.service.home.run_dir(run.id).lease)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert run.wait(MINUTES).state == "SUCCEEDED", run.details
    assert "demo 1 1" in [
        record.message for record in run.logs(attempt="all", streams=["stdout", "stderr"])
    ]


@pytest.mark.slow
def test_in_use_it_is_not_removed(client: Client, folder: Path) -> None:
    (folder / "train.py").write_text(WAITS)
    with open(folder / "job.yaml", "a") as spec:
        spec.write(f"env: {{MARK: {folder}/mark}}\n")
    run = start(client, folder / "job.yaml", nodes=1)
    next(record for record in run.logs(follow=True) if record.message == "demo 1 0")
    home = client.service.home
    (one,) = environments.listing(home)
    assert one.busy
    assert not environments.remove(home, one.key)
    assert Path(one.path).is_dir()
    run.cancel().wait(MINUTES)
    assert environments.remove(home, one.key)
    assert environments.listing(home) == []


@pytest.mark.slow
def test_canceled_while_it_installs(
    client: Client,
    folder: Path,
    alive: Callable[[str], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An installer that waits for its index to answer for ever."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (folder / "requirements.txt").write_text(
            f"--index-url http://127.0.0.1:{port}/simple\nabsent-thing\n"
        )
        monkeypatch.delenv("PIP_NO_INDEX")
        run = start(client, folder / "job.yaml", nodes=1)
        connection, _ = server.accept()  # pip is waiting for us
        run.cancel().wait(MINUTES)
        connection.close()
    assert run.state == "CANCELED"
    assert alive(run.id) == []


@pytest.mark.slow
def test_passwords_of_an_index_are_not_shown(client: Client, folder: Path) -> None:
    (folder / "requirements.txt").write_text(
        "--extra-index-url https://me:hush-4711@127.0.0.1:1/simple\n./demo-1.0-py3-none-any.whl\n"
    )
    run = start(client, folder / "job.yaml", nodes=1).wait(MINUTES)
    assert run.state == "SUCCEEDED", run.details
    shown = str(run.settings()) + str([record.message for record in run.logs()])
    assert "hush-4711" not in shown
    home = client.service.home.environments
    kept = [path for path in home.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in kept if b"hush-4711" in path.read_bytes()] == []


@pytest.mark.slow
def test_from_a_repository(client: Client, folder: Path, tmp_path: Path) -> None:
    """Its own requirements file, not one that lies beside the spec."""
    from support.repositories import Repository

    repository = Repository(tmp_path / "code")
    shutil.copy(folder / "demo-1.0-py3-none-any.whl", tmp_path / "code")
    repository.commit(
        needs__txt=f"--find-links {folder}\ndemo\n", train__py="import demo\nprint(demo.NAME)"
    )
    (folder / "git.yaml").write_text(
        "git: {url: code}\nentrypoint: train.py\nrequirements: needs.txt\n"
    )
    assert "demo 1" in said(start(client, folder / "git.yaml"))


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("requirements: none.txt", "requirements: there is no {folder}/none.txt (check the path)"),
        ("requirements: empty.txt", "requirements: holds nothing to install (leave it out)"),
        ("requirements: itself.txt", "leads to itself (break the circle)"),
        ("requirements: [/dev/zero]", "requirements: /dev/zero is neither a file nor a folder"),
        ("requirements: [-e /dev/zero]", "requirements: /dev/zero is neither a file nor a folder"),
        ("conda: none.yaml", "conda: there is no {folder}/none.yaml (check the path)"),
    ],
)
def test_wrong_before_anything_starts(client: Client, folder: Path, lines: str, text: str) -> None:
    (folder / "empty.txt").write_text("# nothing\n\n")
    (folder / "itself.txt").write_text("-r itself.txt\n")
    (folder / "job.yaml").write_text(f"artifact: train.py\n{lines}\n")
    with pytest.raises(InvalidInput) as caught:
        start(client, folder / "job.yaml")
    assert text.replace("{folder}", str(folder)) in str(caught.value)
    assert client.runs() == []


def test_conda_without_conda(client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    (folder / "environment.yaml").write_text("dependencies: [python=3.12]\n")
    (folder / "job.yaml").write_text("artifact: train.py\nconda: environment.yaml\n")
    with pytest.raises(InvalidInput) as caught:
        start(client, folder / "job.yaml")
    assert str(caught.value) == (
        "conda: needs micromamba, mamba or conda, and none of them is on PATH "
        "(install micromamba, one file without anything else, or use requirements instead)"
    )
