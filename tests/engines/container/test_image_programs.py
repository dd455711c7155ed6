"""What an image says of its own program: with a Podman of the tests' own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support import podman_service
from support.command import muster, output_of
from support.podman_service import PodmanService

#: An image with a program of its own, which prints its arguments, $OWN and where it starts.
IMAGE = "localhost/of-its-own:1"
#: One that has a program and nothing else, and one with a library for all programs.
STATIC, PRELOADING = "localhost/static:1", "localhost/preloading:1"
SCRIPT = 'echo "$0 $@ $OWN $PWD"'


@pytest.fixture
def engine(podman: PodmanService, own_home: Path) -> None:
    podman.add_image(
        IMAGE,
        f'ENTRYPOINT ["sh", "-c", {json.dumps(SCRIPT)}, "entry"]',
        'CMD ["by", "default"]',
        "ENV OWN=set",
        "WORKDIR /usr",
    )
    podman_service.add_engine(own_home, podman)


JOBSET = f"""\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: own}}
spec:
  replicatedJobs:
  - name: w
    template:
      spec:
        completionMode: Indexed
        template:
          spec:
            restartPolicy: Never
            containers:
            - {{name: main, image: "{IMAGE}", workingDir: /only/here,
               args: ["index $(JOB_COMPLETION_INDEX)"]}}
"""


GROUPS = f"""\
image: {IMAGE}
node_groups:
- {{name: own}}
- {{name: command, command: [sh, -c, 'echo $OWN $PWD'], args: [x]}}
- {{name: cmd, env: {{CONTAINER_CMD: 'a b'}}}}
"""


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (GROUPS, ["own/0 | entry by default set /usr", "command/1 | set /usr",
                  "cmd/2 | entry a b set /usr"]),
        (JOBSET, ["w/0 | entry index 0 set /only/here"]),
    ],
)  # fmt: skip
def test_what_the_image_says_is_used_where_the_job_says_nothing(
    tmp_path: Path, job: str, expected: list[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(job)
    done = muster("run", path, "--engine", "container", code=0)
    lines = [re.sub(" +", " ", line) for line in done.stdout.splitlines() if " | " in line]
    assert sorted(lines) == sorted(expected)


@pytest.mark.usefixtures("engine")
def test_the_program_of_an_image_is_explained_and_converted(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"image: {IMAGE}\nargs: [x]\nengine: container\n")
    assert f"  runs the ENTRYPOINT of image {IMAGE} with x\n" in output_of("explain", path)
    text = output_of("convert", path)
    assert "args:\n" in text
    assert "command" not in text


@pytest.mark.usefixtures("engine")
def test_an_image_without_a_program_is_named_before_the_start(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    why = f"image {podman_service.IMAGE} has neither ENTRYPOINT nor CMD: give a command"
    text = f"image: {podman_service.IMAGE}\nengine: container\nfailure: {{max_restarts: 3}}\n"
    path.write_text(text)
    assert f"no  program: {why}" in muster("run", path, "--dry-run", code=2).stdout
    done = muster("run", path, code=1)
    assert why in done.stderr
    assert "another start would fail until this is corrected" in done.stderr
    path.write_text(f"image: {IMAGE}\nengine: container\n")
    shown = muster("run", path, "--dry-run", code=0).stdout
    assert "yes program: group workers runs sh -c " in shown
    assert shown.endswith(" entry by default\n")


def test_an_image_needs_neither_a_python_nor_a_shell_nor_a_c_library(
    podman: PodmanService, own_home: Path, tmp_path: Path
) -> None:
    static = "/sbin/ldconfig"  # of Debian: it needs no library
    podman.add_image(STATIC, f'ENTRYPOINT ["{static}"]', 'CMD ["--version"]', files=[static])
    podman_service.add_engine(own_home, podman, mounts=[], image=STATIC)
    path = tmp_path / "job.yaml"
    path.write_text(f"image: {STATIC}\nnodes: 2\nengine: container\n")
    done = muster("run", path, code=0)
    assert [line for line in done.stdout.splitlines() if "workers/1 | ldconfig " in line]
    done = muster("run", "--engine", "container", "--", "sh", "-c", "true", code=1)
    assert "sh: command not found" in done.stderr


def test_programs_do_not_see_the_python_that_serves_them(
    podman: PodmanService, own_home: Path
) -> None:
    podman.add_image(PRELOADING, "ENV LD_PRELOAD=/absent.so")
    podman_service.add_engine(own_home, podman, image=PRELOADING)
    done = muster("run", "--engine", "container", "--", "sh", "-c", "env 2>/dev/null", code=0)
    env = [line.rpartition("| ")[2] for line in done.stdout.splitlines()]
    assert "LD_PRELOAD=/absent.so" in env
    assert not [line for line in env if line.startswith(("PYTHONHOME", "LD_LIBRARY_PATH"))]
