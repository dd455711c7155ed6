"""`muster image`, as far as it needs no builder."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from support.command import muster


def image(
    *args: str, code: int = 0, cwd: Path | None = None, path: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `muster image` with this PATH."""
    env = {**os.environ, "PATH": os.environ["PATH"] if path is None else path}
    return muster("image", *args, code=code, cwd=cwd, env=env)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print()")
    return tmp_path


BUILD = ["build", "--framework", "dask", "--source", "code", "--entrypoint", "train.py"]


@pytest.mark.shows("cluster-design/recipe")
def test_a_recipe_can_be_printed_without_building(here: Path) -> None:
    done = image(*BUILD, "--print", cwd=here, path="")
    assert done.stdout.startswith("# A node of a dask cluster.")
    assert "ENV CLUSTER_TYPE=DASK ENTRY_POINT=/code/train.py\n" in done.stdout
    assert done.stdout == image(*BUILD, "--print", cwd=here).stdout
    assert json.loads(image(*BUILD, "--print", "--json", cwd=here).stdout) == {
        "recipe": done.stdout
    }
    assert sorted(path.name for path in here.iterdir()) == ["code"]


ADS = ["--backend", "distributed-job", "--type", "dask", "--image-name", "reg.io/team/my-image:1"]


@pytest.mark.shows("cluster-design/ads-build-command")
@pytest.mark.parametrize("typed", [["image", "build"], ["opctl", "build-image"], ["build-image"]])
def test_ads_options_are_answered_with_the_equivalent_command(here: Path, typed: list[str]) -> None:
    words = [*typed, *ADS, "--source", "code", "--entrypoint", "train.py"]
    done = muster(*words, code=2, cwd=here)
    output = " ".join(done.stderr.split())
    equivalent = (
        "muster image build --framework dask --tag reg.io/team/my-image:1 --source code "
        "--entrypoint train.py"
    )
    assert f"`{equivalent}`" in output, output
    assert image(*equivalent.split()[2:], "--print", cwd=here).stdout.startswith(
        "# A node of a dask"
    )


def test_ads_options_in_other_forms_are_recognized(here: Path) -> None:
    done = image("build", "--type=horovod-pytorch", "-s", "my code", "-t", "a:1", code=2, cwd=here)
    assert "--framework horovod --source 'my code' -t a:1`" in " ".join(done.stderr.split())
    done = image("build", "--frame-work", "dask", code=2, cwd=here)
    assert "what is meant" not in done.stderr


def test_notes_go_to_stderr(here: Path) -> None:
    (here / "code" / ".env").write_text("")
    done = image(*BUILD, "--print", cwd=here)
    assert done.stderr.startswith("note: .env will be readable")


def test_the_build_context_can_be_kept(here: Path) -> None:
    done = image(*BUILD, "--output", "context", "--no-build", cwd=here, path="")
    assert done.stdout == "context/Containerfile\n"
    text = (here / "context" / "Containerfile").read_text()
    assert text == image(*BUILD, "--print", cwd=here).stdout
    wheel = next((here / "context").glob("muster_jobs-*.whl")).name
    assert f"COPY {wheel} " in text
    assert (here / "context" / "code" / "train.py").read_text() == "print()"


def test_all_problems_of_a_build_are_reported_at_once(here: Path) -> None:
    done = image("build", "--framework", "daks", "--source", "cod", "--tag", "A b", code=2)
    assert [line.split(":")[1] for line in done.stderr.splitlines()] == [
        " --tag",
        " --framework",
        " --source",
    ]


def test_building_needs_a_name(here: Path) -> None:
    done = image(*BUILD, code=2, cwd=here)
    assert done.stderr.startswith("error: --tag: is missing (REGISTRY/NAME:TAG, or --print")


def test_a_build_without_a_builder_needs_an_output_folder(here: Path) -> None:
    done = image(*BUILD, "--no-build", code=2, cwd=here)
    assert "--no-build: needs --output" in done.stderr


@pytest.mark.shows("cluster-design/build-images")
def test_a_missing_builder_is_reported(here: Path) -> None:
    done = image(*BUILD, "--tag", "train:1", code=4, cwd=here, path="")
    assert done.stderr == (
        "error: none of podman, buildah, docker is on PATH; install one, or write the recipe with "
        "--output and build it elsewhere\n"
    )


def test_a_missing_requested_builder_is_reported(here: Path) -> None:
    args = [*BUILD, "--tag", "train:1", "--builder", "buildah"]
    done = image(*args, code=2, cwd=here, path="")
    assert "--builder: buildah is not on PATH (no other builder is either)" in done.stderr


def test_output_of_a_failed_builder_is_shown(here: Path) -> None:
    # given: a builder that fails like docker without its daemon
    tools = here / "bin"
    tools.mkdir()
    (tools / "docker").write_text(
        "#!/bin/sh\necho Cannot connect to the Docker daemon at unix:///x. >&2\nexit 1\n"
    )
    (tools / "docker").chmod(0o755)
    for quiet in ([], ["--quiet"]):
        # when
        done = image(*BUILD, "--tag", "train:1", *quiet, code=4, cwd=here, path=str(tools))
        # then: the builder's output, and the explanation
        printed, explanation = done.stderr.splitlines()
        assert printed == "Cannot connect to the Docker daemon at unix:///x."
        assert explanation.startswith(
            "error: cannot build train:1: the docker daemon is not running"
        )
        assert done.stdout == ""


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("train:1", "TAG: 'train:1' names no registry to push to (build it as REGISTRY/train:1;"),
        ("reg.io/Train:1", "TAG: 'reg.io/Train:1' has upper-case letters in its name"),
    ],
)
def test_invalid_names_cannot_be_pushed(tag: str, message: str) -> None:
    assert message in image("push", tag, code=2).stderr
