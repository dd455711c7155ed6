"""What a command line points at: code, a command inside of it, a spec file."""

from __future__ import annotations

from pathlib import Path

import pytest

import muster
from muster.client.client import Client
from muster.client.target import spec_for, takes_command
from muster.errors import InvalidInput
from muster.spec.overrides import Changes


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
    assert takes_command(target, entrypoint, ["A=JOB_RUN_ENTRYPOINT=x"]) is expected
    for word in ("JOB_RUN_ENTRYPOINT=train.py", "workers:JOB_RUN_ENTRYPOINT=train.py"):
        assert takes_command(target, entrypoint, [word]) is (target is None)


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
    assert [record.message for record in run.logs(streams=["stdout", "stderr"])] == [
        "mypkg",
        "X 4",
        "X 4",
    ]


def test_processes_of_a_spec_file_s_nodes(folder: Path) -> None:
    run = muster.run(folder / "job.yaml", processes_per_node=2).wait(60)
    assert run.state == "SUCCEEDED"
    assert len(list(run.logs(streams=["stdout", "stderr"]))) == 2


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("git+/srv/project", "write git+file:///srv/project"),
        ("git+sub", "write git+file://HERE/sub"),
    ],
)
def test_a_folder_as_a_repository(
    folder: Path, monkeypatch: pytest.MonkeyPatch, target: str, hint: str
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(InvalidInput) as caught:
        spec_for(target, None, {})
    (problem,) = caught.value.problems
    assert problem.hint == hint.replace("HERE", str(folder))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("nodes: 2\nresources: {memory: 9000TiB}", "resources.memory"),
        ("nodes: 2\nframework: dask\nresources: {memory: 9000TiB}", "resources.memory"),
        (
            "framework: dask\nnode_groups:\n"
            "- {name: train, nodes: 2, resources: {memory: 9000TiB}}",
            "node_groups[train].resources.memory",
        ),
        (
            "node_groups:\n- {name: workers, nodes: 2, resources: {memory: 9000TiB}}",
            "node_groups[workers].resources.memory",
        ),
    ],
)
def test_problems_are_told_of_what_was_written(folder: Path, text: str, path: str) -> None:
    """Once, and of no group that only Muster knows."""
    (folder / "job.yaml").write_text(f"command: hostname\n{text}\n")
    client = Client(folder / "home")
    job, new = client.job(folder / "job.yaml")
    with pytest.raises(InvalidInput) as caught:
        client.draft(job, new_job=new)
    assert [problem.path for problem in caught.value.problems] == [path]


def test_a_version_that_a_job_does_not_have(client: Client, folder: Path) -> None:
    spec = folder / "train.yaml"
    for word in ("one", "two"):
        spec.write_text(f"name: train\ncommand: [echo, {word}]\n")
        client.create(client.draft_for(spec, Changes()))
    for drafted in (client.job, lambda target: client.draft_for(target, Changes())):
        with pytest.raises(InvalidInput) as caught:
            drafted("train@7")
        text = "job 'train' has no version '7' (it has versions 1 to 2)"
        assert [problem.message for problem in caught.value.problems] == [text]
