"""From what is asked for to a recipe and the files it needs; everything wrong with it at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import yaml
from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.images.environment import OLDEST, Environment, read_environments
from muster.images.packages import Packages, check_framework, packages_of, ports_of
from muster.images.recipe import ENVIRONMENT, REQUIREMENTS, Conda, Recipe
from muster.images.reference import read_base
from muster.images.requirements import Requirement, read_requirements, settle
from muster.images.source import find_code, find_entrypoint, private_files
from muster.images.wheel import Wheel

#: Full names: what a short one means differs from builder to builder.
PYTHON_IMAGE = "docker.io/library/python:{}-slim"
DEFAULT_PYTHON = "3.11"
MICROMAMBA_IMAGE = "docker.io/mambaorg/micromamba:2.0.5"
#: Debian Policy 5.6.1 and 5.6.12
_DEBIAN = re.compile(r"[a-z0-9][a-z0-9+.-]+(=[0-9A-Za-z.+:~-]+)?")

_T = TypeVar("_T")


class Request(Struct, frozen=True, kw_only=True):
    """What the owner wants in the image.

    source: a folder, or one file. environments: each adds to those before it. packages: whether the
    framework's are installed; a base image may have them. debian: packages of the system.
    pip_config, ca_bundle: for pip, during the build alone. micromamba: the image it is taken from,
    where one is needed.
    """

    framework: str
    source: Path | None = None
    entrypoint: str | None = None
    base: str | None = None
    requirements: Path | None = None
    environments: tuple[Path, ...] = ()
    packages: bool = True
    debian: tuple[str, ...] = ()
    pip_config: Path | None = None
    ca_bundle: Path | None = None
    micromamba: str = MICROMAMBA_IMAGE


class Draft(Struct, frozen=True):
    """A recipe, and what has to lie beside it.

    files: by path in the context. source: a folder, or one file. code: paths in that folder, or the
    one that the file is in. secrets: by name. notes: what its owner may not expect.
    """

    recipe: Recipe
    files: dict[str, bytes]
    source: Path | None
    code: tuple[str, ...]
    secrets: dict[str, Path]
    notes: tuple[str, ...]


def collect(problems: list[Problem], ask: Callable[[], _T], otherwise: _T) -> _T:
    """What `ask` returns; if it refuses, `otherwise`, and what is wrong joins `problems`."""
    try:
        return ask()
    except InvalidInput as error:
        problems.extend(error.problems)
        return otherwise


def draft(request: Request, wheel: Wheel, home: Path) -> Draft:
    """home: MUSTER_HOME, which is never code. Raises InvalidInput."""
    problems: list[Problem] = []
    notes: list[str] = []
    attempt = partial(collect, problems)
    no_code: tuple[Path | None, tuple[str, ...]] = (None, ())
    no_texts: dict[str, str] = {}
    nothing_asked: list[Requirement] = []
    no_secrets: dict[str, Path] = {}
    attempt(lambda: check_framework(request.framework), None)
    source, code = attempt(lambda: find_code(request.source, home), no_code)
    entrypoint = attempt(lambda: find_entrypoint(request.source, request.entrypoint, code), None)
    texts, asked = attempt(lambda: _requirements(request), (no_texts, nothing_asked))
    environment = attempt(lambda: _environment(request), None)
    notes += environment.notes if environment is not None else ()
    base = attempt(lambda: _base(request, environment, notes), "")
    attempt(lambda: read_base(request.micromamba, "--micromamba"), None)
    secrets = attempt(lambda: _secrets(request), no_secrets)
    problems += [
        Problem("--apt", f"{name!r} is no name of a Debian package", "write git, or git=1:2.39.5")
        for name in request.debian
        if not _DEBIAN.fullmatch(name)
    ]
    problems += _unprintable(request)
    if problems:
        raise InvalidInput(*problems)

    files = {f"{REQUIREMENTS}/{name}": text.encode() for name, text in texts.items()}
    comments: list[str] = []
    if environment is not None:
        asked = [*asked, *environment.requirements]
        said = _take_up(environment, request, files)
        comments.append(said)
        notes.append(said)
    files[wheel.name] = wheel.content
    framework = _packages(request, notes)
    notes += _advice(request, code)
    recipe = Recipe(
        framework=request.framework,
        base=base,
        wheel=wheel.name,
        debian=(*framework.debian, *request.debian),
        conda=Conda(request.micromamba) if environment and environment.needs_conda else None,
        packages=settle(framework, asked),
        steps=framework.steps,
        requirements=_main_requirements(request, environment),
        code=bool(code),
        entrypoint=entrypoint,
        ports=ports_of(request.framework),
        secrets=tuple(secrets),
        comments=tuple(comments),
    )
    return Draft(recipe, files, source, code, secrets, tuple(notes))


def _unprintable(request: Request) -> list[Problem]:
    """Names that would end a line of the recipe in their middle."""
    named = {
        "--entrypoint": request.entrypoint or (request.source.name if request.source else ""),
        "--requirements": request.requirements.name if request.requirements else "",
        "--env": "".join(path.name for path in request.environments),
    }
    return [
        Problem(flag, f"{name!r} cannot stand in a recipe", "give the file another name")
        for flag, name in named.items()
        if not name.isprintable()
    ]


def _requirements(request: Request) -> tuple[dict[str, str], list[Requirement]]:
    return read_requirements(request.requirements) if request.requirements else ({}, [])


def _environment(request: Request) -> Environment | None:
    return read_environments(request.environments) if request.environments else None


def _base(request: Request, environment: Environment | None, notes: list[str]) -> str:
    pip_only = environment is not None and not environment.needs_conda
    python = environment.python if environment is not None and pip_only else ""
    if request.base is not None:
        if python:
            notes.append(
                f"Python is the one in {request.base}, not the {python} that was asked for"
            )
        read_base(request.base)
        return request.base
    return PYTHON_IMAGE.format(python or DEFAULT_PYTHON)


def _secrets(request: Request) -> dict[str, Path]:
    given = {"pip-config": request.pip_config, "ca-bundle": request.ca_bundle}
    secrets = {name: path.absolute() for name, path in given.items() if path is not None}
    missing = [
        Problem(f"--{name}", f"there is no file {path}")
        for name, path in secrets.items()
        if not path.is_file()
    ]
    if missing:
        raise InvalidInput(*missing)
    return secrets


def _take_up(environment: Environment, request: Request, files: dict[str, bytes]) -> str:
    """Put into the context what the environment comes to, and say what that is."""
    name = " and ".join(path.name for path in request.environments)
    if environment.needs_conda:
        files[ENVIRONMENT] = _with_python(environment).encode()
        return f"micromamba installs {name}, for the sake of {', '.join(environment.conda)}"
    lines = list(environment.pip)
    if lines:
        lines += [f"-r {request.requirements.name}"] if request.requirements else []
        text = "".join(f"{line}\n" for line in lines)
        files[f"{REQUIREMENTS}/{_PIP_PART}"] = text.encode()
    return f"pip installs {name}: nothing in it needs conda"


#: The pip part of an environment file, as requirements.
_PIP_PART = "environment-pip.txt"


def _main_requirements(request: Request, environment: Environment | None) -> str | None:
    if environment is not None and not environment.needs_conda and environment.pip:
        return f"{REQUIREMENTS}/{_PIP_PART}"
    return f"{REQUIREMENTS}/{request.requirements.name}" if request.requirements else None


def _with_python(environment: Environment) -> str:
    """The file with a Python, and a pip for what comes after conda; as it is if it has them."""
    data = yaml.safe_load(environment.text)
    dependencies = data["dependencies"]
    more = [] if environment.named else [f"python>={'.'.join(map(str, OLDEST))}"]
    if not environment.pip_named:
        more.append("pip")
    if not more:
        return environment.text
    data["dependencies"] = [*more, *dependencies]
    return yaml.safe_dump(data, sort_keys=False)


def _packages(request: Request, notes: list[str]) -> Packages:
    found = packages_of(request.framework)
    if not request.packages:
        return Packages()
    if found is None:
        text = f"what {request.framework} needs is not known here: name it in --requirements"
        notes.append(text)
    return found or Packages()


def _advice(request: Request, code: tuple[str, ...]) -> list[str]:
    notes = []
    if private := private_files(code):
        text = f"{', '.join(private[:5])} will be in the image, for everyone who has it to read"
        notes.append(f"{text}; name what is private in .musterignore")
    if "requirements.txt" in code and request.requirements is None and not request.environments:
        assert request.source is not None, "there is code"
        path = request.source / "requirements.txt"
        notes.append(f"{path} is not installed unless you say --requirements {path}")
    return notes
