"""A conda environment file: whether it needs conda at all, and what it names.

Source of the format: conda's user guide, "Creating an environment file manually".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.images.requirements import Line, Requirement, check_lines, normal, read_requirement
from muster.secrets import hide
from muster.spec.wording import say
from muster.spec.yaml import load

#: What a Python image has, and pip alone can bring up to date.
_PIPS = frozenset({"python", "pip", "setuptools", "wheel"})
_FIELDS = frozenset({"name", "channels", "dependencies", "prefix", "variables", "platforms"})
_SPEC = re.compile(r"(?:[^\s:]+::)?([A-Za-z0-9_][\w.-]*)\s*(.*)")
_INCLUDES = ("-r", "-c", "--requirement", "--constraint", "-e", "--editable")
#: The oldest that Muster runs on.
OLDEST = (3, 11)


class Environment(Struct, frozen=True):
    """What an environment file asks for.

    python: its version as far as the file fixes it ("3.12"), "" where it leaves it open. named:
    whether python stands in it at all. conda: names of packages only conda installs; with none,
    pip will do. pip: requirements. text: the file.
    """

    python: str
    named: bool
    conda: tuple[str, ...]
    pip: tuple[str, ...]
    text: str

    @property
    def needs_conda(self) -> bool:
        return bool(self.conda)

    @property
    def requirements(self) -> list[Requirement]:
        """All it names, as far as it can be compared with requirements of pip."""
        found = [read for text in self.pip if (read := read_requirement(text))]
        # a marker, as it were: what conda installs is there, but its versions are not pip's
        return [*found, *(Requirement(normal(name), "", "@conda") for name in self.conda)]


def read_environment(path: Path) -> Environment:
    """Raises InvalidInput with everything that cannot work in an image."""
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
    return _checked(path, text, data, places)


def _checked(path: Path, text: str, data: dict[str, Any], places: dict[str, int]) -> Environment:
    problems: list[Problem] = []

    def wrong(where: str, message: str, hint: str = "") -> None:
        problems.append(Problem(where, message, hint, f"{path}:{places.get(where, 1)}"))

    _check_fields(data, wrong)
    pip: list[str] = []
    conda: list[str] = []
    python, named = "", False
    for number, item in enumerate(data["dependencies"]):
        where = f"dependencies[{number}]"
        if isinstance(item, dict) and set(item) == {"pip"} and isinstance(item["pip"], list):
            pip += [str(entry).strip() for entry in item["pip"]]
        elif isinstance(item, str) and (match := _SPEC.fullmatch(item.strip())):
            name = match[1].lower()
            if name == "python":
                python, named = _python(match[2]), True
                if python and tuple(map(int, python.split("."))) < OLDEST:
                    oldest = ".".join(map(str, OLDEST))
                    wrong(where, f"asks for Python {python}", f"Muster needs {oldest} or newer")
            elif name not in _PIPS:
                conda.append(name)
        else:
            wrong(where, f"must be a package or pip: [...], not {say(item)}")
    for entry in pip:
        if entry.startswith(_INCLUDES):
            wrong("dependencies", f"pip: {entry!r} needs a file the image does not have",
                  "write the requirements out, or give that file with --requirements")  # fmt: skip
    lines = [Line(number, line) for number, line in enumerate(text.splitlines(), 1)]
    passwords = [problem for problem in check_lines(lines, str(path)) if "password" in str(problem)]
    local = [p for p in check_lines([Line(0, e) for e in pip], str(path)) if "place" in p.message]
    if problems or passwords or local:
        raise InvalidInput(*problems, *passwords, *local)
    return Environment(python, named, tuple(conda), tuple(pip), text)


def _check_fields(data: dict[str, Any], wrong: Callable[[str, str, str], None]) -> None:
    for field in sorted(data.keys() - _FIELDS):
        hint = f"there are: {', '.join(sorted(_FIELDS))}"
        wrong(field, "is no field of an environment file", hint)
    variables = data.get("variables")
    for name, value in variables.items() if isinstance(variables, dict) else ():
        if hide(str(name), str(value)) != str(value):
            hint = "leave it out, and set it where containers are started"
            what = "is a secret, which everyone who has the image could read"
            wrong(f"variables.{name}", what, hint)


def _python(version: str) -> str:
    """`=3.12`, `==3.12.*`, `3.12.4` -> 3.12; "" where that does not settle it."""
    match = re.fullmatch(r"=?=?\s*(3\.[0-9]+)(?:\.[0-9*]+)*(?:=\S*)?", version.strip())
    return match[1] if match else ""
