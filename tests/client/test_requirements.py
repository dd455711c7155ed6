"""Requirements of runs: installed once, kept, and reused."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.errors import InvalidInput
from muster.storage import environments
from support.embedded import embedded
from support.runs import output_of_success, start, supervisor_pid
from support.wheels import wheel

MINUTES = 300  # seconds; pip is slow on a busy machine

PROGRAM = """
import os, shutil, subprocess, sys
import demo
print(demo.NAME, sys.prefix == os.environ["VIRTUAL_ENV"], shutil.which("demo"))
import msgspec  # packages of Muster's own Python are importable, too
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


def printed(run: JobRun) -> list[str]:
    return output_of_success(run, MINUTES)


def installations(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("muster: installing")]


@pytest.mark.embedded("installs a file of this machine")
@pytest.mark.parametrize("isolation", ["namespaces", pytest.param("plain", marks=pytest.mark.slow)])
def test_requirements_are_installed_once_for_all_nodes_and_kept(
    client: Client, folder: Path, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isolation == "plain":
        monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    first = printed(start(client, folder / "job.yaml"))
    assert installations(first) == ["muster: installing 1 requirement with pip, once for all nodes"]
    (one,) = environments.list_installed(embedded(client).home)
    assert first.count(f"demo 1 True {one.path}/bin/demo") == 2
    assert first.count("demo says hi") == 2
    assert (one.ready, one.busy) == (True, False)

    again = printed(start(client, folder / "job.yaml", nodes=3))
    assert installations(again) == []
    assert again.count("demo says hi") == 3


@pytest.mark.slow
def test_changed_requirements_make_a_new_version_and_environment(
    client: Client, folder: Path
) -> None:
    old = start(client, folder / "job.yaml", nodes=1)
    printed(old)
    wheel(folder, "demo", "2.0", CODE.replace("demo 1", "demo 2"))
    (folder / "requirements.txt").write_text("demo-2.0-py3-none-any.whl\n")
    new = start(client, folder / "job.yaml", nodes=1)
    assert new.job_id != old.job_id
    assert any(line.startswith("demo 2 True") for line in printed(new))
    # the first Job is unchanged, though the file has changed
    prepared = client.prepare_run(embedded(client).job(old.job_id))
    assert any(line.startswith("demo 1 True") for line in printed(client.start(prepared)))


def test_an_error_of_pip_is_the_cause_of_the_failure(client: Client, folder: Path) -> None:
    (folder / "requirements.txt").write_text("no-such-package==1\n")
    run = start(client, folder / "job.yaml").wait(MINUTES)
    assert run.state == "FAILED"
    assert run.cause is not None
    (log,) = embedded(client).home.environments.glob("*.log")
    assert run.cause["message"] == (
        "the job's requirements cannot be installed: No matching distribution found for "
        f"no-such-package==1 (all of its output: {log})"
    )
    assert "No matching distribution found" in log.read_text()
    (one,) = environments.list_installed(embedded(client).home)
    assert (one.ready, one.failed, one.size) == (False, True, 0)  # no incomplete files
    assert environments.remove(embedded(client).home, one.key)
    assert environments.list_installed(embedded(client).home) == []


@pytest.mark.slow
def test_an_incomplete_environment_is_installed_again(client: Client, folder: Path) -> None:
    printed(start(client, folder / "job.yaml", nodes=1))
    (one,) = environments.list_installed(embedded(client).home)
    # as if the installer had been killed: the folder exists, but is not marked as complete
    Path(one.path).parent.joinpath("about").unlink()
    shutil.rmtree(Path(one.path) / "lib")
    assert [e.ready for e in environments.list_installed(embedded(client).home)] == [False]

    again = printed(start(client, folder / "job.yaml", nodes=1))
    assert len(installations(again)) == 1
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
def test_the_environment_is_reused_after_a_restart(
    client: Client, folder: Path, strategy: str
) -> None:
    text = WAITS.replace("time.sleep(600)", "raise SystemExit(1)")
    (folder / "train.py").write_text(text)
    with open(folder / "job.yaml", "a") as spec:
        spec.write(f"failure: {{max_restarts: 1, strategy: {strategy}, action: restart_run}}\n")
        spec.write(f"env: {{MARK: {folder}/mark}}\n")
    run = start(client, folder / "job.yaml", nodes=1)
    assert run.wait(MINUTES).state == "SUCCEEDED", run.details
    lines = [record.message for record in run.logs(attempt="all", streams=["stdout", "stderr"])]
    assert [line for line in lines if line.startswith("demo")] == ["demo 1 0", "demo 1 1"]
    assert len(installations(lines)) == 1


@pytest.mark.slow
def test_the_environment_is_reused_by_the_next_supervisor(client: Client, folder: Path) -> None:
    (folder / "train.py").write_text(WAITS)
    with open(folder / "job.yaml", "a") as spec:
        spec.write(f"failure: {{max_restarts: 1}}\nenv: {{MARK: {folder}/mark}}\n")
    run = start(client, folder / "job.yaml", nodes=1)
    next(record for record in run.logs(follow=True) if record.message == "demo 1 0")
    os.kill(supervisor_pid(client, run), signal.SIGKILL)
    assert run.wait(MINUTES).state == "SUCCEEDED", run.details
    assert "demo 1 1" in [
        record.message for record in run.logs(attempt="all", streams=["stdout", "stderr"])
    ]


@pytest.mark.slow
def test_an_environment_in_use_is_not_removed(client: Client, folder: Path) -> None:
    (folder / "train.py").write_text(WAITS)
    with open(folder / "job.yaml", "a") as spec:
        spec.write(f"env: {{MARK: {folder}/mark}}\n")
    run = start(client, folder / "job.yaml", nodes=1)
    next(record for record in run.logs(follow=True) if record.message == "demo 1 0")
    home = embedded(client).home
    (one,) = environments.list_installed(home)
    assert one.busy
    assert not environments.remove(home, one.key)
    assert Path(one.path).is_dir()
    run.cancel().wait(MINUTES)
    assert environments.remove(home, one.key)
    assert environments.list_installed(home) == []


@pytest.mark.slow
def test_a_run_can_be_canceled_while_requirements_are_installed(
    client: Client,
    folder: Path,
    alive: Callable[[str], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The installer waits forever for its index."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (folder / "requirements.txt").write_text(
            f"--index-url http://127.0.0.1:{port}/simple\nabsent-thing\n"
        )
        monkeypatch.delenv("PIP_NO_INDEX")
        run = start(client, folder / "job.yaml", nodes=1)
        connection, _ = server.accept()  # pip waits for this server
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
    home = embedded(client).home.environments
    kept = [path for path in home.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in kept if b"hush-4711" in path.read_bytes()] == []


@pytest.mark.slow
def test_requirements_of_a_repository_are_installed(
    client: Client, folder: Path, tmp_path: Path
) -> None:
    """They are those of the repository's own file, not of one next to the spec."""
    from support.repositories import Repository

    repository = Repository(tmp_path / "code")
    shutil.copy(folder / "demo-1.0-py3-none-any.whl", tmp_path / "code")
    repository.commit(
        needs__txt=f"--find-links {folder}\ndemo\n", train__py="import demo\nprint(demo.NAME)"
    )
    (folder / "git.yaml").write_text(
        "git: {url: code}\nentrypoint: train.py\nrequirements: needs.txt\n"
    )
    assert "demo 1" in printed(start(client, folder / "git.yaml"))


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("requirements: none.txt", "requirements: {folder}/none.txt not found (check the path)"),
        ("requirements: empty.txt", "requirements: contains nothing to install (leave it out)"),
        ("requirements: itself.txt", "includes itself (remove the cycle)"),
        ("requirements: [/dev/zero]", "requirements: /dev/zero is neither a file nor a folder"),
        ("requirements: [-e /dev/zero]", "requirements: /dev/zero is neither a file nor a folder"),
        ("conda: none.yaml", "conda: {folder}/none.yaml not found (check the path)"),
    ],
)
def test_invalid_requirements_are_refused_before_anything_starts(
    client: Client, folder: Path, lines: str, text: str
) -> None:
    (folder / "empty.txt").write_text("# nothing\n\n")
    (folder / "itself.txt").write_text("-r itself.txt\n")
    (folder / "job.yaml").write_text(f"artifact: train.py\n{lines}\n")
    with pytest.raises(InvalidInput) as caught:
        start(client, folder / "job.yaml")
    assert text.replace("{folder}", str(folder)) in str(caught.value)
    assert client.runs() == []


def test_a_missing_conda_is_reported(
    client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    (folder / "environment.yaml").write_text("dependencies: [python=3.12]\n")
    (folder / "job.yaml").write_text("artifact: train.py\nconda: environment.yaml\n")
    with pytest.raises(InvalidInput) as caught:
        start(client, folder / "job.yaml")
    assert str(caught.value) == (
        "conda: needs micromamba, mamba or conda, and none of them is on PATH "
        "(install micromamba (a single file), or use requirements instead)"
    )
