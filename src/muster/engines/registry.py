"""Engines by name: the built-in one, those that the user has added (`engines.profiles`), and
plug-ins of other packages.

A package adds an engine with an entry point in the group `muster.engines`:

    [project.entry-points."muster.engines"]
    mine = "my_package.engine:MyEngine"

Layers above ask for engines here, and know only their contract (`engines.base`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from muster.errors import InvalidInput, Problem
from muster.unix_account import as_root

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from pathlib import Path

    from muster.engines.base import Engine
    from muster.engines.findings import Finding
    from muster.engines.profiles import Profile
    from muster.plan.model import RunPlan
    from muster.storage.home import Home

ENTRY_POINTS = "muster.engines"
#: The engine of this machine, which needs nothing installed.
LOCAL = "local"
#: By module name: nothing else imports an engine's package.
BUILT_IN = {LOCAL: "muster.engines.local.engine:LocalEngine"}
#: Kinds of engines that users add, by module name. Each is made of a profile and a home; that
#: raises InvalidInput for a wrong profile.
KINDS = {
    "container": "muster.engines.container.engine:ContainerEngine",
    "hosts": "muster.engines.hosts.engine:HostsEngine",
    "kubernetes": "muster.engines.kubernetes.engine:KubernetesEngine",
    "oci": "muster.engines.oci.engine:OciEngine",
    "slurm": "muster.engines.slurm.engine:SlurmEngine",
}
#: Those that need not be told anything: without a profile, they work with their defaults.
DEFAULT_KINDS = frozenset({"container", "kubernetes", "slurm"})
_OWN_MODULES = {place.partition(":")[0] for place in (*BUILT_IN.values(), *KINDS.values())}


def engine_named(name: str, home: Home) -> Engine:
    """The engine with this name. Raises InvalidInput if there is none (path `engine`), if its
    profile is wrong, or if the package that provides it cannot be loaded."""
    if name in BUILT_IN:
        return _built_in(name)()
    from muster.engines import profiles  # most runs use a built-in engine

    if (profile := profiles.read_profile(home, name)) is not None:
        return engine_of(profile, home)
    if name in DEFAULT_KINDS:
        return engine_of(profiles.default_profile(home, name), home)
    made = _plug_in(name)
    if made is None:
        raise InvalidInput(_unknown(name, home))
    return made()


def local_engine() -> Engine:
    """The engine of this machine."""
    return _built_in(LOCAL)()


def find_engine(name: str, home: Home) -> Engine | None:
    """As `engine_named`; None instead of InvalidInput: for what can be shown without the engine."""
    try:
        return engine_named(name, home)
    except InvalidInput:
        return None


def engine_names(home: Home) -> list[str]:
    """All names of engines, built-in ones first."""
    from muster.engines.profiles import profile_names

    others = {entry.name for entry in entry_points_of_engines()} | {*profile_names(home)}
    others |= DEFAULT_KINDS
    return [*BUILT_IN, *sorted(others - {*BUILT_IN})]


def kind_named(kind: str) -> Callable[[Profile, Home], Engine]:
    """What makes engines of a kind. Raises InvalidInput (path `kind`) if there is none."""
    if kind not in KINDS:
        from muster.spec.wording import short

        hint = f"there is {', '.join(KINDS)}"
        raise InvalidInput(Problem("kind", f"no kind of engine is named {short(kind)}", hint))
    made: Callable[[Profile, Home], Engine] = _imported(KINDS[kind])
    return made


def engine_of(profile: Profile, home: Home) -> Engine:
    """The engine that a profile describes. Raises InvalidInput, with file and line."""
    try:
        return kind_named(profile.kind)(profile, home)
    except InvalidInput as error:
        raise profile.placed(error) from None


def _imported(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def _unknown(name: str, home: Home) -> Problem:
    if name in KINDS:
        hint = f"`muster engines add {name} --help` says how to add it"
        return Problem("engine", f"no engine {name} was added", hint)
    from muster.spec.wording import close_to, short

    names = engine_names(home)
    meant = [f'did you mean "{close}"?' for close in close_to(name, [*names, *KINDS])]
    hint = " ".join([*meant, f"installed: {', '.join(names)}"])
    return Problem("engine", f"no engine named {short(name)} is installed", hint)


@cache
def _built_in(name: str) -> Callable[[], Engine]:
    made: Callable[[], Engine] = _imported(BUILT_IN[name])
    return made


@cache
def _plug_in(name: str) -> Callable[[], Engine] | None:
    """What makes the engine of a package; None if there is none. Raises InvalidInput."""
    found = [entry for entry in entry_points_of_engines() if entry.name == name]
    if not found:
        return None
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


def misconfigured(engine: Engine, environ: Mapping[str, str]) -> str:
    """As `Engine.misconfigured`. An error of a plug-in is a reason."""
    try:
        return engine.misconfigured(environ)
    except Exception as error:  # noqa: BLE001  a plug-in may raise any
        return _error_of(engine, "misconfigured", error)


@as_root()
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
    """The error of a plug-in as a sentence. That of another engine is raised again: it is a defect
    of Muster. Called while it is handled."""
    if type(engine).__module__ in _OWN_MODULES:
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
