"""Conda environment files: whether conda is needed, and invalid files."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from muster.errors import InvalidInput
from muster.images.conda_files import CondaEnvironment, read_environments


def read(folder: Path, text: str) -> CondaEnvironment:
    path = folder / "environment.yaml"
    path.write_text(text)
    return read_environments([path])


def refused(folder: Path, text: str) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        read(folder, text)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def test_conda_s_own_packages_need_conda(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "channels: [conda-forge]\n"
        "dependencies:\n  - python=3.12\n  - conda-forge::gdal>=3\n  - pip: [dask==2026.1.0]\n",
    )
    assert found.needs_conda
    assert found.conda == ("gdal",)
    assert list(map(str, found.requirements)) == ["dask==2026.1.0"]


def test_conda_files_that_pip_can_install(tmp_path: Path) -> None:
    found = read(tmp_path, "dependencies: [python=3.12, pip, pip: [scipy, numpy]]\n")
    assert not found.needs_conda
    assert (found.python, found.pip) == ("3.12", ("scipy", "numpy"))


@pytest.mark.parametrize(
    ("written", "version"),
    [
        ("python", ""),
        ("python=3.12", "3.12"),
        ("python==3.12.4", "3.12"),
        ("python 3.13.*", "3.13"),
        ("python=3.12=h5148396_0", "3.12"),
        ("python>=3.11", ""),
    ],
)
def test_the_pinned_python_version_is_read(tmp_path: Path, written: str, version: str) -> None:
    found = read(tmp_path, f"dependencies: ['{written}']\n")
    assert (found.python, found.has_python) == (version, True)


def test_all_problems_are_reported(tmp_path: Path) -> None:
    assert refused(
        tmp_path,
        "dependancies: []\n"
        "channels:\n  - https://me:pw@conda.example.com/x\n  - https://c.com/t/ab-0123456789/x\n"
        "dependencies:\n  - python=3.9\n  - 7\n  - pip: [-r more.txt, ./mine]\n",
    ) == [
        "environment.yaml:1: dependancies: is not a field of an environment file (the fields are: "
        "channels, dependencies, name, platforms, prefix, variables)",
        "environment.yaml:7: dependencies[1]: must be a package or pip: [...], not 7",
        "environment.yaml:5: dependencies: pip: '-r more.txt' needs a file that the image does not "
        "have (list its requirements here, or pass the file with --requirements)",
        "environment.yaml:3: has a password in an address, which everyone who has the image could "
        "read (move it into a pip configuration and pass that with --pip-config)",
        "environment.yaml:4: has a password in an address, which everyone who has the image could "
        "read (move it into a pip configuration and pass that with --pip-config)",
        "environment.yaml: './mine' is a path on this machine, which the image does not have "
        "(publish it as a package, or put the code into --source)",
    ]


@pytest.mark.parametrize(
    "written",
    [
        "python=3.8",
        "python==3.8.16",
        "python 3.9.*",
        "python<3.11",
        "python>=3.7,<=3.10",
        "python=2.7",
    ],
)
def test_a_python_that_is_too_old_becomes_the_oldest_supported(
    tmp_path: Path, written: str
) -> None:
    found = read(tmp_path, f"channels: [c]\ndependencies: ['conda-forge::{written}', gdal]\n")
    (note,) = found.notes
    assert "but Muster needs 3.11 or newer: the image has 3.11" in note
    assert (found.python, "conda-forge::python=3.11" in found.text) == ("3.11", True)


@pytest.mark.parametrize("written", ["python>=3.8", "python<3.12", "python<4", "python"])
def test_a_python_that_may_be_new_enough_is_kept(tmp_path: Path, written: str) -> None:
    found = read(tmp_path, f"channels: [c]\ndependencies: ['{written}', gdal]\n")
    assert (found.notes, found.python) == ((), "")


def test_a_pip_list_that_is_not_indented_is_read_with_a_note(tmp_path: Path) -> None:
    text = "dependencies:\n- pip\n- pip:\n- scipy>=1\n- c::gdal\n- numpy\n"
    found = read(tmp_path, text)
    assert (found.pip, found.conda) == (("scipy>=1", "numpy"), ("gdal",))
    assert found.has_pip
    assert found.notes[0].startswith("environment.yaml: scipy>=1, numpy below `- pip:` read")


def test_a_missing_pip_list_is_reported(tmp_path: Path) -> None:
    assert refused(tmp_path, "dependencies:\n- gdal\n- pip:\n") == [
        "environment.yaml:1: dependencies: pip: has no list (indent its packages below it)"
    ]


def test_several_files_are_merged(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("channels: [x]\nvariables: {A: 1, B: 1}\ndependencies: [gdal, pip: [scipy]]\n")
    second.write_text(
        "channels: [x, y]\nvariables: {B: 2}\n"
        "dependencies: [gdal, proj, python=3.12, pip: [numpy]]\n"
    )
    found = read_environments([first, second])
    assert (found.conda, found.pip, found.python) == (("gdal", "proj"), ("scipy", "numpy"), "3.12")
    assert yaml.safe_load(found.text) == {
        "channels": ["x", "y"],
        "variables": {"A": 1, "B": 2},
        "dependencies": ["gdal", "proj", "python=3.12", {"pip": ["scipy", "numpy"]}],
    }


def test_contradicting_files_are_reported(tmp_path: Path) -> None:
    first, second, third = (tmp_path / f"{name}.yaml" for name in "abc")
    first.write_text("dependencies: [python=3.12]\n")
    second.write_text("dependencies: [python=3.13]\n")
    third.write_text("channels: 3\n")
    with pytest.raises(InvalidInput) as caught:
        read_environments([first, second, third])
    assert str(caught.value).replace(f"{tmp_path}/", "").splitlines() == [
        "c.yaml: dependencies: is missing (a conda environment file has dependencies: "
        "[python=3.12, ...])",
        "b.yaml: dependencies: requires Python 3.13, but a.yaml requires 3.12 (use the same "
        "version in both)",
    ]


def test_fields_of_the_wrong_type_are_reported(tmp_path: Path) -> None:
    text = "channels: conda-forge\nvariables: [A=1]\ndependencies: [python]\n"
    assert refused(tmp_path, text) == [
        "environment.yaml:1: channels: must be a list of names (channels: [conda-forge])",
        "environment.yaml:2: variables: must be a mapping (variables: {NAME: value})",
    ]


def test_secret_variables_are_refused(tmp_path: Path) -> None:
    text = "dependencies: [secretstorage=3.3.3]\nvariables:\n  LEVEL: 2\n  HF_TOKEN: hunter2\n"
    assert refused(tmp_path, text) == [
        "environment.yaml:4: variables.HF_TOKEN: is a secret, which everyone who has the image "
        "could read (remove it, and set it where containers are started)"
    ]
    assert read(tmp_path, text.replace("HF_TOKEN", "MODE")).conda == ("secretstorage",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\n", "dependencies: is missing"),
        ("- a\n", "dependencies: is missing"),
        (
            "# conda\n@EXPLICIT\nhttps://x/y.conda\n",
            "is a list of package addresses (use a YAML environment file",
        ),
        ("a: [\n", "environment.yaml:"),
    ],
)
def test_a_file_that_is_not_an_environment_is_reported(
    tmp_path: Path, text: str, message: str
) -> None:
    assert message in refused(tmp_path, text)[0]


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"--env: .*: No such file or directory"):
        read_environments([tmp_path / "none.yaml"])
