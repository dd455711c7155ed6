"""Conda environment files: whether they need conda at all, and what they name.

Source of the format: conda's user guide, "Creating an environment file manually".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.images.requirements import Line, Requirement, check_lines, normal, read_requirement
from muster.secrets import hide
from muster.spec.wording import say
from muster.spec.yaml import load

#: What a Python image has, and pip alone can bring up to date.
_PIPS = frozenset({"python", "pip", "setuptools", "wheel"})
_FIELDS = frozenset({"name", "channels", "dependencies", "prefix", "variables", "platforms"})
_SPEC = re.compile(r"((?:[^\s:]+::)?)([A-Za-z0-9_][\w.-]*)\s*(.*)")
_INCLUDES = ("-r", "-c", "--requirement", "--constraint", "-e", "--editable")
#: The oldest that Muster runs on.
OLDEST = (3, 11)
_OLDEST = ".".join(map(str, OLDEST))
#: conda: says that the channels of the configuration are not used besides. micromamba has none.
_NO_DEFAULTS = "nodefaults"
_CHANNEL = "conda-forge"


class Environment(Struct, frozen=True):
    """What environment files ask for, all of them together.

    python: its version as far as the files fix it ("3.12"), "" where they leave it open. named,
    pip_named: whether python, and pip, stand in them at all. conda: names of packages only conda
    installs; with none, pip will do. pip: requirements. text: of one file that says all. notes:
    what was understood otherwise than it is written, a sentence each.
    """

    python: str
    named: bool
    pip_named: bool
    conda: tuple[str, ...]
    pip: tuple[str, ...]
    text: str
    notes: tuple[str, ...] = ()

    @property
    def needs_conda(self) -> bool:
        return bool(self.conda)

    @property
    def requirements(self) -> list[Requirement]:
        """All it names, as far as it can be compared with requirements of pip."""
        found = [read for text in self.pip if (read := read_requirement(text))]
        # a marker, as it were: what conda installs is there, but its versions are not pip's
        return [*found, *(Requirement(normal(name), "", "@conda") for name in self.conda)]


def read_environments(paths: Sequence[Path]) -> Environment:
    """What the files ask for together: each adds to those before it. Raises InvalidInput with
    everything that cannot work in an image."""
    problems: list[Problem] = []
    files = []
    for path in paths:
        try:
            files.append(_read(path))
        except InvalidInput as error:
            problems += error.problems
    fixed = [file for file in files if file.python]
    problems += [
        Problem(
            "dependencies",
            f"asks for Python {file.python}, and {fixed[0].path} for {fixed[0].python}",
            "ask for one of them",
            str(file.path),
        )
        for file in fixed[1:]
        if file.python != fixed[0].python
    ]
    if problems:
        raise InvalidInput(*problems)
    return _together(files)


class _File(Struct):
    """One file, as it is understood. data: what it would have to say. changed: whether it says
    something else."""

    path: Path
    text: str
    data: dict[str, Any]
    items: list[Any]
    python: str = ""
    named: bool = False
    pip_named: bool = False
    conda: list[str] = []
    pip: list[str] = []
    notes: list[str] = []
    changed: bool = False


def _together(files: Sequence[_File]) -> Environment:
    first = files[0]
    conda = tuple(dict.fromkeys(name for file in files for name in file.conda))
    notes = [f"{file.path.name}: {note}" for file in files for note in file.notes]
    pip = [entry for file in files for entry in file.pip]
    data = {key: value for file in reversed(files) for key, value in file.data.items()}
    channels = [name for file in files for name in file.data.get("channels") or ()]
    data["channels"] = list(dict.fromkeys(map(str, channels))) or [_CHANNEL]
    if conda and not channels:
        notes.append(f"no channel is named: packages are taken from {_CHANNEL}")
    if any("variables" in file.data for file in files):
        data["variables"] = {
            k: v for f in files for k, v in (f.data.get("variables") or {}).items()
        }
    items = list(dict.fromkeys(item for file in files for item in file.items))
    data["dependencies"] = [*items, *([{"pip": pip}] if pip else [])]
    whole = len(files) > 1 or first.changed or not channels
    return Environment(
        next((file.python for file in files if file.python), ""),
        any(file.named for file in files),
        any(file.pip_named for file in files),
        conda,
        tuple(pip),
        yaml.safe_dump(data, sort_keys=False) if whole else first.text,
        tuple(notes),
    )


def _read(path: Path) -> _File:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or "") if isinstance(error, OSError) else "is no UTF-8 text"
        raise InvalidInput(Problem("--env", f"{path}: {why}")) from None
    if text.lstrip().startswith("@EXPLICIT") or "\n@EXPLICIT" in text:
        hint = "give the YAML file that was made for it (conda env export)"
        raise InvalidInput(Problem("--env", f"{path} is a list of addresses", hint))
    data, places = load(text, str(path))
    if not isinstance(data, dict) or not isinstance(data.get("dependencies"), list):
        hint = "a conda environment file has dependencies: [python=3.12, ...]"
        raise InvalidInput(Problem("dependencies", "is missing", hint, str(path)))
    file = _File(path, text, data, [])
    problems: list[Problem] = []

    def wrong(where: str, message: str, hint: str = "") -> None:
        problems.append(Problem(where, message, hint, f"{path}:{places.get(where, 1)}"))

    _check_fields(data, wrong)
    _take_dependencies(file, wrong)
    channels = data.get("channels")
    if isinstance(channels, list) and _NO_DEFAULTS in channels:
        data["channels"] = [name for name in channels if name != _NO_DEFAULTS]
        file.changed = True
        file.notes.append(f"{_NO_DEFAULTS} is left out: micromamba has no default channels")
    for entry in file.pip:
        if entry.startswith(_INCLUDES):
            wrong("dependencies", f"pip: {entry!r} needs a file the image does not have",
                  "write the requirements out, or give that file with --requirements")  # fmt: skip
    lines = [Line(number, line) for number, line in enumerate(text.splitlines(), 1)]
    passwords = [problem for problem in check_lines(lines, str(path)) if "password" in str(problem)]
    pips = [Line(0, entry) for entry in file.pip]
    local = [problem for problem in check_lines(pips, str(path)) if "place" in problem.message]
    if problems or passwords or local:
        raise InvalidInput(*problems, *passwords, *local)
    return file


def _take_dependencies(file: _File, wrong: Callable[[str, str, str], None]) -> None:
    unindented: list[str] = []
    open_list = False
    for number, item in enumerate(file.data["dependencies"]):
        where = f"dependencies[{number}]"
        if isinstance(item, dict) and set(item) == {"pip"} and isinstance(item["pip"], list):
            file.pip += [str(entry).strip() for entry in item["pip"]]
        elif item == {"pip": None}:
            open_list = True  # what follows in the same column is meant as its list
        elif open_list and isinstance(item, str) and "::" not in item:
            unindented.append(item.strip())
        elif isinstance(item, str) and (match := _SPEC.fullmatch(item.strip())):
            file.items.append(_package(file, item.strip(), match, where))
        else:
            wrong(where, f"must be a package or pip: [...], not {say(item)}", "")
    if unindented:
        file.pip += unindented
        names = ", ".join(unindented)
        file.notes.append(f"{names} below `- pip:` taken as its list, which is not indented")
    elif open_list:
        wrong("dependencies", "pip: has no list", "write its packages below it, indented")
    file.changed = file.changed or open_list


def _package(file: _File, item: str, match: re.Match[str], where: str) -> str:
    """The package as the environment shall have it."""
    name, version = match[2].lower(), match[3]
    if name == "pip":
        file.pip_named = True
    if name != "python":
        if name not in _PIPS:
            file.conda.append(name)
        return item
    file.named = True
    asked = _python(version)
    if not _too_old(version, asked):
        file.python = asked
        return item
    file.python, file.changed = _OLDEST, True
    said = f"{where} asks for Python {asked or version}, and Muster needs {_OLDEST} or newer"
    file.notes.append(f"{said}: the image has {_OLDEST}")
    return f"{match[1]}{match[2]}={_OLDEST}"


def _too_old(version: str, fixed: str) -> bool:
    """Whether no Python that Muster runs on will do. fixed: see `_python`."""
    if fixed:
        return _number(fixed) < OLDEST
    return any(
        _number(bound) < OLDEST or (operator == "<" and _number(bound) == OLDEST)
        for operator, bound in re.findall(r"(<=?)\s*(\d+(?:\.\d+)?)", version)
    )


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _check_fields(data: dict[str, Any], wrong: Callable[[str, str, str], None]) -> None:
    for field in sorted(data.keys() - _FIELDS):
        hint = f"there are: {', '.join(sorted(_FIELDS))}"
        wrong(field, "is no field of an environment file", hint)
    channels = data.get("channels") or []
    if not isinstance(channels, list) or not all(isinstance(name, str) for name in channels):
        wrong("channels", "must be a list of names", "channels: [conda-forge]")
    variables = data.get("variables") or {}
    if not isinstance(variables, dict):
        wrong("variables", "must be a mapping", "variables: {NAME: value}")
        return
    for name, value in variables.items():
        if hide(str(name), str(value)) != str(value):
            hint = "leave it out, and set it where containers are started"
            what = "is a secret, which everyone who has the image could read"
            wrong(f"variables.{name}", what, hint)


def _python(version: str) -> str:
    """`=3.12`, `==3.12.*`, `3.12.4` -> 3.12; "" where that does not settle it."""
    match = re.fullmatch(r"=?=?\s*([23]\.[0-9]+)(?:\.[0-9*]+)*(?:=\S*)?", version.strip())
    return match[1] if match else ""
