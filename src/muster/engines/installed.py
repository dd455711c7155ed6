"""The installed engines, for lists."""

from __future__ import annotations

import os

from msgspec import Struct

from muster.engines.base import Engine
from muster.engines.profiles import profile_names
from muster.engines.registry import (
    BUILT_IN,
    DEFAULT_KINDS,
    distribution_of,
    engine_named,
    engine_names,
    entry_points_of_engines,
    misconfigured,
    unavailable,
)
from muster.errors import InvalidInput
from muster.storage.home import Home

_BUILT_IN = "built in"


class InstalledEngine(Struct, frozen=True):
    """An engine that can be named, or why it cannot be used."""

    name: str
    #: `built in`, `its profile`, or the distributions that provide it, with their versions.
    origin: str
    #: None if it cannot be loaded.
    engine: Engine | None
    #: Why it cannot be used here; "" if it can. If it cannot be loaded, it names the engine, or
    #: the file of its profile.
    unusable: str

    @property
    def is_built_in(self) -> bool:
        """Whether it is there without a profile and without another package."""
        return self.origin == _BUILT_IN


def installed_engines(home: Home) -> list[InstalledEngine]:
    """All engines, built-in ones first, also those that cannot be used."""
    return [_installed(name, home) for name in engine_names(home)]


def _installed(name: str, home: Home) -> InstalledEngine:
    provided = [distribution_of(entry) for entry in entry_points_of_engines() if entry.name == name]
    origin = _origin(name, home) or ", ".join(provided)
    try:
        engine = engine_named(name, home)
    except InvalidInput as error:
        # those of a profile do not name it without file and line
        texts = [str(one) if one.source else one.message for one in error.problems]
        return InstalledEngine(name, origin, None, "; ".join(texts))
    if provided and _origin(name, home):
        origin += f" (the engines of that name in {', '.join(provided)} are not used)"
    unusable = unavailable(engine) or misconfigured(engine, os.environ)
    return InstalledEngine(name, origin, engine, unusable)


def _origin(name: str, home: Home) -> str:
    """What provides it; "" if a package does."""
    if name in profile_names(home) and name not in BUILT_IN:
        return "its profile"
    return _BUILT_IN if name in BUILT_IN or name in DEFAULT_KINDS else ""
