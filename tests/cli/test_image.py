"""`muster image` as a person uses it, as far as that needs no builder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def muster(
    *args: str, code: int = 0, cwd: Path | None = None, path: str | None = None
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": os.environ["PATH"] if path is None else path}
    done = subprocess.run(
        [sys.executable, "-m", "muster", "image", *args],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env=env,
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print()")
    return tmp_path


BUILD = ["build", "--framework", "dask", "--source", "code", "--entrypoint", "train.py"]


@pytest.mark.shows("cluster-design/recipe")
def test_a_recipe_is_only_printed(here: Path) -> None:
    done = muster(*BUILD, "--print", cwd=here, path="")
    assert done.stdout.startswith("# A node of a dask cluster.")
    assert "ENV CLUSTER_TYPE=DASK ENTRY_POINT=/code/train.py\n" in done.stdout
    assert done.stdout == muster(*BUILD, "--print", cwd=here).stdout
    assert json.loads(muster(*BUILD, "--print", "--json", cwd=here).stdout) == {
        "recipe": done.stdout
    }
    assert sorted(path.name for path in here.iterdir()) == ["code"]


ADS = ["--backend", "distributed-job", "--type", "dask", "--image-name", "reg.io/team/my-image:1"]


@pytest.mark.shows("cluster-design/ads-build-command")
@pytest.mark.parametrize("typed", [["image", "build"], ["opctl", "build-image"], ["build-image"]])
def test_adss_command_gets_the_one_that_is_meant(here: Path, typed: list[str]) -> None:
    words = [*typed, *ADS, "--source", "code", "--entrypoint", "train.py"]
    command = [sys.executable, "-m", "muster"]
    done = subprocess.run([*command, *words], check=False, capture_output=True, text=True, cwd=here)
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    meant = (
        "muster image build --framework dask --tag reg.io/team/my-image:1 --source code "
        "--entrypoint train.py"
    )
    assert f"`{meant}`" in said, said
    assert muster(*meant.split()[2:], "--print", cwd=here).stdout.startswith("# A node of a dask")


def test_words_of_ads_in_another_form(here: Path) -> None:
    done = muster("build", "--type=horovod-pytorch", "-s", "my code", "-t", "a:1", code=2, cwd=here)
    assert "--framework horovod --source 'my code' -t a:1`" in " ".join(done.stderr.split())
    done = muster("build", "--frame-work", "dask", code=2, cwd=here)
    assert "what is meant" not in done.stderr


def test_notes_go_to_stderr(here: Path) -> None:
    (here / "code" / ".env").write_text("")
    done = muster(*BUILD, "--print", cwd=here)
    assert done.stderr.startswith("note: .env will be in the image")


def test_all_it_is_built_from_can_be_kept(here: Path) -> None:
    done = muster(*BUILD, "--output", "context", "--no-build", cwd=here, path="")
    assert done.stdout == "context/Containerfile\n"
    text = (here / "context" / "Containerfile").read_text()
    assert text == muster(*BUILD, "--print", cwd=here).stdout
    wheel = next((here / "context").glob("muster_jobs-*.whl")).name
    assert f"COPY {wheel} " in text
    assert (here / "context" / "code" / "train.py").read_text() == "print()"


def test_everything_wrong_comes_together(here: Path) -> None:
    done = muster("build", "--framework", "daks", "--source", "cod", "--tag", "A b", code=2)
    assert [line.split(":")[1] for line in done.stderr.splitlines()] == [
        " --tag",
        " --framework",
        " --source",
    ]


def test_a_name_is_needed_to_build(here: Path) -> None:
    done = muster(*BUILD, code=2, cwd=here)
    assert done.stderr.startswith("error: --tag: is missing (REGISTRY/NAME:TAG, or --print")


def test_not_building_needs_a_place(here: Path) -> None:
    done = muster(*BUILD, "--no-build", code=2, cwd=here)
    assert "--no-build: needs --output" in done.stderr


@pytest.mark.shows("cluster-design/build-images")
def test_without_any_builder(here: Path) -> None:
    done = muster(*BUILD, "--tag", "train:1", code=4, cwd=here, path="")
    assert done.stderr == (
        "error: none of podman, buildah, docker is on PATH; install one, or write the recipe with "
        "--output and build it elsewhere\n"
    )


def test_without_the_builder_that_is_insisted_on(here: Path) -> None:
    args = [*BUILD, "--tag", "train:1", "--builder", "buildah"]
    done = muster(*args, code=2, cwd=here, path="")
    assert "--builder: buildah is not on PATH (nor any other builder)" in done.stderr


def test_a_builder_that_fails_is_heard(here: Path) -> None:
    # given: a builder that ends as docker does without its daemon
    tools = here / "bin"
    tools.mkdir()
    (tools / "docker").write_text(
        "#!/bin/sh\necho Cannot connect to the Docker daemon at unix:///x. >&2\nexit 1\n"
    )
    (tools / "docker").chmod(0o755)
    for quiet in ([], ["--quiet"]):
        # when
        done = muster(*BUILD, "--tag", "train:1", *quiet, code=4, cwd=here, path=str(tools))
        # then: its own words, and ours
        words, ours = done.stderr.splitlines()
        assert words == "Cannot connect to the Docker daemon at unix:///x."
        assert ours.startswith("error: cannot build train:1: docker's daemon does not run")
        assert done.stdout == ""


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("train:1", "TAG: 'train:1' names no registry to push to (build it as REGISTRY/train:1;"),
        ("reg.io/Train:1", "TAG: 'reg.io/Train:1' has capitals in its name"),
    ],
)
def test_what_cannot_be_pushed(tag: str, message: str) -> None:
    assert message in muster("push", tag, code=2).stderr
