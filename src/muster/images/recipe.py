"""The text of an image's recipe: equal data gives equal bytes.

Steps that rarely change come first, so that a change of the code only rebuilds the last layer.
The text has no secrets: pip's credentials are mounted while it runs and are not in any layer.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

from msgspec import Struct

# Paths in the image.
CODE = "/code"
KEPT = "/opt/muster"
CONDA = "/opt/env"
# Names in the build context.
RECIPE_FILE = "Containerfile"
#: First words of every recipe; an earlier one is recognised by them.
HEAD = "# A node of a "
REQUIREMENTS = "requirements"
ENVIRONMENT = "environment.yaml"
#: Build secrets for pip: name -> (path where it is mounted, pip's variable).
SECRETS = {
    "pip-config": ("/run/secrets/pip.conf", "PIP_CONFIG_FILE"),
    "ca-bundle": ("/run/secrets/ca.pem", "PIP_CERT"),
}
_PIP = "python3 -m pip install"


class Conda(Struct, frozen=True):
    """An environment that needs conda."""

    image: str
    """Image that micromamba is copied from."""


class Recipe(Struct, frozen=True, kw_only=True):
    """Everything that determines the text."""

    framework: str
    base: str
    """Base image."""
    wheel: str
    """File name of Muster's wheel."""
    debian: tuple[str, ...] = ()
    conda: Conda | None = None
    packages: tuple[str, ...] = ()
    """The framework's packages, for pip."""
    steps: tuple[str, ...] = ()
    """Shell commands after pip; `{pip}` stands for `pip install`."""
    requirements: str | None = None
    """The user's requirements file, as a path in the context."""
    code: bool = False
    """Whether the context has code."""
    entrypoint: str | None = None
    """The program, as a path below the code."""
    ports: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    """Names in SECRETS."""
    comments: tuple[str, ...] = ()
    """Lines for the reader of the recipe."""


def recipe_text(recipe: Recipe) -> str:
    """A Containerfile (or Dockerfile: they are the same), for podman, buildah and docker."""
    return "\n\n".join("\n".join(part) for part in _parts(recipe) if part) + "\n"


def _parts(recipe: Recipe) -> Iterator[list[str]]:
    yield [
        f"{HEAD}{recipe.framework} cluster. Written by `muster image build`.",
        *(f"# {comment}" for comment in recipe.comments),
        f"FROM {recipe.base}",
    ]
    yield [
        "ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \\",
        "    PIP_ROOT_USER_ACTION=ignore PIP_BREAK_SYSTEM_PACKAGES=1",
    ]
    yield _debian(recipe.debian)
    yield _conda(recipe)
    yield _framework(recipe)
    yield _requirements(recipe)
    yield [
        "# Muster, the program that nodes run",
        f"COPY {recipe.wheel} {KEPT}/",
        _run(recipe, f"{_PIP} {KEPT}/{recipe.wheel}"),
    ]
    yield _code(recipe)
    yield _start(recipe)


def _debian(names: tuple[str, ...]) -> list[str]:
    if not names:
        return []
    return [
        "# system packages (Debian, Ubuntu)",
        "RUN apt-get update \\",
        f" && apt-get install --yes --no-install-recommends {shlex.join(names)} \\",
        " && rm -rf /var/lib/apt/lists/*",
    ]


def _conda(recipe: Recipe) -> list[str]:
    if recipe.conda is None:
        return []
    create = f"micromamba create --yes --prefix {CONDA} --file {KEPT}/{ENVIRONMENT}"
    return [
        "# the conda environment; python3 is its Python from here on",
        f"COPY --from={recipe.conda.image} /bin/micromamba /usr/local/bin/micromamba",
        f"COPY {ENVIRONMENT} {KEPT}/",
        "ENV MAMBA_ROOT_PREFIX=/opt/conda",
        _run(recipe, f"{create} && micromamba clean --all --yes"),
        f"ENV PATH={CONDA}/bin:$PATH",
    ]


def _framework(recipe: Recipe) -> list[str]:
    if not recipe.packages and not recipe.steps:
        return []
    lines = [f"# what {recipe.framework} needs"]
    if recipe.packages:
        lines.append(_run(recipe, f"{_PIP} {shlex.join(recipe.packages)}"))
    return [*lines, *(_run(recipe, step.replace("{pip}", _PIP)) for step in recipe.steps)]


def _requirements(recipe: Recipe) -> list[str]:
    if recipe.requirements is None:
        return []
    kept = shlex.quote(f"{KEPT}/{recipe.requirements}")
    return [
        "# what the code needs",
        f"COPY {REQUIREMENTS}/ {KEPT}/{REQUIREMENTS}/",
        _run(recipe, f"{_PIP} --requirement {kept}"),
    ]


def _code(recipe: Recipe) -> list[str]:
    lines = ["# the code comes last, so that changing it rebuilds nothing else", f"WORKDIR {CODE}"]
    return [*lines, f"COPY code/ {CODE}/"] if recipe.code else lines[1:]


def _start(recipe: Recipe) -> list[str]:
    env = {"CLUSTER_TYPE": recipe.framework.upper()}
    if recipe.entrypoint is not None:
        env["ENTRY_POINT"] = f"{CODE}/{recipe.entrypoint}"
    return [
        *([f"EXPOSE {' '.join(recipe.ports)}"] if recipe.ports else []),
        f"ENV {' '.join(f'{name}={_quote(value)}' for name, value in env.items())}",
        "# without a command the container joins its cluster in WORK_DIR",
        "ENTRYPOINT []",
        f"CMD {json.dumps(['muster', 'node'])}",
    ]


def _run(recipe: Recipe, command: str) -> str:
    mounts = [f"--mount=type=secret,id={name},target={SECRETS[name][0]}" for name in recipe.secrets]
    env = [f"{SECRETS[name][1]}={SECRETS[name][0]}" for name in recipe.secrets]
    if not mounts:
        return f"RUN {command}"
    export = [f"export {' '.join(env)}", "&&"]
    return "RUN " + " \\\n    ".join([*mounts, " ".join([*export, command])])


def _quote(value: str) -> str:
    """Quote a value for ENV, so that nothing in it is substituted."""
    if all(char.isalnum() or char in "/._-" for char in value):
        return value
    escaped = "".join(f"\\{char}" if char in '\\"$' else char for char in value)
    return f'"{escaped}"'
