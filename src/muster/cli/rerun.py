"""`muster rerun`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from muster.cli import completion_values as values
from muster.cli.arguments import change_options, json_option, run_argument
from muster.cli.job_options import CommandWithProgram

if TYPE_CHECKING:
    from muster.spec.overrides import Changes


@click.command(cls=CommandWithProgram)
@run_argument()
@click.option(
    "--engine",
    metavar="NAME",
    shell_complete=values.engines,
    help="Where nodes run, in place of the engine of RUN.",
)
@click.option(
    "--nodes",
    "-n",
    multiple=True,
    metavar="[GROUP=]N",
    help="Number of nodes; with GROUP=, in each replica of that group.",
)
@change_options
@click.option(
    "--update-code",
    is_flag=True,
    help="Run the job's file, folder or repository as it is now, not as it was.",
)
@click.option("--run-name", "new_name", metavar="TEXT", help="Display name of the new run.")
@click.option("--tag", "tags", multiple=True, metavar="K=V", help="Tag of the new run.")
@click.option("--detach", "-d", is_flag=True, help="Print the new run's id and return at once.")
@click.option("--dry-run", is_flag=True, help="Check everything and print the plan; start nothing.")
@json_option("Print the run as JSON; its output goes to stderr.", short=False)
@click.pass_context
def rerun(
    ctx: click.Context,
    /,
    run_name: str,
    new_name: str | None,
    update_code: bool,
    detach: bool,
    dry_run: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Run what an earlier run ran again, on another engine for instance.

    Starts a new run of the same job with the same settings but for the options given, and follows
    it as `muster run` does. A program that keeps its checkpoints in a mount, such as a volume or a
    URL, continues from there. The words after -- replace the arguments of the program.

    \b
    muster rerun train-3
    muster rerun train-3 --engine slurm --nodes 16
    muster rerun last --env LR=0.01 --update-code
    """
    from muster.cli.run import client_with_launcher, start_and_follow
    from muster.spec.override_flags import changes_from_flags, options_from_flags

    flags["framework_options"] = options_from_flags(flags["framework_options"])
    flags |= {"run_name": new_name, "args": ctx.meta["after"]}
    changes = changes_from_flags(**flags, environ=os.environ)
    if dry_run:
        return _dry_run(ctx, run_name, changes, update_code=update_code, as_json=as_json)
    client = client_with_launcher()
    found = client.run(run_name)
    prepared = client.api.prepare_rerun(found.id, changes, update_code=update_code)
    ctx.exit(start_and_follow(client, [prepared], detach=detach, as_json=as_json))


def _dry_run(
    ctx: click.Context, run_name: str, changes: Changes, *, update_code: bool, as_json: bool
) -> None:
    from muster.cli.explain import show_prepared
    from muster.client.client import Client
    from muster.errors import EXIT_BAD_INPUT, EXIT_OK

    client = Client()
    found = client.run(run_name)
    prepared = client.api.prepare_rerun(found.id, changes, update_code=update_code)
    works = show_prepared(client, [prepared], as_json=as_json, validate=True)
    ctx.exit(EXIT_OK if works else EXIT_BAD_INPUT)
