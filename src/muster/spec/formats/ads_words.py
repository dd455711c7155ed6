"""What both kinds of ADS's YAML say alike: variables, code, programs."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from muster.errors import Problem
from muster.spec.formats.ads_model import EnvVar, StorageMount
from muster.spec.formats.documents import is_placeholder
from muster.spec.formats.notes import Notes
from muster.spec.places import Origin

#: Where ADS's images have the code, unless codeDir says otherwise.
_CODE = "/code"


class CodePaths:
    """Paths in the folder that ADS's images have the code in. Here programs start in that folder,
    so its name is left out."""

    def __init__(self, code_dir: str | None, notes: Notes) -> None:
        folder = (code_dir or _CODE).rstrip("/")
        self._folder = re.compile(rf"(?<![\w./~$}}-]){re.escape(folder)}(?:/+|(?![\w.-]))")
        self._notes = notes

    def inside(self, *words: str) -> list[str]:
        """The words, with such paths as they are from the code on."""
        return [self._inside(word) for word in words]

    def inside_values(self, values: Mapping[str, str]) -> dict[str, str]:
        """The same for the values of variables."""
        return {name: self._inside(text) for name, text in values.items()}

    def _inside(self, text: str) -> str:
        if "://" in text:
            return text

        def shortened(match: re.Match[str]) -> str:
            rest = text[match.end() :]
            return "" if rest and not rest[0].isspace() and match[0].endswith("/") else "."

        made = self._folder.sub(shortened, text)
        if made != text:
            self._notes.add("", f"{text} is {made} here: programs start where the code is")
        return made


def environment(*lists: Iterable[EnvVar]) -> dict[str, str]:
    """Variables, later lists before earlier ones. ADS writes lists and mappings as JSON."""
    made: dict[str, str] = {}
    for variable in (one for listed in lists for one in listed):
        value = variable.value
        if isinstance(value, list | dict):
            value = json.dumps(value)
        made[variable.name] = "" if value is None else str(value)
    return made


def variable_origins(path: str, listed: Iterable[EnvVar]) -> dict[str, Origin]:
    """Where variables are set, by their paths in a spec. path: of the list."""
    return {
        f"env.{variable.name}": Origin(f"{path}[{number}].value", variable.name)
        for number, variable in enumerate(listed)
    }


def words_of(text: str, path: str, problems: list[Problem]) -> list[str]:
    """Text as a shell takes it apart; none, and a problem, if a quote is left open."""
    try:
        return shlex.split(text)
    except ValueError as error:
        problems.append(Problem(path, f"cannot be split into words: {text!r}: {error}"))
        return []


def local_code(entry: str, folder: Path, path: str, problems: list[Problem]) -> dict[str, Any]:
    """The artifact and entry point of a program that lies beside the YAML, where ADS would have it
    in an image."""
    file = folder / entry
    if not os.path.isfile(file):
        problems.append(Problem(path, f"there is no {file}", "put the program beside the YAML"))
    return {"artifact": str(folder), "entrypoint": entry}


def python_path(paths: Iterable[str]) -> Mapping[str, str]:
    """Where modules are found besides; relative to the code, which is where programs start."""
    joined = ":".join(paths)
    return {"PYTHONPATH": joined} if joined else {}


def storage_mounts(
    listed: Iterable[StorageMount], problems: list[Problem]
) -> dict[str, dict[str, Any]]:
    """Mounts, by where they stand. ADS: `oci://bucket@namespace/prefix`, `IP:export` and
    `IP@export`; the place is below /mnt unless it begins with a slash."""
    made: dict[str, dict[str, Any]] = {}
    for number, mount in enumerate(listed):
        path = f"spec.infrastructure.spec.storageMount[{number}]"
        source = mount.src
        if is_placeholder(source) or is_placeholder(mount.dest):
            text = f"{source} to {mount.dest} was not filled in"
            problems.append(Problem(path, text, "write what belongs there, or leave it out"))
            continue
        if "://" not in source:
            host, _, export = source.replace("@", ":", 1).partition(":")
            if host.startswith("ocid") or not export:
                text = f"{source} means something in Oracle's cloud only"
                hint = "write IP:/EXPORT, or an oci://bucket@namespace/prefix, or leave it out"
                problems.append(Problem(f"{path}.src", text, hint))
                continue
            source = f"nfs://{host}/{export.lstrip('/')}"
        made[f"{path}.src"] = {"source": source, "path": mount.dest}
    return made


def write_back(uri: str, place: str) -> dict[str, Any]:
    """A mount whose content is copied to a URL."""
    return {"source": uri, "path": place}
