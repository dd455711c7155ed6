"""`muster image`."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.cli.output import print_json
from muster.cli.terminal import echo, echo_notes
from muster.errors import EngineError, InvalidInput, Problem

if TYPE_CHECKING:
    from muster.images.draft import Draft, Request
    from muster.images.reference import Reference

_BUILDER = click.option(
    "--builder",
    type=click.Choice(["podman", "buildah", "docker"]),
    help="Insist on one (default: the first of these that is there).",
)
_QUIET = click.option("--quiet", "-q", is_flag=True, help="Show the builder's output on failure.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_OPTIONS = click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTION]...")
_FILE = click.Path(path_type=Path)


class _Build(click.Command):
    """Knows the options of ADS's command, too, and says what they are here."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from muster.cli.mistakes import ads_build

            meant = ads_build(given)
            if not meant:
                raise
            text = f"{error.message.rstrip('.')}: what is meant is {meant}"
            raise click.UsageError(text, ctx) from None


@click.group()
def image() -> None:
    """Build and push container images of cluster nodes."""


@image.command(cls=_Build)
@click.option("--framework", required=True, help="What the nodes become a cluster of.")
@click.option("--tag", "-t", help="What to call the image: REGISTRY/NAME:TAG.")
@click.option("--source", type=_FILE, help="Folder (or file) with the code; /code in the image.")
@click.option("--entrypoint", metavar="FILE", help="The program, in the source.")
@click.option("--requirements", "-r", type=_FILE, metavar="FILE", help="Of pip, for the code.")
@click.option(
    "--env",
    "environments",
    type=_FILE,
    multiple=True,
    metavar="FILE",
    help="A conda environment (YAML); can be repeated: each adds to those before it.",
)
@click.option(
    "--base",
    metavar="IMAGE",
    help="What it is built on: Python 3.11 or newer with pip (default: python:3.11-slim).",
)
@click.option(
    "--packages/--no-packages",
    default=True,
    help="Install the framework (default), or trust that the base image has it.",
)
@click.option("--apt", multiple=True, metavar="NAME", help="A Debian package; can be repeated.")
@click.option("--pip-config", type=_FILE, help="A pip.conf, for the build alone: never inside.")
@click.option("--ca-bundle", type=_FILE, help="Certificates pip trusts, for the build alone.")
@click.option("--micromamba", metavar="IMAGE", help="Where micromamba is copied from.")
@click.option("--print", "only_print", is_flag=True, help="Print the recipe; build nothing.")
@click.option("--output", "-o", type=_FILE, metavar="FOLDER", help="Keep what it is built from.")
@click.option("--no-build", is_flag=True, help="With --output: build nothing.")
@_BUILDER
@_QUIET
@_JSON
@_OPTIONS
def build(
    framework: str,
    tag: str | None,
    source: Path | None,
    entrypoint: str | None,
    requirements: Path | None,
    environments: tuple[Path, ...],
    base: str | None,
    packages: bool,
    apt: tuple[str, ...],
    pip_config: Path | None,
    ca_bundle: Path | None,
    micromamba: str | None,
    only_print: bool,
    output: Path | None,
    no_build: bool,
    builder: str | None,
    quiet: bool,
    as_json: bool,
    options: tuple[str, ...],
) -> None:
    """Build an image whose containers assemble themselves into a cluster.

    It holds the framework, Muster, the code and what that needs. Started without a command, a
    container joins the others in WORK_DIR (see docs/images.md); any engine may start it with one.
    What stands after -- goes to the builder.

    \b
    muster image build --framework dask --source ./code --entrypoint train.py \\
      --tag registry.example.com/team/train:1
    muster image build --framework dask --source ./code --print
    muster image build ... -- --network=host
    """
    from muster.images.draft import MICROMAMBA_IMAGE, Request

    request = Request(
        framework=framework,
        source=source,
        entrypoint=entrypoint,
        base=base,
        requirements=requirements,
        environments=environments,
        packages=packages,
        debian=apt,
        pip_config=pip_config,
        ca_bundle=ca_bundle,
        micromamba=micromamba or MICROMAMBA_IMAGE,
    )
    building = not (only_print or no_build)
    name, drafted = _prepare(request, tag, building, no_build and output is None)
    echo_notes(drafted.notes)
    if only_print:
        from muster.images.recipe import recipe_text

        text = recipe_text(drafted.recipe)
        return print_json({"recipe": text}) if as_json else echo(text, end="")
    if name is None or not building:
        from muster.images.context import write_context

        assert output is not None, "else it was refused"
        written = str(write_context(output, drafted))
        return print_json({"recipe": written}) if as_json else echo(written)
    return _build(drafted, name, output, builder, quiet, as_json, options)


def _prepare(
    request: Request, tag: str | None, building: bool, nowhere: bool
) -> tuple[Reference | None, Draft]:
    """What is to be built, and its name. Raises InvalidInput with everything that is wrong."""
    from muster.images.draft import collect, draft
    from muster.images.reference import read_tag
    from muster.images.wheel import wheel_of_this
    from muster.storage.home import default_home

    problems: list[Problem] = []
    if nowhere:
        problems.append(Problem("--no-build", "needs --output", "or --print, to see the recipe"))
    if building and tag is None:
        hint = "REGISTRY/NAME:TAG, or --print to see the recipe only"
        problems.append(Problem("--tag", "is missing", hint))
    name = collect(problems, lambda: read_tag(tag) if tag is not None else None, None)
    home, wheel = default_home().root, wheel_of_this()
    drafted = collect(problems, lambda: draft(request, wheel, home), None)
    if problems or drafted is None:
        raise InvalidInput(*problems)
    return name, drafted


def _build(
    drafted: Draft,
    name: Reference,
    output: Path | None,
    wanted: str | None,
    quiet: bool,
    as_json: bool,
    options: tuple[str, ...],
) -> None:
    from muster.images.builder import build as build_image
    from muster.images.builder import find_builder
    from muster.images.context import write_context
    from muster.images.reference import read_base

    builder = find_builder(wanted)
    base = read_base(drafted.recipe.base)
    with _folder(output) as folder:
        recipe = write_context(folder, drafted)
        with _telling(quiet or as_json) as tell:
            image_id = build_image(builder, folder, name, base, drafted.secrets, options, tell)
    if as_json:
        kept = None if output is None else str(recipe)
        print_json({"image": str(name), "id": image_id, "builder": builder.name, "recipe": kept})
    else:
        echo(f"built {name} with {builder.name}")


@image.command()
@click.argument("tag")
@_BUILDER
@_QUIET
@_JSON
@_OPTIONS
def push(
    tag: str, builder: str | None, quiet: bool, as_json: bool, options: tuple[str, ...]
) -> None:
    """Push an image to the registry in its name.

    Prints the name with its digest, which is this image for ever. What stands after -- goes to the
    builder.

    \b
    muster image push registry.example.com/team/train:1
    muster image push 127.0.0.1:5000/train:1 -- --tls-verify=false
    """
    from muster.images.builder import find_builder
    from muster.images.builder import push as push_image
    from muster.images.reference import read_tag

    name = read_tag(tag, "TAG")
    if not name.registry:
        hint = f"build it as REGISTRY/{tag}; docker's own registry is docker.io"
        raise InvalidInput(Problem("TAG", f"{tag!r} names no registry to push to", hint))
    found = find_builder(builder)
    with _telling(quiet or as_json) as tell:
        digest = push_image(found, name, options, tell)
    pinned = f"{name}@{digest}" if digest else str(name)
    if as_json:
        print_json({"image": str(name), "digest": digest or None, "builder": found.name})
    else:
        echo(f"pushed {pinned}")


@contextmanager
def _folder(output: Path | None) -> Iterator[Path]:
    if output is not None:
        yield output
        return
    with tempfile.TemporaryDirectory(prefix="muster-image-") as folder:
        yield Path(folder)


@contextmanager
def _telling(quiet: bool) -> Iterator[Callable[[str], object]]:
    """Where the builder's lines go: to stderr, at once or, if quiet, when it has failed."""
    if not quiet:
        yield lambda line: echo(line, err=True)
        return
    last: deque[str] = deque(maxlen=30)
    try:
        yield last.append
    except EngineError:
        for line in last:
            echo(line, err=True)
        raise
