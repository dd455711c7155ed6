"""ADS YAML of kind job: each type of runtime, and names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.errors import InvalidInput
from muster.spec.formats.manifests import read_manifest
from support.ads import (
    distributed,
    job,
    read,
    refusals,
)


@pytest.mark.parametrize(
    ("shown", "name", "display_name"),
    [
        ("train-3.b", "train-3.b", None),
        ("My first job, with spaces", "My-first-job-with-spaces", "My first job, with spaces"),
        ("日本語", "ads", "日本語"),
        ("${LAB} 1", "x-1", "x 1"),
    ],
)
def test_display_names_and_descriptions(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    shown: str,
    name: str,
    display_name: str | None,
) -> None:
    monkeypatch.setenv("LAB", "x")
    data = distributed()
    data["spec"]["infrastructure"]["spec"]["displayName"] = shown
    spec, _ = read(folder, data)
    assert (spec.name, spec.display_name) == (name, display_name)
    single = job("script", scriptPathURI="run.sh")
    single["spec"]["name"] = shown
    spec, _ = read(folder, single)
    assert (spec.name, spec.display_name) == (name, display_name)


def test_a_display_name_of_several_lines_is_refused_with_its_line(folder: Path) -> None:
    data = distributed()
    data["spec"]["infrastructure"]["spec"]["displayName"] = "a\nb"
    found = refusals(folder, data)
    assert list(found) == ["spec.infrastructure.spec.displayName"]


@pytest.mark.shows("cluster-design/example-max-runtime")
def test_script_and_python(folder: Path) -> None:
    data = job(
        "python",
        scriptPathURI="train.py",
        args=["a", 1],
        env=[{"name": "A", "value": 1}],
        pythonPath=["lib", "more"],
        maximumRuntimeInMinutes=90,
        freeformTags={"team": "x"},
        conda={"type": "service", "slug": "s"},
    )
    spec, notes = read(folder, data)
    assert (spec.name, spec.artifact) == ("my-job", str(folder / "train.py"))
    assert spec.args == ("a", "1")
    assert spec.env == {"A": "1", "PYTHONPATH": "lib:more"}
    assert (spec.max_runtime, spec.tags) == (5400.0, {"team": "x"})
    assert any("conda" in note for note in notes)
    spec, _ = read(folder, job("script", scriptPathURI="run.sh"))
    assert spec.artifact == str(folder / "run.sh")


def test_fields_of_another_runtime_are_noted(folder: Path) -> None:
    _, notes = read(folder, job("script", scriptPathURI="run.sh", url="x", excludeTags=["a"]))
    output = "is not used: a runtime of type script has no such field"
    assert {f"url {output}", f"excludeTags {output}"} <= {*notes}


def test_notebook(folder: Path) -> None:
    data = job("notebook", notebookPathURI="book.ipynb", excludeTags=["skip"])
    spec, _ = read(folder, data)
    assert spec.artifact == str(folder / "book.ipynb")
    assert spec.notebook is not None and spec.notebook.exclude_tags == ("skip",)


def test_git(folder: Path) -> None:
    data = job("gitPython", url="https://h/o/r.git", branch="dev", entrypoint="a/b.py")
    spec, _ = read(folder, data)
    assert spec.git is not None and (spec.git.branch, spec.entrypoint) == ("dev", "a/b.py")


@pytest.mark.parametrize(
    ("entrypoint", "cmd", "command"),
    [
        ("/bin/sh,-c", "echo a && b, c", ("/bin/sh", "-c", "echo a && b, c")),
        (["sh", "-c"], "sleep 5 && echo $A", ("sh", "-c", "sleep 5 && echo $A")),
        (None, '["python", "a.py", "x y"]', ("python", "a.py", "x y")),
        ('["python"]', ["a.py"], ("python", "a.py")),
        (["/bin/sh", "-c"], ["echo a, b"], ("/bin/sh", "-c", "echo a, b")),
        (None, "sleep 5", ("sleep", "5")),
        (None, '"python","a.py"', ("python", "a.py")),
    ],
)
def test_container(folder: Path, entrypoint: Any, cmd: Any, command: tuple[str, ...]) -> None:
    spec, notes = read(folder, job("container", image="a/b:1", entrypoint=entrypoint, cmd=cmd))
    assert (spec.command, spec.image) == (command, "a/b:1")
    assert any("image" in note for note in notes)


@pytest.mark.parametrize("command", ["python a.py 'x y'", ["python", "a.py", "x y"]])
def test_a_containers_command(folder: Path, command: Any) -> None:
    spec, _ = read(folder, job("container", image="a/b:1", command=command))
    assert spec.command == ("python", "a.py", "x y")
    found = refusals(folder, job("container", image="a/b:1", cmd="[python, a.py"))
    assert "not a list of words" in found["spec.runtime.spec.cmd"]


def test_several_documents_are_several_jobs(folder: Path) -> None:
    text = yaml.safe_dump_all([job("script", scriptPathURI="run.sh"), distributed()])
    (folder / "two.yaml").write_text(text)
    assert read_manifest(folder / "two.yaml", "my-job").spec.name == "my-job"
    with pytest.raises(InvalidInput, match="there are 2"):
        read_manifest(folder / "two.yaml")


def test_a_muster_spec_is_not_read_as_ads_yaml(tmp_path: Path) -> None:
    from muster.spec.reader import is_manifest

    assert not is_manifest("command: echo kind job\n")
    assert not is_manifest("description: |\n  kind: job\ncommand: x\n")
    assert is_manifest("kind: job\nspec: {}\n")
