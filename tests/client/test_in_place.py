"""Commands without code, which run in the current directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import muster
from muster.client.run import JobRun
from muster.client.target import current_directory, place_of_command
from muster.errors import InvalidInput


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, reached through a link."""
    real = tmp_path / "disk" / "project"
    real.mkdir(parents=True)
    (real / "hello.py").write_text("import helper, os; open('written', 'w'); print(os.getcwd())")
    (real / "helper.py").touch()
    link = tmp_path / "project"
    link.symlink_to(real)
    monkeypatch.chdir(link)
    monkeypatch.setenv("PWD", str(link))
    return link


def output(run: JobRun) -> list[str]:
    return [record.message for record in run.logs(streams=["stdout"])]


@pytest.mark.embedded("runs in a directory of this machine")
@pytest.mark.parametrize("level", ["namespaces", "plain"])
def test_a_command_runs_in_the_current_directory(
    own_home: Path, project: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    if level == "plain":
        monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    run = muster.run(command="python hello.py", nodes=2).wait(60)
    assert output(run) == [str(project.resolve())] * 2
    assert (project / "written").stat().st_uid == os.getuid()
    assert run.directories_in_place() == [str(project)]


@pytest.mark.embedded("runs in a directory of this machine")
def test_later_runs_of_the_job_use_the_same_directory(
    own_home: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    muster.run(command=["python", "hello.py"], name="hello").wait(60)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    again = muster.run("hello").wait(60)
    assert output(again) == [str(project.resolve())]
    project.unlink()
    with pytest.raises(InvalidInput, match=f"working_dir: {project} not found on this machine"):
        muster.run("hello")


def test_a_copy_is_sent_if_wanted(own_home: Path, project: Path) -> None:
    (project / ".musterignore").write_text("secret\n")
    (project / "secret").touch()
    run = muster.run(command="python hello.py; ls", copy=True, name="hello").wait(60)
    where, *names = output(run)
    assert where.startswith(str(own_home))
    assert {"hello.py", "helper.py", "written"} <= set(names)
    assert "secret" not in names
    assert not (project / "written").exists()
    assert run.directories_in_place() == []


def test_code_is_always_copied(project: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^copy: applies to a command without TARGET"):
        muster.run("hello.py", copy=True)
    assert place_of_command(".", copy=False) == {}


@pytest.mark.embedded("runs in a directory of this machine")
def test_a_job_can_have_another_directory(own_home: Path, project: Path, tmp_path: Path) -> None:
    job = muster.create_job(command="ls", name="one", working_dir=str(tmp_path))
    assert job.spec["working_dir"] == str(tmp_path)
    assert muster.create_job(command="ls", name="two").spec["working_dir"] == str(project)
    run = muster.run(command="pwd", working_dir=str(tmp_path)).wait(60)
    assert output(run) == [str(tmp_path)]


def test_the_path_of_the_shell_is_kept(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert current_directory() == str(project)
    for wrong in ("", "relative", str(tmp_path), "/no/such", f"{project}/../project"):
        monkeypatch.setenv("PWD", wrong)
        assert current_directory() == str(project.resolve())


def test_a_deleted_current_directory_is_reported(own_home: Path, project: Path) -> None:
    gone = project / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    with pytest.raises(InvalidInput, match="the current directory cannot be used"):
        muster.run(command="ls")
