"""From what is asked for to a recipe: what is taken up, what is told, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.errors import InvalidInput
from muster.images.draft import Draft, Request, draft
from muster.images.wheel import Wheel

WHEEL = Wheel("muster_jobs-1.0-py3-none-any.whl", b"wheel")


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "sub").mkdir(parents=True)
    for name in ("train.py", "sub/more.py", "data.bin"):
        (folder / name).write_text("")
    (folder / ".musterignore").write_text("*.bin\n.musterignore\n")
    return folder


def drafted(folder: Path, **wanted: Any) -> Draft:
    return draft(Request(**{"framework": "dask", **wanted}), WHEEL, folder / "home")


def test_code_and_where_it_starts(code: Path, tmp_path: Path) -> None:
    made = drafted(tmp_path, source=code, entrypoint="./train.py")
    assert made.code == ("sub/more.py", "train.py")
    assert made.recipe.entrypoint == "train.py"
    assert made.recipe.base == "docker.io/library/python:3.11-slim"
    assert made.recipe.ports == ("3000-3100", "8700-8800", "8786", "8787")
    assert made.files == {WHEEL.name: b"wheel"}
    assert made.notes == ()


def test_an_entrypoint_seen_from_here(code: Path, tmp_path: Path) -> None:
    made = drafted(tmp_path, source=code, entrypoint=str(code / "sub" / "more.py"))
    assert made.recipe.entrypoint == "sub/more.py"


def test_a_single_file_is_where_it_starts(code: Path, tmp_path: Path) -> None:
    made = drafted(tmp_path, source=code / "train.py")
    assert (made.source, made.code) == (code / "train.py", ("train.py",))
    assert made.recipe.entrypoint == "train.py"


def test_without_code_it_is_a_node_of_any_cluster(tmp_path: Path) -> None:
    made = drafted(tmp_path)
    assert not made.recipe.code
    assert made.recipe.entrypoint is None


def test_everything_wrong_is_told_at_once(code: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        drafted(
            tmp_path,
            framework="daks",
            source=code,
            entrypoint="trian.py",
            requirements=tmp_path / "r.txt",
            environments=(tmp_path / "e.yaml",),
            base="Python",
            pip_config=tmp_path / "pip.conf",
            debian=("libgomp1", "--purge", "git=1:2.39.5-0+deb12u2"),
        )
    assert [problem.path for problem in caught.value.problems] == [
        "--framework",
        "--entrypoint",
        "--requirements",
        "--env",
        "--base",
        "--pip-config",
        "--apt",
    ]
    assert "trian.py is not in" in str(caught.value)
    assert "it holds train.py" in str(caught.value)


def test_a_name_cannot_add_a_line_to_the_recipe(code: Path, tmp_path: Path) -> None:
    (code / "a\nRUN b.py").write_text("")
    with pytest.raises(InvalidInput, match=r"--entrypoint: 'a\\nRUN b.py' cannot stand"):
        drafted(tmp_path, source=code, entrypoint="a\nRUN b.py")


def test_an_entrypoint_that_is_left_out(code: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"data.bin is not code by what .* ignores"):
        drafted(tmp_path, source=code, entrypoint="data.bin")


def test_what_may_surprise_is_said(code: Path, tmp_path: Path) -> None:
    for name in (".env", "tls.key", "requirements.txt"):
        (code / name).write_text("")
    private, unused = drafted(tmp_path, source=code).notes
    assert private.startswith(".env, tls.key will be in the image")
    assert unused == f"{code}/requirements.txt is not installed unless you say " + (
        f"--requirements {code}/requirements.txt"
    )


def test_the_owner_s_versions_reach_the_framework_s_layer(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("dask==2026.1.0\nscipy\n")
    made = drafted(tmp_path, requirements=tmp_path / "r.txt")
    assert made.recipe.packages[0] == "dask[distributed]==2026.1.0"
    assert made.recipe.requirements == "requirements/r.txt"
    assert made.files["requirements/r.txt"] == b"dask==2026.1.0\nscipy\n"


def test_a_base_may_have_the_framework(tmp_path: Path) -> None:
    made = drafted(tmp_path, packages=False)
    assert made.recipe.packages == ()


def test_secrets_are_named_in_the_recipe_and_nowhere_copied(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://me:hunter2@host/simple\n")
    made = drafted(tmp_path, pip_config=tmp_path / "pip.conf")
    assert made.secrets == {"pip-config": tmp_path / "pip.conf"}
    assert made.recipe.secrets == ("pip-config",)
    assert b"hunter2" not in b"".join(made.files.values())


#: As the design has them.
BASE = """
channels:
- conda-forge
- nodefaults
dependencies:
- conda-forge::dask
- conda-forge::python=3.8
- conda-forge::pip
- pip:
- oracle-ads
- supervisor
"""
MORE = """
channels:
  - conda-forge
  - nodefaults
dependencies:
  - conda-forge::lightgbm
"""


def environment(folder: Path, text: str) -> Path:
    path = folder / "environment.yaml"
    path.write_text(text)
    return path


@pytest.mark.shows("cluster-design/recipe-conda")
def test_conda_where_conda_is_needed(tmp_path: Path) -> None:
    path = environment(tmp_path, "channels: [conda-forge]\ndependencies: [gdal, dask]\n")
    made = drafted(tmp_path, environments=(path,))
    assert made.recipe.conda is not None
    assert made.recipe.packages == ("bokeh",)  # dask is conda's
    assert yaml.safe_load(made.files["environment.yaml"]) == {
        "channels": ["conda-forge"],
        "dependencies": ["python>=3.11", "pip", "gdal", "dask"],
    }
    assert made.notes == ("micromamba installs environment.yaml, for the sake of gdal, dask",)
    assert made.recipe.comments == made.notes


def test_a_whole_environment_stays_as_it_was_written(tmp_path: Path) -> None:
    text = "# ours\nchannels: [conda-forge]\ndependencies:\n- python=3.12 # new\n- pip\n- gdal\n"
    made = drafted(tmp_path, environments=(environment(tmp_path, text),))
    assert made.files["environment.yaml"].decode() == text


def test_without_a_channel_there_is_one(tmp_path: Path) -> None:
    """micromamba has none of its own."""
    text = "dependencies:\n- python=3.12\n- pip\n- gdal\n"
    made = drafted(tmp_path, environments=(environment(tmp_path, text),))
    assert yaml.safe_load(made.files["environment.yaml"])["channels"] == ["conda-forge"]
    assert "no channel is named: packages are taken from conda-forge" in made.notes


@pytest.mark.shows("cluster-design/base-environment", "cluster-design/additional-dependencies")
def test_the_files_of_the_design(tmp_path: Path) -> None:
    base, more = tmp_path / "env.yaml", tmp_path / "lightgbm.yaml"
    base.write_text(BASE)
    more.write_text(MORE)
    made = drafted(tmp_path, environments=(base, more))
    assert made.recipe.conda is not None
    assert yaml.safe_load(made.files["environment.yaml"]) == {
        "channels": ["conda-forge"],
        "dependencies": [
            *("conda-forge::dask", "conda-forge::python=3.11", "conda-forge::pip"),
            *("conda-forge::lightgbm", {"pip": ["oracle-ads", "supervisor"]}),
        ],
    }
    without = "nodefaults is left out: micromamba has no default channels"
    assert made.notes == (
        "env.yaml: dependencies[1] asks for Python 3.8, and Muster needs 3.11 or newer: the image "
        "has 3.11",
        "env.yaml: oracle-ads, supervisor below `- pip:` taken as its list, which is not indented",
        f"env.yaml: {without}",
        f"lightgbm.yaml: {without}",
        "micromamba installs env.yaml and lightgbm.yaml, for the sake of dask, lightgbm",
    )


@pytest.mark.shows("cluster-design/recipe-conda")
def test_pip_where_pip_will_do(tmp_path: Path) -> None:
    path = environment(tmp_path, "dependencies: [python=3.12, pip: [scipy, dask==2026.1.0]]\n")
    (tmp_path / "r.txt").write_text("numpy\n")
    made = drafted(tmp_path, environments=(path,), requirements=tmp_path / "r.txt")
    assert made.recipe.conda is None
    assert made.recipe.base == "docker.io/library/python:3.12-slim"
    assert made.recipe.packages[0] == "dask[distributed]==2026.1.0"
    assert made.recipe.requirements == "requirements/environment-pip.txt"
    own = made.files["requirements/environment-pip.txt"]
    assert own == b"scipy\ndask==2026.1.0\n-r r.txt\n"
    assert made.notes == ("pip installs environment.yaml: nothing in it needs conda",)


def test_a_python_that_the_base_decides(tmp_path: Path) -> None:
    path = environment(tmp_path, "dependencies: [python=3.12, pip: [scipy]]\n")
    made = drafted(tmp_path, environments=(path,), base="reg.io/base:1")
    assert made.notes[0] == "Python is the one in reg.io/base:1, not the 3.12 that was asked for"
