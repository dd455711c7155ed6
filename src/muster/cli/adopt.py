"""`muster adopt`."""

from __future__ import annotations

import shlex

import click

from muster.cli import completion_values as values
from muster.cli.arguments import json_option
from muster.cli.run import client_with_launcher
from muster.cli.terminal import echo


@click.command(context_settings={"allow_extra_args": True})
@click.argument("workload", metavar="jobset/NAME")
@click.option("--namespace", "-n", metavar="NAME", help="Where it is. Default: the engine's.")
@click.option(
    "--engine",
    metavar="NAME",
    shell_complete=values.engines,
    help="The engine of its cluster. Default: that of the project's muster.toml, or kubernetes.",
)
@click.option("--name", metavar="TEXT", help="Name of the job. Default: the JobSet's.")
@json_option()
@click.pass_context
def adopt(
    ctx: click.Context,
    /,
    workload: str,
    namespace: str | None,
    engine: str | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Make a run of a JobSet that is in a cluster, and watch it.

    The JobSet is not changed: its cluster decides about restarts and its end, and `muster status`,
    `logs`, `events` and `wait` show them. `muster cancel` asks, and then deletes the JobSet.

    \b
    muster adopt jobset/pretrain
    muster adopt jobset/pretrain -n research --engine gpu-cluster --name pretrain
    """
    if ctx.args:  # kubectl takes `jobset NAME`, too
        meant = f"jobset/{ctx.args[0] if workload.lower().startswith('jobset') else workload}"
        text = f"Got unexpected extra arguments ({' '.join(ctx.args)})"
        hint = f"write `{shlex.join([*ctx.command_path.split(), meant])}`"
        raise click.UsageError(f"{text}: {hint}", ctx)
    client = client_with_launcher()
    run = client.adopt(workload, engine=engine or _engine(), namespace=namespace, name=name)
    if as_json:
        from muster.cli.output import print_json

        print_json(run.to_dict())
        return
    echo(run.name)
    echo(f"watching {workload}; `muster logs {run.name} --follow` shows its output", err=True)


def _engine() -> str:
    """The engine, if none is named."""
    from pathlib import Path

    from muster.client.project_file import find_project

    project = find_project(Path.cwd())
    return "kubernetes" if project is None or project.engine is None else project.engine
