"""Conda environment files: whether they need conda at all, and which packages they list.

Source of the format: conda's user guide, "Creating an environment file manually".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct
from packaging.requirements import Requirement

from muster.errors import InvalidInput, Problem
from muster.images.requirements import Line, check_lines, read_requirement
from muster.secrets import hide
from muster.spec.wording import say
from muster.spec.yaml import load

#: Packages that a Python image has anyway; pip alone can update them.
_INSTALLED = frozenset({"python", "pip", "setuptools", "wheel"})
_FIELDS = frozenset({"name", "channels", "dependencies", "prefix", "variables", "platforms"})
_SPEC = re.compile(r"((?:[^\s:]+::)?)([A-Za-z0-9_][\w.-]*)\s*(.*)")
_INCLUDES = ("-r", "-c", "--requirement", "--constraint", "-e", "--editable")
#: The oldest Python that Muster runs on.
OLDEST = (3, 11)
_OLDEST = ".".join(map(str, OLDEST))
#: conda: excludes the channels of conda's configuration. micromamba has no such channels.
_NO_DEFAULTS = "nodefaults"
_CHANNEL = "conda-forge"


class CondaEnvironment(Struct, frozen=True):
    """What all given environment files list together."""

    python: str
    """The Python version as far as the files fix it ("3.12"), "" if they leave it open."""
    has_python: bool
    """Whether the files list Python."""
    has_pip: bool
    """Whether the files list pip."""
    conda: tuple[str, ...]
    """Names of packages that only conda can install. Empty: pip can install everything."""
    pip: tuple[str, ...]
    """Lines of the pip sections."""
    text: str
    """One environment file that stands for all of them."""
    notes: tuple[str, ...] = ()
    """Sentences about what was read differently from how it is written."""

    @property
    def needs_conda(self) -> bool:
        return bool(self.conda)

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """The packages of the pip sections, without addresses and options."""
        return tuple(found for text in self.pip if (found := read_requirement(text)))


def read_environments(paths: Sequence[Path]) -> CondaEnvironment:
    """Read and combine the files: each one adds to those before it. Raises InvalidInput with
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
            f"requires Python {file.python}, but {fixed[0].path} requires {fixed[0].python}",
            "use the same version in both",
            str(file.path),
        )
        for file in fixed[1:]
        if file.python != fixed[0].python
    ]
    if problems:
        raise InvalidInput(*problems)
    return _together(files)


class _File(Struct):
    """One environment file."""

    path: Path
    text: str
    data: dict[str, Any]
    """Its content, corrected where micromamba would refuse it."""
    items: list[Any]
    """Its dependencies, corrected in the same way."""
    python: str = ""
    has_python: bool = False
    has_pip: bool = False
    conda: list[str] = []
    pip: list[str] = []
    notes: list[str] = []
    changed: bool = False
    """Whether `data` or `items` differ from `text`."""


def _together(files: Sequence[_File]) -> CondaEnvironment:
    first = files[0]
    conda = tuple(dict.fromkeys(name for file in files for name in file.conda))
    notes = [f"{file.path.name}: {note}" for file in files for note in file.notes]
    pip = [entry for file in files for entry in file.pip]
    data = {key: value for file in reversed(files) for key, value in file.data.items()}
    channels = [name for file in files for name in file.data.get("channels") or ()]
    data["channels"] = list(dict.fromkeys(map(str, channels))) or [_CHANNEL]
    if conda and not channels:
        notes.append(f"no channel is listed: packages come from {_CHANNEL}")
    if any("variables" in file.data for file in files):
        data["variables"] = {
            k: v for f in files for k, v in (f.data.get("variables") or {}).items()
        }
    items = list(dict.fromkeys(item for file in files for item in file.items))
    data["dependencies"] = [*items, *([{"pip": pip}] if pip else [])]
    rewrite = len(files) > 1 or first.changed or not channels
    return CondaEnvironment(
        next((file.python for file in files if file.python), ""),
        any(file.has_python for file in files),
        any(file.has_pip for file in files),
        conda,
        tuple(pip),
        yaml.safe_dump(data, sort_keys=False) if rewrite else first.text,
        tuple(notes),
    )


def _read(path: Path) -> _File:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or "") if isinstance(error, OSError) else "is not UTF-8 text"
        raise InvalidInput(Problem("--env", f"{path}: {why}")) from None
    if text.lstrip().startswith("@EXPLICIT") or "\n@EXPLICIT" in text:
        hint = "use a YAML environment file (conda env export)"
        raise InvalidInput(Problem("--env", f"{path} is a list of package addresses", hint))
    data, places = load(text, str(path))
    if not isinstance(data, dict) or not isinstance(data.get("dependencies"), list):
        hint = "a conda environment file has dependencies: [python=3.12, ...]"
        raise InvalidInput(Problem("dependencies", "is missing", hint, str(path)))
    file = _File(path, text, data, [])
    problems: list[Problem] = []

    def wrong(where: str, message: str, hint: str = "") -> None:
        problems.append(Problem(where, message, hint, f"{path}:{places.get(where, 1)}"))

    _check_fields(data, wrong)
    _read_dependencies(file, wrong)
    channels = data.get("channels")
    if isinstance(channels, list) and _NO_DEFAULTS in channels:
        data["channels"] = [name for name in channels if name != _NO_DEFAULTS]
        file.changed = True
        file.notes.append(f"{_NO_DEFAULTS} is ignored: micromamba has no default channels")
    for entry in file.pip:
        if entry.startswith(_INCLUDES):
            wrong("dependencies", f"pip: {entry!r} needs a file that the image does not have",
                  "list its requirements here, or pass the file with --requirements")  # fmt: skip
    lines = [Line(number, line) for number, line in enumerate(text.splitlines(), 1)]
    passwords = [problem for problem in check_lines(lines, str(path)) if "password" in str(problem)]
    pips = [Line(0, entry) for entry in file.pip]
    local = [problem for problem in check_lines(pips, str(path)) if "path" in problem.message]
    if problems or passwords or local:
        raise InvalidInput(*problems, *passwords, *local)
    return file


def _read_dependencies(file: _File, wrong: Callable[[str, str, str], None]) -> None:
    # YAML reads a list that is not indented below `- pip:` as entries of the outer list
    unindented: list[str] = []
    pip_without_list = False
    for number, item in enumerate(file.data["dependencies"]):
        where = f"dependencies[{number}]"
        if isinstance(item, dict) and set(item) == {"pip"} and isinstance(item["pip"], list):
            file.pip += [str(entry).strip() for entry in item["pip"]]
        elif item == {"pip": None}:
            pip_without_list = True
        elif pip_without_list and isinstance(item, str) and "::" not in item:
            unindented.append(item.strip())
        elif isinstance(item, str) and (match := _SPEC.fullmatch(item.strip())):
            file.items.append(_package(file, item.strip(), match, where))
        else:
            wrong(where, f"must be a package or pip: [...], not {say(item)}", "")
    if unindented:
        file.pip += unindented
        names = ", ".join(unindented)
        file.notes.append(f"{names} below `- pip:` read as its list, although it is not indented")
    elif pip_without_list:
        wrong("dependencies", "pip: has no list", "indent its packages below it")
    file.changed = file.changed or pip_without_list


def _package(file: _File, item: str, match: re.Match[str], where: str) -> str:
    """Record a conda package; returns its entry, with a Python that Muster runs on."""
    name, version = match[2].lower(), match[3]
    if name == "pip":
        file.has_pip = True
    if name != "python":
        if name not in _INSTALLED:
            file.conda.append(name)
        return item
    file.has_python = True
    fixed = _python(version)
    if not _too_old(version, fixed):
        file.python = fixed
        return item
    file.python, file.changed = _OLDEST, True
    required = f"{where} requires Python {fixed or version}, but Muster needs {_OLDEST} or newer"
    file.notes.append(f"{required}: the image has {_OLDEST}")
    return f"{match[1]}{match[2]}={_OLDEST}"


def _too_old(version: str, fixed: str) -> bool:
    """Whether `version` excludes every Python that Muster runs on. fixed: see `_python`."""
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
        hint = f"the fields are: {', '.join(sorted(_FIELDS))}"
        wrong(field, "is not a field of an environment file", hint)
    channels = data.get("channels") or []
    if not isinstance(channels, list) or not all(isinstance(name, str) for name in channels):
        wrong("channels", "must be a list of names", "channels: [conda-forge]")
    variables = data.get("variables") or {}
    if not isinstance(variables, dict):
        wrong("variables", "must be a mapping", "variables: {NAME: value}")
        return
    for name, value in variables.items():
        if hide(str(name), str(value)) != str(value):
            hint = "remove it, and set it where containers are started"
            what = "is a secret, which everyone who has the image could read"
            wrong(f"variables.{name}", what, hint)


def _python(version: str) -> str:
    """`=3.12`, `==3.12.*`, `3.12.4` -> "3.12"; "" if the minor version is left open."""
    match = re.fullmatch(r"=?=?\s*([23]\.[0-9]+)(?:\.[0-9*]+)*(?:=\S*)?", version.strip())
    return match[1] if match else ""
