"""The recipe of an image, as text: the same data gives the same text, to the byte.

What changes seldom comes first, so that a change of code rebuilds its own layer and no other.
Nothing secret stands in it: what pip needs to log in is mounted while it runs, and in no layer.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

from msgspec import Struct

#: Where things are in the image.
CODE = "/code"
KEPT = "/opt/muster"
CONDA = "/opt/env"
#: Names in the context, the folder that the recipe is built from.
RECIPE_FILE = "Containerfile"
#: How a recipe of ours begins.
HEAD = "# A node of a "
REQUIREMENTS = "requirements"
ENVIRONMENT = "environment.yaml"
#: What pip reads and nobody else may: name of the secret, where it is mounted, pip's variable.
SECRETS = {
    "pip-config": ("/run/secrets/pip.conf", "PIP_CONFIG_FILE"),
    "ca-bundle": ("/run/secrets/ca.pem", "PIP_CERT"),
}
_PIP = "python3 -m pip install"


class Conda(Struct, frozen=True):
    """An environment that only conda can make. image: where micromamba is copied from."""

    image: str


class Recipe(Struct, frozen=True, kw_only=True):
    """All that is in the text.

    wheel: the file with Muster. debian, packages, steps: what the framework, and the owner,
    asked for. requirements: the owner's file, as a path in the context. secrets: names in SECRETS.
    entrypoint: the program, below `code`. comments: what a reader should know, a line each.
    """

    framework: str
    base: str
    wheel: str
    debian: tuple[str, ...] = ()
    conda: Conda | None = None
    packages: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    requirements: str | None = None
    code: bool = False
    entrypoint: str | None = None
    ports: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    comments: tuple[str, ...] = ()


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
        "# Muster itself: the program of a node",
        f"COPY {recipe.wheel} {KEPT}/",
        _run(recipe, f"{_PIP} {KEPT}/{recipe.wheel}"),
    ]
    yield _code(recipe)
    yield _start(recipe)


def _debian(names: tuple[str, ...]) -> list[str]:
    if not names:
        return []
    return [
        "# packages of the system (Debian, Ubuntu)",
        "RUN apt-get update \\",
        f" && apt-get install --yes --no-install-recommends {shlex.join(names)} \\",
        " && rm -rf /var/lib/apt/lists/*",
    ]


def _conda(recipe: Recipe) -> list[str]:
    if recipe.conda is None:
        return []
    create = f"micromamba create --yes --prefix {CONDA} --file {KEPT}/{ENVIRONMENT}"
    return [
        "# the environment; from here on python3 is its own",
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
    lines = ["# the code, last: a change of it changes nothing above", f"WORKDIR {CODE}"]
    return [*lines, f"COPY code/ {CODE}/"] if recipe.code else lines[1:]


def _start(recipe: Recipe) -> list[str]:
    env = {"CLUSTER_TYPE": recipe.framework.upper()}
    if recipe.entrypoint is not None:
        env["ENTRY_POINT"] = f"{CODE}/{recipe.entrypoint}"
    return [
        *([f"EXPOSE {' '.join(recipe.ports)}"] if recipe.ports else []),
        f"ENV {' '.join(f'{name}={_quoted(value)}' for name, value in env.items())}",
        "# started without a command, it joins its cluster in WORK_DIR; a command goes before that",
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


def _quoted(value: str) -> str:
    """As a recipe's ENV takes it: nothing in it is replaced."""
    if all(char.isalnum() or char in "/._-" for char in value):
        return value
    escaped = "".join(f"\\{char}" if char in '\\"$' else char for char in value)
    return f'"{escaped}"'
