"""The check before the start that nodes have the packages of the framework."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import muster
from muster.client.check import check
from muster.client.client import Client
from muster.errors import InvalidInput
from muster.frameworks import packages
from muster.frameworks.packages import Packages
from muster.service.prepare import PreparedRun
from support.embedded import embedded

LACKING = Packages({"no-such": ("no_such_module",)}, "jax")
NO_NOTEBOOK = Packages({"no-such": ("no_such_module",)}, "notebook")
Prepare = Callable[..., PreparedRun]


@pytest.fixture(autouse=True)
def lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX needs a module that no Python has."""
    monkeypatch.setitem(packages.PACKAGES, "jax", LACKING)  # type: ignore[arg-type]


@pytest.fixture
def prepare(client: Client) -> Prepare:
    def prepare(command: Sequence[str] | str, **fields: Any) -> PreparedRun:
        job, new = client.job(command=command, framework="jax", **fields)
        return client.prepare_run(job, new_job=new)

    return prepare


def other_python(folder: Path, modules: Sequence[str] = ()) -> Path:
    """A Python of its own folder, which has these modules."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    for name in modules:
        (folder / f"{name}.py").touch()
    return python


def test_nothing_starts_if_the_python_lacks_a_package(client: Client, prepare: Prepare) -> None:
    prepared = prepare(["python", "a.py"], artifact=__file__)
    with pytest.raises(InvalidInput) as refused:
        client.start(prepared)
    (problem,) = refused.value.problems
    assert problem.path == "framework"
    assert problem.message == f"jax needs no-such, which {sys.executable} does not have"
    assert problem.hint.startswith("pip install 'muster-jobs[jax]', or add no-such to ")
    assert client.runs() == []
    assert [*embedded(client).home.artifacts.rglob("*.py")] == []


def test_a_python_of_another_folder_is_asked(prepare: Prepare, tmp_path: Path) -> None:
    python = other_python(tmp_path)
    (problem,) = prepare([str(python), "-c", ""]).missing
    assert problem.message == f"jax needs no-such, which {python} does not have"
    assert problem.hint == f"{python} -m pip install no-such"
    other_python(tmp_path, ["no_such_module"])
    assert prepare([str(python), "-c", ""]).missing == ()
    assert prepare(["python", "-c", ""], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}).missing == ()
    assert prepare(["python", "-c", ""], env={"PYTHONPATH": str(tmp_path)}).missing == ()


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({"command": ["sh", "-c", "python a.py"]}, "sh may have its own"),
        ({"command": "./train $RANK", "working_dir": "/"}, "sh may have its own"),
        ({"command": ["python", "-c", ""], "image": "img"}, "image img may have its own"),
        ({"command": ["/no/such/python", "-c", ""]}, "whether /no/such/python has no-such"),
    ],
)
def test_what_cannot_be_seen_is_noted(prepare: Prepare, fields: dict[str, Any], note: str) -> None:
    prepared = prepare(**fields)
    assert prepared.missing == ()
    assert sum(note in one for one in prepared.notes) == 1


def test_packages_that_are_installed_at_the_start_count(prepare: Prepare) -> None:
    assert prepare(["python", "-c", ""], requirements=["no_such>=1"]).missing == ()
    assert prepare(["python", "-c", ""], requirements=["attrs"]).missing != ()


def test_check_reports_it(client: Client, prepare: Prepare) -> None:
    report = check(client, prepare(["python", "-c", ""]))
    (line,) = (line for line in report.lines if line.what == "framework")
    assert not line.ok
    assert line.texts[0].startswith(f"jax needs no-such, which {sys.executable} does not have: pip")


def test_frameworks_without_packages_are_not_checked(own_home: Path) -> None:
    assert muster.run(command="true", framework="spark", suspend=True).state == "SUSPENDED"


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"env": {"PATH": "/var/empty"}}, False),
        ({"env": {"PATH": "/var/empty"}, "requirements": ["mpich"]}, True),
        ({"env": {"PATH": "/var/empty"}, "image": "img"}, True),
        ({"env": {"PATH": "{own}"}}, True),
    ],
)
def test_the_launcher_of_mpi_is_looked_for(
    client: Client, tmp_path: Path, fields: dict[str, Any], found: bool
) -> None:
    (tmp_path / "mpiexec").touch(mode=0o755)
    fields["env"] = {"PATH": fields["env"]["PATH"].format(own=tmp_path)}
    job, new = client.job(command="/bin/true", framework="mpi", **fields)
    missing = client.prepare_run(job, new_job=new).missing
    expected = "framework: mpi needs MPICH or Open MPI, and there is no mpiexec on PATH"
    assert [str(one).startswith(expected) for one in missing] == [True] * (not found)
    assert all(one.hint == "pip install 'muster-jobs[mpi]'" for one in missing)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, False),
        ({"requirements": ["no-such"]}, True),
        ({"command": ["true"]}, True),
    ],
)
def test_nbclient_is_looked_for_where_a_notebook_is_executed(
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, Any],
    found: bool,
) -> None:
    monkeypatch.setattr("muster.service.framework_check.NOTEBOOK", NO_NOTEBOOK)
    book = tmp_path / "a.ipynb"
    book.write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    job, new = client.job(book, **fields)
    missing = client.prepare_run(job, new_job=new).missing
    text = f"a notebook needs no-such, which {sys.executable} does not have"
    assert [one.message for one in missing] == [text] * (not found)
    assert all(one.hint.startswith("pip install 'muster-jobs[notebook]', or") for one in missing)
