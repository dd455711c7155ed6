"""Read TOML files of settings, and tell where a setting is in one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.node.files import read_regular
from muster.spec.wording import close_to

#: A larger file is none of settings.
_MAX_BYTES = 1 << 20


class TomlFile(Struct, frozen=True):
    """What a file says."""

    file: Path
    text: str
    data: Mapping[str, Any]

    def placed(self, problem: Problem) -> Problem:
        """A problem with file and line. Its path: `table.key`, `key`, or `key[0].part`, which is
        found where `key` is."""
        return problem._replace(source=_place(str(self.file), self.text, problem.path))


def read_toml(file: Path) -> TomlFile | None:
    """None if there is no such file. Raises InvalidInput if it cannot be read."""
    try:
        data = read_regular(file, _MAX_BYTES + 1)
        text = data.decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        hint = "make it a TOML file"
        raise InvalidInput(Problem("", f"cannot be read: {error}", hint, str(file))) from None
    if len(data) > _MAX_BYTES:
        raise InvalidInput(Problem("", "is larger than 1MiB", "shorten it", str(file)))
    return parse_toml(text, file)


def parse_toml(text: str, file: Path) -> TomlFile:
    """The settings in the text of a file. Raises InvalidInput, with the line."""
    import tomllib  # there are few such files

    try:
        return TomlFile(file, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        source = f"{file}:{line[1]}" if line else str(file)
        raise InvalidInput(Problem("", f"not TOML: {error}", "", source)) from None
    except RecursionError:
        text = "not TOML: it is nested too deeply"
        raise InvalidInput(Problem("", text, "", str(file))) from None


def unknown_setting(path: str, key: str, known: Mapping[str, Any] | tuple[str, ...]) -> Problem:
    """The problem with a setting that there is not. path: of the setting; its last part is `key`.
    known: those that there are."""
    close = close_to(key, [*known])
    hint = f'did you mean "{close[0]}"?' if close else f"the settings are {', '.join(known)}"
    return Problem(path, "unknown setting", hint)


def _place(file: str, text: str, path: str) -> str:
    """File and line of a setting. TOML's reader does not tell the line."""
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
