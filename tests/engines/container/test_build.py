"""Images that are built before a run: with a Podman of the tests' own."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from muster.engines.container.build import _logins, read_source
from muster.errors import InvalidInput
from support import podman_service
from support.command import muster
from support.podman_service import PodmanService

STEPS = f"""\
FROM {podman_service.IMAGE}
COPY hello.sh /hello.sh
ENV WHO=built
ENTRYPOINT ["sh", "/hello.sh"]
"""


def folder_with(place: Path, **files: str) -> Path:
    place.mkdir(exist_ok=True)
    for name, text in files.items():
        (place / name.replace("_", ".")).write_text(text)
    return place


def test_docker_gets_the_credentials_of_its_hub_by_the_name_that_it_knows(tmp_path: Path) -> None:
    lines = ("FROM ana/private:1 AS one", "FROM ghcr.io/ana/other:2", "FROM nowhere.org/x")
    (tmp_path / "Containerfile").write_text("\n".join(lines))
    source = read_source(tmp_path, tmp_path / "home", "base", "python3")
    logins = {"ana/private:1": "hub", "ghcr.io/ana/other:2": "ghcr"}

    def login(image: str) -> dict[str, str]:
        text = json.dumps({"username": "ana", "password": logins.get(image)}).encode()
        header = {"X-Registry-Auth": base64.urlsafe_b64encode(text).decode()}
        return header if image in logins else {}

    found = json.loads(base64.urlsafe_b64decode(_logins(source, login)["X-Registry-Config"]))
    passwords = {name: one["password"] for name, one in found.items()}
    hub = dict.fromkeys(("docker.io", "https://index.docker.io/v1/"), "hub")
    assert passwords == {**hub, "ghcr.io": "ghcr"}


def test_a_run_builds_its_image_once(podman: PodmanService, own_home: Path, tmp_path: Path) -> None:
    podman_service.add_engine(own_home, podman, pull="always")
    app = folder_with(tmp_path / "app", Containerfile=STEPS, hello_sh="echo hello $WHO\n")
    name = read_source(app, own_home, "", "").image
    done = muster("run", "--build", app, "--dry-run", code=0)
    assert f"yes image: {name} is not on this machine: it will be built\n" in done.stdout
    done = muster("run", "--build", app, code=0)
    assert "| hello built\n" in done.stdout
    assert done.stderr.startswith(f"building {name} from {app}\nSTEP 1/4: FROM ")
    done = muster("run", "--build", app, "--", "sh", "-c", "echo for $WHO in $PWD", code=0)
    assert f"| for built in {Path.cwd()}\n" in done.stdout
    assert "building" not in done.stderr
    (app / "hello.sh").write_text("echo changed\n")
    (app / "Containerfile").write_text(STEPS.replace("COPY hello", "COPY nope"))
    done = muster("run", "--build", app, code=4)
    assert f"{app}/Containerfile cannot be built: " in done.stderr
    assert "STEP 2/4: COPY nope.sh /hello.sh" in done.stderr
    podman.podman("rmi", "--force", name)


def test_the_name_of_an_image_is_that_of_what_it_is_built_from(tmp_path: Path) -> None:
    app = folder_with(tmp_path / "My App", Dockerfile=STEPS, hello_sh="echo\n")
    first = read_source(app, tmp_path / "home", "base", "python3")
    assert (first.recipe, first.files) == ("Dockerfile", ("Dockerfile", "hello.sh"))
    assert first.image.startswith("localhost/muster/my-app:")
    folder_with(app, _gitignore="*.log\n", train_log="1\n")
    second = read_source(app, tmp_path / "home", "base", "python3")
    assert second.files == (".gitignore", "Dockerfile", "hello.sh")
    folder_with(app, train_log="2\n")
    assert read_source(app, tmp_path / "home", "other", "python3").image == second.image
    (app / "hello.sh").chmod(0o755)
    third = read_source(app, tmp_path / "home", "base", "python3")
    assert len({first.image, second.image, third.image}) == 3


def test_requirements_are_added_to_the_image_of_the_profile(tmp_path: Path) -> None:
    app = folder_with(tmp_path / "app", requirements_txt="numpy\n", train_py="")
    source = read_source(app, tmp_path / "home", "base:1", "/opt/python")
    assert (source.recipe, source.files) == ("Containerfile", ("requirements.txt",))
    assert source.text.startswith("FROM base:1\n")
    assert "RUN /opt/python -m pip install " in source.text
    assert read_source(app, tmp_path / "home", "base:2", "/opt/python").image != source.image


def test_a_folder_without_any_of_these_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no Containerfile, Dockerfile or requirements\.txt"):
        read_source(tmp_path, tmp_path / "home", "base", "python3")
    done = muster("run", "--build", tmp_path, "--engine", "local", code=2)
    assert "engine local builds no images (use --engine container)" in done.stderr
