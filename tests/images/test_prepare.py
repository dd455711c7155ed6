"""Preparing a build context from a request: contents, notes and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.errors import InvalidInput
from muster.images.prepare import BuildContext, ImageRequest, prepare
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


def prepare_in(folder: Path, **fields: Any) -> BuildContext:
    return prepare(ImageRequest(**{"framework": "dask", **fields}), WHEEL, folder / "home")


def test_a_folder_becomes_code_and_entry_point(code: Path, tmp_path: Path) -> None:
    context = prepare_in(tmp_path, source=code, entrypoint="./train.py")
    assert context.code == ("sub/more.py", "train.py")
    assert context.recipe.entrypoint == "train.py"
    assert context.recipe.base == "docker.io/library/python:3.11-slim"
    assert context.recipe.ports == ("3000-3100", "8700-8800", "8786", "8787")
    assert context.files == {WHEEL.name: b"wheel"}
    assert context.notes == ()


def test_an_entrypoint_may_be_a_full_path(code: Path, tmp_path: Path) -> None:
    context = prepare_in(tmp_path, source=code, entrypoint=str(code / "sub" / "more.py"))
    assert context.recipe.entrypoint == "sub/more.py"


def test_a_single_file_is_the_entry_point(code: Path, tmp_path: Path) -> None:
    context = prepare_in(tmp_path, source=code / "train.py")
    assert (context.source, context.code) == (code / "train.py", ("train.py",))
    assert context.recipe.entrypoint == "train.py"


def test_an_image_without_code_has_no_entry_point(tmp_path: Path) -> None:
    context = prepare_in(tmp_path)
    assert not context.recipe.code
    assert context.recipe.entrypoint is None


def test_all_problems_are_reported_at_once(code: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        prepare_in(
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
    assert "it has train.py" in str(caught.value)


def test_a_name_cannot_add_a_line_to_the_recipe(code: Path, tmp_path: Path) -> None:
    (code / "a\nRUN b.py").write_text("")
    with pytest.raises(InvalidInput, match=r"--entrypoint: 'a\\nRUN b.py' has characters"):
        prepare_in(tmp_path, source=code, entrypoint="a\nRUN b.py")


def test_an_ignored_entrypoint_is_refused(code: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"data.bin is ignored in .*, or outside of it"):
        prepare_in(tmp_path, source=code, entrypoint="data.bin")


def test_private_and_unused_files_are_noted(code: Path, tmp_path: Path) -> None:
    for name in (".env", "tls.key", "requirements.txt"):
        (code / name).write_text("")
    private, unused = prepare_in(tmp_path, source=code).notes
    assert private.startswith(".env, tls.key will be readable")
    assert unused == f"{code}/requirements.txt is only installed with " + (
        f"--requirements {code}/requirements.txt"
    )


def test_versions_pinned_by_the_user_apply_to_the_framework(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("dask==2026.1.0\nscipy\n")
    context = prepare_in(tmp_path, requirements=tmp_path / "r.txt")
    assert context.recipe.packages[0] == "dask[distributed]==2026.1.0"
    assert context.recipe.requirements == "requirements/r.txt"
    assert context.files["requirements/r.txt"] == b"dask==2026.1.0\nscipy\n"


def test_a_base_image_can_contain_the_framework(tmp_path: Path) -> None:
    context = prepare_in(tmp_path, packages=False)
    assert context.recipe.packages == ()


def test_secrets_are_named_in_the_recipe_and_not_copied(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://me:hunter2@host/simple\n")
    context = prepare_in(tmp_path, pip_config=tmp_path / "pip.conf")
    assert context.secrets == {"pip-config": tmp_path / "pip.conf"}
    assert context.recipe.secrets == ("pip-config",)
    assert b"hunter2" not in b"".join(context.files.values())


#: The files of the design.
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
def test_conda_is_used_if_it_is_needed(tmp_path: Path) -> None:
    path = environment(tmp_path, "channels: [conda-forge]\ndependencies: [gdal, dask]\n")
    context = prepare_in(tmp_path, environments=(path,))
    assert context.recipe.conda is not None
    assert context.recipe.packages == ("bokeh",)  # conda installs dask
    assert yaml.safe_load(context.files["environment.yaml"]) == {
        "channels": ["conda-forge"],
        "dependencies": ["python>=3.11", "pip", "gdal", "dask"],
    }
    assert context.notes == ("micromamba installs environment.yaml, because of gdal, dask",)
    assert context.recipe.comments == context.notes


def test_a_complete_environment_is_kept_as_written(tmp_path: Path) -> None:
    text = "# ours\nchannels: [conda-forge]\ndependencies:\n- python=3.12 # new\n- pip\n- gdal\n"
    context = prepare_in(tmp_path, environments=(environment(tmp_path, text),))
    assert context.files["environment.yaml"].decode() == text


def test_without_a_channel_the_default_is_added(tmp_path: Path) -> None:
    """micromamba has no default channel."""
    text = "dependencies:\n- python=3.12\n- pip\n- gdal\n"
    context = prepare_in(tmp_path, environments=(environment(tmp_path, text),))
    assert yaml.safe_load(context.files["environment.yaml"])["channels"] == ["conda-forge"]
    assert "no channel is listed: packages come from conda-forge" in context.notes


@pytest.mark.shows("cluster-design/base-environment", "cluster-design/additional-dependencies")
def test_the_environment_files_of_the_design_are_merged(tmp_path: Path) -> None:
    base, more = tmp_path / "env.yaml", tmp_path / "lightgbm.yaml"
    base.write_text(BASE)
    more.write_text(MORE)
    context = prepare_in(tmp_path, environments=(base, more))
    assert context.recipe.conda is not None
    assert yaml.safe_load(context.files["environment.yaml"]) == {
        "channels": ["conda-forge"],
        "dependencies": [
            *("conda-forge::dask", "conda-forge::python=3.11", "conda-forge::pip"),
            *("conda-forge::lightgbm", {"pip": ["oracle-ads", "supervisor"]}),
        ],
    }
    without = "nodefaults is ignored: micromamba has no default channels"
    assert context.notes == (
        "env.yaml: dependencies[1] requires Python 3.8, but Muster needs 3.11 or newer: the image "
        "has 3.11",
        "env.yaml: oracle-ads, supervisor below `- pip:` read as its list, although it is not "
        "indented",
        f"env.yaml: {without}",
        f"lightgbm.yaml: {without}",
        "micromamba installs env.yaml and lightgbm.yaml, because of dask, lightgbm",
    )


@pytest.mark.shows("cluster-design/recipe-conda")
def test_pip_is_used_if_it_is_enough(tmp_path: Path) -> None:
    path = environment(tmp_path, "dependencies: [python=3.12, pip: [scipy, dask==2026.1.0]]\n")
    (tmp_path / "r.txt").write_text("numpy\n")
    context = prepare_in(tmp_path, environments=(path,), requirements=tmp_path / "r.txt")
    assert context.recipe.conda is None
    assert context.recipe.base == "docker.io/library/python:3.12-slim"
    assert context.recipe.packages[0] == "dask[distributed]==2026.1.0"
    assert context.recipe.requirements == "requirements/environment-pip.txt"
    listed = context.files["requirements/environment-pip.txt"]
    assert listed == b"scipy\ndask==2026.1.0\n-r r.txt\n"
    assert context.notes == ("pip installs environment.yaml: none of its packages needs conda",)


def test_the_base_image_decides_the_python_version(tmp_path: Path) -> None:
    path = environment(tmp_path, "dependencies: [python=3.12, pip: [scipy]]\n")
    context = prepare_in(tmp_path, environments=(path,), base="reg.io/base:1")
    assert context.notes[0] == "Python is the one in reg.io/base:1, not the requested 3.12"
