"""`muster image`."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.command_hints import Group
from muster.cli.output import print_json
from muster.cli.terminal import echo, echo_notes
from muster.errors import EngineError, InvalidInput, Problem

if TYPE_CHECKING:
    from muster.images.prepare import BuildContext, ImageRequest
    from muster.images.reference import Reference

_BUILDER = click.option(
    "--builder",
    type=click.Choice(["podman", "buildah", "docker"]),
    help="Builder to use (default: the first of these that is installed).",
)
_QUIET = click.option(
    "--quiet", "-q", is_flag=True, help="Show the builder's output only on failure."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_OPTIONS = click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTION]...")
_FILE = click.Path(path_type=Path)


class _Build(click.Command):
    """Refuses options of ADS's `build-image` command with the equivalent command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [*args]  # click consumes args
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from muster.cli.usage_hints import image_build_for_ads

            command = image_build_for_ads(words)
            if not command:
                raise
            text = f"{error.message.rstrip('.')}: the equivalent command is `{command}`"
            raise click.UsageError(text, ctx) from None


@click.group(cls=Group)
def image() -> None:
    """Build and push container images of cluster nodes."""


@image.command(cls=_Build)
@click.option("--framework", required=True, help="Framework of the cluster.")
@click.option("--tag", "-t", help="Name of the image, such as REGISTRY/NAME:TAG.")
@click.option("--source", type=_FILE, help="Folder (or file) with the code; copied to /code.")
@click.option("--entrypoint", metavar="FILE", help="The program, relative to the source.")
@click.option(
    "--requirements", "-r", type=_FILE, metavar="FILE", help="Pip requirements of the code."
)
@click.option(
    "--env",
    "environments",
    type=_FILE,
    multiple=True,
    metavar="FILE",
    help="Conda environment file (YAML). Repeatable; the files are merged.",
)
@click.option(
    "--base",
    metavar="IMAGE",
    help="Base image with Python 3.11 or newer and pip (default: python:3.11-slim).",
)
@click.option(
    "--packages/--no-packages",
    default=True,
    help="Install the framework (default), or rely on the base image's.",
)
@click.option(
    "--apt",
    "debian",
    multiple=True,
    metavar="NAME",
    help="Debian package to install. Repeatable.",
)
@click.option("--pip-config", type=_FILE, help="pip.conf for the build; not stored in the image.")
@click.option("--ca-bundle", type=_FILE, help="CA certificates for pip, during the build only.")
@click.option("--micromamba", metavar="IMAGE", help="Image to copy micromamba from.")
@click.option("--print", "only_print", is_flag=True, help="Print the recipe; build nothing.")
@click.option(
    "--output", "-o", type=_FILE, metavar="FOLDER", help="Keep the build context in FOLDER."
)
@click.option("--no-build", is_flag=True, help="With --output: only write the build context.")
@_BUILDER
@_QUIET
@_JSON
@_OPTIONS
def build(
    tag: str | None,
    only_print: bool,
    output: Path | None,
    no_build: bool,
    builder: str | None,
    quiet: bool,
    as_json: bool,
    options: tuple[str, ...],
    **requested: Any,
) -> None:
    """Build an image whose containers form a cluster.

    The image holds the framework, Muster, the code and its requirements. Started without a command,
    a container joins the others in WORK_DIR (see docs/guides/images.md). Words after -- are passed
    to the builder.

    \b
    muster image build --framework dask --source ./code --entrypoint train.py \\
      --tag registry.example.com/team/train:1
    muster image build --framework dask --source ./code --print
    muster image build ... -- --network=host
    """
    from muster.images.prepare import MICROMAMBA_IMAGE, ImageRequest

    # the other options are fields of the request
    requested["micromamba"] = requested["micromamba"] or MICROMAMBA_IMAGE
    request = ImageRequest(**requested)
    building = not (only_print or no_build)
    name, context = _prepare(request, tag, building, no_build and output is None)
    echo_notes(context.notes)
    if only_print:
        from muster.images.recipe import recipe_text

        text = recipe_text(context.recipe)
        return print_json({"recipe": text}) if as_json else echo(text, end="")
    if name is None or not building:
        from muster.images.context import write_context

        assert output is not None, "_prepare refuses this"
        written = str(write_context(output, context))
        return print_json({"recipe": written}) if as_json else echo(written)
    return _build(context, name, output, builder, quiet, as_json, options)


def _prepare(
    request: ImageRequest, tag: str | None, building: bool, nowhere: bool
) -> tuple[Reference | None, BuildContext]:
    """The image's name and contents. Raises InvalidInput with all problems."""
    from muster.images.prepare import collect, prepare
    from muster.images.reference import read_tag
    from muster.images.wheel import build_wheel
    from muster.storage.home import default_home

    problems: list[Problem] = []
    if nowhere:
        problems.append(Problem("--no-build", "needs --output", "or --print, to see the recipe"))
    if building and tag is None:
        hint = "REGISTRY/NAME:TAG, or --print to see the recipe only"
        problems.append(Problem("--tag", "is missing", hint))
    name = collect(problems, lambda: read_tag(tag) if tag is not None else None, None)
    home, wheel = default_home().root, build_wheel()
    context = collect(problems, lambda: prepare(request, wheel, home), None)
    if problems or context is None:
        raise InvalidInput(*problems)
    return name, context


def _build(
    context: BuildContext,
    name: Reference,
    output: Path | None,
    builder_name: str | None,
    quiet: bool,
    as_json: bool,
    options: tuple[str, ...],
) -> None:
    from muster.images.builder import build as build_image
    from muster.images.builder import find_builder
    from muster.images.context import write_context
    from muster.images.reference import read_base

    builder = find_builder(builder_name)
    base = read_base(context.recipe.base)
    with _folder(output) as folder:
        recipe = write_context(folder, context)
        with _builder_output(quiet or as_json) as on_line:
            image_id = build_image(builder, folder, name, base, context.secrets, options, on_line)
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

    Prints the name with its digest, which always refers to this image. Words after -- are passed to
    the builder.

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
    with _builder_output(quiet or as_json) as on_line:
        digest = push_image(found, name, options, on_line)
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
def _builder_output(quiet: bool) -> Iterator[Callable[[str], object]]:
    """A function that prints a line of the builder to stderr: at once or, if quiet, on failure."""
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
