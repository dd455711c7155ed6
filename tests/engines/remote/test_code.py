"""The code of jobs on nodes elsewhere: packed once, and run by the host's Python."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.engines.remote.code import CommandPaths, pack
from muster.errors import InvalidInput
from muster.plan.model import ArtifactPlan
from muster.storage.artifacts import store_artifact
from muster.storage.home import Home
from support.command import json_of, muster, output_of
from support.sessions import make_plan

PATHS = CommandPaths("/py", "/n/work", "/m/muster/node")


def context_of(
    home: Home, path: Path, entrypoint: str | None = None, **group: object
) -> RunContext:
    """A run of the code at a path."""
    ref = store_artifact(home, path, entrypoint)
    plan = make_plan("")
    groups = tuple(replace(one, command=None, **group) for one in plan.groups)
    artifact = ArtifactPlan(
        sha256=ref.sha256,
        file_name=ref.file_name,
        kind=ref.kind,
        size=ref.size,
        entrypoint=entrypoint,
    )
    home.run_dir(plan.run_id).path.mkdir(parents=True)
    plan = replace(plan, groups=groups, artifact=artifact)
    return RunContext(plan, home, dict(os.environ), sys.executable)


@pytest.fixture
def home(own_home: Path) -> Home:
    home = Home(own_home)
    home.prepare()
    return home


def test_copies_of_the_same_code_are_the_same_bytes(home: Home, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "sub").mkdir(parents=True)
    (folder / "main.py").write_text("print()")
    (folder / "sub" / "tool").write_text("#!/bin/sh\n")
    (folder / "sub" / "tool").chmod(0o755)
    (folder / "link").symlink_to("main.py")
    context = context_of(home, folder, "main.py")
    (home.run_dir(context.plan.run_id).arguments).write_bytes(b"x")
    first, second = (pack(context, tmp_path / f"{number}.tar") for number in range(2))
    assert first.sha256 == second.sha256
    assert sorted(path.name for path in tmp_path.glob("*.tar*")) == ["0.tar", "1.tar"]
    with tarfile.open(first.path) as archive:
        found = {one.name: (one.mode, one.linkname) for one in archive if not one.isdir()}
    top = "node/work/mine"
    assert found == {
        f"{top}/main.py": (0o644, ""),
        f"{top}/sub/tool": (0o755, ""),
        f"{top}/link": (0o777, "main.py"),
        "run/arguments.pickle": (0o644, ""),
    }


@pytest.mark.parametrize(
    ("name", "content", "elsewhere", "command"),
    [
        ("a.py", "print()", False, ["/py", "a.py"]),
        ("a.py", "print()", True, ["/py", "/n/work/a.py"]),
        ("a.sh", "#!/bin/sh -e\n", False, ["sh", "-e", "a.sh"]),
        ("tool", "#!/bin/sh\n", False, ["./tool"]),
        ("tool", "#!/bin/sh\n", True, ["/n/work/tool"]),
        (
            "a.ipynb",
            json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}),
            False,
            ["/py", "/m/muster/node/notebook.py", "a.ipynb"],
        ),
    ],
)
def test_commands_have_the_paths_of_the_host(
    home: Home, tmp_path: Path, name: str, content: str, elsewhere: bool, command: list[str]
) -> None:
    (tmp_path / name).write_text(content)
    (tmp_path / name).chmod(0o755)
    more = {"working_dir": "/somewhere"} if elsewhere else {}
    packed = pack(context_of(home, tmp_path / name, **more), tmp_path / "code.tar")
    assert packed.command("workers", PATHS) == command
    assert packed.command("others", PATHS) is None


def test_a_program_of_an_archive_is_made_executable(home: Home, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "mine.zip", "w") as archive:
        archive.writestr("tool", "#!/bin/sh\n")
    packed = pack(context_of(home, tmp_path / "mine.zip", "tool"), tmp_path / "code.tar")
    with tarfile.open(packed.path) as made:
        assert made.getmember("node/work/mine/tool").mode == 0o755


def test_code_that_is_missing(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    context = context_of(home, tmp_path / "a.py")
    assert context.plan.artifact is not None
    home.artifact(context.plan.artifact.sha256).unlink()
    with pytest.raises(InvalidInput, match="is missing"):
        pack(context, tmp_path / "code.tar")
    assert not (tmp_path / "code.tar.tree").exists()


# --- runs


@pytest.fixture
def servers(prepare: Callable[[str], str]) -> None:
    prepare("servers")


@pytest.mark.usefixtures("servers")
def test_a_script_runs_on_each_node(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text(
        "import sys, os\nprint('ran', __file__, sys.argv[1], os.environ['OF_HOST'])\n"
    )
    shown = output_of("run", "--engine", "servers", "--nodes", "2", str(script), "--", "x")
    assert shown.count("ran ") == 2
    assert shown.count("a.py x yes") == 2


@pytest.mark.usefixtures("servers")
def test_a_folder_runs_where_it_is_a_package(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "part.py").write_text("VALUE = 'of the package'\n")
    (package / "main.py").write_text("from mine.part import VALUE\nprint('found', VALUE)\n")
    shown = output_of("run", "--engine", "servers", "--entrypoint", "main.py", str(package))
    assert "found of the package" in shown


@pytest.mark.usefixtures("servers")
@pytest.mark.skipif(find_spec("nbclient") is None, reason="nbclient is not installed")
def test_a_notebook_is_executed(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "execution_count": None}
    cell["source"] = "print('six is', 2 * 3)"
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}
    (tmp_path / "a.ipynb").write_text(json.dumps(book))
    assert "six is 6" in output_of("run", "--engine", "servers", str(tmp_path / "a.ipynb"))


@pytest.mark.usefixtures("servers")
def test_code_that_was_removed_fails_the_run(tmp_path: Path, own_home: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("print()\n")
    muster("run", "--engine", "servers", "--suspend", "-d", str(script))
    home = Home(own_home)
    for stored in home.artifacts.glob("*/*"):
        if stored.is_file():
            stored.unlink()
    muster("runs", "resume", "last")
    muster("wait", "last", code=1)
    assert "is missing" in json_of("runs", "show", "last", "--json")["details"]


@pytest.mark.usefixtures("servers")
def test_conda_environments_are_refused(tmp_path: Path) -> None:
    spec, file = tmp_path / "job.yaml", tmp_path / "environment.yaml"
    file.write_text("dependencies: [python]\n")
    spec.write_text(f"command: 'true'\nconda: {file}\n")
    shown = muster("run", "--engine", "servers", str(spec), code=2).stderr
    assert (
        f"error: {spec}:2: conda: engine servers does not create conda environments on the "
        "machines of its nodes (use requirements, or install them in the Python that runs jobs "
        "there)\n"
    ) in shown
