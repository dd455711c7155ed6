"""Engines by name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.engines import registry
from muster.engines.installed import installed_engines
from muster.engines.local.engine import LocalEngine
from muster.errors import InvalidInput, Problem
from support.plugins import install, install_processes


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    registry._maker.cache_clear()
    yield folder
    sys.modules.pop("broken", None)
    registry._maker.cache_clear()


def provide(site: Path, package: str, name: str, place: str) -> None:
    install(site, package, "1.0", {registry.ENTRY_POINTS: {name: place}})


def problem_of(name: str) -> Problem:
    with pytest.raises(InvalidInput) as error:
        registry.engine_named(name)
    (problem,) = error.value.problems
    assert problem.path == "engine"
    return problem


def test_the_local_engine_is_built_in_and_needs_no_entry_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry._maker.cache_clear()
    monkeypatch.setattr(
        registry, "entry_points_of_engines", lambda: pytest.fail("looked for plug-ins")
    )
    one, two = registry.engine_named("local"), registry.engine_named("local")
    assert isinstance(one, LocalEngine)
    assert one is not two, "an engine has the state of one process"


def test_packages_provide_engines(site: Path) -> None:
    install_processes(site)
    assert registry.engine_names() == ["local", "processes"]
    assert registry.engine_named("processes").name == "processes"
    found = {one.name: (one.origin, one.unusable) for one in installed_engines()}
    assert found == {"local": ("built in", ""), "processes": ("muster-processes 0.1", "")}


def test_an_unknown_name_is_reported_with_the_names_that_exist(site: Path) -> None:
    install_processes(site)
    assert problem_of("proceses")[1:3] == (
        "no engine named 'proceses' is installed",
        'did you mean "processes"? installed: local, processes',
    )
    assert problem_of("slurm").hint == "installed: local, processes"
    assert registry.find_engine("slurm") is None


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_module", "ModuleNotFoundError(\"No module named 'no_such_module'\")"),
        ("1 / 0", "ZeroDivisionError('division by zero')"),
        ("def Broken(): raise OSError('no daemon')", "OSError('no daemon')"),
        ("", "AttributeError(\"module 'broken' has no attribute 'Broken'\")"),
    ],
)
def test_a_plug_in_that_cannot_be_loaded_is_named(
    site: Path, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    (site / "broken.py").write_text(code)
    provide(site, "muster-broken", "broken", "broken:Broken")
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    message = f"'broken' in muster-broken 1.0 cannot be loaded: {reason}"
    assert problem_of("broken")[1:3] == (message, "repair or uninstall it")
    sys.modules.pop("broken", None)
    (one,) = (one for one in installed_engines() if one.name == "broken")
    assert (one.origin, one.engine, one.unusable) == ("muster-broken 1.0", None, message)


def test_a_name_may_not_be_taken_twice(site: Path) -> None:
    for package in ("muster-one", "muster-two"):
        provide(site, package, "twice", "no.matter:What")
    problem = problem_of("twice")
    assert "muster-one 1.0" in problem.message
    assert "muster-two 1.0" in problem.message
    assert problem.hint == "uninstall all but one of them"


def test_a_plug_in_does_not_replace_the_built_in_engine(site: Path) -> None:
    provide(site, "muster-mine", "local", "no.matter:What")
    assert isinstance(registry.engine_named("local"), LocalEngine)
    (one,) = installed_engines()
    assert one.origin == "built in (the engines of that name in muster-mine 1.0 are not used)"
