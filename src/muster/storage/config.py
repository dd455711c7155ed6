"""The settings of one MUSTER_HOME: its file `config.toml`.

    [retention]
    keep = 200            # the newest ended runs stay, whatever their age
    older_than = "30d"    # other runs that ended longer ago are deleted when another run ends

Without the file, nothing is ever deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.node.files import read_regular
from muster.spec.quantities import is_bare_number, no_unit, parse_duration
from muster.spec.wording import close_to
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


#: A larger file is not a configuration.
_MAX_BYTES = 1 << 20
_KEYS: Mapping[str, tuple[str, ...]] = {"retention": Retention.__struct_fields__}


def read_config(home: Home) -> Config:
    """The settings; the defaults if there is no file. Raises InvalidInput with every problem."""
    try:
        data = read_regular(home.config, _MAX_BYTES + 1)
        text = data.decode()
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        problem = Problem("", f"cannot be read: {error}", "make it a TOML file", str(home.config))
        raise InvalidInput(problem) from None
    if len(data) > _MAX_BYTES:
        raise InvalidInput(Problem("", "is larger than 1MiB", "shorten it", str(home.config)))
    return parse_config(text, str(home.config))


def parse_config(text: str, file: str) -> Config:
    """The settings in the text of a file. Raises InvalidInput with every problem and its line."""
    import tomllib  # few homes have the file

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        source = f"{file}:{line[1]}" if line else file
        raise InvalidInput(Problem("", f"not TOML: {error}", "", source)) from None
    problems = [
        problem._replace(source=place_of(file, text, problem.path)) for problem in _problems(data)
    ]
    if problems:
        raise InvalidInput(*problems)
    if "retention" not in data:
        return Config()
    given = data["retention"]
    age = given.get("older_than")
    return Config(Retention(given.get("keep"), None if age is None else parse_duration(age)))


def _problems(data: Mapping[str, Any]) -> Iterator[Problem]:
    for name, table in data.items():
        if name not in _KEYS:
            yield _unknown(name, name, _KEYS)
        elif not isinstance(table, dict):
            yield Problem(name, "must be a table", f"write [{name}] on a line of its own")
        else:
            for key in table:
                if key not in _KEYS[name]:
                    yield _unknown(f"{name}.{key}", key, _KEYS[name])
    retention = data.get("retention")
    if isinstance(retention, dict):
        yield from _retention_problems(retention)


def _unknown(path: str, key: str, known: Mapping[str, Any] | tuple[str, ...]) -> Problem:
    close = close_to(key, [*known])
    hint = f'did you mean "{close[0]}"?' if close else f"the settings are {', '.join(known)}"
    return Problem(path, "unknown setting", hint)


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


def place_of(file: str, text: str, path: str) -> str:
    """File and line of a setting. TOML's reader does not tell the line.

    path: as in `table.key`, `key`, or `key[0].part`, which is found where `key` is.
    """
    table, _, key = path.partition("[")[0].partition(".")
    header = re.compile(rf"\s*\[\s*{re.escape(table)}\s*\]")
    assignment = re.compile(rf"\s*[\"']?{re.escape(key or table)}[\"']?\s*=")
    inside = not key
    for number, line in enumerate(text.splitlines(), 1):
        if header.match(line):
            inside = True
            if not key:
                return f"{file}:{number}"
        elif inside and assignment.match(line):
            return f"{file}:{number}"
    return file
