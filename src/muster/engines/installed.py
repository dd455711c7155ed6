"""The installed engines, for lists."""

from __future__ import annotations

from msgspec import Struct

from muster.engines.base import Engine
from muster.engines.registry import (
    BUILT_IN,
    distribution_of,
    engine_named,
    engine_names,
    entry_points_of_engines,
    unavailable,
)
from muster.errors import InvalidInput


class InstalledEngine(Struct, frozen=True):
    """An engine that can be named, or why it cannot be used."""

    name: str
    #: `built in`, or the distributions that provide it, with their versions.
    origin: str
    #: None if it cannot be loaded.
    engine: Engine | None
    #: Why it cannot be used here; "" if it can.
    unusable: str


def installed_engines() -> list[InstalledEngine]:
    """All engines, built-in ones first, also those that cannot be used."""
    return [_installed(name) for name in engine_names()]


def _installed(name: str) -> InstalledEngine:
    provided = [distribution_of(entry) for entry in entry_points_of_engines() if entry.name == name]
    origin = "built in" if name in BUILT_IN else ", ".join(provided)
    try:
        engine = engine_named(name)
    except InvalidInput as error:
        return InstalledEngine(name, origin, None, error.problems[0].message)
    if name in BUILT_IN and provided:
        origin += f" (the engines of that name in {', '.join(provided)} are not used)"
    return InstalledEngine(name, origin, engine, unavailable(engine))
