"""The settings of one MUSTER_HOME: its file `config.toml`.

    [retention]
    keep = 200            # the newest ended runs stay, whatever their age
    older_than = "30d"    # other runs that ended longer ago are deleted when another run ends

Without the file, nothing is ever deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.spec.quantities import is_bare_number, no_unit, parse_duration
from muster.spec.toml_file import TomlFile, read_toml, unknown_setting
from muster.storage.home import Home


class Retention(Struct, frozen=True):
    """Which ended runs stay. A run stays if any of the two conditions says so."""

    #: The newest this many stay. None: none of them for being among the newest.
    keep: int | None = None
    #: Those that ended within this many seconds stay. None: none of them for its age.
    older_than: float | None = None


class Config(Struct, frozen=True):
    """What the file says."""

    #: None: every run stays until it is deleted.
    retention: Retention | None = None


_KEYS: Mapping[str, tuple[str, ...]] = {"retention": Retention.__struct_fields__}


def read_config(home: Home) -> Config:
    """The settings; the defaults if there is no file. Raises InvalidInput with every problem."""
    found = read_toml(home.config)
    return Config() if found is None else config_of(found)


def config_of(found: TomlFile) -> Config:
    """The settings in a file. Raises InvalidInput with every problem and its line."""
    data = found.data
    if problems := [found.placed(problem) for problem in _problems(data)]:
        raise InvalidInput(*problems)
    if "retention" not in data:
        return Config()
    given = data["retention"]
    age = given.get("older_than")
    return Config(Retention(given.get("keep"), None if age is None else parse_duration(age)))


def _problems(data: Mapping[str, Any]) -> Iterator[Problem]:
    for name, table in data.items():
        if name not in _KEYS:
            yield unknown_setting(name, name, _KEYS)
        elif not isinstance(table, dict):
            yield Problem(name, "must be a table", f"write [{name}] on a line of its own")
        else:
            for key in table:
                if key not in _KEYS[name]:
                    yield unknown_setting(f"{name}.{key}", key, _KEYS[name])
    retention = data.get("retention")
    if isinstance(retention, dict):
        yield from _retention_problems(retention)


def _retention_problems(given: Mapping[str, Any]) -> Iterator[Problem]:
    keep = given.get("keep", 0)
    if not isinstance(keep, int) or isinstance(keep, bool) or keep < 0:
        hint = "the number of newest ended runs to keep"
        yield Problem("retention.keep", f"must be 0 or more, not {keep!r}", hint)
    age = given.get("older_than", 0)
    try:
        parse_duration(age)
    except ValueError as error:
        yield Problem("retention.older_than", str(error))
    else:
        if is_bare_number(age):
            yield Problem("retention.older_than", *no_unit(age, '"'))
