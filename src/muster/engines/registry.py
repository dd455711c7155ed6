"""Engines by name: the built-in one, and plug-ins of other packages.

A package adds an engine with an entry point in the group `muster.engines`:

    [project.entry-points."muster.engines"]
    mine = "my_package.engine:MyEngine"

Layers above ask for engines here, and know only their contract (`engines.base`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from muster.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from pathlib import Path

    from muster.engines.base import Engine
    from muster.engines.findings import Finding
    from muster.plan.model import RunPlan

ENTRY_POINTS = "muster.engines"
#: The engine of this machine, which needs nothing installed.
LOCAL = "local"
#: By module name: nothing else imports an engine's package.
BUILT_IN = {LOCAL: "muster.engines.local.engine:LocalEngine"}


def engine_named(name: str) -> Engine:
    """The engine with this name. Raises InvalidInput (path `engine`) if there is none, or if the
    package that provides it cannot be loaded."""
    return _maker(name)()


def find_engine(name: str) -> Engine | None:
    """As `engine_named`; None instead of InvalidInput: for what can be shown without the engine."""
    try:
        return engine_named(name)
    except InvalidInput:
        return None


def engine_names() -> list[str]:
    """All names of engines, built-in ones first."""
    return [*BUILT_IN, *sorted({entry.name for entry in entry_points_of_engines()} - {*BUILT_IN})]


@cache
def _maker(name: str) -> Callable[[], Engine]:
    """What makes the engine. Raises InvalidInput."""
    if place := BUILT_IN.get(name):
        module, _, attribute = place.partition(":")
        made: Callable[[], Engine] = getattr(import_module(module), attribute)
        return made
    found = [entry for entry in entry_points_of_engines() if entry.name == name]
    if not found:
        from muster.spec.wording import close_to

        names = engine_names()
        meant = [f'did you mean "{close}"?' for close in close_to(name, names)]
        hint = " ".join([*meant, f"installed: {', '.join(names)}"])
        raise InvalidInput(Problem("engine", f"no engine named {name!r} is installed", hint))
    if len(found) > 1:
        both = " and ".join(distribution_of(entry) for entry in found)
        text = f"{name!r} is the name of engines in {both}"
        raise InvalidInput(Problem("engine", text, "uninstall all but one of them"))
    return _load(found[0])


def _load(entry: EntryPoint) -> Callable[[], Engine]:
    what = f"{entry.name!r} in {distribution_of(entry)}"
    try:
        loaded: Callable[[], Engine] = entry.load()
        made = loaded()
    except (Exception, SystemExit) as error:
        text = f"{what} cannot be loaded: {error!r}"
        raise InvalidInput(Problem("engine", text, "repair or uninstall it")) from error
    from muster.engines.plugin_check import faults

    if found := faults(made, entry.name):
        text = f"{what} is not an engine: {'; '.join(found)}"
        raise InvalidInput(Problem("engine", text, "repair or uninstall it"))
    return loaded


def unavailable(engine: Engine) -> str:
    """Why the engine cannot be used on this machine; "" if it can. An error of a plug-in is a
    reason."""
    try:
        return engine.available()
    except Exception as error:  # noqa: BLE001  a plug-in may raise any
        return _error_of(engine, "available", error)


def check(
    engine: Engine, plan: RunPlan, root: Path, replicas: Mapping[str, int]
) -> Sequence[Problem]:
    """As `Engine.check`. An error of a plug-in is a problem."""
    try:
        return engine.check(plan, root, replicas)
    except Exception as error:  # noqa: BLE001  a plug-in may raise any
        return [Problem("engine", _error_of(engine, "check", error), "repair or uninstall it")]


def found_by(engine: Engine) -> list[Finding]:
    """As `Engine.findings`. An error of a plug-in is a finding."""
    from muster.engines.findings import Finding

    try:
        return engine.findings()
    except Exception as error:  # noqa: BLE001  a plug-in may raise any
        return [Finding("findings", False, _error_of(engine, "findings", error))]


def _error_of(engine: Engine, method: str, error: Exception) -> str:
    """The error of a plug-in as a sentence. That of a built-in engine is raised again: it is a
    defect of Muster. Called while it is handled."""
    if engine.name in BUILT_IN:
        raise error
    provided = [e for e in entry_points_of_engines() if e.name == engine.name]
    origin = ", ".join(map(distribution_of, provided))
    return f"{method}() of {engine.name!r} in {origin} raised {error!r}"


def entry_points_of_engines() -> tuple[EntryPoint, ...]:
    """The entry points of all installed packages that provide engines."""
    from importlib.metadata import entry_points  # takes 15 ms: only for names that are not built in

    return tuple(entry_points(group=ENTRY_POINTS))


def distribution_of(entry: EntryPoint) -> str:
    """The name and version of the package that has the entry point."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
