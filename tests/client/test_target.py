"""What a command line points at: code, a command inside of it, a spec file."""

from __future__ import annotations

from pathlib import Path

import pytest

import muster
from muster.client.target import spec_for, takes_command
from muster.errors import InvalidInput


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    code = tmp_path / "mypkg"
    code.mkdir()
    (code / "__init__.py").write_text("X = 4\n")
    (code / "train.py").write_text("import mypkg\nprint('X', mypkg.X)\n")
    (tmp_path / "job.yaml").write_text("command: hostname\n")
    (tmp_path / "code.zip").touch()
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "a.yaml").write_text("apiVersion: jobset.x-k8s.io/v1\nkind: JobSet\n")
    return tmp_path


@pytest.mark.parametrize(
    ("target", "entrypoint", "expected"),
    [
        (None, None, True),
        ("mypkg", None, True),
        ("mypkg", "train.py", False),
        ("mypkg/train.py", None, False),
        ("code.zip", None, True),
        ("code.zip", "train.py", False),
        ("gone.zip", None, False),
        ("job.yaml", None, False),
        ("sets", None, False),
        ("a-job", None, False),
        ("git+https://example.org/a/b.git", None, True),
        ("git+https://example.org/a/b.git", "train.py", False),
    ],
)
def test_what_runs_a_command_inside(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str | None,
    entrypoint: str | None,
    expected: bool,
) -> None:
    monkeypatch.chdir(folder)
    assert takes_command(target, entrypoint) is expected


def test_a_folder_and_a_command_together(folder: Path) -> None:
    spec = spec_for(folder / "mypkg", "python -m mypkg.train", {"framework": "jax"})
    assert spec.command == ("python", "-m", "mypkg.train")
    assert (spec.artifact, spec.framework) == (str(folder / "mypkg"), "jax")


def test_a_spec_file_says_its_command_itself(folder: Path) -> None:
    with pytest.raises(InvalidInput, match=r"--command: .* describes the job already"):
        spec_for(folder / "job.yaml", "true", {})


def test_how_many_processes_is_for_the_run_to_change(folder: Path) -> None:
    assert spec_for(folder / "job.yaml", None, {"processes_per_node": 2}).processes_per_node == 1


def test_the_folder_keeps_its_name_and_is_a_package(folder: Path) -> None:
    command = ["sh", "-c", "basename $PWD; python -m mypkg.train; python train.py"]
    run = muster.run(folder / "mypkg", command=command).wait(60)
    assert [record.message for record in run.logs()] == ["mypkg", "X 4", "X 4"]


def test_processes_of_a_spec_file_s_nodes(folder: Path) -> None:
    run = muster.run(folder / "job.yaml", processes_per_node=2).wait(60)
    assert run.state == "SUCCEEDED"
    assert len(list(run.logs())) == 2
