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
from muster.node.files import replace_file
from muster.spec.toml_file import TomlFile, read_toml
from muster.storage.home import Home

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")


class Profile(Struct, frozen=True):
    """What a file says."""

    name: str
    kind: str
    #: The other keys.
    settings: Mapping[str, Any]
    file: TomlFile

    def placed(self, error: InvalidInput) -> InvalidInput:
        """The error with file and line; its problems have keys of the file as paths."""
        return InvalidInput(*map(self.file.placed, error.problems))


def profile_names(home: Home) -> list[str]:
    """The names of all profiles."""
    return sorted(path.stem for path in home.engines.glob("*.toml") if _NAME.fullmatch(path.stem))


def read_profile(home: Home, name: str) -> Profile | None:
    """None if there is none. Raises InvalidInput if it cannot be read."""
    if not _NAME.fullmatch(name):
        return None
    found = read_toml(file_of(home, name))
    return None if found is None else profile_of(name, found)


def default_profile(home: Home, kind: str) -> Profile:
    """The profile of an engine that was not added: it has the name of its kind, and no settings."""
    return Profile(kind, kind, {}, TomlFile(file_of(home, kind), "", {}))


def profile_of(name: str, found: TomlFile) -> Profile:
    """The profile in a file. Raises InvalidInput."""
    settings = dict(found.data)
    kind = settings.pop("kind", None)
    if not isinstance(kind, str):
        problem = Problem("kind", "must be a kind of engine", 'as in kind = "hosts"')
        raise InvalidInput(found.placed(problem))
    return Profile(name, kind, settings, found)


def profile_text(name: str, kind: str, settings: Mapping[str, Any]) -> str:
    """The text of the file of a profile. settings: strings, numbers, lists and tables. Raises
    InvalidInput for a name that no engine can have."""
    if not _NAME.fullmatch(name):
        hint = "lower-case letters, digits and -, at most 40"
        raise InvalidInput(Problem("--name", f"{name!r} cannot be the name of an engine", hint))
    return "".join(f"{key} = {to_toml(one)}\n" for key, one in {"kind": kind, **settings}.items())


def write_profile(file: Path, text: str) -> None:
    """Write the file of a profile. Raises OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(file, text.encode(), 0o600)


def file_of(home: Home, name: str) -> Path:
    """The file of a profile."""
    return home.engines / f"{name}.toml"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else json.dumps(name)


def to_toml(value: object) -> str:
    """A value as TOML, in which JSON's strings are valid, but for a character that TOML wants
    escaped."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(k)} = {to_toml(one)}' for k, one in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(to_toml, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
