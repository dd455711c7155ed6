"""Turn a user's request into a recipe and the files it needs. Reports all problems at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import yaml
from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.images.conda_files import OLDEST, CondaEnvironment, read_environments
from muster.images.packages import Packages, check_framework, packages_of, ports_of
from muster.images.recipe import ENVIRONMENT, REQUIREMENTS, Conda, Recipe
from muster.images.reference import read_base
from muster.images.requirements import Requirements, merge_requirements, read_requirements
from muster.images.source import find_code, find_entrypoint, private_files
from muster.images.wheel import Wheel

# Full names, because builders resolve short ones differently.
PYTHON_IMAGE = "docker.io/library/python:{}-slim"
DEFAULT_PYTHON = "3.11"
MICROMAMBA_IMAGE = "docker.io/mambaorg/micromamba:2.0.5"
#: Debian Policy 5.6.1 and 5.6.12
_DEBIAN = re.compile(r"[a-z0-9][a-z0-9+.-]+(=[0-9A-Za-z.+:~-]+)?")
#: File in the build context with the pip section of a conda environment file.
_PIP_PART = "environment-pip.txt"

_T = TypeVar("_T")


class ImageRequest(Struct, frozen=True, kw_only=True):
    """What the user requests for the image."""

    framework: str
    source: Path | None = None
    """Folder with the code, or a single file."""
    entrypoint: str | None = None
    base: str | None = None
    """Base image; None = an official Python image."""
    requirements: Path | None = None
    environments: tuple[Path, ...] = ()
    """Conda environment files; each one adds to those before it."""
    packages: bool = True
    """Whether to install the framework's packages. False if the base image has them."""
    debian: tuple[str, ...] = ()
    """Debian packages to install."""
    pip_config: Path | None = None
    """A pip.conf that is mounted during the build and does not end up in the image."""
    ca_bundle: Path | None = None
    """Certificates for pip, mounted in the same way."""
    micromamba: str = MICROMAMBA_IMAGE
    """Image that micromamba is copied from if conda packages are needed."""


class BuildContext(Struct, frozen=True):
    """A recipe and the files that its build needs."""

    recipe: Recipe
    files: dict[str, bytes]
    """Generated files, by their path in the context."""
    source: Path | None
    """Folder with the code, or a single file."""
    code: tuple[str, ...]
    """Paths of the code files below `source`, or below the folder of the single file."""
    secrets: dict[str, Path]
    """Files to mount during the build, by the name of the secret."""
    notes: tuple[str, ...]
    """Sentences about what the user may not expect."""


def collect(problems: list[Problem], call: Callable[[], _T], default: _T) -> _T:
    """Return what `call` returns. If it raises InvalidInput, add its problems to `problems` and
    return `default`."""
    try:
        return call()
    except InvalidInput as error:
        problems.extend(error.problems)
        return default


class _Inputs(Struct, frozen=True):
    """What the request names, after it was checked."""

    source: Path | None
    #: See `BuildContext.code`.
    code: tuple[str, ...]
    entrypoint: str | None
    requirements: Requirements
    environment: CondaEnvironment | None
    base: str
    #: Notes about the base image.
    base_notes: tuple[str, ...]
    secrets: dict[str, Path]


def prepare(request: ImageRequest, wheel: Wheel, home: Path) -> BuildContext:
    """Check the request and derive the recipe. Writes nothing.

    home: MUSTER_HOME, which is never part of the code. Raises InvalidInput.
    """
    inputs = _read_inputs(request, home)
    environment, texts = inputs.environment, inputs.requirements.texts
    files = {f"{REQUIREMENTS}/{name}": text.encode() for name, text in texts.items()}
    files[wheel.name] = wheel.content
    comments: tuple[str, ...] = ()
    if environment is not None:
        files |= _environment_files(environment, request)
        comments = (_installer_comment(environment, request),)
    framework, framework_notes = _packages(request)
    notes = (
        *(environment.notes if environment is not None else ()),
        *inputs.base_notes,
        *comments,
        *framework_notes,
        *_advice(request, inputs.code),
    )
    recipe = _recipe(request, inputs, framework, wheel.name, comments)
    return BuildContext(recipe, files, inputs.source, inputs.code, inputs.secrets, notes)


def _read_inputs(request: ImageRequest, home: Path) -> _Inputs:
    """Read and check what the request names. Raises InvalidInput with all problems."""
    problems: list[Problem] = []
    attempt = partial(collect, problems)
    attempt(lambda: check_framework(request.framework), None)
    no_code: tuple[Path | None, tuple[str, ...]] = (None, ())
    source, code = attempt(lambda: find_code(request.source, home), no_code)
    entrypoint = attempt(lambda: find_entrypoint(request.source, request.entrypoint, code), None)
    requirements = attempt(lambda: _requirements(request), Requirements({}, ()))
    environment = attempt(lambda: _environment(request), None)
    no_base: tuple[str, tuple[str, ...]] = ("", ())
    base, base_notes = attempt(lambda: _base(request, environment), no_base)
    attempt(lambda: read_base(request.micromamba, "--micromamba"), None)
    no_secrets: dict[str, Path] = {}
    secrets = attempt(lambda: _secrets(request), no_secrets)
    problems += _check_debian(request) + _check_names(request)
    if problems:
        raise InvalidInput(*problems)
    return _Inputs(source, code, entrypoint, requirements, environment, base, base_notes, secrets)


def _recipe(
    request: ImageRequest,
    inputs: _Inputs,
    framework: Packages,
    wheel: str,
    comments: tuple[str, ...],
) -> Recipe:
    environment = inputs.environment
    return Recipe(
        framework=request.framework,
        base=inputs.base,
        wheel=wheel,
        debian=(*framework.debian, *request.debian),
        conda=Conda(request.micromamba) if environment and environment.needs_conda else None,
        packages=merge_requirements(
            framework,
            (*inputs.requirements.packages, *(environment.requirements if environment else ())),
            installed=environment.conda if environment else (),
        ),
        steps=framework.steps,
        requirements=_main_requirements(request, environment),
        code=bool(inputs.code),
        entrypoint=inputs.entrypoint,
        ports=ports_of(request.framework),
        secrets=tuple(inputs.secrets),
        comments=comments,
    )


def _check_debian(request: ImageRequest) -> list[Problem]:
    hint = "write git, or git=1:2.39.5"
    return [
        Problem("--apt", f"{name!r} is not a name of a Debian package", hint)
        for name in request.debian
        if not _DEBIAN.fullmatch(name)
    ]


def _check_names(request: ImageRequest) -> list[Problem]:
    """Refuse names with a line break, which would end a line of the recipe early."""
    named = {
        "--entrypoint": request.entrypoint or (request.source.name if request.source else ""),
        "--requirements": request.requirements.name if request.requirements else "",
        "--env": "".join(path.name for path in request.environments),
    }
    return [
        Problem(flag, f"{name!r} has characters that a recipe cannot hold", "rename the file")
        for flag, name in named.items()
        if not name.isprintable()
    ]


def _requirements(request: ImageRequest) -> Requirements:
    return read_requirements(request.requirements) if request.requirements else Requirements({}, ())


def _environment(request: ImageRequest) -> CondaEnvironment | None:
    return read_environments(request.environments) if request.environments else None


def _base(
    request: ImageRequest, environment: CondaEnvironment | None
) -> tuple[str, tuple[str, ...]]:
    """The base image, and notes about it."""
    pip_only = environment is not None and not environment.needs_conda
    python = environment.python if environment is not None and pip_only else ""
    if request.base is None:
        return PYTHON_IMAGE.format(python or DEFAULT_PYTHON), ()
    read_base(request.base)
    if not python:
        return request.base, ()
    return request.base, (f"Python is the one in {request.base}, not the requested {python}",)


def _secrets(request: ImageRequest) -> dict[str, Path]:
    given = {"pip-config": request.pip_config, "ca-bundle": request.ca_bundle}
    secrets = {name: path.absolute() for name, path in given.items() if path is not None}
    missing = [
        Problem(f"--{name}", f"file {path} not found")
        for name, path in secrets.items()
        if not path.is_file()
    ]
    if missing:
        raise InvalidInput(*missing)
    return secrets


def _environment_files(environment: CondaEnvironment, request: ImageRequest) -> dict[str, bytes]:
    """What the build needs of the environment files: one for micromamba, or one for pip."""
    if environment.needs_conda:
        return {ENVIRONMENT: _with_python(environment).encode()}
    lines = list(environment.pip)
    if not lines:
        return {}
    lines += [f"-r {request.requirements.name}"] if request.requirements else []
    text = "".join(f"{line}\n" for line in lines)
    return {f"{REQUIREMENTS}/{_PIP_PART}": text.encode()}


def _installer_comment(environment: CondaEnvironment, request: ImageRequest) -> str:
    name = " and ".join(path.name for path in request.environments)
    if environment.needs_conda:
        return f"micromamba installs {name}, because of {', '.join(environment.conda)}"
    return f"pip installs {name}: none of its packages needs conda"


def _main_requirements(request: ImageRequest, environment: CondaEnvironment | None) -> str | None:
    if environment is not None and not environment.needs_conda and environment.pip:
        return f"{REQUIREMENTS}/{_PIP_PART}"
    return f"{REQUIREMENTS}/{request.requirements.name}" if request.requirements else None


def _with_python(environment: CondaEnvironment) -> str:
    """The environment file, with Python and pip added if it does not list them. Later steps of the
    recipe need both."""
    data = yaml.safe_load(environment.text)
    dependencies = data["dependencies"]
    missing = [] if environment.has_python else [f"python>={'.'.join(map(str, OLDEST))}"]
    if not environment.has_pip:
        missing.append("pip")
    if not missing:
        return environment.text
    data["dependencies"] = [*missing, *dependencies]
    return yaml.safe_dump(data, sort_keys=False)


def _packages(request: ImageRequest) -> tuple[Packages, tuple[str, ...]]:
    """The framework's packages, and notes about them."""
    if not request.packages:
        return Packages(), ()
    found = packages_of(request.framework)
    if found is not None:
        return found, ()
    note = f"Muster does not know what {request.framework} needs: list it in --requirements"
    return Packages(), (note,)


def _advice(request: ImageRequest, code: tuple[str, ...]) -> list[str]:
    notes = []
    if private := private_files(code):
        text = f"{', '.join(private[:5])} will be readable by everyone who has the image"
        notes.append(f"{text}; list private files in .musterignore")
    if "requirements.txt" in code and request.requirements is None and not request.environments:
        assert request.source is not None, "there is code"
        path = request.source / "requirements.txt"
        notes.append(f"{path} is only installed with --requirements {path}")
    return notes
