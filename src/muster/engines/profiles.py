"""Profiles of engines: a file `MUSTER_HOME/engines/NAME.toml` for each that the user has added.

    kind = "hosts"
    hosts = ["ana@gpu1", "gpu2:2222"]
    gpus = 8

`kind` says what kind of engine it is; the other keys are those of the kind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.node.files import read_regular, replace_file
from muster.storage.config import place_of
from muster.storage.home import Home

#: A larger file is not a profile.
_MAX_BYTES = 1 << 20
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")


class Profile(Struct, frozen=True):
    """What a file says."""

    name: str
    kind: str
    #: The other keys.
    settings: Mapping[str, Any]
    file: Path
    text: str

    def placed(self, error: InvalidInput) -> InvalidInput:
        """The error with file and line; its problems have keys of the file as paths."""
        return InvalidInput(
            *(
                one._replace(source=place_of(str(self.file), self.text, one.path))
                for one in error.problems
            )
        )


def profile_names(home: Home) -> list[str]:
    """The names of all profiles."""
    return sorted(path.stem for path in home.engines.glob("*.toml") if _NAME.fullmatch(path.stem))


def read_profile(home: Home, name: str) -> Profile | None:
    """None if there is none. Raises InvalidInput if it cannot be read."""
    if not _NAME.fullmatch(name):
        return None
    file = file_of(home, name)
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
    return parse_profile(name, text, file)


def default_profile(home: Home, kind: str) -> Profile:
    """The profile of an engine that was not added: it has the name of its kind, and no settings."""
    return Profile(kind, kind, {}, file_of(home, kind), "")


def parse_profile(name: str, text: str, file: Path) -> Profile:
    """The profile in the text of a file. Raises InvalidInput."""
    import tomllib  # few engines have a profile

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        source = f"{file}:{line[1]}" if line else str(file)
        raise InvalidInput(Problem("", f"not TOML: {error}", "", source)) from None
    except RecursionError:
        text = "not TOML: it is nested too deeply"
        raise InvalidInput(Problem("", text, "", str(file))) from None
    kind = data.pop("kind", None)
    if not isinstance(kind, str):
        hint = 'as in kind = "hosts"'
        source = place_of(str(file), text, "kind")
        raise InvalidInput(Problem("kind", "must be a kind of engine", hint, source))
    return Profile(name, kind, data, file, text)


def profile_text(name: str, kind: str, settings: Mapping[str, Any]) -> str:
    """The text of the file of a profile. settings: strings, numbers, lists and tables. Raises
    InvalidInput for a name that no engine can have."""
    if not _NAME.fullmatch(name):
        hint = "lower-case letters, digits and -, at most 40"
        raise InvalidInput(Problem("--name", f"{name!r} cannot be the name of an engine", hint))
    return "".join(f"{key} = {_to_toml(one)}\n" for key, one in {"kind": kind, **settings}.items())


def write_profile(file: Path, text: str) -> None:
    """Write the file of a profile. Raises OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(file, text.encode(), 0o600)


def file_of(home: Home, name: str) -> Path:
    """The file of a profile."""
    return home.engines / f"{name}.toml"


def _to_toml(value: object) -> str:
    """A value as TOML, in which JSON's strings are valid, but for a character that TOML wants
    escaped."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {_to_toml(one)}' for key, one in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_to_toml, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
