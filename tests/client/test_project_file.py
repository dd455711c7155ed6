"""The file of a project, which names its engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.client.client import Client
from muster.client.project_file import Project, find_project
from muster.errors import InvalidInput
from support.command import muster, output_of
from support.plugins import install_processes, plug_in


@pytest.fixture
def folder(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project that names an engine, with another one inside; the current one."""
    install_processes(tmp_path / "site")
    plug_in(monkeypatch, tmp_path / "site")
    inner = tmp_path / "project" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "project" / "muster.toml").write_text('engine = "processes"\n')
    monkeypatch.chdir(inner)
    return inner


def test_the_nearest_file_counts(folder: Path) -> None:
    above = folder.parent / "muster.toml"
    assert find_project(folder) == Project(above, "processes")
    (folder / "muster.toml").write_text("# nothing\n")
    assert find_project(folder) == Project(folder / "muster.toml")
    assert find_project(folder.parents[1]) is None


def engine_of_last() -> str:
    return str(Client().run("last").to_dict()["engine"])


def test_jobs_without_an_engine_run_on_that_of_the_project(folder: Path) -> None:
    done = muster("run", "--", "true", code=0)
    file = folder.parent / "muster.toml"
    assert f"note: on engine processes, as {file} says" in done.stderr.splitlines()
    assert engine_of_last() == "processes"
    (folder / "job.yaml").write_text("name: mine\ncommand: 'true'\n")
    muster("run", "job.yaml", code=0)
    assert engine_of_last() == "processes"
    muster("run", "mine", code=0)  # the job that is recorded
    assert engine_of_last() == "processes"
    assert "engine processes" in output_of("explain", "job.yaml")


def test_what_a_job_or_a_flag_says_comes_first(folder: Path) -> None:
    muster("run", "--engine", "local", "--", "true", code=0)
    assert engine_of_last() == "local"
    (folder / "job.yaml").write_text("name: mine\nengine: local\ncommand: 'true'\n")
    done = muster("run", "job.yaml", code=0)
    assert engine_of_last() == "local"
    assert "muster.toml" not in done.stderr
    muster("jobs", "create", "--name", "stored", "--engine", "local", "--", "true", code=0)
    muster("run", "stored", code=0)
    assert engine_of_last() == "local"


def test_an_engine_that_is_not_there_is_refused_with_the_file(folder: Path) -> None:
    (folder / "muster.toml").write_text("# ours\nengine = 'proceses'\n")
    error = muster("run", "--", "true", code=2).stderr
    assert error.startswith(f"error: {folder / 'muster.toml'}: engine: no engine named 'proceses'")
    assert 'did you mean "processes"?' in error


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("engin = 'x'", r'muster.toml:1: engin: unknown setting \(did you mean "engine"\?\)'),
        ("\nengine = 3", r"muster.toml:2: engine: must be the name of an engine \(as in "),
        ("engine = ''", r"muster.toml:1: engine: must be the name of an engine \(as in "),
        ("engine: x", r"muster.toml:1: not TOML"),
    ],
)
def test_a_wrong_file_is_refused(folder: Path, text: str, problem: str) -> None:
    (folder / "muster.toml").write_text(text)
    with pytest.raises(InvalidInput, match=problem):
        find_project(folder)
    assert "muster.toml" in muster("run", "--", "true", code=2).stderr
