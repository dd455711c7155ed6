"""`muster prune`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from muster.cli.arguments import Count, json_option
from muster.cli.output import print_json
from muster.cli.terminal import echo, print_error
from muster.describe.words import named, plural
from muster.spec.quantities import format_size

if TYPE_CHECKING:
    from muster.api.answers import Pruned

#: Names that one line shows.
_SHOWN = 5


@click.command()
@click.option(
    "--older-than", metavar="TIME", help="Delete only runs that ended longer ago: 12h, 7d."
)
@click.option("--keep", type=Count(min=0), metavar="N", help="Keep the newest N ended runs.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option()
@click.pass_context
def prune(
    ctx: click.Context,
    older_than: str | None,
    keep: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete old runs and unused files.

    Deletes ended runs (except those that --keep, --older-than or the retention settings keep), code
    that no job uses, environments unused for --older-than (default: 30 days), and files that killed
    processes left. Keeps jobs, volumes, suspended runs and runs in progress.

    Without options, the `[retention]` section of MUSTER_HOME/config.toml decides which ended runs
    are kept. Without that section, runs that ended in the last 7 days are kept; with it, Muster
    also deletes old runs whenever a run ends.

    \b
    muster prune --dry-run
    muster prune --older-than 7d --keep 20
    """
    from msgspec import to_builtins

    from muster.cli.confirm import confirm
    from muster.client.client import Client
    from muster.client.filters import age_of
    from muster.errors import EXIT_PLATFORM

    age = None if older_than is None else age_of("--older-than", older_than)
    client = Client()
    if not yes or dry_run:
        found = client.prune(keep=keep, older_than=age, dry_run=True)
        if as_json and dry_run:
            print_json(to_builtins(found))
            return
        lines = _lines(found)
        for line in lines or ["nothing to delete"]:
            echo(f"would delete {line}" if lines else line, err=not dry_run)
        if dry_run and lines:
            echo(f"would free {format_size(found.freed)}")
        if dry_run or not lines:
            return
        confirm(f"delete this and free {format_size(found.freed)}")
    done = client.prune(keep=keep, older_than=age)
    _print_done(done, as_json=as_json)
    if done.failed:
        ctx.exit(EXIT_PLATFORM)


def _print_done(done: Pruned, *, as_json: bool) -> None:
    from msgspec import to_builtins

    from muster.errors import MusterError

    if as_json:
        print_json(to_builtins(done))
    else:
        for line in _lines(done):
            echo(f"deleted {line}")
        echo(f"{format_size(done.freed)} freed")
    for text in () if as_json else done.kept:
        echo(text, err=True)
    for text in done.failed:
        print_error(MusterError(text))


def _lines(found: Pruned) -> list[str]:
    """What is deleted, one kind a line."""
    lines = []
    if found.runs:
        lines.append(f"{plural(len(found.runs), 'run')}: {named(found.runs, _SHOWN)}")
    if found.code:
        lines.append(f"{plural(found.code, 'version')} of code that no job has")
    if found.environments:
        count, names = len(found.environments), named(found.environments, _SHOWN)
        lines.append(f"{plural(count, 'environment')}: {names}")
    if found.leftovers:
        what = (
            "1 file or folder" if found.leftovers == 1 else f"{found.leftovers} files and folders"
        )
        lines.append(f"{what} that killed processes left")
    return lines
