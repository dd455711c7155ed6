"""`muster outputs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from muster.cli import completion_values as values
from muster.cli.arguments import (
    chosen_ranks,
    groups_option,
    json_option,
    ranks_option,
    replicas_option,
    run_argument,
)
from muster.cli.terminal import echo
from muster.describe.words import plural

if TYPE_CHECKING:
    from muster.client.outputs import Outputs
    from muster.client.run import JobRun


@click.command()
@run_argument()
@ranks_option()
@replicas_option()
@groups_option()
@click.option(
    "--to",
    metavar="DIR",
    shell_complete=values.files,
    help="Copy the files to DIR; those of node N go to DIR/rank-N.",
)
@click.option("--force", is_flag=True, help="With --to: overwrite files in DIR.")
@json_option()
@click.pass_context
def outputs(
    ctx: click.Context,
    run_name: str,
    ranks: tuple[int, ...],
    replicas: tuple[int, ...],
    groups: tuple[str, ...],
    to: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """List a run's output files, or copy them.

    Output files are what programs write to $MUSTER_OUTPUTS, a directory of their node, or to
    $MUSTER_RUN_OUTPUTS, a directory that all nodes of the run share. Both exist when a program
    starts. They survive restarts, and are deleted with the run.

    \b
    muster outputs last
    muster outputs train-3 --rank 0 --to results
    muster outputs sweep-1 --replica 17
    """
    from muster.client.client import Client

    if force and to is None:
        raise click.UsageError("--force overwrites what --to DIR copies; add --to DIR")
    run = Client().run(run_name)
    chosen = chosen_ranks(run, ranks, replicas, groups)
    found = run.outputs(ranks=chosen or None, groups=groups or None)
    if not found:
        _report_none(run, selected=bool(chosen or groups))
    if to is not None:
        ctx.exit(0 if _copy(found, to, force=force, as_json=as_json) else 1)
    elif as_json:
        from muster.cli.output import print_json

        print_json([one.to_dict() for one in found])
    elif found:
        _print(found, run)


def _report_none(run: JobRun, *, selected: bool) -> None:
    echo(f"{run.name} has no outputs{' of these nodes' if selected else ''}", err=True)
    if run.spec.get("workload") is not None:
        why = "the cluster runs its JobSet as it is, so that its pods have no $MUSTER_OUTPUTS"
        echo(f"{why}: write files that are to be kept to a volume of the manifest", err=True)
        return
    if not run.done:
        echo("those of nodes on other machines come when the nodes end or restart", err=True)
    echo('to keep a file, write it to the directory "$MUSTER_OUTPUTS" in the program', err=True)


def _print(found: Outputs, run: JobRun) -> None:
    from muster.cli.output import ago, print_cells
    from muster.client.contexts import current_address
    from muster.spec.quantities import format_size

    rows = [{**one._cells(), "WRITTEN": ago(one.modified.timestamp())} for one in found]
    print_cells(("RANK", "SIZE", "WRITTEN", "PATH"), rows)
    amount = f"{plural(len(found), 'file')}, {format_size(found.size)}"
    if current_address() is None:
        echo(f"{amount}, in {found[0].root}", err=True)
    else:
        echo(f"{amount}; `muster outputs {run.name} --to DIR` copies them here", err=True)


def _copy(found: Outputs, to: str, *, force: bool, as_json: bool) -> bool:
    """Copy outputs. Returns whether all were copied."""
    from muster.cli.output import print_json
    from muster.cli.terminal import warn
    from muster.spec.quantities import format_size

    copied = found.copy_to(to, force=force)
    for one in copied.left_out:
        warn(f"not copied: {one.output.path_in_run}: {one.why}".replace("\n", "\\n"))
    if as_json:
        print_json([str(path) for path in copied.copies])
    elif found:
        echo(f"copied {plural(len(copied.copies), 'file')} ({format_size(copied.size)}) to {to}")
    return not copied.left_out
