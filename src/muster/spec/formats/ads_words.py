"""What both kinds of ADS's YAML say alike: variables, code, programs."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from muster.errors import Problem
from muster.spec.formats.ads_model import EnvVar
from muster.spec.formats.notes import Notes

#: Where ADS's images have the code.
_CODE = "/code"


def environment(*lists: Iterable[EnvVar]) -> dict[str, str]:
    """Variables, later lists before earlier ones. ADS writes lists and mappings as JSON."""
    made: dict[str, str] = {}
    for variable in (one for listed in lists for one in listed):
        value = variable.value
        if isinstance(value, list | dict):
            value = json.dumps(value)
        made[variable.name] = "" if value is None else str(value)
    return made


def words_of(text: str, path: str, problems: list[Problem]) -> list[str]:
    """Text as a shell takes it apart; none, and a problem, if a quote is left open."""
    try:
        return shlex.split(text)
    except ValueError as error:
        problems.append(Problem(path, f"cannot be split into words: {text!r}: {error}"))
        return []


def local_code(
    entry: str, folder: Path, path: str, notes: Notes, problems: list[Problem]
) -> dict[str, Any]:
    """The artifact and entry point of a program that lies beside the YAML, where ADS would have it
    in an image."""
    inside = entry.removeprefix(_CODE + "/")
    if inside != entry:
        notes.add("", f"{entry} is taken from beside the YAML, as {inside}: no image is used here")
    file = folder / inside
    if not os.path.isfile(file):
        problems.append(Problem(path, f"there is no {file}", "put the program beside the YAML"))
        return {}
    return {"artifact": str(folder), "entrypoint": inside}


def python_path(paths: Iterable[str]) -> Mapping[str, str]:
    """Where modules are found besides; relative to the code, which is where programs start."""
    joined = ":".join(paths)
    return {"PYTHONPATH": joined} if joined else {}


def write_back(uri: str, place: str) -> dict[str, Any]:
    """A mount whose content is copied to a URL."""
    return {"source": uri, "path": place}
