"""Targets of a command line: code, a command inside of it, a spec file."""

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
    job = "apiVersion: batch/v1\nkind: Job\n"
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.yaml").write_text(job)
    (tmp_path / "deployed").mkdir()
    (tmp_path / "deployed" / "a.yaml").write_text(job)
    (tmp_path / "deployed" / "train.py").touch()
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
        ("missing.zip", None, False),
        ("job.yaml", None, False),
        ("sets", None, False),
        ("jobs", None, False),
        ("deployed", None, True),  # code, with the manifest of a Job that runs it elsewhere
        ("a-job", None, False),
        ("git+https://example.org/a/b.git", None, True),
        ("git+https://example.org/a/b.git", "train.py", False),
    ],
)
def test_which_targets_take_a_command(
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


def test_a_command_is_refused_with_a_spec_file(folder: Path) -> None:
    with pytest.raises(InvalidInput, match=r"--command: .* describes the job already"):
        spec_for(folder / "job.yaml", "true", {})


def test_processes_per_node_are_not_part_of_the_job(folder: Path) -> None:
    assert spec_for(folder / "job.yaml", None, {"processes_per_node": 2}).processes_per_node == 1


def test_the_folder_keeps_its_name_and_is_a_package(folder: Path) -> None:
    command = ["sh", "-c", "basename $PWD; python -m mypkg.train; python train.py"]
    run = muster.run(folder / "mypkg", command=command).wait(60)
    assert [record.message for record in run.logs(streams=["stdout", "stderr"])] == [
        "mypkg",
        "X 4",
        "X 4",
    ]


def test_processes_per_node_apply_to_a_spec_file(folder: Path) -> None:
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
def test_a_folder_given_as_a_repository_gets_a_hint(
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
def test_problems_name_groups_as_they_were_written(folder: Path, text: str, path: str) -> None:
    """Each problem is reported once, and never for a group that Muster added."""
    (folder / "job.yaml").write_text(f"command: hostname\n{text}\n")
    client = Client(folder / "home")
    job, new = client.job(folder / "job.yaml")
    with pytest.raises(InvalidInput) as caught:
        client.prepare_run(job, new_job=new)
    assert [problem.path for problem in caught.value.problems] == [path]


def test_a_missing_version_of_a_job_is_reported(client: Client, folder: Path) -> None:
    spec = folder / "train.yaml"
    for word in ("one", "two"):
        spec.write_text(f"name: train\ncommand: [echo, {word}]\n")
        client.create(client.prepare(spec, Changes()))
    for prepare in (client.job, lambda target: client.prepare(target, Changes())):
        with pytest.raises(InvalidInput) as caught:
            prepare("train@7")
        text = "job 'train' has no version '7' (it has versions 1 to 2)"
        assert [problem.message for problem in caught.value.problems] == [text]


@pytest.mark.parametrize("name", [None, "q"])
def test_a_command_in_quotes_is_not_a_program(
    name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput) as caught:
        spec_for(None, ["hostname -f"], {"name": name})
    (problem,) = caught.value.problems
    assert problem.message == "'hostname -f' is one word with spaces, and no program has that name"
    assert problem.hint == "leave out the quotes, or let a shell read it: sh -c '...'"
    (tmp_path / "my program").touch()
    program = str(tmp_path / "my program")
    found = spec_for(None, [program], {"name": "q"}).command
    assert found is not None and [*found] == [program]
    found = spec_for(None, "hostname -f", {"name": name}).command
    assert found is not None and [*found] == ["hostname", "-f"]
