"""`muster stacks`."""

from __future__ import annotations

import click

from muster.cli.arguments import (
    json_option,
    ranks_option,
    replicas_option,
    run_argument,
)
from muster.cli.flags import as_flags
from muster.cli.terminal import echo, warn
from muster.describe.words import plural


@click.command()
@run_argument()
@ranks_option()
@replicas_option()
@click.option("--threads", is_flag=True, help="Show all threads, not only main threads.")
@json_option()
@click.pass_context
def stacks(
    ctx: click.Context,
    run_name: str,
    ranks: tuple[int, ...],
    replicas: tuple[int, ...],
    threads: bool,
    as_json: bool,
) -> None:
    """Show the Python stacks of a run's nodes.

    Lists processes with equal stacks together. If a run hangs, the rank whose stack differs from
    the others is often the one they wait for. py-spy (`pip install py-spy`) reads the stacks and
    pauses each program for only a few milliseconds.

    \b
    muster stacks train-3
    muster stacks train-3 --rank 0,2-3 --threads
    muster stacks sweep-1 --replica 17
    """
    from muster.cli.output import print_json
    from muster.client.client import Client
    from muster.describe.stacks import group, lines

    client = Client()
    run = client.api.find_run(run_name)
    with as_flags("rank", "replica"):
        chosen = ranks
        if replicas:
            if ranks:
                raise click.UsageError("--rank and --replica exclude each other")
            found_run = client.run(run.id)
            chosen = tuple(found_run.replica_ranks(replicas, several="name nodes with --rank"))
        read = client.api.stacks(run.id, chosen)
    found, problems = read.threads, read.problems
    for problem in problems:
        warn(problem)
    shown = [stack for stack in found if stack.main or threads]
    if as_json:
        print_json([{**s._asdict(), "frames": [f._asdict() for f in s.frames]} for s in shown])
    else:
        for number, one in enumerate(group(shown)):
            for line in (*[""][:number], *lines(one)):
                echo(line)
        hidden = len(found) - len(shown)
        if hidden:
            echo(f"{plural(hidden, 'more thread')}: --threads shows them", err=True)
        if not found and not problems:
            echo(f"no Python process runs in {run.name}", err=True)
    if problems:
        ctx.exit(4)
