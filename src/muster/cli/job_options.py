"""Options of the commands that create jobs, and the job fields and overrides they give."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli import completion_values as values
from muster.cli.flags import as_flags

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from muster.spec.overrides import Changes

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class CommandWithProgram(click.Command):
    """A command whose words after `--` belong to the user's program.

    Options may come before or after TARGET.
    """

    allow_extra_args = True  # parse_args refuses them itself, with a hint what to type

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["after"] = None
        if "--" in args:
            cut = args.index("--")
            args, ctx.meta["after"] = args[:cut], args[cut + 1 :]
        words = [*args]  # click consumes args
        try:
            super().parse_args(ctx, args)
            unknown = click.NoSuchOption("-np", ctx=ctx) if "-np" in words else None  # not -n p
        except click.NoSuchOption as error:
            unknown = error
        if unknown is not None and not ctx.resilient_parsing:
            from muster.cli.usage_hints import no_such_option

            raise no_such_option(unknown, words, ctx.meta["after"])
        if ctx.args and not ctx.resilient_parsing:
            from muster.cli.usage_hints import extra_arguments

            raise extra_arguments(ctx, words)
        return ctx.args

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Options; after `--`, files for the program."""
        if ctx.meta.get("after") is not None:
            return values.files(ctx, self.params[0], incomplete)
        return super().shell_complete(ctx, incomplete)


_OPTIONS = (
    click.option(
        "--framework",
        shell_complete=values.frameworks,
        help="generic (default), pytorch, dask, ray, ...; `muster ports` lists them all.",
    ),
    click.option("--name", help="The job's name (default: from TARGET)."),
    click.option(
        "--display-name", metavar="TEXT", help="Display name of the job; need not be unique."
    ),
    click.option(
        "--entrypoint",
        shell_complete=values.files,
        help="File to run inside a folder, archive or repository.",
    ),
    click.option(
        "--requirements",
        "-r",
        multiple=True,
        metavar="FILE|PACKAGE",
        shell_complete=values.files,
        help="Python packages for the nodes; installed once and cached.",
    ),
    click.option(
        "--conda",
        metavar="FILE",
        shell_complete=values.files,
        help="Conda environment file for the nodes.",
    ),
    click.option(
        "--copy",
        is_flag=True,
        help="Without TARGET: run in a copy of the current directory.",
    ),
    click.option(
        "--engine",
        metavar="NAME",
        shell_complete=values.engines,
        help="Where nodes run: local (default), or another one of `muster engines list`.",
    ),
    click.option(
        "--processes-per-node", type=int, metavar="N", help="Processes on each node. Default: 1."
    ),
)


#: Options of arrays: many replicas of a program, each with its own parameters.
_ARRAY_OPTIONS = (
    click.option(
        "--array",
        "-a",
        "arrays",
        multiple=True,
        metavar="NAME=VALUES|FILE",
        shell_complete=values.files,
        help="Run the program for each value: lr=0.1,0.01 or seed=0..99; several: for each "
        "combination. FILE: CSV or JSON lines of parameter sets; -: standard input.",
    ),
    click.option(
        "--sample", type=int, metavar="N", help="Only N sets of the array, drawn at random."
    ),
    click.option(
        "--sample-seed", type=int, metavar="N", help="Seed of the sample. Default: the job's, or 0."
    ),
    click.option(
        "--replicas", type=int, metavar="N", help="Run N replicas, without parameters for each."
    ),
    click.option(
        "--parallelism",
        type=int,
        metavar="N",
        help="Replicas that run at once. Default: as many as fit with --array, otherwise all.",
    ),
    click.option(
        "--max-failed",
        type=int,
        metavar="N",
        help="Stop the other replicas when more than N have failed.",
    ),
    click.option(
        "--retries", type=int, metavar="N", help="Times a failed node is started again. Default: 0."
    ),
    click.option("--only", metavar="N,N-N", help="Only these replicas of the array: 3,17,40-42."),
)


def array_options(function: F) -> F:
    """Add the options in _ARRAY_OPTIONS to a command."""
    for option in reversed(_ARRAY_OPTIONS):
        function = option(function)
    return function


def large_array_option(function: F) -> F:
    """Add --yes to a command."""
    text = "Do not ask before an array of more than 100,000 sets."
    return click.option("--yes", is_flag=True, help=text)(function)


def confirmed(prepare: Callable[[bool], T], *, yes: bool) -> T:
    """What `prepare` returns for its parameter `large_array`: False, or True once the user has
    confirmed it. Raises InvalidInput without a terminal."""
    from muster.errors import LargeArray

    try:
        return prepare(yes)
    except LargeArray as error:
        from muster.cli.confirm import confirm

        question = f"run {error.sets:,} replicas, one for each parameter set"
        confirm(question, declined="nothing was started")
    return prepare(True)


#: Options for fields of a job that a run may also override.
ALSO_OF_JOBS = ("engine", "processes_per_node", "network")


def job_options(function: F) -> F:
    """Add the options in _OPTIONS to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def job_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The job fields given by `job_options`, `--network` and `--option`, and the current directory
    for a command without TARGET; None if not given.

    Raises InvalidInput.
    """
    from muster.client.target import place_of_command
    from muster.spec.override_flags import options_from_flags

    with as_flags("copy"):
        place = place_of_command(options["target"], copy=options["copy"])
    if (image := options.get("image")) is not None:  # its own program, which has its own place
        place = {"image": image}
    names = ("name", "display_name", "framework", "entrypoint", "conda", "engine", "network")
    return {
        **{name: options[name] for name in names},
        "framework_options": options_from_flags(options["framework_options"]) or None,
        "requirements": list(options["requirements"]) or None,
        "processes_per_node": options["processes_per_node"],
        **place,
    }


def command_and_changes(
    target: str | None, after: list[str] | None, options: Mapping[str, Any], **more: Any
) -> tuple[list[str] | None, Changes]:
    """The command, if the words after `--` are one, and the overrides given by options.

    after: the words after `--`, or None. more: overrides for which only the calling command has
    an option. Raises InvalidInput.
    """
    from muster.client.target import takes_command
    from muster.errors import InvalidInput, Problem
    from muster.spec.override_flags import changes_from_flags
    from muster.spec.override_models import FLAGS

    if target == "-" and "-" in options.get("arrays", ()):
        hint = "give a file, such as --array sets.csv"
        raise InvalidInput(Problem("--array -", "standard input is TARGET already", hint))
    is_command = bool(after) and takes_command(target, options["entrypoint"], options["env"])
    lists = ("nodes", "env", "env_files", "mounts", "sets", "tags", "arrays", "after_runs")
    names = {*lists, "sample", "sample_seed", *FLAGS} - {*ALSO_OF_JOBS}
    given = {name: value for name, value in options.items() if name in names}
    args = None if is_command or target is None else after
    changes = changes_from_flags(**given, **more, args=args, environ=os.environ)
    return after if is_command else None, changes
