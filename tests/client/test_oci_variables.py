"""JOB_RUN_ENTRYPOINT and the variables of containers, as runs use them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import muster
from muster.client.client import Client
from muster.errors import InvalidInput
from support.runs import output_of_success


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    for name in ("main", "other"):
        program = f"import os; print('{name}', os.environ['JOB_RUN_ENTRYPOINT'])\n"
        (folder / f"{name}.py").write_text(program)
    return folder


def spec(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text)
    return path


def printed(target: Any, **overrides: Any) -> list[str]:
    return sorted(output_of_success(muster.run(target, **overrides)))


@pytest.mark.shows("jobs/artifact-zip")
@pytest.mark.parametrize("kind", ["folder", "zip", "gztar"])
def test_the_variable_chooses_the_entry_point(client: Client, code: Path, kind: str) -> None:
    artifact = code
    if kind != "folder":
        artifact = Path(shutil.make_archive(str(code), kind, code.parent, "code"))
    path = spec(code.parent, f"artifact: {artifact}\nenv: {{JOB_RUN_ENTRYPOINT: code/main.py}}\n")
    if kind == "folder":
        path.write_text(f"artifact: {artifact}\nenv: {{JOB_RUN_ENTRYPOINT: main.py}}\n")
    (line,) = printed(path)
    assert line.startswith("main ")
    (line,) = printed(path, env={"JOB_RUN_ENTRYPOINT": "other.py"})
    assert line.startswith("other ")
    assert line.endswith("other.py"), "the variable names the program that runs"
    (line,) = printed(artifact, env={"JOB_RUN_ENTRYPOINT": "other.py"})
    assert line.startswith("other ")


def test_each_group_can_have_its_own_entry_point(client: Client, code: Path) -> None:
    path = spec(
        code.parent,
        "artifact: code\nnode_groups:\n"
        "- {name: a, env: {JOB_RUN_ENTRYPOINT: main.py}}\n"
        "- {name: b, env: {JOB_RUN_ENTRYPOINT: other.py}}\n",
    )
    assert printed(path) == ["main main.py", "other other.py"]


def test_the_entry_point_of_a_run_overrides_that_of_the_job_with_a_note(
    client: Client, code: Path
) -> None:
    path = spec(code.parent, "artifact: code\nentrypoint: main.py\n")
    run = muster.run(path, env={"JOB_RUN_ENTRYPOINT": "other.py"}).wait(60)
    note = "group workers: runs other.py (JOB_RUN_ENTRYPOINT), not the job's main.py"
    assert run.notes == [note]


def test_a_missing_entry_point_is_refused_with_its_line(client: Client, code: Path) -> None:
    path = spec(code.parent, "artifact: code\nenv:\n  JOB_RUN_ENTRYPOINT: man.py\n")
    with pytest.raises(InvalidInput) as caught:
        muster.run(path)
    (problem,) = caught.value.problems
    assert problem.source == f"{path}:3"
    assert problem.path == "env.JOB_RUN_ENTRYPOINT"
    assert "man.py is not in" in problem.message
    assert "main.py" in problem.hint
    path.write_text("artifact: code\nenv:\n  JOB_RUN_ENTRYPOINT: main.py\n")
    with pytest.raises(InvalidInput) as caught:
        muster.run(path, env={"JOB_RUN_ENTRYPOINT": "nope.py"})
    assert [p.path for p in caught.value.problems] == ["env.JOB_RUN_ENTRYPOINT"]
    assert client.runs() == []


@pytest.mark.shows(
    "cluster-design/example-custom-image", "distributed-jobs/capability-container-by-environment"
)
def test_a_container_s_variables_are_its_image_and_command(client: Client, tmp_path: Path) -> None:
    path = spec(
        tmp_path,
        "nodes: 2\nenv:\n"
        "  DOCKER_CUSTOM_IMAGE: iad.ocir.io/tenancy/cluster:dev\n"
        '  CONTAINER_ENTRYPOINT: \'["sh", "-c"]\'\n'
        "  CONTAINER_CMD: '\"echo $NODE_RANK $DOCKER_CUSTOM_IMAGE\"'\n",
    )
    run = muster.run(path).wait(60)
    assert sorted(output_of_success(run)) == [
        f"{rank} iad.ocir.io/tenancy/cluster:dev" for rank in (0, 1)
    ]
    assert run.notes == [
        "group workers: image iad.ocir.io/tenancy/cluster:dev is not used by the local engine"
    ]
    settings = {setting.path: setting.value for setting in run.settings()}
    assert settings["node_groups[workers].image"] == "iad.ocir.io/tenancy/cluster:dev"
