"""Fields of sources, and which parts of addresses are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muster.errors import InvalidInput
from muster.secrets import hidden, without_credentials
from muster.spec.formats.spec_write import write_spec
from muster.spec.paths import absolute_line
from muster.spec.reader import spec_from_mapping

GIT = {"git": {"url": "https://h/o/r.git"}}


def errors(**data: Any) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        spec_from_mapping(data)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://u:p@h/x", "https://h/x"),
        ("https://token@h/x", "https://h/x"),
        ("git+https://u:p@q@h/x@main#s", "git+https://h/x@main#s"),
        ("HTTPS://u:p@h/x", "HTTPS://h/x"),
        ("ssh://git@h/x", "ssh://git@h/x"),
        ("ssh://git:p@h/x", "ssh://git@h/x"),
        ("git@h:o/x", "git@h:o/x"),
        ("https://h/x@1", "https://h/x@1"),
        ("--index-url https://u:p@h/simple", "--index-url https://h/simple"),
        (
            "fatal: unable to access 'https://u:p@h/x/': no",
            "fatal: unable to access 'https://h/x/': no",
        ),
        ("numpy>=2", "numpy>=2"),
    ],
)
def test_addresses_are_shown_without_credentials(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (
            GIT,
            "entrypoint: is required for https://h/o/r.git (name the file of the repository to "
            "run)",
        ),
        (
            {**GIT, "artifact": "a.py", "entrypoint": "a.py"},
            "git: conflicts with artifact (keep only one of them)",
        ),
        (
            {"artifact": "a.py", "notebook": {}},
            "notebook: there is no notebook to execute "
            "(it is for an artifact or entrypoint that ends in .ipynb)",
        ),
        ({"git": {}, "command": "x"}, "git.url: is missing"),
        (
            {"git": {"url": "https://u:hush@h/a b"}, "command": "x"},
            "git.url: 'https://h/a b' is not a repository's address "
            "(write https://host/owner/repo.git)",
        ),
        (
            {"git": {"url": "ext::sh -c x"}, "command": "x"},
            "git.url: 'ext::sh -c x' is not a repository's address "
            "(write https://host/owner/repo.git)",
        ),
        (
            {"git": {"url": "u", "branch": "--upload-pack=x"}, "command": "x"},
            "git.branch: '--upload-pack=x' cannot name a branch or tag "
            "(`git branch -r` lists them)",
        ),
        (
            {"git": {"url": "u", "commit": "main"}, "command": "x"},
            "git.commit: 'main' is not a commit (write the hexadecimal digits that `git log` "
            "shows; "
            "branches and tags go into branch)",
        ),
        (
            {"git": {"url": "u", "commit": 1234567}, "command": "x"},
            'git.commit: 1234567 was read as a number (put it in quotes: "1234567")',
        ),
        (
            {"git": {"url": "u", "path": "../x"}, "command": "x"},
            "git.path: '../x' leads out of the repository (write a path from its root, without ..)",
        ),
        (
            {"git": {"url": "u", "token_env": "ghp-hush"}, "command": "x"},
            "git.token_env: is not the name of an environment variable (such as GIT_TOKEN)",
        ),
    ],
)
def test_invalid_sources_are_refused(data: dict[str, Any], problem: str) -> None:
    assert errors(**data) == [problem]


def test_groups_with_commands_need_no_entrypoint() -> None:
    groups = [{"name": "a", "command": "x"}, {"name": "b"}]
    assert errors(**GIT, node_groups=groups)[0].startswith("entrypoint: ")
    groups[1]["command"] = "y"
    assert spec_from_mapping({**GIT, "node_groups": groups}).git is not None


def test_paths_are_made_absolute(tmp_path: Path) -> None:
    data = {"artifact": "a.py", "requirements": "needs.txt", "conda": "env.yaml"}
    spec = spec_from_mapping(data, folder=tmp_path)
    assert spec.requirements == (f"{tmp_path}/needs.txt",)
    assert spec.conda == f"{tmp_path}/env.yaml"
    data = {"git": {"url": "../code"}, "entrypoint": "a.py", "requirements": "needs.txt"}
    spec = spec_from_mapping(data, folder=tmp_path / "sub")
    assert spec.git is not None
    assert spec.git.url == f"{tmp_path}/code"
    assert spec.requirements == ("needs.txt",)  # of the repository


@pytest.mark.parametrize(
    ("line", "absolute"),
    [
        ("numpy>=2", "numpy>=2"),
        ("-r more.txt", "-r /f/more.txt"),
        ("--find-links=wheels", "--find-links=/f/wheels"),
        ("--find-links https://h/w", "--find-links https://h/w"),
        ("-e ../mine", "-e /mine"),
        ("./a-1.0-py3-none-any.whl", "/f/a-1.0-py3-none-any.whl"),
        ("a-1.0-py3-none-any.whl", "/f/a-1.0-py3-none-any.whl"),
        ("a @ https://h/a.whl", "a @ https://h/a.whl"),
        ("git+https://h/a.git@v1", "git+https://h/a.git@v1"),
    ],
)
def test_lines_of_a_requirements_file(line: str, absolute: str) -> None:
    assert absolute_line(line, Path("/f")) == absolute


def test_secrets_of_sources_are_hidden() -> None:
    lines = ["--index-url https://u:hush@h/simple", "numpy"]
    shown = hidden({"requirements": lines, "conda": "- https://u:hush@h/c", "env": {}})
    assert "hush" not in str(shown)
    assert shown["requirements"][1] == "numpy"
    spec = spec_from_mapping({"git": {"url": "https://u:hush@h/r"}, "command": "x"})
    assert "hush" not in str(write_spec(spec))


@pytest.mark.parametrize(
    ("spec", "lost"),
    [
        ({"command": "./solver a"}, "./solver"),
        ({"command": ["bin/solver"]}, "bin/solver"),
        ({"command": "python train.py --x"}, "train.py"),
        ({"command": "bash scripts/run.sh"}, "scripts/run.sh"),
        ({"node_groups": [{"name": "a", "command": "./solver"}]}, "./solver"),
        ({"command": "solver"}, None),
        ({"command": "/opt/solver"}, None),
        ({"command": "python -m http.server"}, None),
        ({"command": "python /opt/train.py"}, None),
        ({"command": ["sh", "-c", "./x"]}, None),
        ({"command": "./solver", "artifact": "."}, None),
        ({"command": "./solver", "git": {"url": "https://example.org/a"}}, None),
        ({"command": "./solver", "image": "solver:1"}, None),
        ({"node_groups": [{"name": "a", "command": "./s", "working_dir": "/opt"}]}, None),
    ],
)
def test_a_command_with_a_file_that_is_not_sent_is_refused(
    spec: dict[str, object], lost: str | None
) -> None:
    if lost is None:
        spec_from_mapping({"name": "a", **spec})
        return
    with pytest.raises(InvalidInput) as caught:
        spec_from_mapping({"name": "a", **spec})
    (problem,) = caught.value.problems
    assert problem.path.endswith("command")
    assert f"{lost} is not there" in problem.message
    assert "muster run . -- " in problem.hint
