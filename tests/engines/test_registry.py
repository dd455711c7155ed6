"""Engines by name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.engines import registry
from muster.engines.installed import installed_engines
from muster.engines.local.engine import LocalEngine
from muster.engines.profiles import Profile, file_of, profile_text, write_profile
from muster.errors import InvalidInput, Problem
from muster.plan.model import RunPlan
from muster.storage.home import Home
from support.command import muster, output_of
from support.plugins import install, install_processes

BASIC = """
from muster.engines.base import Capabilities
from muster.engines.basic import BasicEngine
class Broken(BasicEngine):
    def addresses(self, network, nodes): raise NotImplementedError
    def open(self, context, loop, report): raise NotImplementedError
"""

#: Has no profiles.
HOME = Home(Path("/nonexistent"))


@pytest.fixture(autouse=True)
def _only_the_local_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without those that need no profile."""
    monkeypatch.setattr(registry, "DEFAULT_KINDS", frozenset[str]())
    monkeypatch.setattr("muster.engines.installed.DEFAULT_KINDS", frozenset[str]())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    importlib.invalidate_caches()
    registry._plug_in.cache_clear()
    yield folder
    sys.modules.pop("broken", None)
    registry._plug_in.cache_clear()


def provide(site: Path, package: str, name: str, place: str) -> None:
    install(site, package, "1.0", {registry.ENTRY_POINTS: {name: place}})


def problem_of(name: str) -> Problem:
    with pytest.raises(InvalidInput) as error:
        registry.engine_named(name, HOME)
    (problem,) = error.value.problems
    assert problem.path == "engine"
    return problem


def test_the_local_engine_is_built_in_and_needs_no_entry_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry._plug_in.cache_clear()
    monkeypatch.setattr(
        registry, "entry_points_of_engines", lambda: pytest.fail("looked for plug-ins")
    )
    one, two = registry.local_engine(), registry.local_engine()
    assert isinstance(one, LocalEngine)
    assert one is not two, "an engine has the state of one process"


def test_packages_provide_engines(site: Path) -> None:
    install_processes(site)
    assert registry.engine_names(HOME) == ["local", "processes"]
    assert registry.engine_named("processes", HOME).name == "processes"
    found = {one.name: (one.origin, one.unusable) for one in installed_engines(HOME)}
    assert found == {"local": ("built in", ""), "processes": ("muster-processes 0.1", "")}


def test_an_unknown_name_is_reported_with_the_names_that_exist(site: Path) -> None:
    install_processes(site)
    assert problem_of("proceses")[1:3] == (
        "no engine named 'proceses' is installed",
        'did you mean "processes"? installed: local, processes',
    )
    assert problem_of("pbs").hint == "installed: local, processes"
    assert registry.find_engine("pbs", HOME) is None


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_module", "ModuleNotFoundError(\"No module named 'no_such_module'\")"),
        ("1 / 0", "ZeroDivisionError('division by zero')"),
        ("def Broken(): raise OSError('no daemon')", "OSError('no daemon')"),
        ("import sys; sys.exit(0)", "SystemExit(0)"),
        ("", "AttributeError(\"module 'broken' has no attribute 'Broken'\")"),
    ],
)
def test_a_plug_in_that_cannot_be_loaded_is_named(site: Path, code: str, reason: str) -> None:
    (site / "broken.py").write_text(code)
    provide(site, "muster-broken", "broken", "broken:Broken")
    message = f"'broken' in muster-broken 1.0 cannot be loaded: {reason}"
    assert problem_of("broken")[1:3] == (message, "repair or uninstall it")
    sys.modules.pop("broken", None)
    (one,) = (one for one in installed_engines(HOME) if one.name == "broken")
    assert (one.origin, one.engine, one.unusable) == ("muster-broken 1.0", None, message)


@pytest.mark.parametrize(
    ("code", "faults"),
    [
        (
            "class Broken: pass",
            [
                "it has no `name`; its `capabilities` are no `muster.engines.base.Capabilities`; "
                "it lacks available(), findings(), addresses(), check() and ",
                " more",
            ],
        ),
        (f"{BASIC}    name = 'other'\n", ["its `name` is 'other', not 'broken'"]),
        (
            f"{BASIC}    name = 'broken'\n    capabilities = Capabilities(exec=True)\n"
            "    run_in_node = counters = None\n",
            ["it lacks run_in_node()"],
        ),
    ],
)
def test_what_is_not_an_engine_is_refused(site: Path, code: str, faults: list[str]) -> None:
    (site / "broken.py").write_text(code)
    provide(site, "muster-broken", "broken", "broken:Broken")
    problem = problem_of("broken")
    start, *rest = faults
    assert problem.message.startswith(f"'broken' in muster-broken 1.0 is not an engine: {start}")
    assert all(text in problem.message for text in rest)
    assert problem.hint == "repair or uninstall it"
    if not rest:
        assert problem.message.endswith(start)
    assert [one.name for one in installed_engines(HOME)] == ["local", "broken"]


def test_the_errors_of_a_plug_in_are_sentences(
    site: Path, tmp_path: Path, plan_of: Callable[..., RunPlan]
) -> None:
    (site / "broken.py").write_text(
        f"{BASIC}    name = 'broken'\n"
        "    def available(self): raise OSError('no daemon')\n"
        "    findings = available\n"
        "    def check(self, plan, root, replicas): return self.available()\n"
    )
    provide(site, "muster-broken", "broken", "broken:Broken")
    (_, one) = installed_engines(HOME)
    says = "{} of 'broken' in muster-broken 1.0 raised OSError('no daemon')"
    assert one.unusable == says.format("available()")
    engine = registry.engine_named("broken", HOME)
    (finding,) = registry.found_by(engine)
    assert (finding.works, finding.says) == (False, says.format("findings()"))
    (problem,) = registry.check(engine, plan_of(), tmp_path, {})
    assert problem.message == says.format("check()")
    done = muster("run", "--engine", "broken", "--", "true", code=2)
    assert f"engine: broken cannot be used here: {one.unusable}" in done.stderr


def test_an_error_of_the_built_in_engine_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: LocalEngine) -> str:
        raise OSError("no memory")

    monkeypatch.setattr(LocalEngine, "available", fail)
    with pytest.raises(OSError, match="no memory"):
        installed_engines(HOME)


def test_engines_that_cannot_be_used_are_listed_with_the_reason(site: Path) -> None:
    (site / "broken.py").write_text(
        f"{BASIC}    name = 'broken'\n    def available(self): return 'no daemon runs'\n"
    )
    provide(site, "muster-broken", "broken", "broken:Broken")
    (site / "empty.py").write_text("")
    provide(site, "muster-empty", "empty", "empty:Engine")
    lines = output_of("engines", "list").splitlines()
    listed = [line.split() for line in lines[1 : lines.index("")]]
    assert ["local", "built", "in", "yes"] in listed
    assert ["broken", "muster-broken", "1.0", "no"] in listed
    assert ["empty", "muster-empty", "1.0", "no"] in listed
    assert "broken cannot be used here: no daemon runs" in lines
    text = "AttributeError(\"module 'empty' has no attribute 'Engine'\")"
    assert f"'empty' in muster-empty 1.0 cannot be loaded: {text}" in lines


def test_a_name_may_not_be_taken_twice(site: Path) -> None:
    for package in ("muster-one", "muster-two"):
        provide(site, package, "twice", "no.matter:What")
    problem = problem_of("twice")
    assert "muster-one 1.0" in problem.message
    assert "muster-two 1.0" in problem.message
    assert problem.hint == "uninstall all but one of them"


def test_a_plug_in_does_not_replace_the_built_in_engine(site: Path) -> None:
    provide(site, "muster-mine", "local", "no.matter:What")
    assert isinstance(registry.local_engine(), LocalEngine)
    (one,) = installed_engines(HOME)
    assert one.origin == "built in (the engines of that name in muster-mine 1.0 are not used)"


def test_a_kind_that_need_not_be_told_anything_works_without_a_profile(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    class Engine(LocalEngine):
        def __init__(self, profile: Profile, home: Home) -> None:
            self.name = profile.name
            told.append(profile.settings)

    monkeypatch.setattr(registry, "KINDS", {"plain": "muster.engines.registry:Engine"})
    monkeypatch.setattr(registry, "Engine", Engine, raising=False)
    monkeypatch.setattr(registry, "DEFAULT_KINDS", frozenset({"plain"}))
    monkeypatch.setattr("muster.engines.installed.DEFAULT_KINDS", frozenset({"plain"}))
    home = Home(own_home)
    assert registry.engine_named("plain", home).name == "plain"
    (listed,) = [one for one in installed_engines(home) if one.name == "plain"]
    assert listed.origin == "built in"
    write_profile(file_of(home, "plain"), profile_text("plain", "plain", {"x": 1}))
    assert registry.engine_named("plain", home).name == "plain"
    (listed,) = [one for one in installed_engines(home) if one.name == "plain"]
    assert listed.origin == "its profile"
    assert told == [{}, {}, {"x": 1}, {"x": 1}]
