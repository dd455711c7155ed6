"""What every command has that can make a job: the options that describe it, and a program."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from muster.spec.overrides import Changes

F = TypeVar("F", bound=Callable[..., Any])


class WithProgram(click.Command):
    """Everything after `--` belongs to the program; options may stand on either side of TARGET."""

    allow_extra_args = True  # those that are too many are refused here, with what to write

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["after"] = None
        if "--" in args:
            cut = args.index("--")
            args, ctx.meta["after"] = args[:cut], args[cut + 1 :]
        try:
            super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from muster.cli.mistakes import no_such_option

            raise no_such_option(error) from None
        if ctx.args and not ctx.resilient_parsing:
            from muster.cli.mistakes import too_many_words

            raise too_many_words(ctx)
        return ctx.args


_OPTIONS = (
    click.option(
        "--framework", help="generic (default), pytorch, dask, ray, ... (`muster ports`)."
    ),
    click.option("--name", help="The job's name (default: from TARGET)."),
    click.option("--display-name", metavar="TEXT", help="What people call the job."),
    click.option("--entrypoint", help="File to run inside a folder, archive or repository."),
    click.option(
        "--requirements",
        "-r",
        multiple=True,
        metavar="FILE|PACKAGE",
        help="Install it for the nodes' Python; cached.",
    ),
    click.option("--conda", metavar="FILE", help="A conda environment file for the nodes."),
    click.option("--processes-per-node", type=int, metavar="N", help="Processes on each node."),
)


def describing(function: F) -> F:
    """Adds them to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def described(options: Mapping[str, Any]) -> dict[str, Any]:
    """The job's fields that these options and `--network` and `--option` say; None for those that
    are not given. Raises InvalidInput."""
    from muster.spec.options import options_from_flags

    names = ("name", "display_name", "framework", "entrypoint", "conda", "network")
    return {
        **{name: options[name] for name in names},
        "framework_options": options_from_flags(options["framework_options"]) or None,
        "requirements": list(options["requirements"]) or None,
        "processes_per_node": options["processes_per_node"],
    }


def command_and_changes(
    target: str | None, after: list[str] | None, options: Mapping[str, Any], **more: Any
) -> tuple[list[str] | None, Changes]:
    """The command, if what follows `--` is one, and what `change_options`, `--nodes` and `--tag`
    say. more: what only one of the commands has an option for. Raises InvalidInput."""
    from muster.client.target import takes_command
    from muster.spec.overrides import changes_from_flags

    inside = bool(after) and takes_command(target, options["entrypoint"], options["env"])
    names = ("nodes", "env", "max_runtime", "max_restarts", "mounts", "sets", "tags")
    given = {name: options[name] for name in names}
    args = None if inside or target is None else after
    changes = changes_from_flags(**given, **more, args=args, environ=os.environ)
    return after if inside else None, changes
